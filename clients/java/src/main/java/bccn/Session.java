package bccn;

import static bccn.Notice.Kind.DISCONNECTED;
import static bccn.Notice.Kind.RECONNECTED;
import static bccn.Notice.Kind.REJECTED;

import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import java.util.function.Supplier;

/**
 * The client outlives its connections, each of which is a {@link Link}. The parts of it are here, in {@link Calls},
 * {@link Receiver}, {@link Router} and {@link Exchanges}; one lock guards them all, and nobody does I/O under it.
 *
 * <ol>
 *   <li>The client remembers name, options, watches and subscriptions; {@link #greeting} sends all of them to a new link.
 *   <li>One thread reads the link to its end and then makes a new one. While too much waits for the program the door
 *       gets no credit, so that messages wait in the bounded queue of the daemon. It gets credit while a call waits for
 *       the daemon; otherwise two programs that wait for each other would wait for ever.
 *   <li>Every control request has exactly one answer, and answers come in the order of the requests. An error about a
 *       SUB or UNSUB arrives before the answer to the request sent after it, and belongs to that request.
 *   <li>The daemon answers a MSG only if it rejects it, and has a message once a later request is answered. Messages
 *       without such an answer are in doubt when the link ends, and the next barrier reports them.
 *   <li>A subscribe that fails leaves nothing: see {@link Calls}.
 * </ol>
 */
final class Session {
    /** Nanoseconds between attempts to connect. One to a local socket costs microseconds, so the first is short. */
    private static final long PAUSE_FIRST = 20_000_000;

    private static final long PAUSE_LIMIT = 1_000_000_000;

    /** Nanoseconds that close waits for the door to take what was handed over. */
    private static final long LINGER = 1_000_000_000;

    /** Bytes of messages that nobody has received; while a call waits for the daemon, more may wait. */
    private static final long READ_AHEAD = 256 * 1024;

    static final long BACKLOG_LIMIT = 64 * 1024 * 1024;

    static final Supplier<BccnException> CLOSED = () -> new BccnException.Closed("the client is closed");
    static final Supplier<BccnException> ENDED = () -> new BccnException.Unavailable(
            "the daemon went away, and the client does not reconnect");

    final Options options;
    final ReentrantLock lock = new ReentrantLock();
    final Condition changed = lock.newCondition(); // there is a link, or none
    final Condition room = lock.newCondition(); // the link takes packets again
    private final Condition leaving = lock.newCondition();
    final Notices notices = new Notices(this);
    final Router router = new Router(this);
    final Calls calls = new Calls(this);
    final Exchanges exchanges = new Exchanges(this);
    final Receiver receiver = new Receiver(this);
    final Watches watches = new Watches(this);

    Link link; // null while there is none
    private Link current; // that is being made, or is there
    BccnException unreachable = new BccnException.Unavailable("the daemon went away"); // why there is no link
    private BccnException failure; // why there was never one
    private boolean hasBeenLinked;
    boolean isClosed;
    String name = "";
    String wantedName;
    String heartbeat = "";
    final Deque<Query> asked = new ArrayDeque<>();
    int pressing; // calls that wait for the daemon
    long published;

    Session(Options options) {
        this.options = options;
        wantedName = options.name;
    }

    static Thread thread(String name, Runnable work) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    static void start(String name, Runnable work) {
        thread(name, work).start();
    }

    /** Runs what belongs to the program: what it throws is reported as that of any thread, and ends nothing. */
    static void guarded(Runnable work) {
        try {
            work.run();
        } catch (Throwable e) {
            Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, e);
        }
    }

    /** Waits for a signal; false when the time is over. Under the lock. */
    static boolean await(Condition condition, Deadline deadline) {
        long left = deadline.left();
        if (left <= 0) {
            return false;
        }
        try {
            return condition.awaitNanos(left) > 0;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new BccnException.Cancelled();
        }
    }

    // --- the connection ---

    /** Connects, and returns when the daemon has agreed to the options. */
    void open() {
        Carrier.to(options).close(); // a wrong address is told at once
        start("bccn", this::run);
        lock.lock();
        try {
            while (link == null && failure == null) {
                await(changed, Deadline.never());
            }
            if (link == null) {
                throw failure.here();
            }
        } catch (BccnException e) {
            isClosed = true;
            if (current != null) {
                current.drop(e);
            }
            leaving.signalAll();
            throw e;
        } finally {
            lock.unlock();
        }
    }

    private void run() {
        Deadline patience = Deadline.in(options.wait);
        boolean again = false;
        long pause = PAUSE_FIRST;
        while (true) {
            Link attempt;
            lock.lock();
            try {
                if (isClosed) {
                    return;
                }
                attempt = current = new Link(this);
            } finally {
                lock.unlock();
            }
            BccnException reason = attempt.run();
            lock.lock();
            try {
                attempt.abandon(isClosed ? CLOSED.get() : reason);
                long next = (long) (pause * (0.5 + ThreadLocalRandom.current().nextDouble()));
                if (attempt.isGreeted) {
                    again = true;
                    disconnected(reason);
                    pause = PAUSE_FIRST;
                    if (!options.reconnect && !isClosed) {
                        router.finish(ENDED);
                        changed.signalAll();
                        return;
                    }
                } else {
                    asked.clear();
                    unreachable = reason;
                    pause = Math.min(2 * pause, PAUSE_LIMIT);
                    boolean mayPass = reason.code().equals(Code.UNAVAILABLE) || reason.code().equals(Code.LIMIT);
                    boolean isLast = !mayPass || patience.left() < next;
                    if (!again && isLast) {
                        failure = reason;
                        changed.signalAll();
                        return;
                    }
                }
                if (!isClosed) { // a daemon may close each connection at once
                    leaving.awaitNanos(next);
                }
            } catch (InterruptedException e) {
                throw new AssertionError("nobody knows this thread", e);
            } finally {
                lock.unlock();
            }
        }
    }

    void close() {
        lock.lock();
        try {
            if (isClosed) {
                return;
            }
            isClosed = true;
            router.finish(CLOSED);
            asked.forEach(Query::lose);
            asked.clear();
            changed.signalAll();
            room.signalAll();
            leaving.signalAll();
            Deadline linger = Deadline.in(Duration.ofNanos(LINGER));
            current.leave();
            while (link != null && !current.isOver && await(changed, linger)) {
                continue; // until the door has taken what was handed over
            }
        } catch (BccnException.Cancelled e) {
            return; // the thread has no time for that
        } finally {
            if (current != null) {
                current.drop(CLOSED.get());
            }
            lock.unlock();
        }
    }

    /** Returns the packets for a new link, and asks what they ask; under the lock. */
    List<byte[]> greeting(Link to) {
        calls.forget();
        List<byte[]> packets = new ArrayList<>();
        say(packets, !wantedName.isEmpty(), "name", wantedName, null);
        say(packets, options.separator != Separator.SLASH, "separator", options.separator.text, null);
        say(packets, options.format != Format.PLAIN, "format", "full", null);
        say(packets, options.pack, "pack", "on", value -> to.packLimit = packLimit(value));
        say(packets, !options.echo, "echo/off", "", null);
        say(packets, !options.queue().isEmpty(), "queue", options.queue(), null);
        say(packets, options.tap != Tap.OFF, "tap", options.tap == Tap.ON ? "on" : "interface", null);
        say(packets, !heartbeat.isEmpty(), "heartbeat", heartbeat, null);
        say(packets, router.hears(), "listen", "", null);
        for (String pattern : watches.patterns()) {
            say(packets, true, "watch", pattern, null);
        }
        for (Subscription each : router.subscriptions) {
            packets.add(Packets.subscription("SUB", each.pattern()));
        }
        say(packets, true, "whoami", "", value -> name = value);
        return packets;
    }

    private void say(List<byte[]> packets, boolean wanted, String key, String value, Consumer<String> granted) {
        if (wanted) {
            packets.add(Packets.control(key, value));
            Query query = new Query(this, key, granted);
            query.settled = () -> refuse(query);
            asked.add(query);
        }
    }

    private static int packLimit(String value) {
        try {
            return Math.min(Integer.parseInt(value.substring(value.indexOf(' ') + 1)), Packets.LIMIT);
        } catch (NumberFormatException e) {
            return 0;
        }
    }

    /** What the daemon has against a greeting: at first the program learns it, later it is a notice. */
    private void refuse(Query query) {
        if (query.error == null) {
            return;
        }
        if (!hasBeenLinked) {
            throw query.error;
        }
        if (query.error.code().equals(Code.NAME_TAKEN)) { // our old connection may hold the name a little longer
            throw new BccnException.Unavailable(query.error.getMessage());
        }
        notices.add(REJECTED, query.error.getMessage(), 1, query.error);
    }

    /** The daemon has agreed to the greeting; under the lock. */
    void greeted(Link made) {
        if (isClosed) {
            throw CLOSED.get();
        }
        made.isGreeted = true;
        link = made;
        changed.signalAll();
        if (hasBeenLinked) {
            notices.add(RECONNECTED, "connected to the daemon again", 0, null);
        }
        hasBeenLinked = true;
    }

    private void disconnected(BccnException reason) {
        long doubt = receiver.doubt();
        link = null;
        unreachable = new BccnException.Unavailable("the daemon went away");
        asked.forEach(Query::lose);
        asked.clear();
        changed.signalAll();
        room.signalAll();
        if (!isClosed) {
            notices.add(DISCONNECTED, reason.getMessage(), doubt, null);
        }
    }

    // --- credit ---

    /** Reports whether more messages may come; under the lock. */
    boolean hasRoom() {
        boolean isAsking = pressing > 0 || link == null;
        return isClosed || router.waiting <= (isAsking ? BACKLOG_LIMIT : READ_AHEAD);
    }

    /** Room was made for messages, or a call waits for the daemon. */
    void grant() {
        if (link != null) {
            link.grant();
        }
    }
}
