package bccn;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.US_ASCII;

import java.security.SecureRandom;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

/**
 * Requests and their replies (clients/PROTOCOL.md, "Request and reply"). All runs under the lock of the session.
 *
 * <ol>
 *   <li>A request is a message whose first line is a token; a reply is directed to the asker and begins with the same
 *       line. A token cannot be guessed and belongs to one client: a message that begins like ours is a reply, perhaps
 *       a late one.
 *   <li>A request is published once. The daemon says at once how many listen on this host. If nobody does, and no reply
 *       came within {@code ASK_AFTER}, the client asks the daemons of the other hosts: those with listeners reply, with
 *       the token and a "?". Nobody listens if several questions bring no reply; a single one could have been lost.
 * </ol>
 */
final class Exchanges {
    /** Bytes of the first line of a request. */
    static final int TOKEN_LIMIT = 128;

    private static final int QUESTIONS = 3;
    private static final Duration ASK_AFTER = Duration.ofMillis(20);
    private static final Duration ASK_EVERY = Duration.ofMillis(100);

    /** More replies that wait for one request are a flood, and are dropped. */
    private static final int REPLIES_LIMIT = 65536;

    private final Session session;
    private final String ours; // the beginning of the token of each request
    private final Map<String, Exchange> all = new HashMap<>();
    private long number;

    /** A request that waits for replies. */
    static final class Exchange {
        final String token;
        final String channel;
        final Deadline deadline;
        final Inbox replies;
        boolean isSettled; // somebody listens, or nobody can know
        private boolean isConfirmed; // the daemon has taken the request, or rejected it
        private BccnException rejection;
        private Deadline due = Deadline.in(ASK_AFTER);
        private int questions = QUESTIONS;

        Exchange(Session session, String token, String channel, Deadline deadline) {
            this.token = token;
            this.channel = channel;
            this.deadline = deadline;
            replies = new Inbox(session);
        }
    }

    Exchanges(Session session) {
        this.session = session;
        byte[] random = new byte[8];
        new SecureRandom().nextBytes(random);
        ours = HexFormat.of().formatHex(random) + ".";
    }

    void wake() {
        all.values().forEach(each -> each.replies.wake.signalAll());
    }

    /**
     * Keeps a reply to a request of this client, drops a late one, and reports whether the message was a reply. A
     * request to all comes back to the asker, and is not a reply.
     */
    boolean isReply(Message message) {
        byte[] payload = message.payload();
        int end = Packets.indexOf(payload, '\n', 0);
        String token = new String(payload, 0, Math.min(end < 0 ? payload.length : end, TOKEN_LIMIT + 1), ISO_8859_1);
        if (!token.startsWith(ours)) {
            return false;
        }
        boolean isAboutListeners = token.endsWith("?");
        Exchange exchange = all.get(isAboutListeners ? token.substring(0, token.length() - 1) : token);
        if (exchange == null) {
            return true;
        }
        if (message.channel().equals(exchange.channel)) {
            return false;
        }
        exchange.isSettled = true;
        if (!isAboutListeners && exchange.replies.messages.size() < REPLIES_LIMIT) {
            byte[] reply = end < 0 ? Message.NOTHING : Arrays.copyOfRange(payload, end + 1, payload.length);
            session.router.put(exchange.replies, message.withPayload(reply));
        } else {
            exchange.replies.wake.signal();
        }
        return true;
    }

    /** Gives an error to the request that the daemon rejected, and reports whether there is one. */
    boolean blame(String text, BccnException error) {
        for (Exchange each : all.values()) {
            if (!each.isConfirmed && text.startsWith("MSG " + each.channel + ":")) {
                each.rejection = error;
                return true;
            }
        }
        return false;
    }

    /** Publishes a request once, and finds out whether anybody on this host listens. */
    Exchange begin(String channel, byte[] payload, Deadline deadline) {
        all.values().removeIf(each -> {
            boolean isForgotten = each.deadline.isOver(); // by a program that did not close it
            if (isForgotten) {
                session.router.discard(each.replies);
            }
            return isForgotten;
        });
        Exchange exchange = new Exchange(session, ours + ++number, channel, deadline);
        all.put(exchange.token, exchange);
        try {
            publish(exchange, payload);
        } catch (RuntimeException e) {
            boolean isLate = e instanceof BccnException.TimedOut && deadline.isOver(); // which ends the replies
            if (!isLate) {
                end(exchange);
                throw e;
            }
        }
        exchange.due = Deadline.in(ASK_AFTER);
        return exchange;
    }

    void end(Exchange exchange) {
        all.remove(exchange.token);
        session.router.discard(exchange.replies);
    }

    /** What was published before is confirmed first, so that any rejection is about the request. */
    private void publish(Exchange exchange, byte[] payload) {
        if (!session.router.hears()) {
            session.calls.ask("listen", "", exchange.deadline, value -> session.router.hearing = true);
        } else if (!session.receiver.isAllConfirmed()) {
            session.calls.ask("ping", "", exchange.deadline, null);
        }
        byte[] head = (exchange.token + "\n").getBytes(US_ASCII);
        session.calls.transmit(Packets.message(exchange.channel, head, payload), 1, exchange.deadline);
        String listeners = "";
        try {
            listeners = session.calls.ask("listeners", exchange.channel, exchange.deadline, null);
        } catch (BccnException e) {
            boolean isOlder = e.code().equals(Code.UNKNOWN_KEY); // a daemon that does not say whether somebody listens
            boolean isLate = exchange.deadline.isOver(); // there was no time for replies either
            if (exchange.rejection == null && !isOlder && (!isLate || e instanceof BccnException.Cancelled)) {
                throw e;
            }
        }
        exchange.isConfirmed = true;
        if (exchange.rejection != null) {
            throw exchange.rejection.here();
        }
        exchange.isSettled |= !listeners.equals("0");
    }

    /** Waits for a reply; null when the time is over. */
    Message next(Exchange exchange) {
        while (true) {
            Deadline until = exchange.isSettled ? exchange.deadline : exchange.due.orSooner(exchange.deadline);
            Message reply = awaitReply(exchange, until);
            if (reply != null || exchange.deadline.isOver()) {
                return reply;
            }
            if (exchange.isSettled || !until.isOver()) {
                continue;
            }
            if (exchange.questions-- == 0) {
                throw new BccnException.Nobody("nobody listens to " + exchange.channel);
            }
            exchange.due = Deadline.in(ASK_EVERY);
            try {
                askOthers(exchange);
            } catch (BccnException.TimedOut | BccnException.Unavailable e) {
                if (exchange.deadline.isOver()) {
                    return null;
                }
                throw e;
            }
        }
    }

    /** Waits for a reply, or until the exchange is settled. */
    private Message awaitReply(Exchange exchange, Deadline until) {
        session.pressing++;
        session.grant();
        try {
            boolean wasSettled = exchange.isSettled;
            Message reply = session.router.take(exchange.replies);
            while (reply == null && exchange.isSettled == wasSettled) {
                if (session.router.over != null) {
                    throw session.router.over.get();
                }
                boolean isOver = !Session.await(exchange.replies.wake, until);
                reply = session.router.take(exchange.replies);
                if (isOver) {
                    break;
                }
            }
            return reply;
        } finally {
            session.pressing--;
        }
    }

    /** Makes the daemon ask those of the other hosts. It answers {@code <n>}, {@code <n> asked} or {@code <n> busy}. */
    private void askOthers(Exchange exchange) {
        String question = exchange.channel + " " + exchange.token + "?";
        String answer = session.calls.ask("listeners", question, exchange.deadline, null);
        int space = answer.indexOf(' ');
        boolean isBusy = answer.endsWith(" busy");
        exchange.isSettled |= isBusy || !answer.substring(0, space < 0 ? answer.length() : space).equals("0");
        if (!exchange.isSettled && !answer.endsWith(" asked")) {
            throw new BccnException.Nobody("nobody on this host listens to " + exchange.channel + ", a local channel");
        }
    }
}
