"""What lies between a stream socket and the bytes of bpmux: nothing, TLS, or WebSocket. Each works without I/O."""

from typing import Protocol

from bccnd.mux import limits


class CarrierError(Exception):
    """The peer does not speak what the carrier does. The connection is dropped once ``outgoing`` is sent."""


class Carrier(Protocol):
    def received(self, data: bytes, most: int = limits.FRAMES, /) -> bytes:
        """What of these bytes of the socket is for the endpoint. Raises ``CarrierError``.

        It takes about so many frames at ``most``; then it ``is_behind``, and ``received(b"")`` goes on.
        """

    def outgoing(self, data: bytes = b"") -> bytes:
        """What goes to the socket: what the carrier has to say itself, then ``data`` of the endpoint.

        There is no ``data`` before it ``is_ready``.
        """

    @property
    def is_ready(self) -> bool: ...

    @property
    def is_behind(self) -> bool: ...

    @property
    def has_ended(self) -> bool:
        """The peer has said that nothing more comes."""

    @property
    def chatter(self) -> int:
        """How much has come so far that carried nothing."""

    @property
    def replies(self) -> int:
        """Bytes that it has to say itself, for something that came."""

    @property
    def frames(self) -> int:
        """How many have come so far."""

    @property
    def held(self) -> int:
        """Bytes of something that has not come as a whole, or was not looked at."""


class Plain:
    """A socket that carries the bytes as they are."""

    is_ready = True
    has_ended = is_behind = False
    chatter = frames = replies = held = 0

    def received(self, data: bytes, _most: int = 0, /) -> bytes:
        return data

    def outgoing(self, data: bytes = b"") -> bytes:
        return data


# What text, an empty line, or the hello of TLS can begin with: tags of nothing that comes first.
_FOREIGN = frozenset((*b"\r\n", *range(0x10, 0x80)))
# But for these: a peer that leaves at once closes and cancels the top level. No reason is as long as a letter says.
_FAREWELL = frozenset((*range(0x2C, 0x30), *range(0x4C, 0x50)))
_TEXT = frozenset(range(0x20, 0x7F))
_TLS_HELLO = b"\x16"


def is_foreign(first: bytes) -> bool:
    """Whether what a connection begins with is no bpmux, as far as two bytes show."""
    return first[0] in _FOREIGN and (first[0] not in _FAREWELL or (len(first) > 1 and first[1] in _TEXT))


def foreign_line(first: bytes) -> bytes:
    """For whoever speaks something else, or nothing: a person, or the program that a person started."""
    if first[:1] == _TLS_HELLO:
        return b"bccnd-mux: this socket carries bpmux without TLS (clients/BPMUX.md)\n"
    if b" HTTP/1" in first:
        return b"bccnd-mux: this socket carries bpmux, and no HTTP (clients/BPMUX.md)\n"
    return (
        b"bccnd-mux: this socket carries bpmux (clients/BPMUX.md); text goes to the bus socket, as by socat\n"
    )
