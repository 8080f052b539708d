package bccn.bpmux;

/** A request: of ours, which waits for its response, or of the peer. */
public final class Ask extends Entity {
    State state = State.OPEN;
    /** The response is queued, or has come while our Cancel, which is then finished, was under way. */
    boolean answered;

    Ask(long id, boolean ours) {
        super(id, ours);
    }

    @Override
    boolean isOver() {
        return state == State.OVER;
    }

    @Override
    boolean isOfInterest() {
        return state == State.OPEN;
    }

    @Override
    public String toString() {
        return "request " + id + (ours ? " of ours" : " of the peer");
    }
}
