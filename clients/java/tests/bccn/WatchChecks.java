package bccn;

import static bccn.Checks.same;

import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;

/** What a callback of a watch is told, and when: the conformance suite has the rest. The first needs a door. */
final class WatchChecks {
    private static final Duration LONG = Duration.ofSeconds(30);

    private WatchChecks() {}

    static void run() {
        Checks.run("a callback may end its watch", WatchChecks::unwatching);
        Checks.run("a slow callback of a watch is told the last state", WatchChecks::lastState);
    }

    private static void unwatching() throws InterruptedException {
        try (Bccn bus = Bccn.connect(); Bccn other = Bccn.connect()) {
            BlockingQueue<Boolean> told = new LinkedBlockingQueue<>();
            Subscription listener = other.subscribe("local/watched");
            bus.watch("local/watched", (pattern, wanted) -> {
                bus.unwatch(pattern);
                told.add(wanted);
            });
            same(take(told), true, "first");
            listener.close();
            bus.watch("local/watched", (pattern, wanted) -> told.add(wanted));
            same(take(told), false, "another");
            same(told.size(), 0, "more");
        }
    }

    /** Without a door: what comes is said here, while the callback waits for somebody to take what it says twice. */
    private static void lastState() throws InterruptedException {
        Session session = new Session(new Options());
        BlockingQueue<Boolean> told = new SynchronousQueue<>();
        session.watches.begin("a", (pattern, wanted) -> {
            offer(told, wanted);
            offer(told, wanted);
        });
        hear(session, "here a");
        same(take(told), true, "first");
        hear(session, "no a", "elsewhere a", "no a", "here b");
        same(take(told), true, "again");
        same(take(told), false, "the last");
        hear(session, "beyond a", "no a");
        same(take(told), false, "again");
        hear(session, "here a");
        same(take(told), true, "another");
        same(take(told), true, "again");
    }

    private static void hear(Session session, String... all) {
        session.lock.lock();
        try {
            for (String news : all) {
                session.watches.hear(news);
            }
        } finally {
            session.lock.unlock();
        }
    }

    private static Boolean take(BlockingQueue<Boolean> told) throws InterruptedException {
        return told.poll(LONG.toSeconds(), TimeUnit.SECONDS);
    }

    private static void offer(BlockingQueue<Boolean> told, boolean wanted) {
        try {
            told.offer(wanted, LONG.toSeconds(), TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }
}
