package bccn;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Instant;

/**
 * One message. What {@link #src} and those below it return is there only with {@link Format#FULL}.
 *
 * <p>Callbacks and streams that get the same message share its bytes: a program that wants to change them makes a copy.
 */
public final class Message {
    static final byte[] NOTHING = {};

    private final String channel;
    private final byte[] payload;
    private final long lost;
    private final Origin origin;

    /** What the format full adds. */
    record Origin(String src, long seq, String peer, Instant time, String verdict, String by, byte[] datagram) {
        static final Origin UNKNOWN = new Origin("", 0, "", Instant.EPOCH, "", "", NOTHING);
    }

    Message(String channel, byte[] payload, long lost, Origin origin) {
        this.channel = channel;
        this.payload = payload;
        this.lost = lost;
        this.origin = origin;
    }

    Message withLost(long count) {
        return count == lost ? this : new Message(channel, payload, count, origin);
    }

    Message withPayload(byte[] other) {
        return new Message(channel, other, lost, origin);
    }

    /**
     * The channel: {@code !} and {@code !<target>} are messages to all and to this program.
     *
     * @return the channel
     */
    public String channel() {
        return channel;
    }

    /**
     * The payload.
     *
     * @return its bytes, which others may share
     */
    public byte[] payload() {
        return payload;
    }

    /**
     * The payload as text.
     *
     * @return the payload, read as UTF-8
     */
    public String text() {
        return new String(payload, UTF_8);
    }

    /**
     * How many messages the daemon dropped directly before this one: this program read too slowly.
     *
     * @return the number
     */
    public long lost() {
        return lost;
    }

    /**
     * The source.
     *
     * @return {@code <host>/<program>/<pid>}, or {@code ?} for a sender without a name
     */
    public String src() {
        return origin.src();
    }

    /**
     * The number of the message within its source.
     *
     * @return the number, of 64 bits without a sign
     */
    public long seq() {
        return origin.seq();
    }

    /**
     * Where it came from.
     *
     * @return {@code ip:port}, or {@code local} for a sender on this host
     */
    public String peer() {
        return origin.peer();
    }

    /**
     * When the daemon received it.
     *
     * @return the time
     */
    public Instant time() {
        return origin.time();
    }

    /**
     * What the daemon says of it.
     *
     * @return {@code ok} or {@code retained}; to a tap also why it was not delivered
     */
    public String verdict() {
        return origin.verdict();
    }

    /**
     * By which interface it came, with {@link Tap#INTERFACE}.
     *
     * @return the interface, {@code -} for a sender on this host
     */
    public String interfaceName() {
        return origin.by();
    }

    /**
     * The whole BCCN1 datagram.
     *
     * @return its bytes, which others may share
     */
    public byte[] datagram() {
        return origin.datagram();
    }

    /**
     * Reports whether the message is the last value of its channel, from before the subscription.
     *
     * @return whether; without {@link Format#FULL} nobody knows, and it is false
     */
    public boolean isRetained() {
        return verdict().equals("retained");
    }

    /** Reports whether a tap shows a datagram that was not delivered. */
    boolean isRejected() {
        return switch (verdict()) {
            case "", "ok", "repaired", "retained" -> false;
            default -> true;
        };
    }

    boolean isDirected() {
        return channel.startsWith("!");
    }

    @Override
    public String toString() {
        return channel + " " + text();
    }
}
