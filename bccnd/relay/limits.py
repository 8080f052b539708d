"""What may grow in a relay, and how far. The values come from the settings, which check them."""

from dataclasses import dataclass
from typing import Any

from bccnd.relay.outbox import Policy


@dataclass(frozen=True, slots=True)
class Limits:
    """What may grow, and how far (settings ``queue``, ``limits``, ``retain`` and ``dedup``)."""

    clients: int = 4096
    subscriptions: int = 1024  # per client
    local_payload: int = 65536  # bytes, on channels that do not leave the host
    channels_cached: int = 1 << 18
    queue_packets: int = 10_000  # per client
    queue_bytes: int = 8 << 20  # per client
    queue_max_packets: int = 100_000  # what a client may ask for
    queue_max_bytes: int = 64 << 20
    queue_total: int = 256 << 20  # bytes, all clients together
    queue_policy: Policy = Policy.DROP_OLDEST
    block_seconds: float = 5.0
    retain_channels: int = 4096
    retain_bytes: int = 4 << 20
    sanity: int = 1000
    sources: int = 65536
    source_seconds: float = 86400.0
    reorder: int = 0
    drop_replays: bool = False
    unknown: str = "deliver"  # what is done with src "?": deliver, by-address, drop

    def source_rules(self) -> dict[str, Any]:
        """The arguments of ``Sources``."""
        return {
            "sanity": self.sanity,
            "limit": self.sources,
            "seconds": self.source_seconds,
            "reorder": self.reorder,
            "drop_replays": self.drop_replays,
        }
