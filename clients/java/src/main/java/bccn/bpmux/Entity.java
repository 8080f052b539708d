package bccn.bpmux;

import java.util.LinkedHashSet;
import java.util.Set;

/** A channel or a request. To programs it is a name for either. */
public abstract sealed class Entity permits Channel, Ask {
    final long id;
    final boolean ours;
    boolean isOpen;
    boolean isRefused;
    final Lane lane = new Lane(this);

    Entity(long id, boolean ours) {
        this.id = id;
        this.ours = ours;
    }

    abstract boolean isOver();

    /** Reports whether we still wait for something: messages, or the response. */
    abstract boolean isOfInterest();

    /** Credit that the peer has given, and the lanes that wait for more of it, in turn. */
    static final class Account {
        long credit; // unsigned
        final Set<Lane> waiting = new LinkedHashSet<>();
    }
}
