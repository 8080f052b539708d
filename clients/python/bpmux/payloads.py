"""Payloads that have begun and not ended, and what they may hold together.

A payload comes in one chunk or, announced, in several of the same kind and id; and a chunk comes in pieces. What is
too long is counted to its end and not kept, since only then the next one begins.
"""

from bpmux.chunks import (
    CANCEL,
    CANCEL_PEER,
    CANCEL_REQUEST,
    CLOSE,
    CLOSE_PEER,
    CLOSE_RESPONSE,
    DUPLEX,
    SINK,
    STREAM,
)
from bpmux.errors import BpmuxError
from bpmux.limits import Limits

# Of these too long a payload is cut and not refused: they take effect all the same.
ENDINGS = frozenset({CANCEL_REQUEST, CLOSE_RESPONSE, CANCEL, CANCEL_PEER, CLOSE, CLOSE_PEER})

# Said of what is refused for it.
TOO_LONG = b"limit: a payload is too long"


class Payload:
    """``promised``: bytes of the chunks that have begun; ``is_kept``: whether it will be there as a whole."""

    __slots__ = ("id", "is_kept", "kept", "kind", "promised", "received", "total")

    def __init__(self, kind: int, ident: int, total: int) -> None:
        self.kind = kind
        self.id = ident
        self.total = total
        self.promised = self.received = 0
        self.kept = bytearray()
        self.is_kept = True

    @property
    def is_whole(self) -> bool:
        return self.received == self.total

    def promise(self, length: int) -> None:
        """A chunk of this length begins."""
        self.promised += length
        if self.promised > self.total:
            raise BpmuxError("partial", f"{self.promised} bytes of {self.total}")


class Unfinished:
    """``held``: bytes of all. Who has more payloads under way than there can be things to talk about is dropped."""

    __slots__ = ("_limits", "_payloads", "held")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._payloads: dict[tuple[int, int], Payload] = {}
        self.held = 0

    def __bool__(self) -> bool:
        return bool(self._payloads)

    def __len__(self) -> int:
        return len(self._payloads)

    def get(self, kind: int, ident: int) -> Payload | None:
        return self._payloads.get((kind, ident))

    def opening(self, ident: int) -> Payload | None:
        """That of a channel with this id, whatever it is to be."""
        for kind in (SINK, STREAM, DUPLEX):
            if payload := self._payloads.get((kind, ident)):
                return payload
        return None

    def begin(self, kind: int, ident: int, total: int) -> Payload:
        if len(self._payloads) >= self._limits.payloads:
            raise BpmuxError("limit", f"{len(self._payloads)} payloads have begun and not ended")
        payload = self._payloads[kind, ident] = Payload(kind, ident, total)
        payload.is_kept = total <= self._limits.payload or kind in ENDINGS
        return payload

    def add(self, payload: Payload, piece: bytes) -> None:
        payload.received += len(piece)
        if payload.is_kept and piece:
            room = min(self._limits.payload - len(payload.kept), self._limits.unfinished - self.held)
            if len(piece) > room and payload.kind not in ENDINGS:
                self._give_back(payload)
                payload.is_kept = False
                return
            payload.kept += piece[:room]
            self.held += min(len(piece), room)

    def end(self, kind: int, ident: int) -> None:
        """It is whole, or what it belonged to is over."""
        if payload := self._payloads.pop((kind, ident), None):
            self._give_back(payload)

    def _give_back(self, payload: Payload) -> None:
        self.held -= len(payload.kept)
        payload.kept = bytearray()
