"""Capture files and the UDP datagrams in them.

The first byte is the size of the pieces in which the rest is read. Pieces of any size must give the same packets and
the same fault, and never keep more than one block. Each packet goes through the writer and the reader again, and each
datagram in it through ``UdpDatagram``.
"""

import struct
from collections.abc import Iterable

from bccnd.errors import CaptureError
from bccnd.wire.pcap import BLOCK_LIMIT, LINKTYPE_RAW, TIME_LIMIT, Direction, Packet, Reader, header
from bccnd.wire.udp import UdpDatagram
from tests.fuzz.fuzzer import Script

HEADER = header("fuzzer", "none")


def one_input(data: bytes) -> None:
    script = Script(data)
    piece = script.number(64) + 1
    rest = script.rest()
    packets, fault = read(rest, len(rest) or 1)
    assert read(rest, piece) == (packets, fault), "the pieces matter"
    for packet in packets:
        assert len(packet.data) <= packet.length
        assert 0 <= packet.time_ns < TIME_LIMIT
        there_and_back(packet)
        datagram_of(packet)


def read(data: bytes, piece: int) -> tuple[list[Packet], str]:
    reader, packets = Reader(), []
    try:
        for at in range(0, len(data), piece):
            packets.extend(reader.feed(data[at : at + piece]))  # also those before a fault
            assert len(reader._buffer) < BLOCK_LIMIT
        reader.finish()
    except CaptureError as error:
        return packets, str(error)
    return packets, ""


def there_and_back(packet: Packet) -> None:
    data = HEADER + packet.serialize()
    reader = Reader()
    [again] = reader.feed(data)
    reader.finish()
    fields = Packet.__dataclass_fields__.keys() - {"linktype", "comment"}
    assert all(getattr(again, name) == getattr(packet, name) for name in fields)
    assert again.linktype == LINKTYPE_RAW
    assert again.comment == packet.comment or len(packet.comment) > 8000


def datagram_of(packet: Packet) -> None:
    datagram = UdpDatagram.parse(packet.linktype, packet.data)
    if datagram is not None:
        assert len(datagram.payload) <= len(packet.data)
        assert datagram.cut >= 0
        if not datagram.cut and len(datagram.payload) < 65_507:
            assert UdpDatagram.parse(LINKTYPE_RAW, datagram.serialize()) == datagram


def seeds() -> Iterable[bytes]:
    for source, target in ("10.0.0.1", "10.255.255.255"), ("fe80::1", "ff02::1"):
        raw = UdpDatagram(source, 5400, target, 5400, b"BCCN1[9]a:1:b|cde").serialize()
        packet = Packet(10**18, raw, len(raw), LINKTYPE_RAW, "in: ok", Direction.IN, 3)
        yield b"\x3f" + HEADER + packet.serialize()
        for linktype, before in (
            (1, bytes(12) + b"\x08\x00"),
            (113, bytes(14) + b"\x86\xdd"),
            (0, b"\x02\0\0\0"),
        ):
            data = before + raw
            head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, linktype)
            yield b"\x07" + head + struct.pack("<IIII", 1, 2, len(data), len(data)) + data
