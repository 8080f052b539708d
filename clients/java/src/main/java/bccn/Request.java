package bccn;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Arrays;
import java.util.function.Consumer;
import java.util.function.Function;

/** A request to this program: a message that wants replies. */
public final class Request {
    private final Bccn bus;
    private final Message message;
    private final byte[] head;

    private Request(Bccn bus, Message message, byte[] head) {
        this.bus = bus;
        this.message = message;
        this.head = head;
    }

    /** Returns a message as a request; null if it is none, or if its sender is unknown. */
    static Request of(Bccn bus, Message message) {
        byte[] payload = message.payload();
        int end = Packets.indexOf(payload, '\n', 0);
        String src = message.src();
        boolean isKnown = !src.isEmpty() && !src.equals("?") && src.indexOf('*') < 0;
        if (end <= 0 || end > Exchanges.TOKEN_LIMIT || !isKnown) {
            return null;
        }
        Message question = message.withPayload(Arrays.copyOfRange(payload, end + 1, payload.length));
        return new Request(bus, question, Arrays.copyOf(payload, end + 1));
    }

    /** Returns the callback that replies to requests with what a handler returns. */
    static Consumer<Message> servant(Bccn bus, Session session, Function<Request, byte[]> handler) {
        return message -> {
            Request request = of(bus, message);
            if (request == null || !message.verdict().equals("ok")) { // a last value, or what only a tap gets
                return;
            }
            byte[] reply = handler.apply(request);
            try {
                if (reply != null) {
                    request.reply(reply);
                }
            } catch (BccnException e) {
                session.lock.lock();
                if (!session.isClosed) {
                    String text = "no reply to " + message.src() + ": " + e.getMessage();
                    session.notices.add(Notice.Kind.REJECTED, text, 1, e);
                }
                session.lock.unlock();
            }
        };
    }

    /**
     * The message.
     *
     * @return who asks, and when; the payload is the question
     */
    public Message message() {
        return message;
    }

    /**
     * The question.
     *
     * @return its bytes
     */
    public byte[] payload() {
        return message.payload();
    }

    /**
     * The question as text.
     *
     * @return the question, read as UTF-8
     */
    public String text() {
        return message.text();
    }

    /**
     * Replies, from any thread, any number of times. It waits and fails as {@link Bccn#publish(String, byte[])} does.
     *
     * @param payload the reply
     */
    public void reply(byte[] payload) {
        bus.transmit(Packets.message("!" + message.src(), head, payload), 1);
    }

    /**
     * Replies with a text.
     *
     * @param text the reply, sent as UTF-8
     */
    public void reply(String text) {
        reply(text.getBytes(UTF_8));
    }

    @Override
    public String toString() {
        return "request " + new String(head, 0, head.length - 1, ISO_8859_1) + " of " + message.src();
    }
}
