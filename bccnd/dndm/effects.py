"""What the gateway wants done. The caller does it in this order, and reports what comes of it."""

from typing import NamedTuple

from bccnd.wire.dndm.peers import Peer


class Send(NamedTuple):
    """One frame, to be written with one write: public peers read a frame with one read."""

    link: int
    data: bytes


class Met(NamedTuple):
    """The handshake is done; nothing is to be done."""

    link: int
    peer: Peer


class Close(NamedTuple):
    """The link is forgotten; ``closed`` is not called for it. What was sent on it before may still go out."""

    link: int
    reason: str


class Silent(NamedTuple):
    """Nobody answers at the other end of a line, which stays open; nothing is to be done."""

    link: int
    reason: str


class Dial(NamedTuple):
    """Answer with ``connected`` or ``dial_failed``."""

    peer: Peer


class Subscribe(NamedTuple):
    """To this channel, of which the own messages of the gateway are not brought back."""

    channel: str


class Unsubscribe(NamedTuple):
    channel: str


class Watch(NamedTuple):
    """Ask the bus whether somebody else listens to this channel; each answer is a call of ``listened``."""

    channel: str


class Unwatch(NamedTuple):
    channel: str


class Publish(NamedTuple):
    channel: str
    payload: bytes


Effect = Send | Met | Close | Silent | Dial | Subscribe | Unsubscribe | Watch | Unwatch | Publish
