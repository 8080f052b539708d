package bccn;

/**
 * Something that happened to the connection.
 *
 * @param kind what it is about
 * @param text a line for people
 * @param count how many messages, or how often; 0 where nothing is counted
 * @param error of REJECTED; else null
 */
public record Notice(Kind kind, String text, long count, BccnException error) {
    /** What a notice is about. Later versions may have more kinds. */
    public enum Kind {
        /** The daemon dropped messages: this program reads too slowly. */
        LOST,
        /** The daemon rejected a message, or a setting on a new connection; or a reply could not be sent. */
        REJECTED,
        /** The daemon took a right back, and what rested on it has ended. */
        REVOKED,
        /** The daemon closes the connection; the text says why. */
        CLOSING,
        /** The connection has ended; the daemon has perhaps not taken so many messages. */
        DISCONNECTED,
        /** There is a connection again, with every subscription in force. */
        RECONNECTED,
        /** Messages of the client's stream were dropped: this program has callbacks, and never receives. */
        UNCLAIMED,
        /** Of a replay: messages may be missing between the times that the text says. */
        UNRECORDED
    }

    @Override
    public String toString() {
        return kind == Kind.REJECTED && count > 1 ? text + ", " + count + " times" : text;
    }
}
