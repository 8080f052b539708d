package bccn.bpmux;

/**
 * What one connection may hold (clients/BPMUX.md, "Limits").
 *
 * @param channels at a time, of each side
 * @param requests at a time, of each side
 * @param payload bytes of one payload: a packet of the local bus has 128 KiB at most
 */
public record Limits(int channels, int requests, int payload) {
    /** The usual ones. */
    public static final Limits USUAL = new Limits(1024, 1024, 128 * 1024);

    /** Bytes of credit for the top level that the peer is kept at, so that neither side can starve the other. */
    static final long RESERVE = 64 * 1024;

    /** Bytes of a chunk that is sent: the next one that waits has its turn after it. */
    static final int PIECE = 16 * 1024;

    /** Bytes that may wait of each payload besides its own. */
    static final int ITEM = 64;

    /** Grants below this many bytes, and payloads without one, are chatter. */
    static final int SMALL_GRANT = 16;

    /** Bytes of payloads that have begun and not ended, of the whole connection. */
    static final int UNFINISHED = 1024 * 1024;

    /** Bytes of messages that wait on one channel; then no more are taken until half of them are gone. */
    static final int QUEUE = 256 * 1024;

    /** What was refused and not yet acknowledged, at a time: a peer that opens more reads no refusals. */
    static final int REFUSED = 64;

    /** Bytes of acknowledgements, grants and heartbeats that wait: a peer that causes more does not read. */
    static final int REPLIES = 1024 * 1024;

    /** Payloads that have begun and not ended: all that may be said at once about everything there can be. */
    int payloads() {
        return 6 * (channels + REFUSED) + 4 * (requests + REFUSED);
    }
}
