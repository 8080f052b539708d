"""The part of a record that is read at a time, and the key by which a message is recognized on the live bus."""

from dataclasses import dataclass, field

# What an item takes in addition to the bytes of its packet.
ITEM_BYTES = 200


@dataclass(slots=True)
class Portion:
    """``items``: packets in the order of the record, each with its key; a notice has an empty one.

    ``reached_ns``: up to then this portion and those before it have the whole record, except what the notices name.
    ``is_last``: there is no other file yet; ``is_written``: a recorder seems to write one.
    """

    items: list[tuple[bytes, bytes]] = field(default_factory=list)
    reached_ns: int = 0
    is_last: bool = False
    is_written: bool = False

    @property
    def weight(self) -> int:
        return sum(ITEM_BYTES + len(packet) for _, packet in self.items)


class NoRecordError(Exception):
    """There is nothing to replay. ``str()`` gives the reason for a Close: a code, and a line."""


def recv(
    time_ns: int, peer: str | None, src: str, seq: int, channel: str, payload: bytes
) -> tuple[bytes, bytes]:
    """The key of a message, and the message as a client of the format ``full`` gets it. Its sum is not recorded."""
    fields = f"{src}:{seq}:{channel}".encode()
    body = b"%b|%b" % (fields, payload)
    packet = b"RECV %b %d ok\0BCCN1[%d]%b" % ((peer or "local").encode(), time_ns, len(body), body)
    return b"%d %b" % (time_ns, fields), packet


def key_of(packet: bytes) -> bytes:
    """The key of a RECV: time, source, number and channel. It is the same on the live bus and in the record, since
    the daemon gives each message one time.
    """
    head, _, datagram = packet.partition(b"\0")
    fields = datagram[datagram.find(b"]") + 1 : datagram.find(b"|")]
    return b"%b %b" % (head.split(b" ", 3)[2], fields)


def time_of(packet: bytes) -> int:
    return int(packet.split(b" ", 3)[2])


def unrecorded(from_ns: int, to_ns: int, why: str) -> tuple[bytes, bytes]:
    """The notice that messages may be missing between these times."""
    return b"", b"CMSG unrecorded\0%d %d %b" % (from_ns, to_ns, why.encode())
