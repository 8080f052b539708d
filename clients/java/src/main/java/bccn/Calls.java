package bccn;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;

import bccn.bpmux.Ask;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.Condition;
import java.util.function.Consumer;

/**
 * Calls that send, and wait for the daemon: over reconnections, while the link takes no more, and for an answer. All
 * runs under the lock of the session.
 *
 * <p>A subscribe that fails leaves nothing. The client remembers a subscription once the daemon has agreed to it. If
 * the SUB of a failed call has left, it is withdrawn: an UNSUB and a ping follow, and until the pong the client drops
 * the messages that came for it alone. The end of a subscription is withdrawn in the same way, and a watch that fails by
 * the request that ends it.
 */
final class Calls {
    private static final byte[] PING = "CMSG ping\0".getBytes(US_ASCII);

    private final Session session;
    private final List<Withdrawal> withdrawn = new ArrayList<>();

    /** An UNSUB, and the ping behind it, for which nobody need wait; or the request that ends a watch. */
    static final class Withdrawal {
        final String pattern;
        private final boolean isWatch;
        private boolean hasLeft;
        BccnException complaint;

        Withdrawal(String pattern, boolean isWatch) {
            this.pattern = pattern;
            this.isWatch = isWatch;
        }
    }

    Calls(Session session) {
        this.session = session;
    }

    // --- to ask ---

    String ask(String key, String value, Deadline deadline, Consumer<String> granted) {
        return ask(key, value, deadline, granted, null);
    }

    /**
     * Sends a control request and waits for its answer. If the link ends, it asks again on the next.
     *
     * @param granted gets the answer, and remembers it for later links; may be null
     * @param subscription whose SUB goes before the request on each link; may be null
     */
    String ask(String key, String value, Deadline deadline, Consumer<String> granted, Subscription subscription) {
        byte[] packet = Packets.control(key, value);
        Link link = null;
        boolean hasLeft = false;
        press();
        try {
            while (true) {
                link = awaitLink(link, deadline);
                if (deadline.isOver()) {
                    throw new BccnException.TimedOut("no time to ask the daemon");
                }
                Query query = new Query(session, key, granted);
                query.subscription = subscription;
                query.watched = key.equals("watch") ? value : null;
                if (!submit(link, query, packet, deadline)) {
                    continue;
                }
                hasLeft = true;
                try {
                    while (!query.isDone && Session.await(query.done, deadline)) {
                        continue; // until it is answered
                    }
                } catch (BccnException.Cancelled e) {
                    if (!query.isDone) { // else the answer came just before
                        giveUp(link, query);
                        throw e;
                    }
                }
                if (!query.isDone) {
                    giveUp(link, query);
                    throw new BccnException.TimedOut("the daemon does not answer");
                }
                if (query.error != null) {
                    throw query.error.here();
                }
                if (!query.isLost) {
                    return query.value;
                }
            }
        } finally {
            session.pressing--;
            if (key.equals("unwatch") && !hasLeft) {
                withdrawWatch(value);
            }
            takeBackSoon(session.link);
        }
    }

    /** Asks the door itself, and not the daemon behind it. Returns its answer, or throws why it gives none. */
    String askDoor(String question, Deadline deadline) {
        Link link = awaitLink(null, deadline);
        Condition wake = session.lock.newCondition();
        byte[][] answer = {null};
        BccnException[] fault = {null};
        Ask request = link.ask(question.getBytes(UTF_8), new Link.User() {
            @Override
            public void said(byte[] payload) {
                answer[0] = payload;
            }

            @Override
            public void ended(BccnException reason) {
                fault[0] = reason;
                wake.signalAll();
            }
        });
        try {
            while (answer[0] == null && fault[0] == null && Session.await(wake, deadline)) {
                continue; // until it is answered
            }
        } finally {
            link.leave(request);
        }
        if (fault[0] != null) {
            throw fault[0].here();
        }
        if (answer[0] == null) {
            throw new BccnException.TimedOut("the door does not answer, or its daemon does not");
        }
        return new String(answer[0], UTF_8);
    }

    /** Makes the door go on although nobody receives, until the call ends. */
    private void press() {
        session.pressing++;
        session.grant();
    }

    /** Waits for a link other than {@code gone}. */
    Link awaitLink(Link gone, Deadline deadline) {
        while (session.link == null || session.link == gone) {
            checkOpen();
            if (!Session.await(session.changed, deadline)) {
                throw new BccnException.Unavailable(session.unreachable.getMessage());
            }
        }
        checkOpen();
        return session.link;
    }

    private void checkOpen() {
        if (session.router.over != null) {
            throw session.router.over.get();
        }
    }

    /** Sends what goes before the query, and then the query. False: the link has ended. */
    private boolean submit(Link link, Query query, byte[] packet, Deadline deadline) {
        do {
            if (session.router.waiting > Session.BACKLOG_LIMIT) {
                throw new BccnException(Code.BACKLOG, session.router.waiting + " bytes of messages wait: receive them");
            }
            if (!awaitRoom(link, deadline)) {
                return false;
            }
        } while (!takeBack(link));
        if (query.subscription != null) {
            session.router.forgetRoutes();
            link.send(Packets.subscription("SUB", query.subscription.pattern()));
            query.said = true;
        }
        enqueue(query);
        link.send(packet);
        return true;
    }

    private void enqueue(Query query) {
        query.published = session.published;
        session.asked.add(query);
    }

    /** Waits until the link takes a packet; false: it has ended. */
    private boolean awaitRoom(Link link, Deadline deadline) {
        while (session.link == link && !link.hasRoom()) {
            checkOpen();
            if (!Session.await(session.room, deadline)) {
                throw new BccnException.TimedOut("not sent: the daemon takes no more messages");
            }
        }
        checkOpen();
        return session.link == link;
    }

    // --- to subscribe ---

    void subscribe(Subscription subscription, Deadline deadline) {
        Router router = session.router;
        String pattern = subscription.pattern();
        router.expect(subscription);
        try {
            ask("ping", "", deadline, value -> router.subscriptions.add(subscription), subscription);
        } catch (BccnException e) {
            router.drop(subscription, Subscription.NOT_OPEN);
            router.sift(router.stream, (number, message) -> number <= subscription.since
                    || !router.matches(pattern, message.channel()) || !router.isStray(message.channel()));
            throw e;
        }
    }

    /** Listens, with the callback of the subscription, if it has one, in place of another. */
    void listen(Subscription subscription, Deadline deadline) {
        Router router = session.router;
        router.expect(subscription);
        try {
            ask("listen", "", deadline, value -> {
                if (router.listener != null) {
                    router.drop(router.listener, Subscription.NOT_OPEN);
                }
                router.forgetRoutes();
                router.listening = !subscription.isApart;
                router.listener = subscription.isApart ? subscription : null;
            });
        } catch (BccnException e) {
            router.drop(subscription, Subscription.NOT_OPEN);
            throw e;
        }
    }

    // --- to publish ---

    /** Sends a packet of so many messages, over reconnections, and while there is no room. */
    void transmit(byte[] packet, int messages, Deadline deadline) {
        Link link = session.link;
        boolean isPatient = link == null || !link.hasRoom();
        if (isPatient) {
            press();
        }
        try {
            do {
                link = awaitLink(null, deadline);
            } while (!awaitRoom(link, deadline));
            link.send(packet);
            session.published += messages;
        } finally {
            if (isPatient) {
                session.pressing--;
            }
        }
    }

    // --- subscriptions that are withdrawn ---

    /** A new link has what is held, and no more. */
    void forget() {
        withdrawn.clear();
    }

    Withdrawal withdraw(String pattern) {
        Withdrawal withdrawal = new Withdrawal(pattern, false);
        withdrawn.add(withdrawal); // also without a link: a greeting may have said it
        return withdrawal;
    }

    /** Ends a query that nobody waits for any more, and withdraws its SUB or watch. */
    private void giveUp(Link link, Query query) {
        query.granted = null;
        session.router.forgetRoutes();
        if (query.subscription != null && query.said && session.link == link) {
            withdraw(query.subscription.pattern());
        } else if (query.watched != null && session.link == link) {
            withdrawWatch(query.watched);
        }
    }

    private void withdrawWatch(String pattern) {
        boolean isKnown = withdrawn.stream()
                .anyMatch(each -> each.isWatch && !each.hasLeft && each.pattern.equals(pattern));
        if (!isKnown) {
            withdrawn.add(new Withdrawal(pattern, true));
        }
    }

    /** Reports whether somebody waits for a watch of this pattern. */
    private boolean isAsked(String pattern) {
        return session.asked.stream().anyMatch(each -> each.granted != null && pattern.equals(each.watched));
    }

    /** Sends what is left to send of withdrawals; false: there is no room for the rest. */
    private boolean takeBack(Link link) {
        withdrawn.removeIf(each -> each.isWatch && !each.hasLeft && session.watches.patterns().contains(each.pattern));
        for (Withdrawal each : withdrawn) {
            if (each.hasLeft || each.isWatch && isAsked(each.pattern)) {
                continue;
            }
            if (!link.hasRoom()) {
                return false;
            }
            each.hasLeft = true;
            Query end = new Query(session, each.isWatch ? "unwatch" : "ping", null);
            end.settled = () -> {
                each.complaint = end.complaint;
                withdrawn.remove(each);
            };
            if (!each.isWatch) {
                link.send(Packets.subscription("UNSUB", each.pattern));
            }
            enqueue(end);
            link.send(each.isWatch ? Packets.control("unwatch", each.pattern) : PING);
        }
        return link.hasRoom();
    }

    /** Sends what there is room for: once there is more, the link tries again. */
    void takeBackSoon(Link link) {
        if (link != null && link == session.link && !withdrawn.isEmpty()) {
            takeBack(link);
        }
    }

    /** Reports whether a message came for nothing but a subscription that was withdrawn. */
    boolean isUnwanted(String channel) {
        return !withdrawn.isEmpty() && session.router.isStray(channel)
                && withdrawn.stream().anyMatch(each -> !each.isWatch && session.router.matches(each.pattern, channel));
    }
}
