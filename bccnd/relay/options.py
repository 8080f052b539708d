"""What can be set about a relay: one dataclass for each table of the settings file, used by the relay as it is.

    bccnd.toml  ->  process.configuration  ->  process.settings  ->  Options  ->  Relay
                    reads                      checks                these

Rules
- A default, a bound and a description stand here and nowhere else. ``bccnd --check`` checks them, and the manual
  prints them. The relay trusts them: it gets checked values.
- A field is named as in the file: ``queue.packets`` is ``Options.queue.packets``.
- The metadata of a field are arguments of pydantic's ``Field``, and ``__pydantic_config__`` is its configuration.
  What needs more than bounds, such as the syntax of a pattern, is checked in ``process.settings``.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeVar

KIB, MIB = 1 << 10, 1 << 20

T = TypeVar("T")
N = TypeVar("N", int, float)


class Policy(StrEnum):
    """What happens to a message for which a client's queue has no room."""

    DROP_OLDEST = "drop-oldest"
    DROP_NEWEST = "drop-newest"
    BLOCK = "block"
    DISCONNECT = "disconnect"


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the settings file. It refuses names that it does not have."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


def setting(default: T, description: str, **checks: object) -> T:
    """A field of a table. ``checks`` are further arguments of pydantic's ``Field``."""
    return field(default=default, metadata={"description": description, **checks})


def number(default: N, least: float, most: float | None, description: str) -> N:
    """A field for a whole number, or, if the default has decimals, for any number."""
    finite = {"allow_inf_nan": False} if isinstance(default, float) else {}
    bounds = {"ge": least} if most is None else {"ge": least, "le": most}
    return setting(default, description, strict=True, **bounds, **finite)


@dataclass(frozen=True, slots=True)
class Queue(Table):
    """What waits for a client that reads slowly. A client may ask for its own limits, up to the maxima."""

    max_packets: int = number(
        100_000, 1, 10_000_000, "The most packets a client may ask to have queued, to bound memory."
    )
    max_bytes: int = number(
        64 * MIB, 128 * KIB, 1 << 34, "The most bytes a client may ask to have queued, to bound memory."
    )
    packets: int = number(10_000, 1, None, "Packets queued for one client before the policy applies.")
    bytes: int = number(
        8 * MIB, 128 * KIB, None, "Bytes queued for one client before that; room for the largest packet."
    )
    total_bytes: int = number(
        256 * MIB, MIB, 1 << 36, "Bytes queued for all clients together, to bound memory."
    )
    policy: Policy = setting(Policy.DROP_OLDEST, "What happens when a client's queue is full.")
    block_seconds: float = number(
        5.0, 0.1, 3600, "With policy block, seconds a client may read nothing before it is closed."
    )
    block_floor: float = number(
        10.0,
        0,
        1e6,
        "With policy block, messages a second that publishers which wait must get through to it.",
    )


@dataclass(frozen=True, slots=True)
class Limits(Table):
    """What the daemon holds at most, so that no client exhausts its memory or descriptors."""

    clients: int = number(4096, 1, 65536, "Connected clients; each takes a file descriptor.")
    clients_per_user: int = number(
        0,
        0,
        65536,
        "Connected clients of one user, so that none keeps the others out; 0 for half of clients. Not for root and "
        "the daemon's user, who also have a few places of their own.",
    )
    subscriptions: int = number(
        1024, 1, 65536, "Subscriptions of one client; each takes memory and matching time."
    )
    subscription_bytes: int = number(
        MIB,
        64 * KIB,
        1 << 30,
        "Bytes that the subscriptions of one client take; those of all, 64 times as many, those of one user half of "
        "these or less: it leaves as much for others as it takes.",
    )
    local_payload: int = number(
        64 * KIB, 1, 64 * KIB, "Payload bytes on local channels; others must fit a datagram of 1400 bytes."
    )
    channels_cached: int = number(
        1 << 18, 1, 1 << 20, "Channels whose subscribers are remembered; some 170 bytes each."
    )

    @property
    def share_of_a_user(self) -> int:
        """The clients that one user may have."""
        return self.clients_per_user or max(1, self.clients // 2)


@dataclass(frozen=True, slots=True)
class Retain(Table):
    """The newest message of some channels, kept for clients that subscribe later. Without patterns, none is kept.

    The default bounds are below those of a client's queue: a client that subscribes to all of it loses nothing.
    """

    patterns: tuple[str, ...] = setting(
        (), "Patterns of channels whose newest message is kept.", max_length=256
    )
    channels: int = number(
        4096, 1, 1 << 20, "Channels kept; the user or host that has most gives its oldest."
    )
    bytes: int = number(
        4 * MIB, 128 * KIB, 1 << 32, "Bytes kept, bookkeeping included; room for the largest message."
    )


@dataclass(frozen=True, slots=True)
class Dedup(Table):
    """How the daemon tells repeated, late and restarted datagrams of a source apart."""

    sanity: int = number(
        1000, 1, 1 << 32, "So far behind the last a datagram is a duplicate or late; further, a restart."
    )
    sources: int = number(
        65536, 64, 1 << 20, "Sources remembered; when full, the host with most gives one up, a new one first."
    )
    seconds: float = number(86400.0, 1, 31_536_000, "Seconds of silence after which a source is forgotten.")
    reorder: int = number(
        0, 0, 1024, "How far behind the last a late datagram may be and be delivered; 0 delivers none."
    )
    replays: Literal["auto", "drop", "accept"] = setting(
        "auto",
        "Clock-based numbers far behind the last: drop takes them for a recording, accept for a restart; auto drops "
        "where hmac is required, as without it anybody can make new datagrams.",
    )
    unknown: Literal["deliver", "by-address", "drop"] = setting(
        "deliver", 'Datagrams of source "?": deliver all, deduplicate by-address of the sender, or drop all.'
    )

    def drops_replays(self, *, authenticated: bool) -> bool:
        """Whether replays are dropped where datagrams are ``authenticated``, or are not."""
        return self.replays == "drop" or (self.replays == "auto" and authenticated)


@dataclass(frozen=True, slots=True)
class Heartbeat(Table):
    """How this daemon says that it is there, and when a source that says so is taken for silent."""

    seconds: int = number(10, 0, 3600, "Seconds between two heartbeats of this daemon; 0 for none.")
    misses: int = number(3, 1, 100, "Heartbeats a source may miss before it is silent.")


@dataclass(frozen=True, slots=True)
class Repair(Table):
    """What is done against loss: what is kept to be sent again, and what waits behind a message that was lost."""

    on: bool = setting(True, "Keep what was sent, ask for what was lost, and hold back what comes after it.")
    numbers: int = number(
        4096,
        64,
        8192,
        "Datagrams of one source that are kept to be sent again; no host expects more.",
    )
    source_bytes: int = number(2 * MIB, 64 * KIB, 1 << 30, "Bytes of one source that are kept.")
    bytes: int = number(32 * MIB, 128 * KIB, 1 << 34, "Bytes of all sources that are kept, to bound memory.")
    hold_seconds: float = number(
        0.1, 0.01, 10.0, "How long messages wait for one that was lost before them, when it does not come."
    )
    hold_messages: int = number(4096, 16, 1 << 20, "Messages of one source that wait so.")
    hold_bytes: int = number(16 * MIB, 128 * KIB, 1 << 34, "Bytes of all messages that wait so.")
    rate: int = number(
        32_768,
        64,
        1 << 20,
        "Datagrams sent again a second, for all hosts; one that asks alone has an eighth.",
    )


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that can be set about a relay but keys and rights.

    ``local``: patterns of channels that never leave the host.
    """

    local: tuple[str, ...] = ("local/>",)
    queue: Queue = Queue()
    limits: Limits = Limits()
    retain: Retain = Retain()
    dedup: Dedup = Dedup()
    heartbeat: Heartbeat = Heartbeat()
    repair: Repair = Repair()
