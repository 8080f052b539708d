package bccn;

import static bccn.Checks.same;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** What is Java's own: threads, interrupts, iteration, subscribers. With a door and a daemon, at $BCCN_CONNECT. */
final class LiveChecks {
    private static final Duration LONG = Duration.ofSeconds(30);

    private LiveChecks() {}

    static void run() {
        Checks.run("an interrupt ends a wait and nothing else", LiveChecks::interrupt);
        Checks.run("a subscriber gets what it requests", LiveChecks::demand);
        Checks.run("a subscriber that cancels gets no more", LiveChecks::cancelled);
        Checks.run("a subscriber that requests nothing is told", LiveChecks::noDemand);
        Checks.run("to close ends waits and iterations", LiveChecks::closing);
        Checks.run("a callback that throws is called again", LiveChecks::thrower);
        Checks.run("a stream that nobody reads holds a bounded part", LiveChecks::unread);
        Checks.run("threads may share a client", LiveChecks::threads);
        Checks.run("any window lets any message pass", LiveChecks::window);
        Checks.run("what was handed over before close arrives", LiveChecks::lastWords);
        Checks.run("a recording is replayed and says what is missing", LiveChecks::replay);
        Checks.run("the live bus follows a recording", LiveChecks::following);
        Checks.run("a replay that is not read holds up nothing else", LiveChecks::unreadReplay);
        Checks.run("a replay that cannot be says why", LiveChecks::noReplay);
        Checks.run("the door says what is wrong", () -> {
            try (Bccn bus = Bccn.connect()) {
                same(Json.members(bus.doctor(bus.name(), "here/other/1")).containsKey("findings"), true, "findings");
            }
        });
    }

    private static Thread start(Runnable work) {
        Thread thread = new Thread(work);
        thread.start();
        return thread;
    }

    private static void interrupt() throws InterruptedException {
        try (Bccn bus = Bccn.connect()) {
            Subscription own = bus.subscribe("live/interrupt");
            AtomicReference<Code> code = new AtomicReference<>();
            Thread waiting = start(() -> {
                try {
                    own.take();
                } catch (BccnException e) {
                    code.set(Thread.currentThread().isInterrupted() ? e.code() : null);
                }
            });
            waiting.interrupt();
            waiting.join();
            same(code.get(), Code.CANCELLED, "code");
            bus.publish("live/interrupt", "x");
            same(own.take(LONG).get().text(), "x", "message");
        }
    }

    /** Says what happens to it. */
    private static final class Listener implements Flow.Subscriber<Message> {
        final BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        volatile Flow.Subscription feed;

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            feed = subscription;
            heard.add("subscribed");
        }

        @Override
        public void onNext(Message message) {
            heard.add(message.text());
        }

        @Override
        public void onError(Throwable fault) {
            heard.add(fault.getClass().getSimpleName());
        }

        @Override
        public void onComplete() {
            heard.add("complete");
        }

        String next() throws InterruptedException {
            return heard.poll(LONG.toSeconds(), TimeUnit.SECONDS);
        }
    }

    private static void demand() throws InterruptedException {
        try (Bccn bus = Bccn.connect()) {
            Subscription own = bus.subscribe("live/demand");
            Listener listener = new Listener();
            own.subscribe(listener);
            same(listener.next(), "subscribed", "first");
            Listener second = new Listener();
            own.subscribe(second);
            same(second.next() + second.next(), "subscribedIllegalStateException", "another");
            for (int i = 1; i <= 3; i++) {
                bus.publish("live/demand", "" + i);
            }
            bus.barrier();
            listener.feed.request(2);
            same(listener.next() + listener.next(), "12", "heard");
            same(own.pending(), 1, "pending");
            listener.feed.request(1);
            same(listener.next(), "3", "heard");
            own.close();
            same(listener.next(), "complete", "heard");
            same(listener.heard.size(), 0, "more");
        }
    }

    private static void cancelled() throws InterruptedException {
        try (Bccn bus = Bccn.connect()) {
            Subscription own = bus.subscribe("live/cancel");
            Listener listener = new Listener();
            own.subscribe(listener);
            same(listener.next(), "subscribed", "first");
            listener.feed.cancel();
            listener.feed.request(1);
            bus.publish("live/cancel", "x");
            same(own.take(LONG).get().text(), "x", "message");
            same(listener.heard.size(), 0, "heard");
        }
    }

    private static void noDemand() throws InterruptedException {
        try (Bccn bus = Bccn.connect()) {
            Listener listener = new Listener();
            bus.subscribe("live/none").subscribe(listener);
            same(listener.next(), "subscribed", "first");
            listener.feed.request(0);
            same(listener.next(), "IllegalArgumentException", "heard");
        }
    }

    private static void closing() throws InterruptedException {
        Bccn bus = Bccn.connect();
        Subscription own = bus.subscribe("live/closing");
        List<Message> found = new ArrayList<>();
        Thread iterating = start(() -> own.forEach(found::add));
        AtomicReference<Code> code = new AtomicReference<>();
        Thread waiting = start(() -> {
            try {
                bus.receive();
            } catch (BccnException.Closed e) {
                code.set(e.code());
            }
        });
        bus.close();
        bus.close();
        iterating.join();
        waiting.join();
        same(found.size() + " " + code.get(), "0 closed", "found");
        try {
            bus.publish("live/closing", "x");
        } catch (BccnException.Closed e) {
            return;
        }
        throw new AssertionError("it was published");
    }

    private static void thrower() throws InterruptedException {
        CountDownLatch called = new CountDownLatch(2);
        Options options = new Options().threads(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            thread.setUncaughtExceptionHandler((which, fault) -> called.countDown());
            return thread;
        });
        try (Bccn bus = Bccn.connect(options)) {
            bus.subscribe("live/thrower", message -> {
                throw new IllegalStateException(message.text());
            });
            bus.publish("live/thrower", "1");
            bus.publish("live/thrower", "2");
            same(called.await(LONG.toSeconds(), TimeUnit.SECONDS), true, "called twice");
        }
    }

    /** The daemon drops what the client gives no credit for. */
    private static void unread() {
        int total = 3000;
        String payload = "x".repeat(1200);
        Options few = new Options().queuePackets(8).onNotice(notice -> { });
        try (Bccn reader = Bccn.connect(few); Bccn bus = Bccn.connect()) {
            Subscription own = reader.subscribe("live/unread");
            same(own.take(Duration.ZERO), Optional.empty(), "message");
            for (int i = 0; i < total; i++) {
                bus.publish("live/unread", payload);
            }
            bus.barrier();
            same(own.pending() * payload.length() < 1024 * 1024, true, own.pending() + " messages wait: few enough");
            long counted = 0;
            reader.barrier();
            bus.publish("live/unread", "end");
            for (Message message = own.take(); ; message = own.take()) {
                counted += 1 + message.lost();
                if (message.text().equals("end")) {
                    break;
                }
            }
            same(counted, total + 1L, "messages and losses");
            same(reader.lost() > 0, true, "losses");
        }
    }

    private static void threads() throws InterruptedException {
        Options full = new Options().format(Format.FULL).timeout(LONG);
        try (Bccn server = Bccn.connect(full); Bccn bus = Bccn.connect(full)) {
            server.serve("live/threads", Request::payload);
            BlockingQueue<String> replies = new LinkedBlockingQueue<>();
            List<Thread> all = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                String name = "thread " + i;
                all.add(start(() -> {
                    for (int j = 0; j < 10; j++) {
                        String question = name + " " + j;
                        String reply = bus.request("live/threads", question.getBytes(), LONG).text();
                        if (reply.equals(question)) {
                            replies.add(reply);
                        }
                    }
                }));
            }
            for (Thread each : all) {
                each.join();
            }
            same(replies.size(), 80, "replies");
        }
    }

    private static void window() {
        try (Bccn bus = Bccn.connect(new Options().window(1).timeout(LONG))) {
            Subscription own = bus.subscribe("local/window");
            bus.publish("local/window", "x".repeat(60_000));
            bus.publish("local/window", "y");
            same(own.take(LONG).get().payload().length, 60_000, "bytes");
            same(own.take(LONG).get().text(), "y", "message");
        }
    }

    private static void lastWords() {
        try (Bccn reader = Bccn.connect()) {
            Subscription own = reader.subscribe("live/last");
            try (Bccn bus = Bccn.connect()) {
                for (int i = 0; i < 200; i++) {
                    bus.publish("live/last", "x".repeat(1000));
                }
            }
            for (int i = 0; i < 200; i++) {
                same(own.take(LONG).isPresent(), true, "message " + i);
            }
        }
    }

    /** The door has a recording of the messages one and two on orders/17, and of nothing since. */
    private static void replay() throws InterruptedException {
        BlockingQueue<Notice> notices = new LinkedBlockingQueue<>();
        try (Bccn bus = Bccn.connect(new Options().onNotice(notices::add))) {
            List<String> found = new ArrayList<>();
            Instant first = Instant.EPOCH;
            for (Message each : bus.replay("orders/>", Instant.EPOCH, Instant.now())) {
                first = found.isEmpty() ? each.time() : first;
                found.add(each.channel() + " " + each.src() + " " + each.seq() + " " + each.text());
            }
            same(found, List.of("orders/17 here/a 1 one", "orders/17 here/a 2 two"), "messages");
            Notice missing = notices.poll(LONG.toSeconds(), TimeUnit.SECONDS);
            same(missing.kind(), Notice.Kind.UNRECORDED, "notice");
            same(missing.text().startsWith("1970-01-01T00:00:00Z to 20"), true, missing.text());
            found.clear();
            bus.replay("orders/>", first.plusNanos(1), first.plusNanos(1)).forEach(each -> found.add(each.text()));
            same(found, List.of("two"), "messages from the second on");
        }
    }

    private static void following() throws InterruptedException {
        CountDownLatch missing = new CountDownLatch(2); // before the recording, and since
        Options told = new Options().onNotice(notice -> missing.countDown());
        try (Bccn bus = Bccn.connect(told)) {
            Replay replay = bus.replay("orders/>", Duration.ofDays(20_100));
            Listener listener = new Listener();
            replay.subscribe(listener);
            same(listener.next(), "subscribed", "first");
            listener.feed.request(2);
            same(listener.next() + listener.next(), "onetwo", "recorded");
            missing.await();
            bus.publish("orders/18", "three");
            bus.barrier();
            same(listener.heard.size(), 0, "heard without a request");
            listener.feed.request(1);
            same(listener.next(), "three", "heard");
            replay.close();
            same(listener.next(), "complete", "heard");
        }
    }

    private static void unreadReplay() {
        Options narrow = new Options().window(1).onNotice(notice -> { });
        try (Bccn bus = Bccn.connect(narrow)) {
            Replay unread = bus.replay("orders/>", Instant.EPOCH);
            Subscription own = bus.subscribe("live/beside");
            bus.publish("live/beside", "x");
            same(own.take(LONG).get().text(), "x", "message");
            same(unread.iterator().next().text(), "one", "message of the replay");
            unread.close();
            same(unread.iterator().hasNext(), false, "more");
        }
    }

    private static void noReplay() {
        try (Bccn bus = Bccn.connect()) {
            List<Code> codes = new ArrayList<>();
            List<Runnable> wrong = List.of(
                    () -> bus.replay("a*b", Instant.EPOCH).iterator().next(),
                    () -> bus.replay("a", Instant.ofEpochSecond(-1)),
                    () -> bus.replay("a", Duration.ofSeconds(-1)),
                    () -> bus.replay("a b", Instant.EPOCH),
                    () -> bus.replay("a", Instant.now(), Instant.EPOCH).forEach(each -> { }));
            for (Runnable each : wrong) {
                try {
                    each.run();
                } catch (BccnException e) {
                    codes.add(e.code());
                }
            }
            same(codes, List.of(Code.BAD_PATTERN, Code.INVALID, Code.INVALID, Code.INVALID, Code.BAD_VALUE), "codes");
        }
        Bccn bus = Bccn.connect(new Options().onNotice(notice -> { }));
        Replay replay = bus.replay("orders/>", Instant.now());
        bus.close();
        same(replay.iterator().hasNext(), false, "more after the end of the client");
    }
}
