import bccn.Batch;
import bccn.Bccn;
import bccn.BccnException;
import bccn.Code;
import bccn.Format;
import bccn.Message;
import bccn.Options;
import bccn.Policy;
import bccn.Replies;
import bccn.Subscription;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;

/** The recipes of README.md, which shows parts of this file. They run where a door is, at $BCCN_CONNECT. */
final class Recipes {
    private Recipes() {}

    public static void main(String[] arguments) throws Exception {
        stream();
        callback();
        flow();
        clientStream();
        batch();
        watching();
        requests();
        recordings();
        options();
        errors();
        cancel();
    }

    private static void stream() {
        try (Bccn bus = Bccn.connect()) {
            Subscription doors = bus.subscribe("doors/*");
            bus.publish("doors/front", "open");
            bus.publish("doors/back", "open");

            Optional<Message> first = doors.take(Duration.ofMinutes(1)); // nothing, if none comes in time
            System.out.println(first.get());
            for (Message message : doors) { // until the subscription is closed
                System.out.println(message.channel() + " " + message.text());
                doors.close();
            }
        }
    }

    private static void callback() throws InterruptedException {
        CountDownLatch done = new CountDownLatch(1);
        try (Bccn bus = Bccn.connect()) {
            bus.subscribe("doors/*", message -> {
                System.out.println("callback " + message.text());
                done.countDown();
            });
            bus.publish("doors/front", "open");
            done.await();
        }
    }

    private static void flow() throws InterruptedException {
        CountDownLatch complete = new CountDownLatch(1);
        try (Bccn bus = Bccn.connect()) {
            Subscription doors = bus.subscribe("doors/*");
            doors.subscribe(new Flow.Subscriber<Message>() {
                private Flow.Subscription feed;

                @Override
                public void onSubscribe(Flow.Subscription subscription) {
                    feed = subscription;
                    feed.request(1);
                }

                @Override
                public void onNext(Message message) {
                    System.out.println("flow " + message.text());
                    if (message.text().equals("last")) {
                        doors.close();
                    } else {
                        feed.request(1);
                    }
                }

                @Override
                public void onError(Throwable fault) {
                    fault.printStackTrace();
                }

                @Override
                public void onComplete() {
                    complete.countDown();
                }
            });
            bus.publish("doors/front", "first");
            bus.publish("doors/front", "last");
            complete.await();
        }
    }

    private static void clientStream() throws InterruptedException {
        BlockingQueue<String> orders = new LinkedBlockingQueue<>();
        try (Bccn bus = Bccn.connect()) {
            bus.subscribe("orders/new");
            bus.subscribe("orders/paid");
            bus.publish("orders/new", "17");
            bus.publish("orders/paid", "17");
            for (int i = 0; i < 2; i++) {
                Message message = bus.receive(); // in the order in which they were published
                System.out.println(message.channel());
            }
            bus.listen(message -> orders.add(message.text()));
            bus.publishTo(bus.name(), "to this program".getBytes(StandardCharsets.UTF_8));
            System.out.println(orders.take());
        }
    }

    private static void batch() {
        try (Bccn bus = Bccn.connect(new Options().pack(true))) {
            try (Batch batch = bus.batch()) {
                for (String room : List.of("kitchen", "cellar")) {
                    batch.publish("sensors/" + room, "21.5");
                }
            }
            bus.barrier(); // the daemon has them
        }
    }

    private static void watching() throws InterruptedException {
        BlockingQueue<Boolean> viewers = new LinkedBlockingQueue<>();
        try (Bccn bus = Bccn.connect(); Bccn viewer = Bccn.connect()) {
            viewer.subscribe("camera/>");
            bus.watch("camera/front", (pattern, wanted) -> viewers.add(wanted));
            System.out.println("somebody looks: " + viewers.take());
        }
    }

    private static void requests() {
        Options full = new Options().format(Format.FULL);
        try (Bccn server = Bccn.connect(full); Bccn bus = Bccn.connect()) {
            Subscription upper = server.serve("text/upper",
                    request -> request.text().toUpperCase(Locale.ROOT).getBytes(StandardCharsets.UTF_8));
            server.serve("jobs/slow", request -> {
                new Thread(() -> request.reply("done")).start();
                return null; // the thread replies
            });

            byte[] question = "hello".getBytes(StandardCharsets.UTF_8);
            Message reply = bus.request("text/upper", question);
            System.out.println(reply.text());

            try (Replies replies = bus.requestMany("jobs/slow", question, Duration.ofSeconds(30), 1)) {
                for (Message each : replies) {
                    System.out.println(each.text());
                }
            }
            upper.close();
        }
    }

    private static void recordings() {
        try (Bccn bus = Bccn.connect(new Options().onNotice(notice -> { }))) {
            Instant morning = Instant.EPOCH;
            for (Message message : bus.replay("orders/>", morning, Instant.now())) {
                System.out.println(message.time() + " " + message.text());
            }
        }
    }

    private static void options() {
        try (Bccn bus = Bccn.connect(new Options()
                .format(Format.FULL)
                .queuePackets(1000)
                .queuePolicy(Policy.DROP_NEWEST)
                .wait(Duration.ofSeconds(10))
                .onNotice(notice -> System.err.println(notice)))) {
            System.out.println(bus.name().startsWith("here/java/"));
        }
    }

    private static void errors() {
        try (Bccn bus = Bccn.connect(new Options().onNotice(notice -> { }))) {
            bus.publish("demo/large", "x".repeat(5000));
            try {
                bus.barrier();
            } catch (BccnException e) {
                if (e.code().equals(Code.TOO_LARGE)) {
                    System.out.println("too large");
                }
            }
            try {
                bus.request("demo/nobody", new byte[0]);
            } catch (BccnException.Nobody e) {
                System.out.println(e.getMessage());
            }
        }
    }

    private static void cancel() throws InterruptedException {
        try (Bccn bus = Bccn.connect()) {
            Thread waiting = new Thread(() -> {
                try {
                    bus.receive();
                } catch (BccnException.Cancelled e) {
                    System.out.println("cancelled " + Thread.currentThread().isInterrupted());
                }
            });
            waiting.start();
            waiting.interrupt();
            waiting.join();
        }
    }

    /** It needs a door elsewhere: it is compiled, and not run. */
    static Bccn fromAnotherHost() {
        return Bccn.connect(new Options()
                .address("tls://relay01:5401")
                .ca(Path.of("/etc/bccn/ca.pem"))
                .cert(Path.of("/etc/bccn/own.pem"), Path.of("/etc/bccn/own.key")));
    }
}
