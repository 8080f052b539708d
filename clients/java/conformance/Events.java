import bccn.Bccn;
import bccn.Message;
import bccn.Notice;
import bccn.Subscription;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.Function;

/** What happens to an open client, as events of {@code recv}. */
final class Events {
    private static final Duration LOOK = Duration.ofMillis(20);

    /** What a callback was called with, and the word of its event. */
    private record Call(String word, Message message) {}

    /** A stream. Of a message with a loss, the loss comes first. */
    static final class Feed {
        private final Function<Duration, Optional<Message>> take;
        private Message held; // its loss has been shown

        Feed(Function<Duration, Optional<Message>> take) {
            this.take = take;
        }
    }

    private final BlockingQueue<Call> calls = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> connection = new LinkedBlockingQueue<>();
    private final BlockingQueue<String> notices = new LinkedBlockingQueue<>();
    private final List<Subscription> callbacks = new ArrayList<>();
    private final Feed called = new Feed(wait -> Optional.empty());
    private String calledBy = "";
    private Feed stream;
    private Message last;

    void open(Bccn bus) {
        stream = new Feed(bus::receive);
    }

    // --- what happens ---

    void notice(Notice notice) {
        String kind = notice.kind().name().toLowerCase(Locale.ROOT);
        notices.add(kind + " " + notice.count() + " " + (notice.error() == null ? "%" : notice.error().code().word()));
        if (notice.kind() == Notice.Kind.DISCONNECTED || notice.kind() == Notice.Kind.RECONNECTED) {
            connection.add(kind);
        }
    }

    void call(String word, Message message) {
        calls.add(new Call(word, message));
    }

    void wanted(String pattern, boolean wanted) {
        connection.add("wanted " + Words.of(pattern) + (wanted ? " yes" : " no"));
    }

    void watch(Subscription callback) {
        callbacks.add(callback);
    }

    // --- what is asked ---

    String allNotices() {
        List<String> all = new ArrayList<>();
        notices.drainTo(all);
        return String.join(" ", all);
    }

    /**
     * The next event. Messages come first: a notice about the connection may arrive before the messages that precede it
     * are read. Nothing has come only if no callback has anything in hand.
     */
    String next(Duration wait) {
        long deadline = System.nanoTime() + wait.toNanos();
        String event = event(called, calledBy, Duration.ZERO);
        while (event == null) {
            long left = Math.max(0, deadline - System.nanoTime());
            event = event(stream, "msg", left < LOOK.toNanos() ? Duration.ofNanos(left) : LOOK);
            if (event != null) {
                return event;
            }
            boolean isOver = System.nanoTime() - deadline >= 0;
            boolean isCalling = callbacks.stream().anyMatch(each -> each.pending() > 0);
            Call call = calls.poll();
            if (call != null) {
                called.held = call.message();
                calledBy = call.word();
                return call.message().lost() > 0 ? "lost " + call.message().lost()
                        : event(called, calledBy, Duration.ZERO);
            }
            event = connection.poll();
            if (event == null && isOver && !isCalling) {
                return "timeout";
            }
        }
        return event;
    }

    /** The next event of a stream in time, or null. */
    String event(Feed feed, String word, Duration wait) {
        Message message = feed.held;
        if (message == null) {
            message = feed.take.apply(wait).orElse(null);
            if (message != null && message.lost() > 0) {
                feed.held = message;
                return "lost " + message.lost();
            }
        }
        feed.held = null;
        return message == null ? null : words(word, message);
    }

    String words(String word, Message message) {
        last = message;
        String words = word + " " + Words.ofBytes(message.channel()) + " " + Words.of(message.payload());
        return message.peer().isEmpty() ? words : words + " " + Words.ofBytes(message.src()) + " "
                + Long.toUnsignedString(message.seq()) + " " + Words.ofBytes(message.peer()) + " "
                + Words.ofBytes(message.verdict());
    }

    String origin() {
        long seconds = last.time().getEpochSecond();
        String words = seconds * 1_000_000_000 + last.time().getNano() + " " + Words.of(last.datagram());
        return last.interfaceName().isEmpty() ? words : words + " " + Words.ofBytes(last.interfaceName());
    }
}
