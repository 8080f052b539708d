package bccn;

/** Whether every datagram of the segment is shown, too, with its verdict. It needs the right to tap. */
public enum Tap {
    /** The default. */
    OFF,
    /** Every datagram. */
    ON,
    /** With the interface that each came by. */
    INTERFACE
}
