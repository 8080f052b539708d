"""The events of the daemon's log: those that no peer can cause, and those that are limited (``process.log_limit``).

A peer is a client, a host that sends datagrams, or whoever connects to the metrics. An event stands in one of the two
tables, which a test compares with the source. An event in neither is limited.
"""

# Caused by whoever runs the host: by settings, signals, links, files, or the daemon's own start and end.
NO_PEER = frozenset(
    {
        # signals
        "log level changed",
        "needs a restart",
        "not changed while the socket is in use",
        "not reloaded, the old settings stay",
        "not replaced, still serving",
        "reloaded",
        "replaced",
        "serving",
        "stopped",
        # what the host has
        "few file descriptors",
        "interface missing, waiting for it",
        "links not readable, trying again",
        "no interface to the segment, serving this host alone",
        "receive buffer smaller than configured",
        "segment closed",
        "segment not opened, trying again",
        "segment opened",
        "the kernel does not report links: interfaces that come or go are not followed",
        # files and sockets of the daemon's own
        "listener shut down",
        "sequence numbers not kept",
        "sequence numbers of the last run unknown",
        "socket file gone: nobody can connect",
        "socket file made again",
        "the socket passed takes the place of the setting",
        # the limit itself
        "more like this",
    }
)

LIMITED = frozenset(
    {
        # a client
        "client closed",
        "client connected",
        "client left",
        "client no longer too slow",
        "client refused",
        "client too slow",
        "fault",
        "refused",
        # a host
        "datagrams dropped",
        "host misses much",
        "kernel dropped datagrams: receive buffer full",
        "segment not readable",
    }
)
