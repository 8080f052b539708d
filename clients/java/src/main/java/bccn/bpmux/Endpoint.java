package bccn.bpmux;

import java.util.ArrayList;
import java.util.List;

/**
 * One side of a connection of bpmux/rel: bytes in, events out, and what is to be sent.
 *
 * <ul>
 *   <li>It has no clock, no socket and no thread: one call at a time. Times are those of {@link System#nanoTime}.
 *   <li>Sending never waits: what the peer has no credit for is queued, up to a limit, and goes out as credit comes.
 *   <li>After a {@link BpmuxException} the connection is dropped: there is nothing to send, and whatever comes is
 *       passed over. {@link #events} still has what came before the fault.
 *   <li>The endpoint keeps the credit of the top level, acknowledges, and answers pings by itself.
 * </ul>
 */
public final class Endpoint {
    private final Actions actions;
    private final Incoming incoming;
    private final Heartbeats heartbeats;

    /**
     * Begins a connection. Its credit for the top level is the first to send.
     *
     * @param now the time
     * @param limits of this side
     */
    public Endpoint(long now, Limits limits) {
        actions = new Actions(limits);
        heartbeats = new Heartbeats(now);
        incoming = new Incoming(actions);
        actions.tables.top.window = Limits.RESERVE;
        ours(() -> actions.topUp(actions.tables.top));
    }

    private interface Deed {
        void act() throws BpmuxException;
    }

    /** What only this side does cannot break a rule, but may find that the peer does not read. */
    private void ours(Deed deed) {
        try {
            deed.act();
        } catch (BpmuxException fault) {
            actions.drop();
            actions.report(Event.Kind.SILENT, actions.tables.top, null);
        }
    }

    // --- bytes, time and events ---

    /**
     * Takes bytes from the peer.
     *
     * @param data has them
     * @param size how many
     * @param now the time
     * @return what they bring, and whatever else happened since the last call
     * @throws BpmuxException if the peer broke a rule
     */
    public List<Event> receive(byte[] data, int size, long now) throws BpmuxException {
        if (size > 0) {
            heartbeats.heard(now);
        }
        try {
            incoming.receive(data, size);
        } catch (BpmuxException fault) {
            actions.drop();
            throw fault;
        }
        return events();
    }

    /**
     * Asks whether the peer is there, if that is due.
     *
     * @param now the time
     * @return what happened
     */
    public List<Event> expire(long now) {
        if (heartbeats.isDue(now)) {
            if (heartbeats.isLost()) {
                actions.report(Event.Kind.SILENT, actions.tables.top, null);
            } else {
                ours(() -> actions.outgoing.reply(Chunks.PING, Chunks.TOP, 0));
            }
        }
        return events();
    }

    /**
     * Gives what happened outside of {@link #receive}.
     *
     * @return the events since the last call
     */
    public List<Event> events() {
        if (actions.events.isEmpty()) {
            return List.of();
        }
        List<Event> events = actions.events;
        actions.events = new ArrayList<>();
        return events;
    }

    /**
     * Gives what may be sent now.
     *
     * @param limit about how many bytes of it
     * @return the bytes; none if nothing may go now
     */
    public byte[] dataToSend(int limit) {
        byte[][] data = {{}};
        if (actions.outgoing.hasMore()) {
            ours(() -> data[0] = actions.outgoing.take(limit));
        }
        return data[0];
    }

    /**
     * Reports whether there is something to send now.
     *
     * @return whether
     */
    public boolean hasDataToSend() {
        return actions.outgoing.hasMore();
    }

    /**
     * When to call {@link #expire} next.
     *
     * @return the time
     */
    public long deadline() {
        return heartbeats.deadline();
    }

    // --- channels ---

    /**
     * The channel that is always open.
     *
     * @return the top level
     */
    public Channel top() {
        return actions.tables.top;
    }

    Channel open(int kind, byte[] payload, long window) {
        Channel[] channel = {null};
        ours(() -> channel[0] = actions.open(kind, payload, window));
        return channel[0];
    }

    /**
     * Opens a duplex.
     *
     * @param payload says what it is for
     * @param window bytes at which the peer's credit is kept, less what of its messages is not {@link #consumed}; with
     *     0 the program grants
     * @return the channel, or null if as many are open as may be
     */
    public Channel openDuplex(byte[] payload, long window) {
        return open(Chunks.DUPLEX, payload, window);
    }

    /**
     * Opens a stream: the peer sends.
     *
     * @param payload says what it is for
     * @param window as of a duplex
     * @return the channel, or null if as many are open as may be
     */
    public Channel openStream(byte[] payload, long window) {
        return open(Chunks.STREAM, payload, window);
    }

    /**
     * Sends a message.
     *
     * @param channel on which
     * @param payload of the message
     * @return whether it is taken: not if the peer takes no more, nor if the queue is full
     */
    public boolean send(Channel channel, byte[] payload) {
        return actions.send(channel, payload);
    }

    /** Lets the peer send so many bytes more; not together with a window. */
    void grant(Channel channel, long amount) {
        ours(() -> actions.grant(channel, amount));
    }

    /**
     * Takes note that messages are dealt with, of a channel with a window.
     *
     * @param channel on which they came
     * @param size their bytes
     */
    public void consumed(Channel channel, long size) {
        channel.held = Math.max(0, channel.held - size);
        ours(() -> actions.topUp(channel));
    }

    // --- requests ---

    /**
     * Asks the peer.
     *
     * @param payload the question
     * @return the request, or null if as many wait as may
     */
    public Ask request(byte[] payload) {
        return actions.ask(payload);
    }

    boolean respond(Ask request, byte[] payload) {
        return actions.answer(request, payload);
    }

    // --- to end ---

    /**
     * Takes no more of it.
     *
     * @param entity a channel that we receive on, or a request of ours
     * @param payload says why
     */
    public void cancel(Entity entity, byte[] payload) {
        ours(() -> actions.cancel(entity, payload));
    }

    /**
     * Sends no more on it once what is queued has gone.
     *
     * @param entity a channel that we send on, or a request of the peer
     * @param payload says why
     */
    public void close(Entity entity, byte[] payload) {
        ours(() -> actions.close(entity, payload, false));
    }
}
