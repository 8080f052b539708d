package bccn;

import java.time.Duration;

/** A time until which a call waits. */
final class Deadline {
    private static final long FOREVER = Long.MAX_VALUE / 4; // nanoseconds: 73 years

    private final long at;

    private Deadline(long at) {
        this.at = at;
    }

    static Deadline in(Duration duration) {
        boolean isLong = duration.getSeconds() >= FOREVER / 1_000_000_000;
        return new Deadline(System.nanoTime() + (isLong ? FOREVER : duration.toNanos()));
    }

    static Deadline never() {
        return new Deadline(System.nanoTime() + FOREVER);
    }

    /** Nanoseconds; none or fewer once it is over. */
    long left() {
        return at - System.nanoTime();
    }

    boolean isOver() {
        return left() <= 0;
    }

    Deadline orSooner(Deadline other) {
        return at - other.at <= 0 ? this : other;
    }
}
