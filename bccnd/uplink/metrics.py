"""The uplink's counters, as metrics (``bccnd/process/exposition.py``)."""

from bccnd.process.exposition import Snapshot, text

# Name without bccnd_uplink_ and _total, key in the snapshot, description.
_COUNTERS = (
    (
        "exported_messages",
        "exported",
        "Messages of this segment that were given to the carrier, or wait for it.",
    ),
    ("published_datagrams", "published", "Link datagrams that the carrier has taken."),
    ("repeated_datagrams", "repeated", "Link datagrams that were published again."),
    ("imported_messages", "imported", "Messages of other segments that came."),
    ("asked_positions", "asked", "Positions that were missing and asked for."),
    ("repaired_positions", "repaired", "Positions that came because they were asked for."),
    (
        "lost_positions",
        "lost_positions",
        "Positions that were asked for in vain, or that the carrier had deleted.",
    ),
    ("skipped_positions", "skipped", "Positions that were passed over as probably never used."),
    ("answered_positions", "answered", "Positions that others missed and got from here."),
)
_GAUGES = (
    ("daemon_connected", "connected", "1 while the daemon of this host is there and allows what is wanted."),
    ("carrier_connected", "carried", "1 while the carrier is there."),
    ("round_trip_seconds", "round_trip", "The way to the carrier and back; 0 before it is known."),
    ("behind_positions", "behind", "Positions that are known to be still to come."),
    ("links", "links", "Other uplinks that are heard."),
    ("held_datagrams", "held", "Link datagrams that wait for one that is missing before them."),
    ("waiting_datagrams", "waiting", "Link datagrams that wait for the carrier."),
    ("waiting_bytes", "waiting_bytes", "Bytes of them."),
)


def render(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text in the format that the Accept header asks for, and its content type."""
    labelled = [
        ("lost", "Messages or datagrams that were lost for good, by reason.", "reason", snapshot["lost"]),
        (
            "dropped_messages",
            "Messages that were not carried, by reason.",
            "reason",
            snapshot["dropped"],
        ),
        (
            "bus_messages",
            "Messages between the uplink and its daemon, by outcome.",
            "what",
            snapshot["bus"],
        ),
    ]
    return text("bccnd_uplink", snapshot, _COUNTERS, _GAUGES, labelled, accept)
