package bccn;

/**
 * What every function of this package throws. Its {@link #code} says what went wrong; the subclasses are for
 * {@code catch}.
 */
public class BccnException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final transient Code code;

    BccnException(Code code, String text) {
        super(text);
        this.code = code;
    }

    /**
     * What went wrong.
     *
     * @return the code
     */
    public Code code() {
        return code;
    }

    /** There is no daemon, or it went away and did not come back in time; nothing was sent. */
    public static final class Unavailable extends BccnException {
        private static final long serialVersionUID = 1;

        Unavailable(String text) {
            super(Code.UNAVAILABLE, text);
        }
    }

    /** The daemon does not answer or takes no more, or no reply came. */
    public static final class TimedOut extends BccnException {
        private static final long serialVersionUID = 1;

        TimedOut(String text) {
            super(Code.TIMEOUT, text);
        }
    }

    /** Nobody listens to this request. */
    public static final class Nobody extends BccnException {
        private static final long serialVersionUID = 1;

        Nobody(String text) {
            super(Code.NOBODY, text);
        }
    }

    /** The thread was interrupted while it waited. It is still marked as interrupted. */
    public static final class Cancelled extends BccnException {
        private static final long serialVersionUID = 1;

        Cancelled() {
            super(Code.CANCELLED, "the thread was interrupted");
        }
    }

    /** The client, or the subscription, is closed. */
    public static final class Closed extends BccnException {
        private static final long serialVersionUID = 1;

        Closed(String text) {
            super(Code.CLOSED, text);
        }
    }

    /** The daemon rejected it; the text begins with the packet that it answers. */
    public static final class Rejected extends BccnException {
        private static final long serialVersionUID = 1;

        Rejected(Code code, String text) {
            super(code, text);
        }
    }

    static BccnException invalid(String text) {
        return new BccnException(Code.INVALID, text);
    }

    static BccnException protocol(String text) {
        return new BccnException(Code.PROTOCOL, text);
    }

    /** Returns the error of a word and a text that the daemon or the door has sent. */
    static BccnException said(String word, String text) {
        return word.equals(Code.UNAVAILABLE.word()) ? new Unavailable(text) : new Rejected(new Code(word), text);
    }

    /** Returns this, as thrown here: it was made in a thread of the client. */
    BccnException here() {
        fillInStackTrace();
        return this;
    }
}
