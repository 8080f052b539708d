package bccn;

import static java.nio.charset.StandardCharsets.US_ASCII;

import bccn.bpmux.Channel;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;
import java.util.concurrent.Flow;
import java.util.concurrent.locks.Condition;

/**
 * What was recorded of the bus, and then, if it has no end, the live bus (clients/BPMUX.md, "Replays"). It is iterated
 * once, or has one {@link Flow.Subscriber}.
 *
 * <p>It has credit of its own: what the program does not take waits in the recording, and holds up nothing else of the
 * client. It ends with the connection, with an error: begin again one nanosecond behind the last {@link Message#time}.
 * A notice {@link Notice.Kind#UNRECORDED} says from when to when messages may be missing.
 */
public final class Replay implements AutoCloseable, Iterable<Message>, Flow.Publisher<Message> {
    /** Seconds, of 12 digits. */
    private static final long LATEST = 999_999_999_999L;

    private record Item(Message message, int size) {}

    private final Session session;
    private final String pattern;
    private final Link link;
    private final Channel channel;
    private final Condition wake;
    private final Deque<Item> items = new ArrayDeque<>();
    private long lost;
    private BccnException over; // why no more come
    private boolean hasSubscriber;

    /** Asks for it; under the lock of the session. */
    Replay(Session session, Link link, String pattern, String from, String to) {
        this.session = session;
        this.link = link;
        this.pattern = pattern;
        wake = session.lock.newCondition();
        String question = "REPLAY " + from + " " + to + " " + pattern;
        channel = link.openStream(question.getBytes(US_ASCII), new Link.User() {
            @Override
            public void said(byte[] payload) {
                take(payload);
            }

            @Override
            public void ended(BccnException reason) {
                end(reason == null ? closed() : reason);
            }
        });
    }

    private void take(byte[] packet) {
        Packets.Said said = Packets.parse(packet, "");
        if (said.message() != null) {
            items.add(new Item(said.message().withLost(lost), packet.length));
            lost = 0;
            wake.signalAll();
            return;
        }
        link.consumed(channel, packet.length);
        if (said.key().equals("dropped")) {
            long count = Receiver.count(said.value());
            lost += count;
            session.notices.lost(said.value(), count);
        } else if (said.key().equals("unrecorded")) {
            session.notices.add(Notice.Kind.UNRECORDED, unrecorded(said.value()), 0, null);
        }
    }

    /** A time as the door takes it, exact to the nanosecond. */
    static String at(Instant time) {
        return seconds(time.getEpochSecond(), time.getNano(), time);
    }

    static String before(Duration ago) {
        return "-" + seconds(ago.getSeconds(), ago.getNano(), ago) + "s";
    }

    private static String seconds(long seconds, int nanoseconds, Object given) {
        if (seconds < 0 || seconds > LATEST) {
            throw BccnException.invalid(given + " is no time of a recording");
        }
        return seconds + "." + Integer.toString(1_000_000_000 + nanoseconds).substring(1);
    }

    /** Of {@code <from> <to> <why>}, in nanoseconds. */
    private static String unrecorded(String value) {
        String[] fields = (value + "  ").split(" ", 3);
        return time(fields[0]) + " to " + time(fields[1]) + ": " + fields[2].strip();
    }

    private static String time(String nanoseconds) {
        try {
            return Instant.ofEpochSecond(0, Long.parseLong(nanoseconds)).toString();
        } catch (NumberFormatException | DateTimeException e) {
            return nanoseconds;
        }
    }

    private static BccnException closed() {
        return new BccnException.Closed("the replay is over");
    }

    private void end(BccnException reason) {
        over = over == null ? reason : over;
        wake.signalAll();
    }

    private final Source source = new Source() {
        @Override
        public Condition wake() {
            return wake;
        }

        @Override
        public Message poll(boolean isWanted) {
            if (session.isClosed) {
                throw Session.CLOSED.get();
            }
            Item item = isWanted ? items.poll() : null;
            if (item != null) {
                link.consumed(channel, item.size());
                return item.message();
            }
            if (over != null && items.isEmpty()) {
                throw over.here();
            }
            return null;
        }
    };

    /**
     * What it is of.
     *
     * @return the pattern
     */
    public String pattern() {
        return pattern;
    }

    /**
     * Waits for one message after the other. The iteration ends with the replay, or the client.
     *
     * @return an iterator, for one thread
     */
    @Override
    public Iterator<Message> iterator() {
        return Source.iterator(session, source);
    }

    /**
     * Gives a subscriber the messages that it requests, in a thread of its own; what it does not request stays in the
     * recording. There is one subscriber at a time.
     *
     * @param subscriber gets the messages, and is complete at the end of the replay
     */
    @Override
    public void subscribe(Flow.Subscriber<? super Message> subscriber) {
        session.lock.lock();
        boolean isSecond = hasSubscriber;
        hasSubscriber = true;
        session.lock.unlock();
        Feed.start(session, source, subscriber, isSecond, () -> hasSubscriber = false, "replay " + pattern);
    }

    /** Ends it: what was not taken is dropped. To close again does nothing. */
    @Override
    public void close() {
        session.lock.lock();
        try {
            items.clear();
            end(closed());
            link.leave(channel);
        } finally {
            session.lock.unlock();
        }
    }

    @Override
    public String toString() {
        return "replay of " + pattern;
    }
}
