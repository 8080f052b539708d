"""One connected client, as the relay sees it: its name and rights, how it wants to be served, what waits for it.

Rules
- ``port`` is a number that only the transport understands.
- A session listens once it has subscribed to anything or said ``CMSG listen``; only then directed messages
  and ``!`` reach it.
- ``waits_for``: the sessions that this one, as a publisher, is held up by (``block``), or itself, while it has too
  many unread answers, or last values. It is not read from until the set is empty. ``holds`` is the same relation seen
  from there.
"""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import StrEnum
from heapq import nsmallest
from typing import Any

from bccnd.relay.identity import LocalSource, Peer
from bccnd.relay.outbox import Outbox
from bccnd.relay.retained import Scan
from bccnd.relay.rights import Rights
from bccnd.wire.sbus import Cmsg


class Format(StrEnum):
    """How messages are delivered (``clients/PROTOCOL.md``, "Packets")."""

    PLAIN = "plain"  # MSG <chan> NUL <payload>
    FULL = "full"  # RECV <peer> <unix_ns> <verdict> NUL <datagram>
    LINES = "lines"  # MSG <chan> <payload> LF


# The hot path asks for this: to look up a member of an enum takes longer than to copy a short message.
LINES = Format.LINES


@dataclass(eq=False, repr=False)
class Session(LocalSource):
    number: int
    port: int
    peer: Peer
    _: KW_ONLY
    rights: Rights
    now: InitVar[float]
    outbox: Outbox = field(init=False)
    refused: set[str] = field(default_factory=set)  # the rights it was found to lack
    format: Format = Format.PLAIN
    format_chosen: bool = False
    packed: bool = False
    separator: bytes = b"/"
    echo: bool = True
    listening: bool = False
    tap: bool = False
    tap_interface: bool = False  # RECV shows it the interface of each datagram
    # (separator, pattern) -> times
    subscriptions: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    watches: dict[tuple[bytes, bytes], Any] = field(default_factory=dict)  # (separator, pattern) -> ``Watch``
    scan: Scan | None = None  # what its SUB finds of last values, while that goes out
    footprint: int = 0  # bytes that its patterns take at most
    inner_stars: int = 0  # in its patterns
    served_at: int = 0  # the router's version of how it is served
    queue_asked: dict[str, Any] = field(default_factory=dict)  # what it chose by CMSG queue
    waits_for: set["Session"] = field(default_factory=set)
    holds: set["Session"] = field(default_factory=set)
    read_ns: int = 0  # when it was last read from, for the caller
    published: int = 0
    # Of what it brings as a bridge, what was here before: how much was not answered, and from when on it is again.
    brought_again: int = 0
    answered_again: float = 0.0
    delivered: int = 0  # handed over, with what its outbox has dropped since
    since: float = 0.0
    progress: float = 0.0  # when its outbox last moved, or began to fill
    closing: str = ""  # why the session is about to end

    def __post_init__(self, now: float) -> None:
        LocalSource.__init__(self)
        self.since = self.progress = now

    def held_names(self, limit: int) -> list[str]:
        """Some of the publishers that wait for this client, by name."""
        return nsmallest(limit, [held.name.decode() for held in self.holds if held is not self])

    def render(self, message: Cmsg) -> bytes:
        """An answer or a notice in the form that this client reads."""
        return message.serialize_line() if self.format is LINES else message.serialize()

    def lost_notice(self, lost: int) -> bytes:
        return self.render(Cmsg(b"dropped", b"%d" % lost))
