package bccn;

import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.concurrent.locks.Condition;

/** Where a program gets one message after the other. The lock of the session guards it. */
interface Source {
    /** Is signalled when there may be a message, or the end. */
    Condition wake();

    /**
     * Takes the next message; null if there is none yet, or none is wanted. Throws why no more come, which is no fault
     * if it is {@link BccnException.Closed}.
     */
    Message poll(boolean isWanted);

    /** Waits for one message after the other, until the source is closed. */
    static Iterator<Message> iterator(Session session, Source source) {
        return new Iterator<>() {
            private Message ahead;

            @Override
            public boolean hasNext() {
                session.lock.lock();
                try {
                    while (ahead == null) {
                        ahead = source.poll(true);
                        if (ahead == null) {
                            Session.await(source.wake(), Deadline.never());
                        }
                    }
                    return true;
                } catch (BccnException.Closed e) {
                    return false;
                } finally {
                    session.lock.unlock();
                }
            }

            @Override
            public Message next() {
                if (!hasNext()) {
                    throw new NoSuchElementException();
                }
                Message message = ahead;
                ahead = null;
                return message;
            }
        };
    }
}
