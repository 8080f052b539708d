"""Packets of the local bus: ``parse`` and back, ``unpack`` on offsets against ``Pack.parse``, lines.

The client's ``parse`` and ``unpack`` read what the daemon writes, so they are fuzzed as well.
"""

import mmap
from collections.abc import Iterable

import bccn
from bccn import protocol as client
from bccnd.errors import FramingError, PacketError
from bccnd.wire import batch, native, sbus
from bccnd.wire.sbus import Cmsg, Datagram, Msg, Pack, Recv, Sub, Unsub
from tests.golden import entries

MEMORY = mmap.mmap(-1, 8192)
CODES = {"bad-packet"}


def one_input(data: bytes) -> None:
    try:
        packet = sbus.parse(data)
    except PacketError as error:
        assert error.code in CODES
        assert not isinstance(error, FramingError) or data.startswith(sbus.PACK)
        assert f"{error}".isprintable()
    else:
        if survives(packet):
            assert sbus.parse(packet.serialize()) == packet
        as_the_client_reads(packet)
    lines(data)
    spans(sbus.PACK + data)
    spans(data)


def survives(packet: sbus.Packet) -> bool:
    """Whether it is parsed back to the same: nothing in it looks like a line end added by a shell."""
    match packet:
        case Sub(pattern, typed):
            return not pattern.endswith(b"\r" if typed else b"\n")
        case Unsub(pattern):
            return not pattern.endswith(b"\n")
        case Cmsg(_, value):
            return not value.endswith(b"\n")
    return True


def as_the_client_reads(packet: sbus.Packet) -> None:
    match packet:
        case Msg(chan, payload):
            message = client.parse(packet.serialize())
            assert isinstance(message, client.Message)
            assert (message.channel, message.payload) == (shown(chan), payload)
        case Cmsg(key, value):
            control = client.parse(packet.serialize())
            assert control == (key.decode(), value.decode("utf-8", "backslashreplace"))
        case Recv(peer, unix_ns, verdict, datagram, b"") if peer.isascii() and verdict.isascii():
            message = client.parse(packet.serialize())
            assert isinstance(message, client.Message)
            assert (message.peer, message.verdict) == (peer.decode(), verdict.decode())
            assert message.time_ns == unix_ns
            assert message.datagram == datagram
        case Pack(packets):
            assert tuple(client.unpack(packet.serialize())) == packets
        case Datagram(datagram):
            assert datagram == packet.serialize()


def shown(text: bytes) -> str:
    return text.decode("ascii", "backslashreplace")


def lines(data: bytes) -> None:
    """A line is one line, and what a person can type arrives as typed."""
    word, _, rest = data.partition(b" ")
    for line in (Msg(word, rest).serialize_line(), Cmsg(word, rest).serialize_line()):
        shown_payload = line[5 + len(word) : -1]
        assert line.endswith(b"\n")
        assert not any(byte in b"\n\r\0" for byte in shown_payload)
    try:
        message = Msg.parse_line(data)
    except PacketError:
        assert b"\0" not in data
        assert b" " not in data
        return
    if b"\0" not in data:
        typed = message.serialize_line()
        assert b" ".join([message.chan, message.payload]) == data.removesuffix(b"\n").removesuffix(
            b"\r" if data.endswith(b"\n") else b""
        )
        if typed == b"MSG %b\n" % b" ".join([message.chan, message.payload]):  # nothing is escaped
            assert Msg.parse_line(typed[4:]) == message


def spans(packet: bytes) -> None:
    """``unpack`` finds what ``Pack.parse`` finds, whatever lies around the packet in the memory."""
    if not packet.startswith(sbus.PACK) or len(packet) > len(MEMORY) - 64:
        return
    start, end = 8, 8 + len(packet)
    MEMORY[:] = b"\0\0\0\1" * (len(MEMORY) // 4)  # a length wherever one is looked for
    MEMORY[start:end] = packet
    inside = batch.unpack(MEMORY, start, end)
    assert native.unpack(MEMORY, start, end) == inside
    found = inside and tuple(MEMORY[first:last] for first, last in zip(*inside, strict=True))
    assert client_unpacked(packet) == found
    try:
        parsed = Pack.parse(packet[len(sbus.PACK) :])
    except FramingError:
        assert found is None or any(inner.startswith(sbus.PACK) for inner in found)
    else:
        assert parsed.packets == found
        assert parsed.serialize() == packet
        assert sbus.pack(parsed.packets) == packet


def client_unpacked(packet: bytes) -> tuple[bytes, ...] | None:
    try:
        return tuple(client.unpack(packet))
    except bccn.ProtocolError:
        return None


def seeds() -> Iterable[bytes]:
    for entry in [*entries("sbus", "valid"), *entries("sbus", "invalid"), *entries("sbus", "typed")]:
        yield bytes.fromhex(entry["packet"])
    yield sbus.pack([b"", b"MSG a\0", b"SUB a"])
