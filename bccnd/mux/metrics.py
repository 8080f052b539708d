"""The door's counters, as metrics (``bccnd/process/exposition.py``)."""

from bccnd.process.exposition import Snapshot, text

# Name without bccnd_mux_ and _total, key in the snapshot, description.
_COUNTERS = (
    ("connections", "accepted", "Connections that were accepted."),
    (
        "turned_away_connections",
        "turned_away",
        "Connections that were refused a place, with or without a reason.",
    ),
    ("packets_from_daemon", "packets_in", "Packets that the daemon sent to sessions, streams and requests."),
    ("packets_to_daemon", "packets_out", "Packets of peers that the daemon took."),
)
_GAUGES = (
    ("open_connections", "connections", "Connections now."),
    ("open_connections_limit", "connections_limit", "Most connections (connections)."),
    ("daemon_links", "links", "Connections to the daemon now: sessions, streams and requests."),
    ("daemon_links_limit", "links_limit", "Most connections to the daemon (sessions)."),
    ("replays", "replays", "Replays of recordings now."),
    ("held_bytes", "held", "Bytes that wait for peers and for the daemon."),
)


def render(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text in the format that the Accept header asks for, and its content type."""
    ended = "ended_connections", "Connections that have ended, by reason.", "reason", snapshot["ended"]
    return text("bccnd_mux", snapshot, _COUNTERS, _GAUGES, [ended], accept)
