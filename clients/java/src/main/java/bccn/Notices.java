package bccn;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;

/** The notices that wait to be told, one after the other, in a thread of their own. */
final class Notices {
    /** The daemon can reject every message: beyond this a notice is counted by the last one of its kind. */
    private static final int LIMIT = 256;

    private final Session session;
    private final Deque<Notice> waiting = new ArrayDeque<>();
    private boolean isTelling;

    Notices(Session session) {
        this.session = session;
    }

    static void log(Notice notice) {
        System.getLogger("bccn").log(System.Logger.Level.WARNING, notice.toString());
    }

    /** Has a notice told; under the lock. */
    void add(Notice.Kind kind, String text, long count, BccnException error) {
        Notice notice = new Notice(kind, text, count, error);
        if (!isCounted(notice)) {
            waiting.add(notice);
        }
        if (!isTelling) {
            isTelling = true;
            Session.start("bccn notices", this::tell);
        }
    }

    /** The daemon has dropped so many. */
    void lost(String said, long count) {
        add(Notice.Kind.LOST, said + " lost: messages came faster than they were read", count, null);
    }

    private boolean isCounted(Notice notice) {
        boolean isFull = waiting.size() >= LIMIT;
        for (Iterator<Notice> all = waiting.descendingIterator(); all.hasNext(); ) {
            Notice last = all.next();
            if (last.kind() == notice.kind() && (isFull || last.text().equals(notice.text()))) {
                long count = last.count() + notice.count();
                all.remove(); // its place in the order matters less than its number
                waiting.add(new Notice(last.kind(), last.text(), count, last.error()));
                return true;
            }
            if (!isFull) {
                return false; // only the last one, as they are in order
            }
        }
        return false;
    }

    private void tell() {
        while (true) {
            Notice notice;
            session.lock.lock();
            try {
                notice = waiting.poll();
                if (notice == null) {
                    isTelling = false;
                    return;
                }
            } finally {
                session.lock.unlock();
            }
            Session.guarded(() -> session.options.onNotice.accept(notice));
        }
    }
}
