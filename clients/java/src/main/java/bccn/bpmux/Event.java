package bccn.bpmux;

/**
 * What happened on a connection.
 *
 * @param kind what
 * @param entity to which channel or request; the top level is a channel, too
 * @param payload with what, or null
 */
public record Event(Kind kind, Entity entity, byte[] payload) {
    /** Kinds of events. */
    public enum Kind {
        /** The peer opened a channel. */
        OPENED,
        /** A whole message came. */
        MESSAGE,
        /** The peer waits for a response. */
        REQUESTED,
        /** The response to a request of ours came, which is over with it. */
        RESPONDED,
        /** The peer takes no more of it. */
        CANCELLED,
        /** The peer sends no more of it; of a request of ours: there will be no response. */
        CLOSED,
        /** Nobody says anything more about it: its id is free. */
        ENDED,
        /** {@link Endpoint#send} had taken no more, and does again. */
        WRITABLE,
        /** The peer went beyond a limit, and this side ends it. */
        REFUSED,
        /** Its heartbeats went unanswered; of the top level: the connection is to be dropped. */
        SILENT,
        /** Both sides have closed and cancelled the top level. */
        FINISHED
    }
}
