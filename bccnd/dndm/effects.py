"""The effects of the gateway. The caller carries them out in this order, and reports the results."""

from typing import NamedTuple

from bccnd.wire.dndm.peers import Peer


class Send(NamedTuple):
    """One frame, to be written with one write: public peers read a frame with one read."""

    link: int
    data: bytes


class Met(NamedTuple):
    """The handshake is done. Needs no action."""

    link: int
    peer: Peer


class Close(NamedTuple):
    """Close the link, without calling ``closed``. Frames that were sent before may still go out."""

    link: int
    reason: str


class Silent(NamedTuple):
    """Nobody answers at the other end of a line, which stays open. Needs no action."""

    link: int
    reason: str


class Dial(NamedTuple):
    """Answer with ``connected`` or ``dial_failed``."""

    peer: Peer


class Subscribe(NamedTuple):
    """Subscribe to this channel, without the gateway's own messages."""

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
