"""Datagrams from a tap and from captures, and packets made of them."""

import pytest

from bccn.protocol import Message, parse
from bccnd.commands.dissection import dissect
from bccnd.commands.sightings import ECHOES_AWAITED, Packer, Sighting, Tap, from_capture
from bccnd.wire.bccn1 import Integrity, Level
from bccnd.wire.pcap import LINKTYPE_RAW, Direction, Packet
from bccnd.wire.udp import PAYLOAD_LIMIT, UdpDatagram

OPEN = Integrity()
DATAGRAM = OPEN.seal(b"here/x/1:7:a/b|c")
STATUS = {"local": ["local/>", "tmp"], "host": "here"}
V4 = {"address": "10.0.0.255", "port": 5401}
V6 = {"address": "ff02::4242", "port": 5402}


def tapped(peer: str, verdict: str, datagram: bytes = DATAGRAM) -> Message:
    message = parse(f"RECV {peer} 12 {verdict}\0".encode() + datagram)
    assert isinstance(message, Message)
    return message


def sighting(peer: str = "10.0.0.7:5400", direction: str = "in", datagram: bytes = DATAGRAM) -> Sighting:
    return Sighting(10**18, direction, "ok", peer, dissect(datagram, OPEN))


def udp(packet: Packet | None) -> UdpDatagram:
    assert packet is not None
    datagram = UdpDatagram.parse(packet.linktype, packet.data)
    assert datagram is not None
    return datagram


@pytest.mark.parametrize(
    ("peer", "verdict", "chan", "direction"),
    [
        ("10.0.0.7:5400", "ok", b"a", "in"),
        ("10.0.0.7:5400", "hmac", b"a", "in"),
        ("10.0.0.7:5400", "repaired", b"a", "in"),
        ("10.0.0.7:5400", "own", b"a", "out"),
        ("local", "ok", b"a", "out"),
        ("local", "ok", b"!local/x", "out"),
        ("local", "ok", b"local/x", "local"),
        ("local", "ok", b"tmp", "local"),
    ],
)
def test_each_direction(peer: str, verdict: str, chan: bytes, direction: str) -> None:
    seen = Tap(STATUS).sighting(tapped(peer, verdict, OPEN.seal(b"here/x/1:7:%b|c" % chan)))
    assert (seen.direction, seen.verdict, seen.peer, seen.time_ns) == (direction, verdict, peer, 12)
    assert seen.rejected is (verdict == "hmac")


def test_only_duplicates_of_what_we_sent_are_echoes() -> None:
    tap = Tap(STATUS)
    tap.sighting(tapped("local", "ok"))
    back = tap.sighting(tapped("10.0.0.1:5400", "duplicate"))
    assert (back.direction, back.echo, back.rejected) == ("out", True, False)
    again = tap.sighting(tapped("10.0.0.1:5400", "duplicate"))
    assert again.echo, "each copy of it is"
    other = tap.sighting(tapped("10.0.0.1:5400", "duplicate", OPEN.seal(b"there/x/1:7:a/b|c")))
    assert (other.direction, other.echo, other.rejected) == ("in", False, True)


def test_few_echoes_are_awaited() -> None:
    tap = Tap(STATUS)
    for number in range(ECHOES_AWAITED + 1):
        tap.sighting(tapped("local", "ok", OPEN.seal(b"here/x/1:%d:a/b|c" % number)))
    assert not tap.sighting(tapped("10.0.0.1:1", "duplicate", OPEN.seal(b"here/x/1:0:a/b|c"))).echo
    assert len(tap._sent) == ECHOES_AWAITED


def test_other_bytes_than_bccn_are_shown() -> None:
    seen = Tap(STATUS).sighting(tapped("10.0.0.7:5400", "magic", b"\xff\0"))
    assert (seen.parts.verdict, seen.parts.shown, seen.detail) == ("magic", b"\xff\0", "")


def test_the_detail_belongs_to_the_verdict_of_the_daemon() -> None:
    broken = b"BCCN1[9]a:1:b|c"
    assert Tap(STATUS).sighting(tapped("10.0.0.7:1", "length", broken)).detail == "at byte 6: says 9, has 7"
    assert Tap(STATUS).sighting(tapped("10.0.0.7:1", "unauthenticated", broken)).detail == ""


@pytest.mark.parametrize(
    ("peer", "direction", "expected"),
    [
        ("10.0.0.7:5400", "in", ("10.0.0.7", 5400, "10.0.0.255", 5401)),
        ("[fe80::7%eth0]:5400", "in", ("fe80::7", 5400, "ff02::4242", 5402)),
        ("10.0.0.1:5401", "out", ("10.0.0.1", 5401, "10.0.0.255", 5401)),
        ("local", "out", ("127.0.0.1", 5401, "10.0.0.255", 5401)),
        ("local", "local", ("127.0.0.1", 5401, "127.0.0.1", 5401)),
    ],
)
def test_packets_have_the_addresses_of_the_segment(
    peer: str, direction: str, expected: tuple[str, int, str, int]
) -> None:
    packet = Packer([V6, V4]).packet(sighting(peer, direction), 3)
    found = udp(packet)
    assert (found.source, found.source_port, found.target, found.target_port) == expected
    assert found.payload == DATAGRAM
    assert packet is not None
    assert (packet.time_ns, packet.missing, packet.comment) == (10**18, 3, f"bccnd {direction} ok")
    assert packet.direction is (Direction.IN if direction == "in" else Direction.OUT)


def test_packets_without_a_segment_of_their_family() -> None:
    assert udp(Packer([V6]).packet(sighting("local", "out"), 0)).source == "::1"
    assert udp(Packer([V6]).packet(sighting(), 0)).target == "255.255.255.255"
    assert udp(Packer([]).packet(sighting("local", "out"), 0)).target_port == 5400
    assert udp(Packer([]).packet(sighting("[fe80::7%eth0]:5400"), 0)).target == "ff02::1"


def test_a_message_too_long_for_a_datagram_is_no_packet() -> None:
    fits = sighting(datagram=bytes(PAYLOAD_LIMIT))
    assert len(udp(Packer([]).packet(fits, 0)).payload) == PAYLOAD_LIMIT
    assert Packer([]).packet(sighting(datagram=bytes(PAYLOAD_LIMIT + 1)), 0) is None


def captured(payload: bytes, port: int = 5400, comment: str = "", cut: int = 0) -> Packet:
    data = UdpDatagram("10.0.0.7", 9, "10.0.0.255", port, payload).serialize()
    return Packet(5, data[: len(data) - cut], len(data), LINKTYPE_RAW, comment)


def test_a_capture_is_checked_by_our_keys() -> None:
    keyed = Integrity([b"k" * 16], Level.HMAC)
    for datagram, verdict in (DATAGRAM, "unauthenticated"), (keyed.seal(b"a:1:b|c"), "ok"), (b"x", "magic"):
        seen = from_capture(captured(datagram), 5400, keyed)
        assert seen is not None
        assert (seen.verdict, seen.direction, seen.peer) == (verdict, "", "10.0.0.7:9")


def test_our_own_capture_keeps_its_verdicts() -> None:
    for original in sighting(), sighting("local", "local"), sighting("10.0.0.1:5400", "out"):
        packet = Packer([V4]).packet(original, 0)
        assert packet is not None
        seen = from_capture(packet, 5401, OPEN)
        assert seen is not None
        assert (seen.verdict, seen.direction, seen.time_ns) == ("ok", original.direction, 10**18)
    seen = from_capture(captured(DATAGRAM, comment="bccnd in hmac"), 5400, OPEN)
    assert seen is not None
    assert seen.verdict == "hmac"


def test_a_packet_is_copied_from_capture_to_capture() -> None:
    seen = from_capture(captured(DATAGRAM), 5400, OPEN)
    assert seen is not None
    assert udp(Packer([]).packet(seen, 0)) == UdpDatagram("10.0.0.7", 9, "10.0.0.255", 5400, DATAGRAM)


def test_a_cut_packet_is_not_the_fault_of_the_sender() -> None:
    seen = from_capture(captured(DATAGRAM, cut=3), 5400, OPEN)
    assert seen is not None
    assert (seen.verdict, seen.detail) == ("cut", "")


def test_only_the_segment_is_shown_of_a_capture() -> None:
    assert from_capture(captured(b"dns", port=53), 5400, OPEN) is None
    assert from_capture(captured(b"dns", port=53), 53, OPEN) is not None
    assert from_capture(captured(DATAGRAM, port=7), 5400, OPEN) is not None
    assert from_capture(Packet(0, b"x", 1), 5400, OPEN) is None
