package bccn.bpmux;

/** A payload that has begun and not ended. It comes in one chunk or, announced, in several; and a chunk in pieces. */
final class Payload {
    final int kind;
    final long id;
    final long total; // unsigned, as the two below
    long promised; // of the chunks that have begun
    long received;
    Bytes kept = new Bytes(0);
    boolean isKept = true; // it will be there as a whole

    Payload(int kind, long id, long total) {
        this.kind = kind;
        this.id = id;
        this.total = total;
    }

    boolean isWhole() {
        return received == total;
    }

    /** Takes note that a chunk of this length begins. */
    void promise(long length) throws BpmuxException {
        if (Long.compareUnsigned(length, total - promised) > 0) {
            throw new BpmuxException("partial", "more than the " + Long.toUnsignedString(total) + " bytes announced");
        }
        promised += length;
    }
}
