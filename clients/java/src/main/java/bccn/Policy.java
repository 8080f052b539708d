package bccn;

/** What the daemon does when no more may wait for this client. */
public enum Policy {
    /** Drops what waits longest. */
    DROP_OLDEST("drop-oldest"),
    /** Drops what comes. */
    DROP_NEWEST("drop-newest"),
    /** Lets publishers of this host wait. */
    BLOCK("block"),
    /** Closes the connection. */
    DISCONNECT("disconnect");

    final String word;

    Policy(String word) {
        this.word = word;
    }
}
