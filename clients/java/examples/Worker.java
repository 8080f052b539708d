import bccn.Bccn;
import bccn.Format;
import bccn.Options;
import bccn.Subscription;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Replies to requests on jobs/upper with the text in capitals, counts them in its heartbeat, and stops when somebody
 * sends it "stop", or at Ctrl-C.
 */
final class Worker {
    private static final Duration BEAT = Duration.ofSeconds(5);
    private static final Duration LEAVING = Duration.ofSeconds(5);

    private Worker() {}

    /** Serves at the address that it is given, or at the usual one. */
    public static void main(String[] arguments) throws InterruptedException {
        Options options = new Options()
                .format(Format.FULL) // shows who asks
                .wait(Duration.ofSeconds(10))
                .onNotice(notice -> System.err.println("worker: " + notice))
                .address(String.join("", arguments));
        AtomicInteger done = new AtomicInteger();
        CountDownLatch stopped = new CountDownLatch(1);
        Thread working = Thread.currentThread();
        try (Bccn bus = Bccn.connect(options)) {
            bus.heartbeat(BEAT, "ready");
            bus.listen(message -> {
                if (message.text().equals("stop")) {
                    stopped.countDown();
                }
            });
            Subscription jobs = bus.serve("jobs/upper", request -> {
                String text = new String(request.payload(), StandardCharsets.ISO_8859_1);
                request.reply(text.toUpperCase(Locale.ROOT).getBytes(StandardCharsets.ISO_8859_1));
                bus.heartbeat(BEAT, done.incrementAndGet() + " done");
                return null; // the reply has been sent: the heartbeat counts it
            });
            Runtime.getRuntime().addShutdownHook(new Thread(() -> { // SIGINT and SIGTERM let it end what it does
                stopped.countDown();
                try {
                    working.join(LEAVING.toMillis());
                } catch (InterruptedException e) {
                    return;
                }
            }));
            System.out.println(bus.name() + " is ready");
            stopped.await();
            jobs.close();
            System.out.println(done + " done");
            bus.barrier(); // the daemon has everything
        }
    }
}
