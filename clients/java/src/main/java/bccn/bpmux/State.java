package bccn.bpmux;

/**
 * Of one way of a channel: what its sender may close, and its receiver cancel. The table is the same for both
 * (clients/BPMUX.md, "How a way ends"). ABSENT: there is no such way.
 */
enum State {
    ABSENT, OPEN, LEAVING, LEFT, CROSSED, OVER;

    /** LEAVE: we end it; SENT: our Close or Cancel is on its way; PEER: the peer ends it. */
    enum Step { LEAVE, SENT, PEER, ACKNOWLEDGED }

    State after(Step step) throws BpmuxException {
        State next = switch (step) {
            case LEAVE -> this == OPEN ? LEAVING : null;
            case SENT -> this == LEAVING ? LEFT : null;
            case PEER -> this == OPEN || this == LEAVING ? OVER : this == LEFT ? CROSSED : null;
            case ACKNOWLEDGED -> this == LEFT || this == CROSSED ? OVER : null;
        };
        if (next == null) {
            throw new BpmuxException("state", step + " in the state " + this);
        }
        return next;
    }

    /** Reports whether the peer may still say something on the way. */
    boolean isHeard() {
        return this == OPEN || this == LEAVING || this == LEFT;
    }

    /** Reports whether nothing more is said about it. */
    boolean isSilent() {
        return this == ABSENT || this == OVER;
    }

    /** Reports whether we have not said all that we say. */
    boolean isUnsaid() {
        return this == OPEN || this == LEAVING;
    }
}
