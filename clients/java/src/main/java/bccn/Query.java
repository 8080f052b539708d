package bccn;

import java.util.concurrent.locks.Condition;
import java.util.function.Consumer;

/** A control request without an answer yet. The lock of the session guards it. */
final class Query {
    final String key; // of the answer
    final Condition done;
    Consumer<String> granted; // gets the answer, unless that is an error or nobody waits for it
    Runnable settled; // after any answer
    Subscription subscription; // of a SUB that goes before the request
    boolean said; // it has left
    String watched; // the pattern of a watch
    long published; // messages sent before it
    BccnException complaint; // about the SUB or UNSUB sent before it
    boolean isDone;
    boolean isLost; // the connection has ended
    String value;
    BccnException error;

    Query(Session session, String key, Consumer<String> granted) {
        this.key = key.equals("ping") ? "pong" : key;
        this.granted = granted;
        done = session.lock.newCondition();
    }

    void finish(String answer, BccnException fault) {
        isDone = true;
        value = answer;
        error = fault != null ? fault : complaint;
        if (error == null && granted != null) {
            granted.accept(answer);
        }
        if (settled != null) {
            settled.run();
        }
        done.signalAll();
    }

    void lose() {
        isDone = true;
        isLost = true;
        done.signalAll();
    }
}
