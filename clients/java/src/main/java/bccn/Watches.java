package bccn;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.BiConsumer;

/**
 * Who is told whether anybody listens. What the daemon says is a state: a callback is told of changes, and while it
 * runs the last state replaces those before it. Under the lock of the session.
 */
final class Watches {
    /** A callback has a thread only while it is told. */
    private static final class Watch {
        final BiConsumer<String, Boolean> callback;
        boolean wanted; // as the daemon has said last
        Boolean told; // null: nothing yet
        boolean isTelling;

        Watch(BiConsumer<String, Boolean> callback) {
            this.callback = callback;
        }
    }

    private final Session session;
    private final Map<String, Watch> all = new HashMap<>(); // by pattern

    Watches(Session session) {
        this.session = session;
    }

    Set<String> patterns() {
        return all.keySet();
    }

    /** Begins a watch, in place of an earlier one of this pattern. */
    void begin(String pattern, BiConsumer<String, Boolean> callback) {
        all.put(pattern, new Watch(callback));
    }

    void end(String pattern) {
        all.remove(pattern);
    }

    /** Takes what the daemon says, {@code <where> <pattern>}. */
    void hear(String news) {
        int space = news.indexOf(' ');
        String pattern = news.substring(space + 1);
        Watch watch = all.get(pattern);
        if (watch == null) {
            return;
        }
        watch.wanted = !news.startsWith("no "); // a newer daemon may have more words
        if (!watch.isTelling) {
            watch.isTelling = true;
            Thread thread = session.options.threads.newThread(() -> tell(pattern, watch));
            thread.setName("bccn watch " + pattern);
            thread.start();
        }
    }

    private void tell(String pattern, Watch watch) {
        while (true) {
            boolean wanted;
            session.lock.lock();
            try {
                wanted = watch.wanted;
                boolean isTold = watch.told != null && watch.told == wanted;
                if (isTold || session.isClosed || all.get(pattern) != watch) {
                    watch.isTelling = false;
                    return;
                }
                watch.told = wanted;
            } finally {
                session.lock.unlock();
            }
            Session.guarded(() -> watch.callback.accept(pattern, wanted));
        }
    }
}
