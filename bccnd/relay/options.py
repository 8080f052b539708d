"""What can be set about a relay: one dataclass for each table of the settings file, used by the relay as it is.

    bccnd.toml  ->  process.configuration  ->  process.settings  ->  Options  ->  Relay
                    reads                      checks                these

Rules
- A default, a bound and a description stand here and nowhere else. ``bccnd --check`` checks them, and the manual
  prints them. The relay trusts them: it gets checked values.
- A field is named as in the file: ``queue.packets`` is ``Options.queue.packets``.
- The metadata of a field are arguments of pydantic's ``Field``, and ``__pydantic_config__`` is its configuration:
  pydantic reads both from dataclasses that know nothing of it. What needs more than bounds, such as the syntax of a
  pattern, is checked in ``process.settings``.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeVar

KIB, MIB = 1 << 10, 1 << 20

T = TypeVar("T")


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


def whole(default: int, description: str, **bounds: int) -> int:
    """A field for a whole number within ``ge`` and ``le``."""
    return setting(default, description, strict=True, **bounds)


def number(default: float, description: str, **bounds: float) -> float:
    """A field for a number within ``ge`` and ``le``, with or without decimals."""
    return setting(default, description, strict=True, allow_inf_nan=False, **bounds)


@dataclass(frozen=True, slots=True)
class Queue(Table):
    """What waits for a client that reads slowly. A client may ask for its own limits, up to the maxima."""

    max_packets: int = whole(
        100_000,
        "The most packets a client may ask to have queued, so that no client fills the memory.",
        ge=1,
        le=10_000_000,
    )
    max_bytes: int = whole(
        64 * MIB,
        "The most bytes a client may ask to have queued, so that no client fills the memory.",
        ge=128 * KIB,
        le=1 << 34,
    )
    packets: int = whole(10_000, "Packets queued for one client before the policy applies.", ge=1)
    bytes: int = whole(
        8 * MIB,
        "Bytes queued for one client before the policy applies; at least room for the largest packet.",
        ge=128 * KIB,
    )
    total_bytes: int = whole(
        256 * MIB,
        "Bytes queued for all clients together, so that many slow clients do not fill the memory.",
        ge=MIB,
        le=1 << 36,
    )
    policy: Policy = setting(Policy.DROP_OLDEST, "What happens when a client's queue is full.")
    block_seconds: float = number(
        5.0, "With policy block, seconds a client may read nothing before it is closed.", ge=0.1, le=3600
    )


@dataclass(frozen=True, slots=True)
class Limits(Table):
    """What the daemon holds at most, so that no client exhausts its memory or descriptors."""

    clients: int = whole(4096, "Connected clients; each takes a file descriptor.", ge=1, le=65536)
    clients_per_user: int = whole(
        0,
        "Connected clients of one user, so that none keeps the others out; 0 for half of clients. Not for root and "
        "the daemon's user, who also have a few places of their own.",
        ge=0,
        le=65536,
    )
    subscriptions: int = whole(
        1024, "Subscriptions of one client; each takes memory and matching time.", ge=1, le=65536
    )
    local_payload: int = whole(
        64 * KIB,
        "Payload bytes on local channels; other channels must fit a datagram of 1400 bytes.",
        ge=1,
        le=64 * KIB,
    )
    channels_cached: int = whole(
        1 << 18,
        "Channels whose subscribers are remembered, to save matching; some 170 bytes each.",
        ge=1,
        le=1 << 20,
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
        (),
        "Patterns of channels whose newest message is kept for clients that subscribe later.",
        max_length=256,
    )
    channels: int = whole(
        4096, "Channels kept; the one updated longest ago is forgotten first.", ge=1, le=1 << 20
    )
    bytes: int = whole(
        4 * MIB,
        "Bytes kept, bookkeeping included; at least room for the largest message.",
        ge=128 * KIB,
        le=1 << 32,
    )


@dataclass(frozen=True, slots=True)
class Dedup(Table):
    """How the daemon tells repeated, late and restarted datagrams of a source apart."""

    sanity: int = whole(
        1000,
        "A datagram less than this behind the last is a duplicate or late; further behind, its source restarted.",
        ge=1,
        le=1 << 32,
    )
    sources: int = whole(
        65536,
        "Sources remembered, to bound memory; new ones are forgotten first, then those silent longest.",
        ge=64,
        le=1 << 20,
    )
    seconds: float = number(
        86400.0, "Seconds of silence after which a source is forgotten.", ge=1, le=31_536_000
    )
    reorder: int = whole(
        0,
        "How far behind the last a late datagram may be and still be delivered; 0 delivers none.",
        ge=0,
        le=1024,
    )
    replays: Literal["auto", "drop", "accept"] = setting(
        "auto",
        "Clock-based numbers far behind the last: drop takes them for a recording, accept for a restart; auto drops "
        "where hmac is required, as without it anybody can make new datagrams.",
    )
    unknown: Literal["deliver", "by-address", "drop"] = setting(
        "deliver",
        'Datagrams of source "?": deliver all, deduplicate by-address of the sender, or drop all.',
    )

    def drops_replays(self, *, authenticated: bool) -> bool:
        """Whether replays are dropped where datagrams are ``authenticated``, or are not."""
        return self.replays == "drop" or (self.replays == "auto" and authenticated)


@dataclass(frozen=True, slots=True)
class Heartbeat(Table):
    """How this daemon says that it is there, and when a source that says so is taken for silent."""

    seconds: int = whole(10, "Seconds between two heartbeats of this daemon; 0 for none.", ge=0, le=3600)
    misses: int = whole(3, "Heartbeats a source may miss before it is silent.", ge=1, le=100)


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
