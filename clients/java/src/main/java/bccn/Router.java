package bccn;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.BiPredicate;
import java.util.function.Consumer;
import java.util.function.Predicate;
import java.util.function.Supplier;

/** Who gets a message, and what waits for the program. All runs under the lock of the session. */
final class Router {
    /** The pattern of those who listen. No SUB has it: the daemon refuses it. */
    static final String LISTENER = "!";

    /** Channels that are remembered with the inboxes that their messages go to. */
    private static final int ROUTES_LIMIT = 1024;

    /** Bytes of the client's stream that wait for a program that never receives them: they must not stop the others. */
    private static final long UNCLAIMED_LIMIT = 64 * 1024;

    private final Session session;
    final Inbox stream;
    final List<Subscription> subscriptions = new ArrayList<>();
    Subscription listener; // with a callback
    boolean listening; // without one
    boolean hearing; // listens, but only for replies
    boolean claimed; // the program receives from the client's stream
    private int apart; // subscriptions and listeners that have an inbox of their own
    private final Map<String, List<Inbox>> routes = new HashMap<>();
    String lastChannel = "";
    long waiting; // bytes in all inboxes
    long lost;
    Supplier<BccnException> over; // why nobody gets more

    Router(Session session) {
        this.session = session;
        stream = new Inbox(session);
    }

    boolean matches(String pattern, String channel) {
        return Packets.matches(pattern, channel, session.options.separator);
    }

    boolean hears() {
        return listening || hearing || listener != null;
    }

    boolean isListening() {
        return session.options.tap != Tap.OFF || listening || listener != null || !subscriptions.isEmpty();
    }

    // --- inboxes ---

    void put(Inbox inbox, Message message) {
        Message own = message.withLost(inbox.lost);
        inbox.lost = 0;
        inbox.messages.add(own);
        inbox.came++;
        hold(inbox, Inbox.costOf(own));
        inbox.wake.signal();
    }

    /** Accounts for so many bytes more, or less, that wait. */
    private void hold(Inbox inbox, long bytes) {
        inbox.size += bytes;
        waiting += bytes;
        if (bytes < 0) {
            session.grant();
        }
    }

    Message take(Inbox inbox) {
        Message message = inbox.messages.poll();
        if (message != null) {
            hold(inbox, -Inbox.costOf(message));
            if (inbox.isCalled) {
                inbox.busy++;
            }
        }
        return message;
    }

    /** Waits for the next message; null when the time is over. */
    Message next(Inbox inbox, Deadline deadline) {
        for (boolean isOver = false; ; isOver = !Session.await(inbox.wake, deadline)) {
            if (over == Session.CLOSED) {
                throw over.get();
            }
            Message message = take(inbox);
            if (message != null) {
                return message;
            }
            if (inbox.over != null || over != null) {
                throw (inbox.over != null ? inbox.over : over).get();
            }
            if (isOver) {
                return null;
            }
        }
    }

    /** Drops all that waits in an inbox, and returns how much it was. */
    long discard(Inbox inbox) {
        long dropped = inbox.messages.size();
        for (Message message : inbox.messages) {
            inbox.lost += message.lost();
        }
        inbox.messages.clear();
        hold(inbox, -inbox.size);
        return dropped;
    }

    /** Keeps those messages of an inbox, each with its number, for which {@code keep} says so. */
    void sift(Inbox inbox, BiPredicate<Long, Message> keep) {
        ArrayDeque<Message> kept = new ArrayDeque<>();
        long gap = 0;
        long number = inbox.came - inbox.messages.size();
        for (Message message : inbox.messages) {
            number++;
            if (keep.test(number, message)) {
                kept.add(message.withLost(message.lost() + gap));
                gap = 0;
            } else {
                gap += message.lost();
                hold(inbox, -Inbox.costOf(message));
            }
        }
        inbox.lost += gap;
        inbox.messages = kept;
    }

    /** Ends every inbox: it gives nothing more, or after a connection has ended for good what waits. */
    void finish(Supplier<BccnException> why) {
        over = over == Session.CLOSED ? over : why;
        stream.wake.signalAll();
        every(each -> each.inbox.wake.signalAll());
        if (listener != null) {
            listener.inbox.wake.signalAll();
        }
        session.exchanges.wake();
    }

    /** Has every inbox report a gap before its next message. */
    void missed(long count) {
        lost += count;
        stream.lost += count;
        every(each -> each.inbox.lost += each.isApart ? count : 0);
        if (listener != null) {
            listener.inbox.lost += count;
        }
    }

    // --- subscriptions ---

    /** Takes note of a new subscription, that the daemon is still to agree to. */
    void expect(Subscription subscription) {
        subscription.since = stream.came;
        if (subscription.isApart) {
            apart++;
        }
    }

    /** Gives a subscription a stream of its own, with what waits for it in that of the client. */
    void part(Subscription subscription) {
        if (subscription.isApart || subscription.isClosed) {
            return;
        }
        subscription.isApart = true;
        apart++;
        forgetRoutes();
        long since = stream.lost; // the last message that waits
        sift(stream, (number, message) -> {
            subscription.inbox.lost += message.lost();
            if (!matches(subscription.pattern(), message.channel()) || message.isRejected()) {
                return true;
            }
            put(subscription.inbox, message);
            return route(message.channel()).contains(stream);
        });
        subscription.inbox.lost += since;
    }

    /** Forgets the inbox of a subscription. */
    void drop(Subscription subscription, Supplier<BccnException> why) {
        if (subscription.isClosed) {
            return;
        }
        subscription.isClosed = true;
        if (subscription.isApart) {
            apart--;
        }
        forgetRoutes();
        discard(subscription.inbox);
        subscription.inbox.over = why;
        subscription.inbox.wake.signalAll();
    }

    void forgetRoutes() {
        routes.clear();
    }

    /** Goes over those that are held, and those that the daemon has been asked for. */
    private void every(Consumer<Subscription> act) {
        subscriptions.forEach(act);
        for (Query query : session.asked) {
            if (query.subscription != null && query.granted != null) {
                act.accept(query.subscription);
            }
        }
    }

    private boolean any(Predicate<Subscription> test) {
        return subscriptions.stream().anyMatch(test) || session.asked.stream().anyMatch(
                query -> query.subscription != null && query.granted != null && test.test(query.subscription));
    }

    /** Reports whether a message came for no subscription, nor as one to this program or by a tap. */
    boolean isStray(String channel) {
        return session.options.tap == Tap.OFF && !channel.startsWith("!")
                && !any(each -> matches(each.pattern(), channel));
    }

    // --- who gets a message ---

    void deliver(Message message) {
        lastChannel = message.channel();
        if (apart == 0 || message.isRejected()) { // nobody subscribes to what was not delivered
            put(stream, message);
            return;
        }
        for (Inbox inbox : route(message.channel())) {
            put(inbox, message);
        }
        dropUnclaimed();
    }

    private List<Inbox> route(String channel) {
        List<Inbox> known = routes.get(channel);
        if (known != null) {
            return known;
        }
        List<Inbox> route = new ArrayList<>();
        boolean[] isShared = {false}; // the client's stream gets it, too
        if (channel.startsWith("!")) {
            if (listener != null) {
                route.add(listener.inbox);
            }
            isShared[0] = listening;
        } else {
            every(each -> {
                if (matches(each.pattern(), channel)) {
                    if (each.isApart) {
                        route.add(each.inbox);
                    } else {
                        isShared[0] = true;
                    }
                }
            });
        }
        if (isShared[0] || route.isEmpty()) {
            route.add(stream);
        }
        if (routes.size() >= ROUTES_LIMIT) {
            routes.clear();
        }
        routes.put(channel, route);
        return route;
    }

    /** Drops what waits in the client's stream if this program does all in callbacks and streams of its own. */
    private void dropUnclaimed() {
        boolean isWanted = claimed || listening || session.options.tap != Tap.OFF;
        if (!isWanted && stream.size > UNCLAIMED_LIMIT && !any(each -> !each.isApart)) {
            String text = "messages dropped that nobody receives: receive them, or give listen a callback";
            session.notices.add(Notice.Kind.UNCLAIMED, text, discard(stream), null);
        }
    }
}
