package bccn;

import java.util.ArrayDeque;
import java.util.concurrent.locks.Condition;
import java.util.function.Supplier;

/**
 * Holds messages until they are received: those of the client, of a subscription with a stream or a callback of its
 * own, or of a request. The lock of the session guards it.
 */
final class Inbox {
    /** About so many bytes belong to a message besides its payload. */
    private static final int MESSAGE_COST = 256;

    final Condition wake;
    ArrayDeque<Message> messages = new ArrayDeque<>();
    long size; // bytes
    long came; // messages, ever
    long lost; // messages that the daemon dropped since the last one
    int busy; // of these, what the callback has in hand
    boolean isCalled; // a callback takes them
    Supplier<BccnException> over; // why no more come

    Inbox(Session session) {
        wake = session.lock.newCondition();
    }

    /** Counts the payload once: it lies in the datagram, of which a tap also gets some without a payload. */
    static int costOf(Message message) {
        return Math.max(message.payload().length, message.datagram().length) + MESSAGE_COST;
    }
}
