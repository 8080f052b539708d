package bccn.bpmux;

/** Takes a stream of bytes apart, however it is cut. It keeps the beginning of a head, and no payload. */
final class Reader {
    /** The kind of what comes later of a payload. */
    static final int MORE = -1;

    /** Gets each chunk with as much of its payload as is here. */
    interface Sink {
        /**
         * Takes a chunk, or more of the payload of the last.
         *
         * @param number the length of the payload, or an amount of credit, or a total; unsigned
         * @param rest how much of the payload is still to come; unsigned
         * @return whether to go on
         */
        boolean chunk(int kind, long id, long number, byte[] data, int from, int length, long rest)
                throws BpmuxException;
    }

    private final byte[] head = new byte[Chunks.HEAD_LIMIT];
    private int begun;
    private long rest;

    void feed(byte[] data, int size, Sink sink) throws BpmuxException {
        int at = 0;
        while (at < size) {
            if (rest != 0) {
                int length = upTo(rest, size - at);
                rest -= length;
                at += length;
                if (!sink.chunk(MORE, 0, 0, data, at - length, length, rest)) {
                    return;
                }
                continue;
            }
            if (begun == 0) {
                head[begun++] = data[at++];
            }
            int tag = head[0] & 0xff;
            int type = tag >> 4;
            int first = tag >> 2 & 3;
            int second = tag & 3;
            int kind = type == Chunks.PING ? Chunks.heartbeat(first, second)
                    : first < 3 ? type : Chunks.withoutId(type, second);
            if (kind < 0) {
                throw new BpmuxException("tag", "no chunk begins with 0x" + Integer.toHexString(tag));
            }
            boolean hasNumber = type != Chunks.PING && (first < 3 || kind == type || kind == Chunks.PARTIAL);
            int idWidth = type == Chunks.PING ? width(second) : first < 3 ? 1 << first : hasNumber ? 0 : 1 << second;
            int whole = 1 + idWidth + (hasNumber ? 1 << second : 0);
            int more = Math.min(whole - begun, size - at);
            System.arraycopy(data, at, head, begun, more);
            at += more;
            begun += more;
            if (begun < whole) {
                return;
            }
            begun = 0;
            long id = idWidth == 0 ? Chunks.TOP : number(1, idWidth);
            long number = hasNumber ? number(1 + idWidth, 1 << second) : 0;
            int length = 0;
            if (Chunks.carriesPayload(kind)) {
                length = upTo(number, size - at);
                rest = number - length;
            }
            at += length;
            if (!sink.chunk(kind, id, number, data, at - length, length, rest)) {
                return;
            }
        }
    }

    private static int width(int argument) {
        return argument == 3 ? 0 : 1 << argument;
    }

    private long number(int from, int width) {
        long number = 0;
        for (int i = from; i < from + width; i++) {
            number = number << 8 | head[i] & 0xff;
        }
        return number;
    }

    private static int upTo(long number, int most) {
        return Long.compareUnsigned(number, most) < 0 ? (int) number : most;
    }
}
