"""The gateway's counters, as metrics (``bccnd/process/exposition.py``)."""

from bccnd.process.exposition import Snapshot, text

# Name without bccnd_dndm_ and _total, key in the snapshot, description.
_COUNTERS = (
    ("heard_messages", "heard", "Messages of programs of the bus, for peers."),
    ("published_messages", "published", "Messages of peers that the daemon has taken."),
    ("frames_sent", "sent", "Frames that were sent to peers, of messages and of the protocol."),
    ("repeated_messages", "again", "Messages that had come by another link before."),
)
_GAUGES = (
    ("daemon_connected", "connected", "1 while the daemon of this host is there."),
    ("peers", "peers", "Peers whose handshake is done."),
    ("links", "links", "Connections to peers, including those without a handshake."),
    ("intents", "intents", "Intents of all peers."),
    ("interests", "interests", "Interests of all peers."),
    ("unheard_routes", "unheard", "Routes of interests for which the daemon has no room."),
    ("unwatched_routes", "unwatched", "Routes of intents that the daemon has no room to watch."),
    ("waiting_bytes", "waiting", "Bytes that wait for peers to read them."),
    ("unpublished_bytes", "unpublished", "Bytes that wait for the daemon."),
)


def render(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text in the format that the Accept header asks for, and its content type."""
    labelled = [
        ("lost_messages", "Messages that did not go everywhere, by reason.", "reason", snapshot["lost"]),
        ("closed_links", "Connections that the gateway has ended, by reason.", "reason", snapshot["closed"]),
        ("faults", "Frames and adverts of peers that were refused, by reason.", "rule", snapshot["faults"]),
    ]
    about = "From a PING to its PONG, the last time: of each peer of dial, and the longest of all others."
    gauges = [("peer_latency_seconds", about, "peer", snapshot["latencies"])]
    return text("bccnd_dndm", snapshot, _COUNTERS, _GAUGES, labelled, accept, gauges)
