package bccn.bpmux;

/**
 * Whether the peer still answers. It is asked when nothing came for 10 seconds; whatever comes counts as an answer.
 * After 3 pings without one it is given up, when the next one would be due. Time is nanoseconds that do not go back.
 */
final class Heartbeats {
    private static final long IDLE = 10_000_000_000L;
    private static final int MISSED_LIMIT = 3;

    private int missed;
    private long due;

    Heartbeats(long now) {
        due = now + IDLE;
    }

    long deadline() {
        return due;
    }

    void heard(long now) {
        missed = 0;
        due = now + IDLE;
    }

    /** Reports whether a ping is due, and takes note of it. */
    boolean isDue(long now) {
        if (now - due < 0) {
            return false;
        }
        due = now + IDLE;
        missed++;
        return true;
    }

    boolean isLost() {
        return missed > MISSED_LIMIT;
    }
}
