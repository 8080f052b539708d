package bccn;

import java.time.Duration;
import java.util.Iterator;
import java.util.Optional;
import java.util.concurrent.Flow;
import java.util.concurrent.locks.Condition;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * One subscription to a pattern. It lasts until {@link #close}, even if the program keeps no reference to it.
 *
 * <p>Without a callback its messages are in the client's stream, in the order of all, until the program asks the
 * subscription itself for messages, with {@link #take}, by iteration or with a {@link Flow.Subscriber}: from then on
 * they are in a stream of its own, and what waits in the client's stream moves over.
 */
public final class Subscription implements AutoCloseable, Iterable<Message>, Flow.Publisher<Message> {
    static final Supplier<BccnException> NOT_OPEN = () -> new BccnException.Closed("the subscription is closed");

    private final Session session;
    private final String pattern;
    private final Consumer<Message> callback;
    final Inbox inbox;
    boolean isApart; // the messages go to this inbox, and not to that of the client
    boolean isClosed;
    long since; // messages of the client's stream that came before it
    private boolean hasSubscriber;

    Subscription(Session session, String pattern, Consumer<Message> callback) {
        this.session = session;
        this.pattern = pattern;
        this.callback = callback;
        inbox = new Inbox(session);
        isApart = callback != null;
        inbox.isCalled = isApart;
    }

    private final Source source = new Source() {
        @Override
        public Condition wake() {
            return inbox.wake;
        }

        @Override
        public Message poll(boolean isWanted) {
            Router router = session.router;
            if (inbox.over != null || router.over == Session.CLOSED) {
                throw (inbox.over != null ? inbox.over : router.over).get();
            }
            Message message = isWanted ? router.take(inbox) : null;
            if (message == null && router.over != null && inbox.messages.isEmpty()) {
                throw router.over.get();
            }
            return message;
        }
    };

    /** Starts the thread of a callback. */
    void run() {
        if (callback != null) {
            Thread thread = session.options.threads.newThread(this::call);
            thread.setName("bccn callback " + pattern);
            thread.start();
        }
    }

    private void call() {
        try {
            while (true) {
                Message message = next(Deadline.never());
                Session.guarded(() -> callback.accept(message));
                session.lock.lock();
                try {
                    inbox.busy--;
                } finally {
                    session.lock.unlock();
                }
            }
        } catch (BccnException e) {
            return; // the subscription is over
        }
    }

    private Message next(Deadline deadline) {
        session.lock.lock();
        try {
            return session.router.next(inbox, deadline);
        } finally {
            session.lock.unlock();
        }
    }

    private void part() {
        if (callback != null) {
            throw BccnException.invalid("the messages of this subscription go to its callback");
        }
        session.lock.lock();
        try {
            session.router.part(this);
        } finally {
            session.lock.unlock();
        }
    }

    /**
     * What was subscribed to.
     *
     * @return the pattern
     */
    public String pattern() {
        return pattern;
    }

    /**
     * How many messages wait for the callback, with the one that it is called with, or in the stream of the
     * subscription.
     *
     * @return the number
     */
    public int pending() {
        session.lock.lock();
        try {
            return inbox.messages.size() + inbox.busy;
        } finally {
            session.lock.unlock();
        }
    }

    /**
     * Waits for the next message. While the daemon is away it goes on waiting.
     *
     * @return the message
     */
    public Message take() {
        part();
        return next(Deadline.never());
    }

    /**
     * Waits for the next message, for so long.
     *
     * @param timeout with zero only what is there is returned
     * @return the message, or nothing if none came in time
     */
    public Optional<Message> take(Duration timeout) {
        part();
        return Optional.ofNullable(next(Deadline.in(timeout)));
    }

    /**
     * Waits for one message after the other. The iteration ends with the subscription, or the client.
     *
     * @return an iterator, for one thread
     */
    @Override
    public Iterator<Message> iterator() {
        part();
        return Source.iterator(session, source);
    }

    /**
     * Gives a subscriber the messages that it requests, in a thread of its own; what it does not request waits, at
     * last in the queue of the daemon. There is one subscriber at a time.
     *
     * @param subscriber gets the messages, and is complete when the subscription or the client is closed
     */
    @Override
    public void subscribe(Flow.Subscriber<? super Message> subscriber) {
        part();
        session.lock.lock();
        boolean isSecond = hasSubscriber;
        hasSubscriber = true;
        session.lock.unlock();
        Feed.start(session, source, subscriber, isSecond, () -> hasSubscriber = false, pattern);
    }

    /**
     * Ends the subscription at once, even if it fails: what waits for it is dropped, and no call of the callback begins
     * any more. It returns when the daemon has ended it, too. To close again does nothing.
     */
    @Override
    public void close() {
        session.lock.lock();
        try {
            if (isClosed) {
                return;
            }
            Router router = session.router;
            router.drop(this, NOT_OPEN);
            if (router.listener == this) {
                router.listener = null;
                router.hearing = true; // the daemon delivers on: only replies count
            }
            if (!router.subscriptions.remove(this) || session.isClosed) {
                return;
            }
            Calls.Withdrawal withdrawal = session.calls.withdraw(pattern);
            session.calls.ask("ping", "", Deadline.in(session.options.timeout), null); // the UNSUB goes before it
            if (withdrawal.complaint != null) {
                throw withdrawal.complaint.here();
            }
        } finally {
            session.lock.unlock();
        }
    }

    @Override
    public String toString() {
        return "subscription to " + pattern;
    }
}
