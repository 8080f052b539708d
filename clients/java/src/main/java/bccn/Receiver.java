package bccn;

import static bccn.Notice.Kind.CLOSING;
import static bccn.Notice.Kind.REJECTED;
import static bccn.Notice.Kind.REVOKED;

/** What the daemon says: messages, answers, errors and notices; and what is in doubt. Under the lock of the session. */
final class Receiver {
    private final Session session;
    private long confirmed; // of what was published
    private long inDoubt;
    private BccnException rejection; // the first since the last barrier
    private long rejections;

    Receiver(Session session) {
        this.session = session;
    }

    boolean isAllConfirmed() {
        return session.published <= confirmed;
    }

    /** The connection has ended. Returns how many messages were perhaps not taken. */
    long doubt() {
        long doubt = session.published - confirmed;
        inDoubt += doubt;
        confirmed = session.published;
        return doubt;
    }

    /** Takes a packet; a PACK is several. */
    void packet(byte[] packet) {
        if (Packets.isPack(packet)) {
            Packets.unpack(packet, packet.length, this::handle);
        } else {
            handle(packet);
        }
    }

    private void handle(byte[] packet) {
        Packets.Said said = Packets.parse(packet, session.router.lastChannel);
        if (said.key() != null) {
            control(said.key(), said.value());
            return;
        }
        Message message = said.message();
        // A reply, or a message that came only because this client listens for replies, is for nobody else.
        boolean isTaken = message.isDirected() && !message.isRejected()
                && (session.exchanges.isReply(message) || !session.router.isListening());
        if (!isTaken && !session.calls.isUnwanted(message.channel())) {
            session.router.deliver(message);
        }
    }

    private void control(String key, String value) {
        switch (key) {
            case "error" -> complain(value);
            case "dropped" -> {
                long count = count(value);
                session.router.missed(count);
                session.notices.lost(value, count);
            }
            case "revoked" -> session.notices.add(REVOKED, "no longer allowed: " + value, 1, null);
            case "wanted" -> session.watches.hear(value);
            case "closing" -> session.notices.add(CLOSING, "the daemon closes the connection: " + value, 0, null);
            default -> {
                if (!session.asked.isEmpty() && session.asked.element().key.equals(key)) {
                    answered().finish(value, null);
                } // other keys are notices of a newer daemon
            }
        }
    }

    /** Reads how many messages the daemon has dropped; 0 where it is no number. */
    static long count(String value) {
        return value.matches("[0-9]{1,18}") ? Long.parseLong(value) : 0;
    }

    /** Gives an error to the query or request that it answers, and otherwise to the next barrier. */
    private void complain(String value) {
        int space = value.indexOf(' ');
        String code = space < 0 ? value : value.substring(0, space);
        String text = space < 0 ? "" : value.substring(space + 1);
        BccnException error = new BccnException.Rejected(new Code(code), text + " (" + code + ")");
        if (text.startsWith("CMSG ") && !session.asked.isEmpty()) {
            answered().finish(null, error);
        } else if ((text.startsWith("SUB ") || text.startsWith("UNSUB ")) && !session.asked.isEmpty()) {
            Query query = session.asked.element();
            query.complaint = query.complaint == null ? error : query.complaint;
        } else if (!session.exchanges.blame(text, error)) {
            rejections++;
            rejection = rejections == 1 ? error : rejection;
            session.notices.add(REJECTED, error.getMessage(), 1, error);
        }
    }

    /** Removes the first query, which has its answer: the daemon has processed everything sent before it, too. */
    private Query answered() {
        Query query = session.asked.remove();
        confirmed = Math.max(confirmed, query.published);
        return query;
    }

    /** What is wrong since the last barrier, or null; it is forgotten. */
    BccnException doubts() {
        BccnException first = rejection;
        long more = rejections - 1;
        long doubt = inDoubt;
        rejection = null;
        rejections = 0;
        inDoubt = 0;
        if (first != null) {
            return more == 0 ? first
                    : new BccnException.Rejected(first.code(), first.getMessage() + "; " + more + " more rejected");
        }
        return doubt == 0 ? null : new BccnException(Code.UNCONFIRMED,
                "the daemon went away: up to " + doubt + " messages may not have been published");
    }
}
