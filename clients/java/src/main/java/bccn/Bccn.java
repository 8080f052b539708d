package bccn;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * A connection of this program to the bus, which reconnects by itself.
 *
 * <pre>{@code
 * try (Bccn bus = Bccn.connect()) {
 *     Subscription readings = bus.subscribe("sensors/>");
 *     bus.publish("sensors/kitchen", "21.5");
 *     for (Message message : readings) {
 *         System.out.println(message.channel() + " " + message.text());
 *     }
 * }
 * }</pre>
 *
 * <p>Java cannot open the socket of the daemon, so the client speaks to the door of the host, {@code bccnd-mux}.
 *
 * <p>Any number of threads, virtual ones too, may use a client and its subscriptions. A call that waits for the daemon
 * waits for {@link Options#timeout}. An interrupt ends every wait with {@link BccnException.Cancelled}, and leaves the
 * thread marked as interrupted. Every error is a {@link BccnException}, which has a {@link Code}.
 */
public final class Bccn implements AutoCloseable {
    /** The version of this package. */
    public static final String VERSION = "0.1.0";

    final Session session;

    private Bccn(Options options) {
        session = new Session(options);
    }

    /**
     * Connects to the door of this host, with the defaults.
     *
     * @return the client
     */
    public static Bccn connect() {
        return connect(new Options());
    }

    /**
     * Connects. Where no daemon is it fails as unavailable, after {@link Options#wait}; an option that the daemon
     * rejects is an error with its code.
     *
     * @param options of the client
     * @return the client
     */
    public static Bccn connect(Options options) {
        Bccn bus = new Bccn(options.copy());
        bus.session.open();
        return bus;
    }

    /**
     * Closes the connection at once; call {@link #barrier} first to be sure that the daemon has everything. Calls that
     * wait, and later ones, fail as closed. To close again does nothing.
     */
    @Override
    public void close() {
        session.close();
    }

    private <T> T locked(Supplier<T> work) {
        session.lock.lock();
        try {
            return work.get();
        } finally {
            session.lock.unlock();
        }
    }

    private void run(Runnable work) {
        locked(() -> {
            work.run();
            return null;
        });
    }

    private Deadline patience() {
        return Deadline.in(session.options.timeout);
    }

    private String ask(String key, String value, Consumer<String> granted) {
        return locked(() -> session.calls.ask(key, value, patience(), granted));
    }

    void transmit(byte[] packet, int messages) {
        run(() -> session.calls.transmit(packet, messages, patience()));
    }

    int packLimit() {
        return locked(() -> session.link == null ? 0 : session.link.packLimit);
    }

    // --- the client ---

    /**
     * The client's src as others see it; without a connection, the last one.
     *
     * @return the name
     */
    public String name() {
        return locked(() -> session.name);
    }

    /**
     * Takes another src, and keeps it over reconnections.
     *
     * @param name the src
     */
    public void setName(String name) {
        ask("name", name, value -> {
            session.name = value;
            session.wantedName = name;
        });
    }

    /**
     * How many messages the daemon has dropped in all, because this program read too slowly.
     *
     * @return the number
     */
    public long lost() {
        return locked(() -> session.router.lost);
    }

    /**
     * Makes the daemon publish a text on {@code heartbeat/<name>} again and again, and "leaving" when the client
     * disconnects. It goes on over reconnections; another call changes the text.
     *
     * @param every whole seconds; zero ends the heartbeats
     * @param text what they say
     */
    public void heartbeat(Duration every, String text) {
        if (every.isNegative() || every.getNano() != 0) {
            throw BccnException.invalid("heartbeat every " + every + ": must be whole seconds");
        }
        String value = every.isZero() ? "off" : every.getSeconds() + (text.isEmpty() ? "" : " " + text);
        ask("heartbeat", value, answer -> session.heartbeat = every.isZero() ? "" : value);
    }

    /**
     * Returns once the daemon has processed everything sent before. Its error is the first that the daemon reported
     * about a message since the last barrier, or that messages are unconfirmed, since the connection broke in between.
     */
    public void barrier() {
        run(() -> {
            session.calls.ask("ping", "", patience(), null);
            BccnException doubts = session.receiver.doubts();
            if (doubts != null) {
                throw doubts.here();
            }
        });
    }

    /**
     * Makes any other control request of the protocol. A new connection does not repeat it.
     *
     * @param key of the request
     * @param value of the request; may be empty
     * @return the value of the answer
     */
    public String control(String key, String value) {
        return ask(key, value, null);
    }

    /**
     * What the daemon says of itself, its settings and its counters. It needs the right to observe, as {@link #sources}
     * does.
     *
     * @return a JSON object, which grows with the daemon
     */
    public String status() {
        String answer = control("status", "");
        read(answer, () -> Json.members(answer));
        return answer;
    }

    /**
     * The clients of the daemon. Without the right to observe there is only this one.
     *
     * @return a JSON array of objects
     */
    public String clients() {
        return rows("clients");
    }

    /**
     * The sources that the daemon hears on the segment.
     *
     * @return a JSON array of objects
     */
    public String sources() {
        return rows("sources");
    }

    /**
     * What the door finds wrong with the bus of its host. It needs the right to observe.
     *
     * @param without names of clients that are not judged
     * @return a JSON object: {@code problems}, {@code warnings}, and {@code findings}, each with {@code level},
     *     {@code what}, {@code finding} and {@code remedy}
     */
    public String doctor(String... without) {
        String question = String.join(" ", "doctor", String.join(" ", without)).strip();
        return locked(() -> session.calls.askDoor(question, patience()));
    }

    /** The rows of all pages. */
    private String rows(String key) {
        List<String> rows = new ArrayList<>();
        String cursor = "";
        do {
            String answer = control(key, cursor);
            cursor = read(answer, () -> Json.page(answer, key, rows));
        } while (!cursor.isEmpty());
        return "[" + String.join(",", rows) + "]";
    }

    private static <T> T read(String answer, Supplier<T> work) {
        try {
            return work.get();
        } catch (IllegalArgumentException e) {
            throw Packets.alien(answer.getBytes(UTF_8));
        }
    }

    // --- to publish ---

    /**
     * Hands one message to the daemon. It waits only while the daemon is away or takes no more; after an error the
     * message was not sent. If the daemon then rejects the message, a notice says so, and the next barrier fails.
     *
     * @param channel where to
     * @param payload what
     */
    public void publish(String channel, byte[] payload) {
        transmit(Packets.message(channel, Message.NOTHING, payload), 1);
    }

    /**
     * Publishes a text.
     *
     * @param channel where to
     * @param text what, sent as UTF-8
     */
    public void publish(String channel, String text) {
        publish(channel, text.getBytes(UTF_8));
    }

    /**
     * Publishes to every listening program of the segment.
     *
     * @param payload what
     */
    public void publishAll(byte[] payload) {
        publish("!", payload);
    }

    /**
     * Publishes to the program whose src is the target, or to all programs below it.
     *
     * @param target who
     * @param payload what
     */
    public void publishTo(String target, byte[] payload) {
        publish("!" + target, payload);
    }

    /**
     * Passes on a whole BCCN1 datagram from elsewhere, unchanged. It needs the right to bridge. What the daemon has
     * against it is the error of the next barrier.
     *
     * @param datagram its bytes
     */
    public void sendDatagram(byte[] datagram) {
        if (!new String(datagram, 0, Math.min(4, datagram.length), UTF_8).equals("BCCN")) {
            throw BccnException.invalid("not a BCCN1 datagram");
        }
        transmit(datagram.clone(), 1);
    }

    /**
     * Begins a batch. What is published with it has been handed to the daemon when it is closed.
     *
     * @return an empty batch
     */
    public Batch batch() {
        return new Batch(this);
    }

    /**
     * Has a callback told whether anybody else on this host or another one listens to channels that match: as soon as
     * it is known, and at each change. A program can so make data only while somebody wants it. The callback is called
     * in a thread of its own, once at a time, and may call any function of this package; while it runs, only the last
     * state is kept. A watch lasts until {@link #unwatch}, over reconnections, too: then the callback is called only if
     * the state differs. Another call for the pattern replaces the callback, which is told anew. It needs the right to
     * publish on all channels of the pattern.
     *
     * @param pattern which channels
     * @param callback gets the pattern, and whether anybody listens
     */
    public void watch(String pattern, BiConsumer<String, Boolean> callback) {
        Objects.requireNonNull(callback);
        ask("watch", pattern, answer -> session.watches.begin(pattern, callback));
    }

    /**
     * Ends a watch at once, even if it fails: no call of the callback begins any more. To end one that is not there does
     * nothing.
     *
     * @param pattern which was watched
     */
    public void unwatch(String pattern) {
        run(() -> session.watches.end(pattern));
        ask("unwatch", pattern, answer -> session.watches.end(pattern)); // that another call had asked for
    }

    // --- to receive ---

    /**
     * Subscribes, and returns when the subscription is in force. After an error there is none.
     *
     * @param pattern which channels
     * @return the subscription
     */
    public Subscription subscribe(String pattern) {
        return begin(pattern, null);
    }

    /**
     * Subscribes with a callback. It is called in a thread of its own, one message at a time, in order. A slow one
     * holds nobody else as long as not too much waits for the program in all. It may call any function of this package.
     *
     * @param pattern which channels
     * @param callback gets each message
     * @return the subscription
     */
    public Subscription subscribe(String pattern, Consumer<Message> callback) {
        return begin(pattern, Objects.requireNonNull(callback));
    }

    private Subscription begin(String pattern, Consumer<Message> callback) {
        Packets.subscription("SUB", pattern);
        Subscription subscription = new Subscription(session, pattern, callback);
        run(() -> session.calls.subscribe(subscription, patience()));
        subscription.run();
        return subscription;
    }

    /**
     * Has messages to all ({@code !}) and to this program delivered, in the client's stream. Any subscription does
     * that, too. It ends the callback of another {@code listen}.
     */
    public void listen() {
        hear(null);
    }

    /**
     * Has messages to all and to this program delivered to a callback. Another call replaces the callback.
     *
     * @param callback gets each message, as in {@link #subscribe(String, Consumer)}
     */
    public void listen(Consumer<Message> callback) {
        hear(Objects.requireNonNull(callback));
    }

    private Subscription hear(Consumer<Message> callback) {
        Subscription subscription = new Subscription(session, Router.LISTENER, callback);
        run(() -> session.calls.listen(subscription, patience()));
        subscription.run();
        return subscription;
    }

    /**
     * Waits for the next message of the client's stream: those that match a subscription without a callback, unless the
     * program takes them from the subscription itself; those to all and to this program, unless {@code listen} has a
     * callback; and what a tap shows besides, whatever its verdict. While the daemon is away it goes on waiting.
     *
     * @return the message
     */
    public Message receive() {
        return next(Deadline.never());
    }

    /**
     * Waits for the next message of the client's stream, for so long.
     *
     * @param timeout with zero only what is there is returned
     * @return the message, or nothing if none came in time
     */
    public Optional<Message> receive(Duration timeout) {
        return Optional.ofNullable(next(Deadline.in(timeout)));
    }

    private Message next(Deadline deadline) {
        return locked(() -> {
            session.router.claimed = true;
            return session.router.next(session.router.stream, deadline);
        });
    }

    /**
     * Reports whether a subscription to the pattern brings messages of the channel.
     *
     * @param pattern of the subscription
     * @param channel of a message
     * @param separator of both
     * @return whether
     */
    public static boolean matches(String pattern, String channel, Separator separator) {
        return Packets.matches(pattern, channel, separator);
    }

    // --- recordings ---

    /**
     * Gives what the recorder of the host wrote of these channels, in order, and then goes on with what comes. It needs
     * no {@link Format#FULL} to say who sent a message, and when.
     *
     * @param pattern which channels
     * @param from the time of the first message, by the clock of the host
     * @return the messages
     */
    public Replay replay(String pattern, Instant from) {
        return replay(pattern, Replay.at(from), "");
    }

    /**
     * Gives what the recorder of the host wrote of these channels, in order, and ends.
     *
     * @param pattern which channels
     * @param from the time of the first message, by the clock of the host
     * @param to the time of the last message
     * @return the messages
     */
    public Replay replay(String pattern, Instant from, Instant to) {
        return replay(pattern, Replay.at(from), Replay.at(to));
    }

    /**
     * Gives what the recorder of the host wrote of these channels so long ago and since, in order, and then goes on
     * with what comes.
     *
     * @param pattern which channels
     * @param ago how long, by the clock of the host
     * @return the messages
     */
    public Replay replay(String pattern, Duration ago) {
        return replay(pattern, Replay.before(ago), "");
    }

    private Replay replay(String pattern, String from, String to) {
        Packets.subscription("SUB", pattern);
        return locked(() -> new Replay(session, session.calls.awaitLink(null, patience()), pattern, from, to));
    }

    // --- requests ---

    /**
     * Publishes a request, and waits for the first reply for {@link Options#timeout}.
     *
     * @param channel where to
     * @param payload the question
     * @return the reply
     */
    public Message request(String channel, byte[] payload) {
        return request(channel, payload, session.options.timeout);
    }

    /**
     * Publishes a request, and waits for the first reply. It fails as timed out; and within a third of a second with
     * {@link BccnException.Nobody}, if no program of this host or of another with a daemon would get the request.
     *
     * @param channel where to
     * @param payload the question
     * @param timeout how long
     * @return the reply
     */
    public Message request(String channel, byte[] payload, Duration timeout) {
        try (Replies replies = requestMany(channel, payload, timeout, 1)) {
            if (replies.hasNext()) {
                return replies.next();
            }
        }
        throw new BccnException.TimedOut("no reply on " + channel + " in time");
    }

    /**
     * Publishes a request, and gives the replies as they come.
     *
     * @param channel where to
     * @param payload the question
     * @param timeout when it ends, also without a reply
     * @param count how many replies, at most; 0: all
     * @return the replies
     */
    public Replies requestMany(String channel, byte[] payload, Duration timeout, int count) {
        return locked(() -> {
            Exchanges.Exchange exchange = session.exchanges.begin(channel, payload, Deadline.in(timeout));
            return new Replies(session, exchange, count);
        });
    }

    /**
     * Returns a message as a request.
     *
     * @param message that was received
     * @return the request; nothing if it is none, or if its sender is unknown, as it is without {@link Format#FULL}
     */
    public Optional<Request> asRequest(Message message) {
        return Optional.ofNullable(Request.of(this, message));
    }

    /**
     * Subscribes, and replies to each request with what the handler returns. If that is null, which is not an empty
     * reply, the program calls {@link Request#reply(byte[])} itself, from any thread, or never. Messages that are no
     * requests are ignored. It needs {@link Format#FULL}, which shows who asks.
     *
     * @param pattern which channels; {@code !} serves what is asked of all and of this program
     * @param handler gets one request at a time, in a thread of its own
     * @return the subscription
     */
    public Subscription serve(String pattern, Function<Request, byte[]> handler) {
        Objects.requireNonNull(handler);
        if (session.options.format != Format.FULL) {
            throw BccnException.invalid("serve needs the format full, which shows who asks");
        }
        Consumer<Message> callback = Request.servant(this, session, handler);
        return pattern.equals(Router.LISTENER) ? hear(callback) : begin(pattern, callback);
    }
}
