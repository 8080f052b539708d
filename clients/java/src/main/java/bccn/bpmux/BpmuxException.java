package bccn.bpmux;

/** The peer sent what it cannot have meant: the connection is to be dropped. */
public final class BpmuxException extends Exception {
    private static final long serialVersionUID = 1;

    /** Which kind of rule the peer broke. */
    private final String rule;

    BpmuxException(String rule, String detail) {
        super(rule + ": " + detail);
        this.rule = rule;
    }

    /**
     * Which kind of rule it broke.
     *
     * @return {@code tag}, {@code id}, {@code state}, {@code credit}, {@code partial} or {@code limit}
     */
    public String rule() {
        return rule;
    }
}
