package bccn;

import java.util.concurrent.Flow;

/** Gives a subscriber of {@code java.util.concurrent.Flow} what it requests. */
final class Feed implements Runnable, Flow.Subscription {
    private final Session session;
    private final Source source;
    private final Flow.Subscriber<? super Message> subscriber;
    private final boolean isSecond;
    private final Runnable leave; // under the lock

    // The lock of the session guards these.
    private long demand;
    private boolean isCancelled;
    private Throwable fault;

    private Feed(Session session, Source source, Flow.Subscriber<? super Message> subscriber, boolean isSecond,
            Runnable leave) {
        this.session = session;
        this.source = source;
        this.subscriber = subscriber;
        this.isSecond = isSecond;
        this.leave = leave;
    }

    /** Feeds it in a thread of its own. */
    static void start(Session session, Source source, Flow.Subscriber<? super Message> subscriber, boolean isSecond,
            Runnable leave, String what) {
        Thread thread = session.options.threads.newThread(new Feed(session, source, subscriber, isSecond, leave));
        thread.setName("bccn subscriber " + what);
        thread.start();
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
                change(leave);
            }
        }
    }

    /** Waits for a message that is requested; null: nobody wants more. */
    private Message next() {
        session.lock.lock();
        try {
            while (!isCancelled) {
                Message message = source.poll(demand > 0);
                if (message != null) {
                    demand--;
                    return message;
                }
                source.wake().awaitUninterruptibly();
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
            source.wake().signalAll();
        } finally {
            session.lock.unlock();
        }
    }
}
