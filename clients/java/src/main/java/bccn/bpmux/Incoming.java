package bccn.bpmux;

import static java.nio.charset.StandardCharsets.US_ASCII;

import java.util.Arrays;

/**
 * What the peer sends: whether each chunk may come now, what it costs, and what it does.
 *
 * <p>A chunk is judged when its head is there: the entity it names, the credit it spends, the total it was announced
 * with. Only then is anything of its payload kept. Four things look like faults and are none, since they may have
 * crossed something of ours: a Cancel of a request that is not there, which is acknowledged; a ping for such a request
 * and a pong that nobody waits for, which are passed over; and what comes of what we have just cancelled, which is
 * paid for and dropped.
 */
final class Incoming implements Reader.Sink {
    private static final byte[] TOO_LONG = "limit: a payload is too long".getBytes(US_ASCII);
    private static final byte[] TOO_MANY = "limit: too many are open".getBytes(US_ASCII);

    private final Actions actions;
    private final Tables tables;
    private final Endings endings;
    private final Reader reader = new Reader();
    private boolean isAnnounced;
    private long announced;
    private Payload current; // of the chunk that is coming in
    private Channel payer; // whoever paid for it

    Incoming(Actions actions) {
        this.actions = actions;
        tables = actions.tables;
        endings = new Endings(actions);
    }

    void receive(byte[] data, int size) throws BpmuxException {
        if (!actions.isFinished) {
            reader.feed(data, size, this);
        }
    }

    @Override
    public boolean chunk(int kind, long id, long number, byte[] data, int from, int length, long rest)
            throws BpmuxException {
        if (kind == Reader.MORE) {
            add(data, from, length, rest);
        } else if (Chunks.carriesPayload(kind)) {
            carry(kind, id, number, data, from, length, rest);
        } else if (isAnnounced) {
            throw new BpmuxException("partial", "a total is followed by a chunk without a payload");
        } else if (kind == Chunks.PARTIAL) {
            isAnnounced = true;
            announced = number;
        } else if (kind == Chunks.CREDIT || kind == Chunks.CREDIT_PEER) {
            credit(kind, id, number);
        } else {
            endings.take(kind, id);
        }
        return !actions.isFinished;
    }

    // --- payloads ---

    private void carry(int kind, long id, long length, byte[] data, int from, int here, long rest)
            throws BpmuxException {
        boolean isPartial = isAnnounced;
        isAnnounced = false;
        Payload payload = actions.unfinished.get(kind, id);
        Channel paying = admit(kind, id, payload == null);
        if (Long.compareUnsigned(length, paying.credit) > 0) {
            throw new BpmuxException("credit", Long.toUnsignedString(length) + " bytes for " + paying);
        }
        paying.credit -= length;
        if (payload == null && !isPartial && rest == 0 && here <= actions.limits.payload()) {
            whole(kind, id, Arrays.copyOfRange(data, from, from + here), true); // the usual case, in short
            actions.topUp(paying);
            return;
        }
        if (payload == null) {
            payload = actions.unfinished.begin(kind, id, isPartial ? announced : length);
        } else if (isPartial) {
            throw new BpmuxException("partial", "a payload of " + id + " is under way already");
        }
        payload.promise(length);
        current = payload;
        payer = paying;
        add(data, from, here, rest);
    }

    /** A piece of the chunk that is coming in, of which {@code rest} is still to come. */
    private void add(byte[] data, int from, int length, long rest) throws BpmuxException {
        Payload payload = current;
        actions.unfinished.add(payload, data, from, length);
        if (!payload.isKept) {
            stop(payload);
        }
        if (payload.isWhole()) {
            byte[] kept = payload.kept.copy();
            actions.unfinished.end(payload.kind, payload.id);
            whole(payload.kind, payload.id, kept, payload.isKept);
        }
        if (rest == 0) {
            actions.topUp(payer);
        }
    }

    /** Has the peer send no more of what is too long, where it can be told before the end. */
    private void stop(Payload payload) throws BpmuxException {
        if (payload.kind == Chunks.RESPONSE) {
            Ask request = endings.asked(payload.id);
            if (request.state == State.OPEN) {
                actions.refuse(request, TOO_LONG);
            }
        } else if (Chunks.isMessage(payload.kind)) {
            Channel channel = endings.channel(payload.kind, payload.id);
            if (channel.receiving == State.OPEN) {
                actions.refuse(channel, TOO_LONG);
            }
        }
    }

    /** Returns whose credit pays, if such a chunk may come now. */
    private Channel admit(int kind, long id, boolean isNew) throws BpmuxException {
        Unfinished unfinished = actions.unfinished;
        if (Chunks.isMessage(kind)) {
            Channel channel = endings.channel(kind, id);
            boolean isClosed = id == Chunks.TOP && actions.heard.contains(Chunks.CLOSE);
            require(channel.receiving.isHeard() && !isClosed, id);
            return channel;
        }
        if (Chunks.isOpening(kind)) {
            if (isNew && (tables.theirs.containsKey(id) || unfinished.opening(id) != null)) {
                throw new BpmuxException("id", "a channel " + id + " is open already");
            }
        } else if (kind == Chunks.REQUEST) {
            boolean isCancelled = unfinished.get(Chunks.CANCEL_REQUEST, id) != null;
            if (isNew && (tables.requests.containsKey(id) || isCancelled)) {
                throw new BpmuxException("id", "a request " + id + " is open already");
            }
        } else if (kind == Chunks.RESPONSE || kind == Chunks.CLOSE_RESPONSE) {
            endings.asked(id);
        } else if (kind != Chunks.CANCEL_REQUEST) {
            admitEnding(kind, id);
        }
        return tables.top;
    }

    private void admitEnding(int kind, long id) throws BpmuxException {
        boolean isCancel = kind == Chunks.CANCEL || kind == Chunks.CANCEL_PEER;
        if (id == Chunks.TOP) {
            require(!actions.heard.contains(kind), id);
        } else if (Chunks.isAboutOurs(kind) || tables.theirs.containsKey(id)) {
            Channel channel = endings.channel(kind, id);
            require((isCancel ? channel.sending : channel.receiving).isHeard(), id);
        } else {
            Payload opening = actions.unfinished.opening(id);
            require(opening != null && opening.kind != (isCancel ? Chunks.SINK : Chunks.STREAM), id);
        }
    }

    // --- what is whole ---

    private void whole(int kind, long id, byte[] payload, boolean isKept) throws BpmuxException {
        switch (kind) {
            case Chunks.MESSAGE, Chunks.MESSAGE_PEER -> messageWhole(kind, id, payload, isKept);
            case Chunks.SINK, Chunks.STREAM, Chunks.DUPLEX -> opened(kind, id, payload, isKept);
            case Chunks.REQUEST -> requested(id, payload, isKept);
            case Chunks.RESPONSE -> endings.responded(id, payload);
            case Chunks.CLOSE_RESPONSE -> endings.responseClosed(id, payload);
            case Chunks.CANCEL_REQUEST -> endings.requestCancelled(id, payload);
            case Chunks.CANCEL, Chunks.CANCEL_PEER -> endings.cancelled(kind, id, payload);
            default -> endings.closed(kind, id, payload);
        }
    }

    private void messageWhole(int kind, long id, byte[] payload, boolean isKept) throws BpmuxException {
        Channel channel = endings.channel(kind, id);
        if (channel.receiving == State.OPEN && isKept) {
            if (channel.window > 0 && id != Chunks.TOP) {
                channel.held += payload.length;
            }
            actions.report(Event.Kind.MESSAGE, channel, payload);
        }
    }

    private void opened(int kind, long id, byte[] payload, boolean isKept) throws BpmuxException {
        Channel channel = new Channel(id, kind, false);
        channel.isOpen = true;
        tables.theirs.put(id, channel);
        if (isKept && tables.theirs.size() <= actions.limits.channels()) {
            actions.report(Event.Kind.OPENED, channel, payload);
        } else {
            actions.refuse(channel, isKept ? TOO_MANY : TOO_LONG);
        }
    }

    private void requested(long id, byte[] payload, boolean isKept) throws BpmuxException {
        Ask request = new Ask(id, false);
        request.isOpen = true;
        tables.requests.put(id, request);
        if (isKept && tables.requests.size() <= actions.limits.requests()) {
            actions.report(Event.Kind.REQUESTED, request, payload);
        } else {
            actions.refuse(request, isKept ? TOO_MANY : TOO_LONG);
        }
    }

    private void credit(int kind, long id, long amount) throws BpmuxException {
        Channel channel = endings.channel(kind, id);
        require(channel.sending.isHeard(), id);
        if (Long.compareUnsigned(channel.account.credit + amount, amount) < 0) {
            throw new BpmuxException("credit", "more than there can be of " + channel);
        }
        actions.outgoing.credited(channel.account, amount);
    }

    private static void require(boolean sound, long id) throws BpmuxException {
        if (!sound) {
            throw new BpmuxException("state", "a chunk about " + id + ", which has ended");
        }
    }
}
