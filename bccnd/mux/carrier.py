"""What lies between a stream socket and the bytes of bpmux: nothing, TLS, or WebSocket. Each works without I/O."""

from typing import Protocol

from bccnd.mux import limits


class CarrierError(Exception):
    """The peer does not speak the carrier's protocol. The connection is dropped once ``outgoing`` is sent."""


class Carrier(Protocol):
    def received(self, data: bytes, most: int = limits.FRAMES, /) -> bytes:
        """Decode bytes from the socket; returns those for the endpoint. Raises ``CarrierError``.

        It takes about ``most`` frames at a time; then it ``is_behind``, and ``received(b"")`` goes on.
        """

    def outgoing(self, data: bytes = b"") -> bytes:
        """The bytes for the socket: the carrier's own first, then ``data`` of the endpoint.

        There is no ``data`` before it ``is_ready``.
        """

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_behind(self) -> bool: ...

    @property
    def has_ended(self) -> bool:
        """Whether the peer has said that nothing more comes."""

    @property
    def chatter(self) -> int:
        """How many units have come so far that carried no data."""

    @property
    def replies(self) -> int:
        """Bytes of its own replies that are not sent yet."""

    @property
    def frames(self) -> int:
        """How many frames have come so far."""

    @property
    def held(self) -> int:
        """Bytes of an incomplete frame, and of frames not yet decoded."""


class Plain:
    """A socket that carries the bytes as they are."""

    is_ready = True
    has_ended = is_behind = False
    chatter = frames = replies = held = 0

    def received(self, data: bytes, _most: int = 0, /) -> bytes:
        return data

    def outgoing(self, data: bytes = b"") -> bytes:
        return data


# Bytes that text, an empty line or a TLS hello can begin with, and no first chunk of bpmux.
_FOREIGN = frozenset((*b"\r\n", *range(0x10, 0x80)))
# Except these: a peer that leaves at once closes and cancels the top level. A letter in the second byte would mean a
# longer reason than any.
_FAREWELL = frozenset((*range(0x2C, 0x30), *range(0x4C, 0x50)))
_TEXT = frozenset(range(0x20, 0x7F))
_TLS_HELLO = b"\x16"


def is_foreign(first: bytes) -> bool:
    """Whether the first two bytes of a connection show that it does not speak bpmux."""
    return first[0] in _FOREIGN and (first[0] not in _FAREWELL or (len(first) > 1 and first[1] in _TEXT))


def foreign_line(first: bytes) -> bytes:
    """The line for a peer that does not speak bpmux, or says nothing: perhaps a person."""
    if first[:1] == _TLS_HELLO:
        return b"bccnd-mux: this socket carries bpmux without TLS (clients/BPMUX.md)\n"
    if b" HTTP/1" in first:
        return b"bccnd-mux: this socket carries bpmux, and no HTTP (clients/BPMUX.md)\n"
    return (
        b"bccnd-mux: this socket carries bpmux (clients/BPMUX.md); text goes to the bus socket, as by socat\n"
    )
