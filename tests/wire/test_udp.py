"""UDP datagrams from captured packets, and packets made of datagrams."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.wire.udp import PAYLOAD_LIMIT, UdpDatagram

V4 = UdpDatagram("10.99.0.2", 5400, "255.255.255.255", 5401, b"BCCN1[..]")
V6 = UdpDatagram("fe80::1", 5400, "ff02::1", 5401, b"BCCN1[..]")
RAW = 101
MAC = bytes(12)
VLAN = b"\x81\x00\x00\x07"

addresses = st.one_of(
    st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)),
    st.tuples(st.ip_addresses(v=6), st.ip_addresses(v=6)),
)
ports = st.integers(0, 65535)


def ones_sum(data: bytes) -> int:
    """RFC 1071, word by word; 0xFFFF over what holds its own checksum."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data)) if len(data) % 2 == 0 else ones_sum(data + b"\0")
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@settings(deadline=None)
@given(addresses, ports, ports, st.binary(max_size=300))
def test_datagrams_survive_a_packet(
    pair: tuple[object, object], source: int, target: int, payload: bytes
) -> None:
    datagram = UdpDatagram(str(pair[0]), source, str(pair[1]), target, payload)
    packet = datagram.serialize()
    assert UdpDatagram.parse(RAW, packet) == datagram


@settings(deadline=None)
@given(addresses, st.binary(max_size=300))
def test_the_checksums_are_right(pair: tuple[object, object], payload: bytes) -> None:
    packet = UdpDatagram(str(pair[0]), 1, str(pair[1]), 2, payload).serialize()
    if packet[0] >> 4 == 4:
        assert ones_sum(packet[:20]) == 0xFFFF
        pseudo, udp = packet[12:20] + bytes([0, 17]) + packet[24:26], packet[20:]
        assert int.from_bytes(packet[2:4]) == len(packet)
    else:
        pseudo, udp = packet[8:40] + bytes(2) + packet[44:46] + bytes([0, 0, 0, 17]), packet[40:]
        assert int.from_bytes(packet[4:6]) == len(udp)
    assert ones_sum(pseudo + udp) == 0xFFFF
    assert udp[6:8] != b"\0\0"


def test_a_scope_is_left_out() -> None:
    scoped = UdpDatagram("fe80::1%eth0", 1, "ff02::1%eth0", 2, b"")
    assert UdpDatagram.parse(RAW, scoped.serialize()) == UdpDatagram("fe80::1", 1, "ff02::1", 2, b"")


@pytest.mark.parametrize(
    ("linktype", "before"),
    [
        (RAW, b""), (12, b""), (14, b""), (228, b""),
        (0, b"\x02\0\0\0"), (0, b"\0\0\0\x02"), (108, b"\0\0\0\x02"),
        (1, MAC + b"\x08\x00"), (1, MAC + VLAN + b"\x08\x00"), (1, MAC + b"\x88\xa8\x00\x01" + VLAN + b"\x08\x00"),
        (113, bytes(14) + b"\x08\x00"), (276, b"\x08\x00" + bytes(18)),
    ],
)  # fmt: skip
def test_each_link_type(linktype: int, before: bytes) -> None:
    packet = before + V4.serialize()
    assert UdpDatagram.parse(linktype, packet) == V4
    assert UdpDatagram.parse(linktype, packet + b"padding") == V4
    for end in range(len(before) + 28):
        assert UdpDatagram.parse(linktype, packet[:end]) is None


@pytest.mark.parametrize(
    ("linktype", "packet"),
    [
        (147, V4.serialize()),
        (0, b"\x07\0\0\0" + V4.serialize()),
        (1, MAC + b"\x08\x06" + V4.serialize()),
        (1, MAC + VLAN * 3 + b"\x08\x00" + V4.serialize()),
        (276, b"\x08\x06" + bytes(18) + V4.serialize()),
        (RAW, b"\x35" + V4.serialize()[1:]),
        (RAW, b"\x44" + V4.serialize()[1:]),
        (RAW, V4.serialize()[:9] + b"\x06" + V4.serialize()[10:]),
        (RAW, V4.serialize()[:6] + b"\x00\x01" + V4.serialize()[8:]),
        (RAW, V4.serialize()[:24] + b"\x00\x07" + V4.serialize()[26:]),
        (RAW, V6.serialize()[:6] + b"\x3a" + V6.serialize()[7:]),
        (RAW, V6.serialize()[:30]),
    ],
    ids=["link", "family", "arp", "tags", "cooked-arp", "version", "short-header", "tcp", "fragment", "length",
         "icmp6", "cut-header"],
)  # fmt: skip
def test_anything_but_udp_is_none(linktype: int, packet: bytes) -> None:
    assert UdpDatagram.parse(linktype, packet) is None


def test_headers_with_options_are_skipped() -> None:
    packet = V4.serialize()
    assert UdpDatagram.parse(RAW, b"\x46" + packet[1:20] + bytes(4) + packet[20:]) == V4
    packet = V6.serialize()
    extended = (
        packet[:6] + b"\x00" + packet[7:40] + b"\x3c\x00" + bytes(6) + b"\x11\x01" + bytes(14) + packet[40:]
    )
    assert UdpDatagram.parse(RAW, extended) == V6


def test_bytes_that_the_capture_lacks_are_counted() -> None:
    cut = UdpDatagram.parse(RAW, V4.serialize()[:-3])
    assert cut is not None
    assert (cut.payload, cut.cut) == (V4.payload[:-3], 3)


def test_too_long_or_mixed_families_is_refused() -> None:
    assert UdpDatagram("127.0.0.1", 1, "127.0.0.1", 1, bytes(PAYLOAD_LIMIT)).serialize()
    for wrong in (
        UdpDatagram("127.0.0.1", 1, "127.0.0.1", 1, bytes(PAYLOAD_LIMIT + 1)),
        UdpDatagram("127.0.0.1", 1, "::1", 1, b""),
    ):
        with pytest.raises(ValueError, match="families"):
            wrong.serialize()
