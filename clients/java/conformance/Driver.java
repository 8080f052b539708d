import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;

import bccn.Batch;
import bccn.Bccn;
import bccn.BccnException;
import bccn.Code;
import bccn.Format;
import bccn.Message;
import bccn.Options;
import bccn.Request;
import bccn.Separator;
import bccn.Subscription;
import bccn.Tap;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Supplier;

/** The driver of the Java client for the conformance suite (clients/CONFORMANCE.md). */
final class Driver {
    /** A failure with a code that is the driver's own. */
    private static final class Failure extends RuntimeException {
        private static final long serialVersionUID = 1;

        Failure(String code) {
            super(code);
        }
    }

    private Options options = new Options();
    private boolean reports;
    private Bccn bus;
    private Events events = new Events();
    private Map<String, Deque<Subscription>> subscriptions = new HashMap<>();
    private Map<String, Events.Feed> streams = new HashMap<>();

    private Driver() {}

    /** Obeys the commands of the input, up to its end. */
    public static void main(String[] arguments) throws IOException {
        Driver driver = new Driver();
        PrintStream out = new PrintStream(System.out, false, US_ASCII);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, US_ASCII));
        for (String line = in.readLine(); line != null && !line.equals("exit"); line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String answer;
            try {
                String result = driver.obey(words[0], Arrays.copyOfRange(words, 1, words.length));
                answer = result.isEmpty() ? "ok" : "ok " + result;
            } catch (Failure e) {
                answer = "error " + e.getMessage() + " %";
            } catch (BccnException e) {
                answer = "error " + e.code() + " " + Words.of(e.getMessage());
            }
            out.print(answer + "\n");
            out.flush();
        }
        driver.close();
    }

    private String obey(String command, String... words) {
        if (command.equals("serve") && words.length == 2) {
            command = "serve-received";
        }
        String result = switch (command + "/" + words.length) {
            case "format/1" -> done(() -> options.format(words[0].equals("full") ? Format.FULL : Format.PLAIN));
            case "pack/1" -> done(() -> options.pack(words[0].equals("on")));
            case "separator/1" -> done(() -> options.separator(separator(words[0])));
            case "queue/1", "queue/2", "queue/3" -> done(() -> Arrays.stream(words).forEach(this::queue));
            case "timeout/1" -> done(() -> options.timeout(Words.seconds(words[0])));
            case "echo/1" -> done(() -> options.echo(words[0].equals("on")));
            case "reconnect/1" -> done(() -> options.reconnect(words[0].equals("on")));
            case "tap/1" -> done(() -> options.tap(Tap.valueOf(words[0].toUpperCase(Locale.ROOT))));
            case "wait/1" -> done(() -> options.wait(Words.seconds(words[0])));
            case "as/1" -> done(() -> options.name(Words.text(words[0])));
            case "report/1" -> done(() -> reports = words[0].equals("on"));
            case "open/0" -> open("");
            case "open/1" -> open(Words.text(words[0]));
            case "close/0" -> done(this::close);
            case "version/0" -> Words.of(Bccn.VERSION);
            case "matches/3" -> Bccn.matches(Words.text(words[0]), Words.text(words[1]), separator(words[2]))
                    ? "yes" : "no";
            case "fork/1", "dispatch/0", "poll/1" -> throw new Failure("unsupported");
            default -> null;
        };
        result = result != null ? result : obeyOpen(command, words);
        if (result == null) {
            throw new Failure("usage");
        }
        return result;
    }

    /** The commands that need an open client; null if there is no such command. */
    private String obeyOpen(String command, String... words) {
        Supplier<String> work = switch (command + "/" + words.length) {
            case "whoami/0" -> () -> Words.ofBytes(bus.name());
            case "name/1" -> () -> done(() -> bus.setName(Words.text(words[0]))) + Words.ofBytes(bus.name());
            case "sub/1" -> () -> done(() -> keep(bus.subscribe(Words.text(words[0]))));
            case "cancel/2" -> () -> cancel(words[0], Words.seconds(words[1]));
            case "callback/1" -> () -> done(() -> {
                Events to = events;
                events.watch(keep(bus.subscribe(Words.text(words[0]), message -> to.call("call", message))));
            });
            case "stream/1" -> () -> done(() -> streams.put(words[0],
                    new Events.Feed(keep(bus.subscribe(Words.text(words[0])))::take)));
            case "take/2" -> () -> take(words[0], Words.seconds(words[1]));
            case "unsub/1" -> () -> unsubscribe(Words.text(words[0]));
            case "listen/0" -> () -> done(bus::listen);
            case "listen/1" -> () -> done(() -> {
                Events to = events;
                bus.listen(message -> to.call(words[0], message));
            });
            case "control/1" -> () -> Words.of(bus.control(Words.text(words[0]), ""));
            case "control/2" -> () -> Words.of(bus.control(Words.text(words[0]), Words.text(words[1])));
            case "notices/0" -> events::allNotices;
            case "lost/0" -> () -> "" + bus.lost();
            case "status/0" -> () -> Words.of(bus.status());
            case "clients/0" -> () -> Words.of(bus.clients());
            case "sources/0" -> () -> Words.of(bus.sources());
            case "datagram/1" -> () -> done(() -> bus.sendDatagram(Words.bytes(words[0])));
            case "watch/1" -> () -> done(() -> bus.watch(Words.text(words[0]), events::wanted));
            case "unwatch/1" -> () -> done(() -> bus.unwatch(Words.text(words[0])));
            case "heartbeat/1" -> () -> done(() -> bus.heartbeat(Words.seconds(words[0]), ""));
            case "heartbeat/2" -> () -> done(() -> bus.heartbeat(Words.seconds(words[0]), Words.text(words[1])));
            case "pub/2" -> () -> done(() -> bus.publish(Words.text(words[0]), Words.bytes(words[1])));
            case "pub-to/2" -> () -> done(() -> bus.publishTo(Words.text(words[0]), Words.bytes(words[1])));
            case "pub-all/1" -> () -> done(() -> bus.publishAll(Words.bytes(words[0])));
            case "flood/2" -> () -> flood(Words.text(words[0]), Integer.parseInt(words[1]), 0);
            case "flood/3" -> () -> flood(Words.text(words[0]), Integer.parseInt(words[1]), Integer.parseInt(words[2]));
            case "barrier/0" -> () -> done(bus::barrier);
            case "recv/1" -> () -> events.next(Words.seconds(words[0]));
            case "await/0" -> () -> events.words("msg", bus.receive());
            case "origin/0" -> events::origin;
            case "count/2" -> () -> count(Integer.parseInt(words[0]), Words.seconds(words[1]));
            case "request/3" -> () -> Words.of(bus.request(
                    Words.text(words[0]), Words.bytes(words[1]), Words.seconds(words[2])).payload());
            case "request/4" -> () -> requestMany(words);
            case "ask/2" -> () -> Words.of(bus.request(Words.text(words[0]), Words.bytes(words[1])).payload());
            case "serve-received/2" -> () -> serveReceived(Integer.parseInt(words[0]), Words.seconds(words[1]));
            case "serve/3" -> () -> serve(Integer.parseInt(words[0]), Words.seconds(words[1]), Words.text(words[2]));
            case "serve/4" -> () -> serveLater(
                    Integer.parseInt(words[0]), Words.seconds(words[1]), Words.text(words[2]));
            default -> null;
        };
        if (work != null && bus == null) {
            throw new Failure("closed");
        }
        return work == null ? null : work.get();
    }

    private static String done(Runnable work) {
        work.run();
        return "";
    }

    private static Separator separator(String word) {
        return word.equals(".") ? Separator.DOT : Separator.SLASH;
    }

    private void queue(String word) {
        String value = word.substring(word.indexOf('=') + 1);
        switch (word.substring(0, word.indexOf('='))) {
            case "packets" -> options.queuePackets(Integer.parseInt(value));
            case "bytes" -> options.queueBytes(Integer.parseInt(value));
            case "policy" -> options.queuePolicy(value);
            default -> throw new Failure("usage");
        }
    }

    private String open(String address) {
        close();
        Events to = new Events();
        options.address(address);
        bus = Bccn.connect(reports ? options : options.onNotice(to::notice));
        events = to;
        events.open(bus);
        subscriptions = new HashMap<>();
        streams = new HashMap<>();
        return Words.ofBytes(bus.name());
    }

    private void close() {
        if (bus != null) {
            bus.close();
        }
        bus = null;
    }

    private Subscription keep(Subscription subscription) {
        subscriptions.computeIfAbsent(subscription.pattern(), pattern -> new ArrayDeque<>()).add(subscription);
        return subscription;
    }

    private String cancel(String pattern, Duration after) {
        Thread caller = Thread.currentThread();
        Thread timer = new Thread(() -> {
            try {
                TimeUnit.NANOSECONDS.sleep(after.toNanos());
                caller.interrupt();
            } catch (InterruptedException e) {
                return; // the call has returned
            }
        });
        timer.start();
        try {
            keep(bus.subscribe(Words.text(pattern)));
            return "";
        } finally {
            timer.interrupt();
            Thread.interrupted();
        }
    }

    private String take(String pattern, Duration wait) {
        Events.Feed feed = streams.get(pattern);
        if (feed == null) {
            throw new Failure(Code.INVALID.word());
        }
        return Optional.ofNullable(events.event(feed, "msg", wait)).orElse("timeout");
    }

    private String unsubscribe(String pattern) {
        Deque<Subscription> held = subscriptions.get(pattern);
        if (held == null || held.isEmpty()) {
            throw new Failure(Code.INVALID.word());
        }
        held.removeLast().close();
        return "";
    }

    private String flood(String channel, int count, int size) {
        try (Batch batch = bus.batch()) {
            for (int i = 1; i <= count; i++) {
                String number = Integer.toString(i);
                batch.publish(channel, number + ".".repeat(Math.max(0, size - number.length())));
            }
        }
        return "";
    }

    private String count(int most, Duration wait) {
        int received = 0;
        long lost = 0;
        byte[] last = {};
        Optional<Message> message = Optional.empty();
        while (received < most && (message = bus.receive(wait)).isPresent()) {
            received++;
            lost += message.get().lost();
            last = message.get().payload();
        }
        return received + " " + lost + " " + Words.of(last);
    }

    private String requestMany(String... words) {
        StringBuilder found = new StringBuilder();
        int count = Integer.parseInt(words[3]);
        for (Message reply : bus.requestMany(
                Words.text(words[0]), Words.bytes(words[1]), Words.seconds(words[2]), count)) {
            found.append(' ').append(Words.of(reply.payload()));
        }
        return found.toString().strip();
    }

    // --- to serve ---

    private static byte[] replyTo(Request request) {
        byte[] start = "re:".getBytes(UTF_8);
        byte[] reply = Arrays.copyOf(start, start.length + request.payload().length);
        System.arraycopy(request.payload(), 0, reply, start.length, request.payload().length);
        return reply;
    }

    private String serveReceived(int most, Duration wait) {
        int served = 0;
        Optional<Message> message = Optional.empty();
        while (served < most && (message = bus.receive(wait)).isPresent()) {
            Optional<Request> request = bus.asRequest(message.get());
            if (request.isPresent()) {
                request.get().reply(replyTo(request.get()));
                served++;
            }
        }
        return "" + served;
    }

    /** Has the handler return each reply, but the last: it sends that itself, so that it has been sent. */
    private String serve(int most, Duration wait, String pattern) {
        BlockingQueue<Boolean> served = new LinkedBlockingQueue<>();
        int[] count = {0};
        Subscription subscription = bus.serve(pattern, request -> {
            if (++count[0] < most) {
                served.add(true);
                return replyTo(request);
            }
            if (count[0] == most) {
                request.reply(replyTo(request));
                served.add(true);
            }
            return null;
        });
        return collect(served, most, wait, ignored -> { }, subscription);
    }

    private String serveLater(int most, Duration wait, String pattern) {
        BlockingQueue<Request> requests = new LinkedBlockingQueue<>();
        Subscription subscription = bus.serve(pattern, request -> {
            requests.add(request);
            return null;
        });
        return collect(requests, most, wait, request -> {
            while (subscription.pending() > 0) {
                Thread.onSpinWait(); // the handler has not returned
            }
            request.reply(replyTo(request));
        }, subscription);
    }

    private static <T> String collect(
            BlockingQueue<T> queue, int most, Duration wait, Consumer<T> act, Subscription subscription) {
        int count = 0;
        try (subscription) {
            for (T each; count < most && (each = queue.poll(wait.toNanos(), TimeUnit.NANOSECONDS)) != null; count++) {
                act.accept(each);
            }
        } catch (InterruptedException e) {
            throw new AssertionError(e);
        }
        return "" + count;
    }
}
