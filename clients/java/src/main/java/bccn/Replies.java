package bccn;

import java.util.Iterator;
import java.util.NoSuchElementException;

/**
 * The replies to a request, as they come. There are no more when so many have come as were wanted or the time is over,
 * and no error for that. To iterate it a second time goes on where the first ended.
 */
public final class Replies implements Iterable<Message>, Iterator<Message>, AutoCloseable {
    private final Session session;
    private final Exchanges.Exchange exchange;
    private long left;
    private Message ahead;

    Replies(Session session, Exchanges.Exchange exchange, int count) {
        this.session = session;
        this.exchange = exchange;
        left = count <= 0 ? Long.MAX_VALUE : count;
    }

    /**
     * Waits for the next reply.
     *
     * @return whether there is one
     */
    @Override
    public boolean hasNext() {
        if (ahead == null && left > 0) {
            session.lock.lock();
            try {
                ahead = session.exchanges.next(exchange);
            } finally {
                if (ahead == null) {
                    close();
                }
                session.lock.unlock();
            }
        }
        return ahead != null;
    }

    @Override
    public Message next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        Message reply = ahead;
        ahead = null;
        if (--left == 0) {
            close();
        }
        return reply;
    }

    @Override
    public Iterator<Message> iterator() {
        return this;
    }

    /** Takes no more replies. A program that iterates to the end, or lets the time pass, need not call it. */
    @Override
    public void close() {
        left = 0;
        session.lock.lock();
        try {
            session.exchanges.end(exchange);
        } finally {
            session.lock.unlock();
        }
    }
}
