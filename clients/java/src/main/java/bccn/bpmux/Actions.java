package bccn.bpmux;

import bccn.bpmux.State.Step;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/**
 * What this side does to its channels and requests: each action, and what follows once its bytes went out. An action on
 * what the peer has just ended does nothing, as nobody can know that in time.
 */
final class Actions {
    private static final Set<Integer> FAREWELL = Set.of(Chunks.CLOSE, Chunks.CANCEL);

    final Limits limits;
    final Tables tables = new Tables();
    final Unfinished unfinished;
    final Outgoing outgoing;
    List<Event> events = new ArrayList<>();
    final Set<Integer> said = new HashSet<>(); // the farewells of both sides
    final Set<Integer> heard = new HashSet<>();
    boolean isFinished;

    Actions(Limits limits) {
        this.limits = limits;
        unfinished = new Unfinished(limits);
        outgoing = new Outgoing(this, tables.top.account);
    }

    void report(Event.Kind kind, Entity entity, byte[] payload) {
        events.add(new Event(kind, entity, payload));
    }

    // --- to open and to ask ---

    Channel open(int kind, byte[] payload, long window) throws BpmuxException {
        checkSize(payload);
        if (tables.ours.size() >= limits.channels()) {
            return null;
        }
        Channel channel = tables.newChannel(kind);
        outgoing.add(channel.lane, kind, payload);
        if (window > 0) {
            channel.window = window;
            topUp(channel);
        }
        return channel;
    }

    Ask ask(byte[] payload) {
        checkSize(payload);
        if (tables.asked.size() >= limits.requests()) {
            return null;
        }
        Ask request = tables.newRequest();
        outgoing.add(request.lane, Chunks.REQUEST, payload);
        return request;
    }

    boolean answer(Ask request, byte[] payload) {
        checkSize(payload);
        if (request.state != State.OPEN || request.answered) {
            return false;
        }
        request.answered = true;
        outgoing.add(request.lane, Chunks.RESPONSE, payload);
        return true;
    }

    // --- messages and credit ---

    boolean send(Channel channel, byte[] payload) {
        checkSize(payload);
        if (channel.sending != State.OPEN || (channel.id == Chunks.TOP && heard.contains(Chunks.CANCEL))) {
            return false;
        }
        if (channel.lane.size > 0 && channel.lane.size + payload.length + Limits.ITEM > Limits.QUEUE) {
            channel.isFull = true;
            return false;
        }
        outgoing.add(channel.lane, channel.ours ? Chunks.MESSAGE : Chunks.MESSAGE_PEER, payload);
        return true;
    }

    void grant(Channel channel, long amount) throws BpmuxException {
        if (!channel.isOpen) {
            channel.pending += amount;
        } else if (channel.receiving == State.OPEN || channel.id == Chunks.TOP) {
            outgoing.grant(channel, amount);
        }
    }

    /** Grants anew what is neither the peer's nor held here, once it is half of the window. */
    void topUp(Channel channel) throws BpmuxException {
        long theirs = channel.credit + channel.pending;
        long owed = channel.window - channel.held - theirs;
        boolean isOpen = channel.receiving == State.OPEN || channel.id == Chunks.TOP;
        if (theirs >= 0 && owed > 0 && 2 * owed >= channel.window && isOpen) {
            grant(channel, owed);
        }
    }

    // --- to end ---

    void close(Entity entity, byte[] payload, boolean atOnce) throws BpmuxException {
        checkSize(payload);
        if (entity instanceof Ask request) {
            if (request.state == State.OPEN && (atOnce || !request.answered)) {
                request.state = request.state.after(Step.LEAVE);
                outgoing.clear(request.lane);
                outgoing.add(request.lane, Chunks.CLOSE_RESPONSE, payload);
            }
        } else if (entity instanceof Channel channel && channel.sending == State.OPEN) {
            channel.sending = channel.sending.after(Step.LEAVE);
            if (atOnce) {
                outgoing.clear(channel.lane);
            }
            outgoing.add(channel.lane, channel.ours ? Chunks.CLOSE : Chunks.CLOSE_PEER, payload);
        }
    }

    void cancel(Entity entity, byte[] payload) throws BpmuxException {
        checkSize(payload);
        if (entity instanceof Ask request) {
            if (request.state == State.OPEN) {
                request.state = request.state.after(Step.LEAVE);
                outgoing.add(request.lane, Chunks.CANCEL_REQUEST, payload);
            }
        } else if (entity instanceof Channel channel && channel.receiving == State.OPEN) {
            channel.receiving = channel.receiving.after(Step.LEAVE);
            outgoing.add(channel.cancelling, channel.ours ? Chunks.CANCEL : Chunks.CANCEL_PEER, payload);
        }
    }

    /** Ends it on all sides, for a limit that the peer went beyond. */
    void refuse(Entity entity, byte[] reason) throws BpmuxException {
        report(Event.Kind.REFUSED, entity, reason);
        if (!entity.isRefused) {
            entity.isRefused = true;
            tables.refused++;
        }
        if (tables.refused > Limits.REFUSED) {
            throw new BpmuxException("limit", "the peer goes beyond limits and does not read that it did");
        }
        if (entity instanceof Channel channel) {
            if (channel.sending != State.ABSENT && channel.id != Chunks.TOP) {
                close(channel, reason, true);
            }
            if (channel.receiving != State.ABSENT) {
                cancel(channel, reason);
            }
        } else if (entity.ours) {
            cancel(entity, reason);
        } else {
            close(entity, reason, false);
        }
    }

    /** If nobody has anything more to say about it, its id is free. */
    void over(Entity entity) {
        if (entity.isOver()) {
            tables.remove(entity);
            report(Event.Kind.ENDED, entity, null);
        }
    }

    // --- what went out ---

    void sent(Entity entity, int kind) throws BpmuxException {
        if (entity instanceof Channel channel) {
            channelSent(channel, kind);
        } else if (entity instanceof Ask request) {
            if (kind == Chunks.REQUEST) {
                request.isOpen = true;
            } else if (kind == Chunks.RESPONSE) {
                request.state = State.OVER;
                tables.remove(request);
            } else {
                request.state = request.state.after(Step.SENT);
            }
        }
    }

    private void channelSent(Channel channel, int kind) throws BpmuxException {
        if (Chunks.isMessage(kind)) {
            if (channel.isFull && 2 * channel.lane.size <= Limits.QUEUE) {
                channel.isFull = false;
                report(Event.Kind.WRITABLE, channel, null);
            }
        } else if (Chunks.isOpening(kind)) {
            channel.isOpen = true;
            long amount = channel.pending;
            channel.pending = 0;
            if (amount != 0) {
                grant(channel, amount);
            }
            outgoing.start(channel.cancelling);
        } else if (channel.id == Chunks.TOP) {
            said.add(kind);
            finish();
        } else if (kind == Chunks.CLOSE || kind == Chunks.CLOSE_PEER) {
            channel.sending = channel.sending.after(Step.SENT);
        } else {
            channel.receiving = channel.receiving.after(Step.SENT);
        }
    }

    void finish() {
        if (said.equals(FAREWELL) && heard.equals(FAREWELL)) {
            drop();
            report(Event.Kind.FINISHED, tables.top, null);
        }
    }

    /** Nothing is said or heard any more. */
    void drop() {
        isFinished = true;
        outgoing.stop();
    }

    private void checkSize(byte[] payload) {
        if (payload.length > limits.payload()) {
            throw new IllegalArgumentException(payload.length + " bytes, at most " + limits.payload());
        }
    }
}
