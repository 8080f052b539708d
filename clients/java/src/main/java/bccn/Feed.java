package bccn;

import java.util.concurrent.Flow;

/** Gives a subscriber of {@code java.util.concurrent.Flow} what it requests. */
final class Feed implements Runnable, Flow.Subscription {
    private final Session session;
    private final Inbox inbox;
    private final Flow.Subscriber<? super Message> subscriber;
    private final boolean isSecond;
    private final Runnable leave;

    // The lock of the session guards these.
    private long demand;
    private boolean isCancelled;
    private Throwable fault;

    Feed(Session session, Inbox inbox, Flow.Subscriber<? super Message> subscriber, boolean isSecond, Runnable leave) {
        this.session = session;
        this.inbox = inbox;
        this.subscriber = subscriber;
        this.isSecond = isSecond;
        this.leave = leave;
    }

    @Override
    public void run() {
        try {
            subscriber.onSubscribe(this);
            if (isSecond) {
                subscriber.onError(new IllegalStateException("the subscription has a subscriber"));
                return;
            }
            for (Message message = next(); message != null; message = next()) {
                subscriber.onNext(message);
            }
            if (fault != null) {
                subscriber.onError(fault);
            }
        } catch (BccnException.Closed e) {
            subscriber.onComplete();
        } catch (BccnException e) {
            subscriber.onError(e);
        } finally {
            if (!isSecond) {
                leave.run();
            }
        }
    }

    /** Waits for a message that is requested; null: nobody wants more. */
    private Message next() {
        session.lock.lock();
        try {
            while (!isCancelled) {
                if (inbox.over != null || session.router.over == Session.CLOSED) {
                    throw (inbox.over != null ? inbox.over : session.router.over).get();
                }
                Message message = demand > 0 ? session.router.take(inbox) : null;
                if (message != null) {
                    demand--;
                    return message;
                }
                if (session.router.over != null && inbox.messages.isEmpty()) {
                    throw session.router.over.get();
                }
                inbox.wake.awaitUninterruptibly();
            }
            return null;
        } finally {
            session.lock.unlock();
        }
    }

    @Override
    public void request(long n) {
        change(() -> {
            if (n <= 0) {
                isCancelled = true;
                fault = new IllegalArgumentException("a request of " + n + " messages");
            } else {
                demand = demand + n < 0 ? Long.MAX_VALUE : demand + n;
            }
        });
    }

    @Override
    public void cancel() {
        change(() -> isCancelled = true);
    }

    private void change(Runnable change) {
        session.lock.lock();
        try {
            change.run();
            inbox.wake.signalAll();
        } finally {
            session.lock.unlock();
        }
    }
}
