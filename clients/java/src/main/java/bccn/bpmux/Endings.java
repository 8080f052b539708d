package bccn.bpmux;

import bccn.bpmux.State.Step;

/** How the peer ends what is there: its Closes, Cancels and responses, its acknowledgements, and its heartbeats. */
final class Endings {
    private final Actions actions;
    private final Tables tables;

    Endings(Actions actions) {
        this.actions = actions;
        tables = actions.tables;
    }

    // --- payloads that are whole ---

    void responded(long id, byte[] payload) throws BpmuxException {
        Ask request = asked(id);
        if (request.state == State.OPEN) {
            request.state = request.state.after(Step.PEER);
            tables.remove(request);
            actions.report(Event.Kind.RESPONDED, request, payload);
        } else {
            met(request);
        }
    }

    void responseClosed(long id, byte[] payload) throws BpmuxException {
        Ask request = asked(id);
        actions.unfinished.end(Chunks.RESPONSE, id);
        actions.outgoing.reply(Chunks.ACK_CLOSE_RESPONSE, id, 0);
        if (request.state == State.OPEN) {
            actions.report(Event.Kind.CLOSED, request, payload);
        }
        met(request);
    }

    /** The peer ended a request of ours, and our Cancel may be on its way. */
    private void met(Ask request) throws BpmuxException {
        boolean hasBegun = request.lane.at > 0 || request.lane.announced;
        if (request.state == State.LEAVING && hasBegun) {
            request.answered = true;
            return;
        }
        actions.outgoing.clear(request.lane);
        request.state = request.state.after(Step.PEER);
        actions.over(request);
    }

    void requestCancelled(long id, byte[] payload) throws BpmuxException {
        Ask request = tables.requests.get(id);
        actions.outgoing.reply(Chunks.ACK_CANCEL_REQUEST, id, 0);
        if (request == null) {
            actions.unfinished.end(Chunks.REQUEST, id);
            return;
        }
        State before = request.state;
        request.state = before.after(Step.PEER);
        if (before != State.LEFT) {
            actions.outgoing.clear(request.lane);
            report(Event.Kind.CANCELLED, request, payload);
        }
        actions.over(request);
    }

    void cancelled(int kind, long id, byte[] payload) throws BpmuxException {
        if (id == Chunks.TOP) {
            actions.heard.add(kind);
            if (tables.top.sending == State.OPEN) {
                actions.outgoing.clear(tables.top.lane);
            }
            actions.report(Event.Kind.CANCELLED, tables.top, payload);
            actions.finish();
            return;
        }
        actions.outgoing.reply(Chunks.isAboutOurs(kind) ? Chunks.ACK_CANCEL : Chunks.ACK_CANCEL_PEER, id, 0);
        if (wasOpening(kind, id)) {
            return;
        }
        Channel channel = channel(kind, id);
        State before = channel.sending;
        channel.sending = before.after(Step.PEER);
        if (before != State.LEFT) {
            actions.outgoing.clear(channel.lane);
            report(Event.Kind.CANCELLED, channel, payload);
        }
        actions.over(channel);
    }

    void closed(int kind, long id, byte[] payload) throws BpmuxException {
        actions.unfinished.end(Chunks.isAboutOurs(kind) ? Chunks.MESSAGE_PEER : Chunks.MESSAGE, id);
        if (id == Chunks.TOP) {
            actions.heard.add(kind);
            actions.report(Event.Kind.CLOSED, tables.top, payload);
            actions.finish();
            return;
        }
        actions.outgoing.reply(Chunks.isAboutOurs(kind) ? Chunks.ACK_CLOSE : Chunks.ACK_CLOSE_PEER, id, 0);
        if (wasOpening(kind, id)) {
            return;
        }
        Channel channel = channel(kind, id);
        State before = channel.receiving;
        channel.receiving = before.after(Step.PEER);
        if (before != State.LEFT) {
            actions.outgoing.clear(channel.cancelling);
            report(Event.Kind.CLOSED, channel, payload);
        }
        actions.over(channel);
    }

    /** Reports whether the channel was ended before its opening was whole: there never was one. */
    private boolean wasOpening(int kind, long id) {
        if (Chunks.isAboutOurs(kind) || tables.theirs.containsKey(id)) {
            return false;
        }
        for (int opening = Chunks.SINK; opening <= Chunks.DUPLEX; opening++) {
            actions.unfinished.end(opening, id);
        }
        return true;
    }

    /** What was refused is not known to the program as something that the peer could end. */
    private void report(Event.Kind kind, Entity entity, byte[] payload) {
        if (!entity.isRefused) {
            actions.report(kind, entity, payload);
        }
    }

    // --- acknowledgements and heartbeats ---

    void take(int kind, long id) throws BpmuxException {
        switch (kind) {
            case Chunks.ACK_CANCEL, Chunks.ACK_CANCEL_PEER -> cancelAcknowledged(kind == Chunks.ACK_CANCEL_PEER, id);
            case Chunks.ACK_CLOSE, Chunks.ACK_CLOSE_PEER -> closeAcknowledged(kind == Chunks.ACK_CLOSE_PEER, id);
            case Chunks.ACK_CANCEL_REQUEST -> {
                Ask request = acknowledged(tables.asked.get(id), id);
                actions.unfinished.end(Chunks.RESPONSE, id);
                actions.unfinished.end(Chunks.CLOSE_RESPONSE, id);
                actions.over(request);
            }
            case Chunks.ACK_CLOSE_RESPONSE -> actions.over(acknowledged(tables.requests.get(id), id));
            case Chunks.PING, Chunks.PING_PEER -> ping(kind == Chunks.PING_PEER, id);
            case Chunks.PING_REQUEST -> {
                Ask request = tables.requests.get(id);
                if (request != null && request.state.isUnsaid()) {
                    actions.outgoing.reply(Chunks.PONG_REQUEST, id, 0);
                }
            }
            default -> { } // a pong: nobody waits for that of a channel or request
        }
    }

    /** Of a way on which we received: what had begun on it is not finished any more. */
    private void cancelAcknowledged(boolean isOurs, long id) throws BpmuxException {
        Channel channel = channel(isOurs ? Chunks.MESSAGE_PEER : Chunks.MESSAGE, id);
        channel.receiving = channel.receiving.after(Step.ACKNOWLEDGED);
        actions.unfinished.end(isOurs ? Chunks.MESSAGE_PEER : Chunks.MESSAGE, id);
        actions.unfinished.end(isOurs ? Chunks.CLOSE_PEER : Chunks.CLOSE, id);
        actions.over(channel);
    }

    private void closeAcknowledged(boolean isOurs, long id) throws BpmuxException {
        Channel channel = channel(isOurs ? Chunks.MESSAGE_PEER : Chunks.MESSAGE, id);
        channel.sending = channel.sending.after(Step.ACKNOWLEDGED);
        actions.unfinished.end(isOurs ? Chunks.CANCEL_PEER : Chunks.CANCEL, id);
        actions.over(channel);
    }

    private static Ask acknowledged(Ask request, long id) throws BpmuxException {
        if (request == null) {
            throw notThere(id);
        }
        request.state = request.state.after(Step.ACKNOWLEDGED);
        return request;
    }

    /** No pong once we have said all that we say: the peer may have forgotten the channel by then. */
    private void ping(boolean isOurs, long id) throws BpmuxException {
        Channel channel = channel(isOurs ? Chunks.MESSAGE_PEER : Chunks.MESSAGE, id);
        if (id == Chunks.TOP || channel.sending.isUnsaid() || channel.receiving.isUnsaid()) {
            actions.outgoing.reply(isOurs || id == Chunks.TOP ? Chunks.PONG : Chunks.PONG_PEER, id, 0);
        }
    }

    // --- what there is ---

    Channel channel(int kind, long id) throws BpmuxException {
        if (id == Chunks.TOP) {
            return tables.top;
        }
        Channel channel = (Chunks.isAboutOurs(kind) ? tables.ours : tables.theirs).get(id);
        if (channel == null || !channel.isOpen) {
            throw notThere(id);
        }
        return channel;
    }

    Ask asked(long id) throws BpmuxException {
        Ask request = tables.asked.get(id);
        if (request == null || !request.isOpen || !request.state.isHeard() || request.answered) {
            throw notThere(id);
        }
        return request;
    }

    private static BpmuxException notThere(long id) {
        return new BpmuxException("state", "a chunk about " + id + ", which is not there");
    }
}
