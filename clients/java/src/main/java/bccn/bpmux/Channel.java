package bccn.bpmux;

/** A sink, stream or duplex, or the top level. */
public final class Channel extends Entity {
    final int kind;
    boolean isFull;
    State sending = State.ABSENT;
    State receiving = State.ABSENT;
    final Account account = new Account();
    final Lane cancelling = new Lane(this);
    long credit; // that the peer has; unsigned
    long pending; // that it gets when the channel is open
    long window;
    long held; // bytes of messages that the program has not consumed

    Channel(long id, int kind, boolean ours) {
        super(id, ours);
        this.kind = kind;
        if (kind == Chunks.DUPLEX || (kind == Chunks.SINK) == ours) {
            sending = State.OPEN;
        }
        if (kind == Chunks.DUPLEX || (kind == Chunks.STREAM) == ours) {
            receiving = State.OPEN;
        }
    }

    @Override
    boolean isOver() {
        return sending.isSilent() && receiving.isSilent();
    }

    @Override
    boolean isOfInterest() {
        return receiving == State.OPEN;
    }

    /**
     * What of it waits to be sent.
     *
     * @return bytes, with a few for each message
     */
    public long queued() {
        return lane.size;
    }

    @Override
    public String toString() {
        return id == Chunks.TOP ? "the top level" : "channel " + id + (ours ? " of ours" : " of the peer");
    }
}
