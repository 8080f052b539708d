/** The client of the bccnd bus: LISTEN/NOTIFY between the programs of a host and of its network segment. */
module bccn {
    exports bccn;
}
