package bccn;

/** How the daemon delivers messages. */
public enum Format {
    /** Channel and payload; the default. */
    PLAIN,
    /** Also who sent the message, and when: see {@link Message}. */
    FULL
}
