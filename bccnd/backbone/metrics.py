"""The backbone's counters, as metrics (``bccnd/process/exposition.py``)."""

from bccnd.process.exposition import Snapshot, text

# Name without bccnd_backbone_ and _total, key in the snapshot, description.
_COUNTERS = (
    ("messages", "pushed", "Messages that got a sequence number."),
    ("keepalives", "keepalives", "KEEPALIVEs that were acknowledged."),
    ("requests", "requests", "REQUESTs received."),
    ("forwarded", "forwarded", "REQUESTs that were forwarded to a subscriber."),
    ("delivered_datagrams", "delivered", "DELIVERs that the network took, one for each subscriber."),
    ("unsent_datagrams", "unsent", "Datagrams that the network did not take."),
)
_GAUGES = (
    ("subscribers", "subscribers", "Subscribers."),
    ("subscribers_limit", "subscribers_limit", "Most subscribers (subscribers)."),
    ("journalling_subscribers", "journalling", "Subscribers that may keep messages for others."),
    ("next_sequence", "next", "The sequence number that comes next."),
    ("reserved_sequence", "bound", "The sequence number that is stored as not yet used."),
)


def render(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    """The text in the format that the Accept header asks for, and its content type."""
    dropped = "dropped_packets", "Packets that were dropped, by reason.", "reason", snapshot["dropped"]
    return text("bccnd_backbone", snapshot, _COUNTERS, _GAUGES, [dropped], accept)
