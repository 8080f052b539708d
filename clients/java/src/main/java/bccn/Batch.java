package bccn;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;

/**
 * Gathers messages into as few packets as possible, if packing was agreed ({@link Options#pack}); otherwise they go one
 * by one. One thread uses it.
 */
public final class Batch implements AutoCloseable {
    private final Bccn bus;
    private final List<byte[]> packets = new ArrayList<>();
    private int size = Packets.PACK_HEAD;

    Batch(Bccn bus) {
        this.bus = bus;
    }

    /**
     * Adds a message, and sends the packet when it is full. It fails as {@link Bccn#publish(String, byte[])} does,
     * about any message of the batch.
     *
     * @param channel where to
     * @param payload what
     */
    public void publish(String channel, byte[] payload) {
        byte[] packet = Packets.message(channel, Message.NOTHING, payload);
        int limit = bus.packLimit();
        int more = Packets.LENGTH + packet.length;
        if (size + more > limit) {
            flush();
        }
        if (size + more > limit) {
            bus.transmit(packet, 1);
        } else {
            packets.add(packet);
            size += more;
        }
    }

    /**
     * Adds a message with a text.
     *
     * @param channel where to
     * @param text what, sent as UTF-8
     */
    public void publish(String channel, String text) {
        publish(channel, text.getBytes(UTF_8));
    }

    /** Hands the rest of the batch to the daemon, and empties it. */
    public void flush() {
        List<byte[]> all = new ArrayList<>(packets);
        int length = size;
        packets.clear();
        size = Packets.PACK_HEAD;
        if (all.size() > 1 && length <= bus.packLimit()) {
            bus.transmit(Packets.pack(all, length), all.size());
        } else {
            all.forEach(packet -> bus.transmit(packet, 1)); // one, or a link that has not agreed
        }
    }

    /** Does what {@link #flush} does. */
    @Override
    public void close() {
        flush();
    }
}
