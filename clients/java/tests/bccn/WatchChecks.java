package bccn;

import static bccn.Checks.same;
import static java.nio.charset.StandardCharsets.UTF_8;

import bccn.bpmux.FakeDoor;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;

/** What a callback of a watch is told, and when: the conformance suite has the rest. The first needs a door. */
final class WatchChecks {
    private static final Duration LONG = Duration.ofSeconds(30);

    private WatchChecks() {}

    static void run() {
        Checks.run("a callback may end its watch", WatchChecks::unwatching);
        Checks.run("a slow callback of a watch is told the last state", WatchChecks::lastState);
        Checks.run("to end a watch ends one that was asked for before", WatchChecks::endsAnotherCall);
        Checks.run("to end a watch that a greeting asks for is said after it", WatchChecks::endsWhatIsGreeted);
    }

    private interface Program {
        void use(Bccn bus) throws Exception;
    }

    /** Has a client use a door whose daemon gives these answers; where they throw, the connection ends. */
    private static void withDaemon(UnaryOperator<String> answer, Program program) throws Exception {
        Path path = CarrierChecks.file("watches.sock");
        Files.deleteIfExists(path);
        try (ServerSocketChannel listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            listener.bind(UnixDomainSocketAddress.of(path));
            Session.start("door", () -> {
                while (listener.isOpen()) {
                    try (SocketChannel socket = listener.accept()) {
                        FakeDoor.serve(Channels.newInputStream(socket), Channels.newOutputStream(socket), null, packet -> {
                            String said = answer.apply(new String(packet, UTF_8));
                            return said == null ? null : said.getBytes(UTF_8);
                        });
                    } catch (Exception e) {
                        continue; // the client has left, or was left
                    }
                }
            });
            Options options = new Options().address("unix:" + path).timeout(LONG).onNotice(notice -> { });
            try (Bccn bus = Bccn.connect(options)) {
                program.use(bus);
            }
        }
    }

    /** What a daemon says; it agrees to everything. */
    private static String agree(String packet) {
        return packet.startsWith("CMSG ping") ? "CMSG pong\0"
                : packet.startsWith("CMSG whoami") ? "CMSG whoami\0here/test/1" : packet.startsWith("CMSG") ? packet : null;
    }

    private static void endsAnotherCall() throws Exception {
        CountDownLatch isEnded = new CountDownLatch(1);
        withDaemon(packet -> {
            if (packet.startsWith("CMSG watch")) {
                await(isEnded);
            }
            return agree(packet);
        }, bus -> {
            Thread watching = new Thread(() -> bus.watch("a", (pattern, wanted) -> { }));
            Thread ending = new Thread(() -> bus.unwatch("a"));
            watching.start();
            awaitAsked(bus.session, 1);
            ending.start();
            awaitAsked(bus.session, 2);
            isEnded.countDown();
            watching.join();
            ending.join();
            same(bus.session.watches.patterns().size(), 0, "watches");
        });
    }

    private static void endsWhatIsGreeted() throws Exception {
        List<String> seen = new CopyOnWriteArrayList<>();
        CountDownLatch isGreeted = new CountDownLatch(2);
        CountDownLatch goesOn = new CountDownLatch(1);
        withDaemon(packet -> {
            seen.add(packet);
            if (packet.startsWith("MSG")) {
                throw new IllegalStateException("the daemon leaves");
            }
            if (packet.startsWith("CMSG whoami")) {
                isGreeted.countDown();
                if (isGreeted.getCount() == 0) {
                    await(goesOn);
                }
            }
            return agree(packet);
        }, bus -> {
            bus.watch("a", (pattern, wanted) -> { });
            bus.publish("end", "");
            await(isGreeted);
            Thread.currentThread().interrupt();
            try {
                bus.unwatch("a");
                throw new AssertionError("nobody was told");
            } catch (BccnException e) {
                same(e.code(), Code.CANCELLED, e.getMessage());
                same(Thread.interrupted(), true, "interrupted");
            }
            goesOn.countDown();
            bus.unwatch("b");
            same(seen.contains("CMSG unwatch\0a"), true, seen.toString());
        });
    }

    private static void await(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
    }

    /** Waits until the client has asked for so much. */
    private static void awaitAsked(Session session, int count) throws InterruptedException {
        session.lock.lock();
        try {
            while (session.asked.size() < count) {
                session.changed.awaitNanos(1_000_000);
            }
        } finally {
            session.lock.unlock();
        }
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
