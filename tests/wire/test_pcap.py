"""Capture files: those we write, those that others write, and broken ones."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import CaptureError
from bccnd.wire.pcap import (
    BLOCK_LIMIT,
    INTERFACES_LIMIT,
    LINKTYPE_RAW,
    PACKET_LIMIT,
    TIME_LIMIT,
    Direction,
    Packet,
    Reader,
    header,
)

HEADER = header("bccnd 1", "bus")
PACKETS = st.builds(
    lambda time_ns, data, more, comment, direction, missing: Packet(
        time_ns, data, len(data) + more, LINKTYPE_RAW, comment, direction, missing
    ),
    st.integers(0, TIME_LIMIT - 1),
    st.binary(max_size=100),
    st.integers(0, 100),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(Direction),
    st.integers(0, 2**64 - 1),
)


def read(data: bytes, piece: int = 0) -> list[Packet]:
    reader = Reader()
    size = piece or len(data) or 1
    packets = [packet for at in range(0, len(data), size) for packet in reader.feed(data[at : at + size])]
    reader.finish()
    return packets


def fault(data: bytes) -> str:
    with pytest.raises(CaptureError) as caught:
        read(data)
    return str(caught.value)


def classic(order: str, magic: int, *records: tuple[int, int, int, bytes], linktype: int = 1) -> bytes:
    """(seconds, fraction, length, data) of each record."""
    parts = [struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, linktype)]
    for seconds, fraction, length, data in records:
        parts += [struct.pack(f"{order}IIII", seconds, fraction, len(data), length), data]
    return b"".join(parts)


def block(order: str, kind: int, body: bytes, size: int | None = None) -> bytes:
    length = struct.pack(f"{order}I", 12 + len(body) if size is None else size)
    return struct.pack(f"{order}I", kind) + length + body + length


def section(order: str) -> bytes:
    return block(order, 0x0A0D0D0A, struct.pack(f"{order}IHHq", 0x1A2B3C4D, 1, 0, -1))


def interface(order: str, linktype: int = 1, snapshot: int = 0, *options: tuple[int, bytes]) -> bytes:
    body = struct.pack(f"{order}HHI", linktype, 0, snapshot)
    for code, value in options:
        body += struct.pack(f"{order}HH", code, len(value)) + value + bytes(-len(value) % 4)
    return block(order, 1, body)


def enhanced(order: str, stamp: int, data: bytes, number: int = 0, kept: int | None = None) -> bytes:
    kept = len(data) if kept is None else kept
    head = struct.pack(f"{order}IIIII", number, stamp >> 32, stamp & 0xFFFFFFFF, kept, max(kept, len(data)))
    return block(order, 6, head + data + bytes(-len(data) % 4))


@settings(deadline=None)
@given(st.lists(PACKETS, max_size=5), st.integers(1, 50))
def test_a_capture_is_read_in_pieces_of_any_size(packets: list[Packet], piece: int) -> None:
    written = HEADER + b"".join(packet.serialize() for packet in packets)
    assert len(written) % 4 == 0
    assert read(written) == read(written, piece) == packets


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "nanoseconds"), [(0xA1B2C3D4, 7000), (0xA1B23C4D, 7)])
def test_pcap_of_either_byte_order_and_precision(order: str, magic: int, nanoseconds: int) -> None:
    data = classic(order, magic, (1, 7, 9, b"packet"), (2, 0, 0, b""), linktype=113)
    expected = [Packet(10**9 + nanoseconds, b"packet", 9, 113), Packet(2 * 10**9, b"", 0, 113)]
    assert read(data) == read(data, 5) == expected


@pytest.mark.parametrize("order", "<>")
def test_pcapng_of_either_byte_order(order: str) -> None:
    data = section(order) + interface(order) + enhanced(order, 1_000_007, b"packet")
    assert read(data) == read(data, 3) == [Packet(1_000_007_000, b"packet", 6, 1)]


@pytest.mark.parametrize(
    ("option", "time_ns"),
    [
        ((9, b"\x09"), 3),
        ((9, b"\x03"), 3 * 10**6),
        ((9, b"\x81"), 1_500_000_000),
        ((14, struct.pack("<q", 2)), 2 * 10**9 + 3000),
        ((9, b"\x09\x09"), 3000),
    ],
)
def test_times_have_the_resolution_of_their_interface(option: tuple[int, bytes], time_ns: int) -> None:
    [packet] = read(section("<") + interface("<", 1, 0, option) + enhanced("<", 3, b""))
    assert packet.time_ns == time_ns


def test_a_simple_packet_is_cut_at_the_snapshot_length() -> None:
    simple = block("<", 3, struct.pack("<I", 10) + b"abcd")
    assert read(section("<") + interface("<", 1, 4) + simple) == [Packet(0, b"abcd", 10, 1)]


def test_each_section_has_its_own_interfaces_and_byte_order() -> None:
    first = section("<") + interface("<", 101) + interface("<", 113) + enhanced("<", 0, b"a", 1)
    second = section(">") + interface(">", 276) + enhanced(">", 0, b"b")
    assert [packet.linktype for packet in read(first + second)] == [113, 276]


@pytest.mark.parametrize("piece", [0, 1000])
def test_other_blocks_of_any_size_are_skipped(piece: int) -> None:
    small, large = block("<", 5, bytes(8)), block("<", 4, bytes(BLOCK_LIMIT))
    data = section("<") + small + interface("<") + large + enhanced("<", 0, b"x")
    assert [packet.data for packet in read(data, piece)] == [b"x"]


def test_a_large_block_takes_no_memory() -> None:
    reader = Reader()
    assert not list(reader.feed(section("<") + struct.pack("<II", 4, 0x7FFFFFFC)))
    for _ in range(10):
        assert not list(reader.feed(bytes(1_000_000)))
        assert len(reader._buffer) < BLOCK_LIMIT


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a capture file"),
        (b"\n\r", "not a capture file"),
        (b"hello, world", "not a capture file"),
        (HEADER[:-1], "ends in the middle"),
        (HEADER + Packet(1, b"x", 1).serialize()[:-1], "ends in the middle"),
        (classic("<", 0xA1B2C3D4)[:-1], "not a capture file"),
        (classic("<", 0xA1B2C3D4, (0, 0, 9, b"x"))[:-1], "ends in the middle"),
        (classic("<", 0xA1B2C3D4, (0, 0, 0, b"x")), "a packet of 0 bytes with 1 captured"),
        (classic("<", 0xA1B2C3D4) + struct.pack("<IIII", 0, 0, 2**31, 2**31), "is impossible"),
        (HEADER[:8] + b"????" + HEADER[12:], "byte order"),
        (section("<") + block("<", 5, b"", 13), "a block of 13 bytes"),
        (section("<") + block("<", 5, b"", 8), "a block of 8 bytes"),
        (section("<") + struct.pack("<III", 6, 0x7FFFFFFC, 0), "above the limit"),
        (section("<") + block("<", 5, b"")[:-4] + b"\0\0\0\0", "two different lengths"),
        (section("<") + block("<", 6, bytes(4)), "too short"),
        (section("<") + block("<", 1, bytes(4)), "too short"),
        (section("<") + enhanced("<", 0, b""), "interface 0"),
        (section("<") + interface("<") + enhanced("<", 0, b"", 1), "interface 1"),
        (section("<") + interface("<") + enhanced("<", 0, b"x", 0, 9), "in a block that is shorter"),
        (
            section("<") + interface("<") + block("<", 3, struct.pack("<I", 5) + b"abcd"),
            "in a block that is shorter",
        ),
        (section("<") + interface("<") * (INTERFACES_LIMIT + 1), "interfaces"),
        (section("<") + interface("<", 1, 0, (9, b"\0")) + enhanced("<", 2**40, b""), "beyond the year"),
        (section("<") + interface("<", 1, 0, (14, b"\xff" * 8)) + enhanced("<", 0, b""), "before 1970"),
    ],
)
def test_a_broken_capture_is_an_error(data: bytes, text: str) -> None:
    assert text in fault(data)


def test_packets_before_a_fault_are_returned() -> None:
    packets = Reader().feed(HEADER + Packet(1, b"x", 1).serialize() + bytes(12))
    assert next(packets).data == b"x"
    with pytest.raises(CaptureError):
        next(packets)


def test_a_packet_with_broken_options_is_kept() -> None:
    packet = Packet(1, b"data", 4, comment="fine").serialize()
    options_at = 8 + 20 + 4
    broken = packet[: options_at + 2] + b"\xff\xff" + packet[options_at + 4 :]
    assert read(HEADER + broken) == [Packet(1, b"data", 4)]


def test_the_largest_packet_is_accepted() -> None:
    packet = Packet(1, bytes(PACKET_LIMIT), PACKET_LIMIT)
    assert read(HEADER + packet.serialize()) == [packet]
