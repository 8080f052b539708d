package bccn.bpmux;

import java.util.HashMap;
import java.util.Map;

/** Payloads that have begun and not ended. What is too long is counted to its end, and not kept. */
final class Unfinished {
    private record Key(int kind, long id) {}

    private final Limits limits;
    private final Map<Key, Payload> payloads = new HashMap<>();
    private long held;

    Unfinished(Limits limits) {
        this.limits = limits;
    }

    boolean isEmpty() {
        return payloads.isEmpty();
    }

    Payload get(int kind, long id) {
        return payloads.get(new Key(kind, id));
    }

    /** Returns that of a channel with this id, whatever it is to be; or null. */
    Payload opening(long id) {
        for (int kind = Chunks.SINK; kind <= Chunks.DUPLEX; kind++) {
            Payload payload = get(kind, id);
            if (payload != null) {
                return payload;
            }
        }
        return null;
    }

    Payload begin(int kind, long id, long total) throws BpmuxException {
        if (payloads.size() >= limits.payloads()) {
            throw new BpmuxException("limit", payloads.size() + " payloads have begun and not ended");
        }
        Payload payload = new Payload(kind, id, total);
        payload.isKept = isEnding(kind) || Long.compareUnsigned(total, limits.payload()) <= 0;
        payloads.put(new Key(kind, id), payload);
        return payload;
    }

    void add(Payload payload, byte[] data, int from, int length) {
        payload.received += length;
        if (!payload.isKept || length == 0) {
            return;
        }
        long room = Math.min(limits.payload() - payload.kept.size(), Limits.UNFINISHED - held);
        if (length > room && !isEnding(payload.kind)) {
            giveBack(payload);
            payload.isKept = false;
            return;
        }
        int kept = (int) Math.min(length, room);
        payload.kept.add(data, from, kept);
        held += kept;
    }

    /** Ends a payload: it is whole, or what it belonged to is over. */
    void end(int kind, long id) {
        Payload payload = payloads.remove(new Key(kind, id));
        if (payload != null) {
            giveBack(payload);
        }
    }

    private void giveBack(Payload payload) {
        held -= payload.kept.size();
        payload.kept = new Bytes(0);
    }

    /** Of these too long a payload is cut and not refused: they take effect all the same. */
    private static boolean isEnding(int kind) {
        return kind <= Chunks.CLOSE_PEER;
    }
}
