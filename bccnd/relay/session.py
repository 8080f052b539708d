"""One connected client, as the relay sees it: who it is, how it wants to be served, what waits for it.

Rules
- ``port`` is a number that only the transport understands.
- A session listens once it has subscribed to anything or said ``CMSG listen``; only then directed messages
  and ``!`` reach it.
- ``waits_for``: the sessions that this one, as a publisher, is held up by (``block``), or itself, while it has too
  many unread answers. It is not read from until the set is empty. ``holds`` is the same relation seen from there.
"""

from enum import StrEnum
from heapq import nsmallest
from typing import Any

from bccnd.relay.identity import LocalSource, Peer
from bccnd.relay.outbox import Outbox
from bccnd.relay.rights import Rights
from bccnd.wire.sbus import Cmsg


class Format(StrEnum):
    """How messages are delivered (``clients/PROTOCOL.md``, "Packets")."""

    PLAIN = "plain"  # MSG <chan> NUL <payload>
    FULL = "full"  # RECV <peer> <unix_ns> <verdict> NUL <datagram>
    LINES = "lines"  # MSG <chan> <payload> LF


class Session(LocalSource):
    __slots__ = (
        "closing",
        "delivered",
        "echo",
        "footprint",
        "format",
        "format_chosen",
        "holds",
        "inner_stars",
        "listening",
        "number",
        "outbox",
        "packed",
        "peer",
        "port",
        "progress",
        "published",
        "queue_asked",
        "read_ns",
        "refused",
        "rights",
        "separator",
        "served_at",
        "since",
        "subscriptions",
        "tap",
        "tap_interface",
        "waits_for",
    )

    def __init__(self, number: int, port: int, peer: Peer, *, rights: Rights, now: float) -> None:
        super().__init__()
        self.number = number
        self.port = port
        self.peer = peer
        self.rights = rights
        self.refused: set[str] = set()  # the rights it was found to lack
        self.format = Format.PLAIN
        self.format_chosen = False
        self.packed = False
        self.separator = b"/"
        self.echo = True
        self.listening = False
        self.tap = False
        self.tap_interface = False  # RECV shows it the interface of each datagram
        self.subscriptions: dict[tuple[bytes, bytes], int] = {}  # (separator, pattern) -> how often
        self.footprint = 0  # bytes that its patterns take at most
        self.inner_stars = 0  # in its patterns
        self.served_at = 0  # the router's version of how it is served
        self.outbox: Outbox
        self.queue_asked: dict[str, Any] = {}  # packets, bytes, policy: what the client chose by CMSG queue
        self.waits_for: set[Session] = set()
        self.holds: set[Session] = set()
        self.read_ns = 0  # when it was last read from, for the caller
        self.published = 0
        self.delivered = 0  # handed over, with what its outbox has dropped since
        self.since = now
        self.progress = now  # when its outbox last moved, or began to fill
        self.closing = ""  # why the session is about to end

    def held_names(self, limit: int) -> list[str]:
        """Some of the publishers that wait for this client, by name."""
        return nsmallest(limit, [held.name.decode() for held in self.holds if held is not self])

    def render(self, message: Cmsg) -> bytes:
        """An answer or a notice in the form that this client reads."""
        return message.serialize_line() if self.format is Format.LINES else message.serialize()

    def lost_notice(self, lost: int) -> bytes:
        return self.render(Cmsg(b"dropped", b"%d" % lost))
