package bccn;

/** Divides patterns and channels into tokens. */
public enum Separator {
    /** The default. */
    SLASH("/"),
    /** A dot. */
    DOT(".");

    final String text;

    Separator(String text) {
        this.text = text;
    }
}
