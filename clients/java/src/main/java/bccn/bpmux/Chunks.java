package bccn.bpmux;

/**
 * The kinds of chunks, and their bytes up to the payload (clients/BPMUX.md, "Chunks").
 *
 * <p>Kinds below 16 are the types; 16 + a type is its other meaning. A name without PEER is about what the sender of
 * the chunk opened, one with PEER about what its receiver opened. Numbers are unsigned.
 */
final class Chunks {
    static final int CANCEL_REQUEST = 0;
    static final int CLOSE_RESPONSE = 1;
    static final int CANCEL = 2;
    static final int CANCEL_PEER = 3;
    static final int CLOSE = 4;
    static final int CLOSE_PEER = 5;
    static final int MESSAGE = 6;
    static final int MESSAGE_PEER = 7;
    static final int REQUEST = 8;
    static final int RESPONSE = 9;
    static final int SINK = 10;
    static final int STREAM = 11;
    static final int DUPLEX = 12;
    static final int PING = 13;
    static final int CREDIT = 14;
    static final int CREDIT_PEER = 15;

    static final int ACK_CANCEL_REQUEST = 16 + CANCEL_REQUEST;
    static final int ACK_CLOSE_RESPONSE = 16 + CLOSE_RESPONSE;
    static final int ACK_CLOSE = 16 + CANCEL_PEER;
    static final int ACK_CANCEL = 16 + CLOSE_PEER;
    static final int PONG_REQUEST = 16 + MESSAGE_PEER;
    static final int ACK_CANCEL_PEER = 16 + SINK;
    static final int ACK_CLOSE_PEER = 16 + STREAM;
    static final int PING_REQUEST = 16 + DUPLEX;
    static final int PONG = 16 + PING;
    static final int PARTIAL = 16 + CREDIT_PEER;
    /** With the bit in the middle of the tag of a heartbeat. */
    static final int PING_PEER = 32;

    static final int PONG_PEER = 33;

    /** The id of the top level, which has none on the wire. */
    static final long TOP = -1;

    /** Bytes: a tag, an id of 4 and a number of 8. */
    static final int HEAD_LIMIT = 13;

    private static final int[] HEARTBEATS = {PING, PING_PEER, PONG, PONG_PEER};

    private Chunks() {}

    static boolean isMessage(int kind) {
        return kind == MESSAGE || kind == MESSAGE_PEER;
    }

    static boolean isOpening(int kind) {
        return kind == SINK || kind == STREAM || kind == DUPLEX;
    }

    static boolean carriesPayload(int kind) {
        return kind >= 0 && kind < PING;
    }

    /** Reports whether a chunk is about a channel that its receiver opened: that is us. */
    static boolean isAboutOurs(int kind) {
        return kind == MESSAGE_PEER || kind == CANCEL_PEER || kind == CLOSE_PEER || kind == CREDIT_PEER;
    }

    static boolean mayBeAboutTop(int kind) {
        return kind == CANCEL || kind == CLOSE || kind == MESSAGE || kind == CREDIT || kind == PING || kind == PONG;
    }

    /** Returns which chunk of the type there is with 3 as its first argument, or -1. */
    static int withoutId(int type, int second) {
        if (mayBeAboutTop(type)) {
            return type;
        }
        if (type == CREDIT_PEER) {
            return PARTIAL;
        }
        return type == REQUEST || type == RESPONSE || second == 3 ? -1 : 16 + type;
    }

    static int heartbeat(int first, int second) {
        int kind = HEARTBEATS[first];
        return second == 3 && !mayBeAboutTop(kind) ? -1 : kind;
    }

    /** Appends the bytes of a chunk up to its payload, in the narrowest form. */
    static void head(Bytes out, int kind, long id, long number) {
        for (int i = 0; i < HEARTBEATS.length; i++) {
            if (HEARTBEATS[i] == kind) {
                int tag = PING << 4 | i << 2;
                if (id == TOP) {
                    out.add(tag | 3);
                } else {
                    wide(out, tag, id);
                }
                return;
            }
        }
        if (kind == PARTIAL) {
            wide(out, CREDIT_PEER << 4 | 3 << 2, number);
        } else if (kind >= 16) {
            wide(out, (kind - 16) << 4 | 3 << 2, id);
        } else if (id == TOP) {
            wide(out, kind << 4 | 3 << 2, number);
        } else {
            int idWidth = width(id);
            int numberWidth = width(number);
            out.add(kind << 4 | idWidth << 2 | numberWidth);
            out.add(id, 1 << idWidth);
            out.add(number, 1 << numberWidth);
        }
    }

    private static void wide(Bytes out, int tag, long number) {
        int width = width(number);
        out.add(tag | width);
        out.add(number, 1 << width);
    }

    private static int width(long number) {
        if (number >>> 8 == 0) {
            return 0;
        }
        if (number >>> 16 == 0) {
            return 1;
        }
        return number >>> 32 == 0 ? 2 : 3;
    }
}
