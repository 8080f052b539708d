"""Headers and messages of DNDM as protobuf, in and out of frames (``bccnd/wire/DNDM.md``, "Messages").

``messages.proto`` has the definitions, ``messages_pb2`` is made from it. The message of a MESSAGE, and of the types
of users, is not looked into: its bytes go on as they are.
"""

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from bccnd.errors import DndmError
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.frame import HEADER_LIMIT, Frame

# Bytes of a message that is taken apart, which takes some fifty times as much memory for a moment.
CONTROL_LIMIT = 64 << 10
# Intents, interests, peers and entries of the address book in one message.
ENTRIES_LIMIT = 1024

Known = (
    pb.Intent | pb.Intents | pb.Interest | pb.Interests | pb.NotifyIntent | pb.Result | pb.Ping | pb.Pong
    | pb.Handshake | pb.Peers | pb.Addrbook
)  # fmt: skip

KINDS: dict[int, type[Known]] = {
    pb.INTENT: pb.Intent,
    pb.INTENTS: pb.Intents,
    pb.INTEREST: pb.Interest,
    pb.INTERESTS: pb.Interests,
    pb.NOTIFY_INTENT: pb.NotifyIntent,
    pb.RESULT: pb.Result,
    pb.PING: pb.Ping,
    pb.PONG: pb.Pong,
    pb.HANDSHAKE: pb.Handshake,
    pb.PEERS: pb.Peers,
    pb.ADDRBOOK: pb.Addrbook,
}
_NUMBERS = {kind: number for number, kind in KINDS.items()}


def decode(frame: Frame) -> tuple[pb.Header, Known | bytes]:
    """The header, and what follows it: one of ``KINDS``, or the bytes of any other type. Raises ``DndmError``.

    A headerless frame has an empty header, of the unspecified type.
    """
    header = decode_header(frame)
    return header, decode_message(header, frame.message)


def decode_header(frame: Frame) -> pb.Header:
    """As ``decode``."""
    header = pb.Header()
    _parse(header, frame.header or b"")
    return header


def decode_message(header: pb.Header, data: bytes) -> Known | bytes:
    """As ``decode``."""
    kind = KINDS.get(header.type)
    if kind is None:
        return data
    if len(data) > CONTROL_LIMIT:
        raise DndmError("size", f"{len(data)} bytes of {kind.__name__}, at most {CONTROL_LIMIT}")
    message = kind()
    _parse(message, data)
    if _entries(message) > ENTRIES_LIMIT:
        raise DndmError("entries", f"{_entries(message)} in {kind.__name__}, at most {ENTRIES_LIMIT}")
    return message


def encode(message: Known, timestamp: int, route: str = "") -> bytes:
    """The frame of a message of the protocol's own; ``timestamp``: Unix nanoseconds."""
    header = pb.Header(timestamp=timestamp, type=pb.Type.Name(_NUMBERS[type(message)]), route=route)
    return join(header, message.SerializeToString())


def join(header: pb.Header, message: bytes) -> bytes:
    """A frame. Raises ``DndmError`` for what is too long."""
    return Frame(header.SerializeToString(), message).serialize()


def _parse(message: Protobuf, data: bytes) -> None:
    name = type(message).__name__
    if isinstance(message, pb.Header) and len(data) > HEADER_LIMIT:
        raise DndmError("header", f"{len(data)} bytes, at most {HEADER_LIMIT}")
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise DndmError("content", f"no {name}") from error


def _entries(message: Known) -> int:
    match message:
        case pb.Handshake():
            return len(message.intents) + len(message.interests)
        case pb.Intents():
            return len(message.intents)
        case pb.Interests():
            return len(message.interests)
        case pb.Peers():
            return len(message.ids)
        case pb.Addrbook():
            return len(message.entries)
    return 0
