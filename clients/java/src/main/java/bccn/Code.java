package bccn;

/**
 * What went wrong, in a word of the protocol. The daemon may have more codes than are named here.
 *
 * @param word of the protocol
 */
public record Code(String word) {
    /** An argument that cannot be sent at all. */
    public static final Code INVALID = new Code("invalid");
    /** There is no daemon, or it went away and did not come back in time; nothing was sent. */
    public static final Code UNAVAILABLE = new Code("unavailable");
    /** The connection broke since the last barrier: messages may be missing. */
    public static final Code UNCONFIRMED = new Code("unconfirmed");
    /** The daemon does not answer or takes no more, or no reply came. */
    public static final Code TIMEOUT = new Code("timeout");
    /** Nobody listens to this request. */
    public static final Code NOBODY = new Code("nobody");
    /** Too many messages wait: the program must receive before it asks. */
    public static final Code BACKLOG = new Code("backlog");
    /** The daemon sent what is not of this protocol. */
    public static final Code PROTOCOL = new Code("protocol");
    /** The client, or the subscription, is closed. */
    public static final Code CLOSED = new Code("closed");
    /** The thread was interrupted. */
    public static final Code CANCELLED = new Code("cancelled");

    /** The daemon could not read a packet. */
    public static final Code BAD_PACKET = new Code("bad-packet");
    /** The channel breaks a rule. */
    public static final Code BAD_CHANNEL = new Code("bad-channel");
    /** The pattern can match nothing. */
    public static final Code BAD_PATTERN = new Code("bad-pattern");
    /** The setting has no such value. */
    public static final Code BAD_VALUE = new Code("bad-value");
    /** The name breaks a rule. */
    public static final Code BAD_NAME = new Code("bad-name");
    /** Another client of the host has the name. */
    public static final Code NAME_TAKEN = new Code("name-taken");
    /** The daemon does not hold the subscription. */
    public static final Code NOT_SUBSCRIBED = new Code("not-subscribed");
    /** The message does not fit. */
    public static final Code TOO_LARGE = new Code("too-large");
    /** The daemon is older than this request. */
    public static final Code UNKNOWN_KEY = new Code("unknown-key");
    /** There is no right to it. */
    public static final Code REFUSED = new Code("refused");
    /** The client holds too much. */
    public static final Code LIMIT = new Code("limit");
    /** A PACK came that was not agreed. */
    public static final Code NOT_AGREED = new Code("not-agreed");
    /** A datagram from elsewhere breaks a rule, or was here before. */
    public static final Code BAD_DATAGRAM = new Code("bad-datagram");

    @Override
    public String toString() {
        return word;
    }
}
