package bccn.bpmux;

import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Set;

/**
 * What waits to be sent: who may go, in turn, and as much of it as the peer's credit allows.
 *
 * <ul>
 *   <li>What costs no credit (acknowledgements, grants, heartbeats) goes first, in the order in which it was caused.
 *   <li>Each channel and request has a lane. A lane sends up to {@link Limits#PIECE} bytes and goes to the back.
 *   <li>A lane whose next payload finds no credit waits beside the account that is empty, and holds up nobody else.
 *   <li>A payload that does not go in one chunk is announced (partial mode) and goes in several.
 *   <li>Nothing is made into bytes before it is asked for: what the transport does not take can be cancelled.
 * </ul>
 */
final class Outgoing {
    private final Actions actions;
    private final Entity.Account top;
    private final Set<Lane> ready = new LinkedHashSet<>();
    private Bytes replies = new Bytes(64);
    private boolean isStopped;

    Outgoing(Actions actions, Entity.Account top) {
        this.actions = actions;
        this.top = top;
    }

    boolean hasMore() {
        boolean waitsForNothing = !ready.isEmpty() || (!top.waiting.isEmpty() && top.credit != 0);
        return !isStopped && (replies.size() > 0 || waitsForNothing);
    }

    /** The connection is finished: what is being taken is the last. */
    void stop() {
        isStopped = true;
    }

    /** Says something that costs no credit. */
    void reply(int kind, long id, long number) throws BpmuxException {
        Chunks.head(replies, kind, id, number);
        if (replies.size() > Limits.REPLIES) {
            throw new BpmuxException("limit", "the peer does not read the replies that it causes");
        }
    }

    void grant(Channel channel, long amount) throws BpmuxException {
        channel.credit += amount;
        reply(channel.ours ? Chunks.CREDIT : Chunks.CREDIT_PEER, channel.id, amount);
    }

    void add(Lane lane, int kind, byte[] payload) {
        lane.items.add(new Lane.Item(kind, payload));
        lane.size += payload.length + Limits.ITEM;
        start(lane);
    }

    /** Lets a lane have its turns once its channel is open; an opening itself goes at once. */
    void start(Lane lane) {
        if (lane.place == null && !lane.items.isEmpty()
                && (lane.entity.isOpen || isOpening(lane.items.element()))) {
            wait(lane, ready);
        }
    }

    /** Takes back what is not sent, but for an opening, which the peer may have seen the beginning of. */
    void clear(Lane lane) {
        Lane.Item first = lane.items.peek();
        lane.items.clear();
        lane.size = 0;
        if (first != null && isOpening(first)) {
            lane.items.add(first);
            lane.size = first.payload().length + Limits.ITEM;
            return;
        }
        lane.at = 0;
        lane.announced = false;
        if (lane.place != null) {
            lane.place.remove(lane);
            lane.place = null;
        }
    }

    void credited(Entity.Account account, long amount) {
        account.credit += amount;
        if (account != top && account.credit != 0) {
            wake(account);
        }
    }

    /** Lets the lane that has waited longest try again. Each turn wakes one for the top level, and no more. */
    private void wake(Entity.Account account) {
        if (!account.waiting.isEmpty()) {
            wait(first(account.waiting), ready);
        }
    }

    /** Returns about {@code limit} bytes, one piece more at most; none if nothing may go now. */
    byte[] take(int limit) throws BpmuxException {
        Bytes out = replies;
        replies = new Bytes(64);
        while (out.size() < limit && !isStopped) {
            if (top.credit != 0) {
                wake(top);
            }
            if (ready.isEmpty()) {
                break;
            }
            Lane lane = first(ready);
            lane.place = null;
            turn(lane, out);
        }
        byte[] granted = replies.take(); // credit that waited for an opening
        out.add(granted, 0, granted.length);
        return out.take();
    }

    private void turn(Lane lane, Bytes out) throws BpmuxException {
        int room = Limits.PIECE;
        while (!lane.items.isEmpty() && room > 0) {
            Lane.Item item = lane.items.element();
            byte[] payload = item.payload();
            boolean paysItself = Chunks.isMessage(item.kind()) && lane.entity instanceof Channel;
            Entity.Account account = paysItself ? ((Channel) lane.entity).account : top;
            int left = payload.length - lane.at;
            int most = Math.min(left, Limits.PIECE);
            int amount = Long.compareUnsigned(account.credit, most) < 0 ? (int) account.credit : most;
            if (left > 0 && amount == 0) {
                wait(lane, account.waiting);
                return;
            }
            account.credit -= amount;
            room -= amount + Limits.ITEM;
            if (amount < payload.length && !lane.announced) {
                lane.announced = true;
                Chunks.head(out, Chunks.PARTIAL, Chunks.TOP, payload.length);
            }
            Chunks.head(out, item.kind(), lane.entity.id, amount);
            out.add(payload, lane.at, amount);
            if (amount < left) {
                lane.at += amount;
                break;
            }
            lane.items.remove();
            lane.at = 0;
            lane.announced = false;
            lane.size -= payload.length + Limits.ITEM;
            actions.sent(lane.entity, item.kind());
        }
        if (!lane.items.isEmpty() && lane.place == null) {
            wait(lane, ready);
        }
    }

    private static boolean isOpening(Lane.Item item) {
        return Chunks.isOpening(item.kind()) || item.kind() == Chunks.REQUEST;
    }

    private static void wait(Lane lane, Set<Lane> place) {
        place.add(lane);
        lane.place = place;
    }

    private static Lane first(Set<Lane> lanes) {
        Iterator<Lane> all = lanes.iterator();
        Lane lane = all.next();
        all.remove();
        return lane;
    }
}
