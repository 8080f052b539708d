"""Packets of the local bus: the golden vectors, and what must hold for any bytes at all."""

import re
from collections.abc import Callable
from itertools import filterfalse
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import FramingError, PacketError
from bccnd.wire import sbus
from bccnd.wire.sbus import SHOWN_LIMIT
from tests.golden import entries, golden

thorough = settings(deadline=None, max_examples=200)


def described(packet: sbus.Packet) -> dict[str, Any]:
    """A packet in the words of the vectors."""
    match packet:
        case sbus.Sub(pattern, typed):
            return {"type": "SUB", "pattern": pattern.decode("latin-1"), "typed": typed}
        case sbus.Unsub(pattern):
            return {"type": "UNSUB", "pattern": pattern.decode("latin-1")}
        case sbus.Msg(chan, payload):
            return {"type": "MSG", "chan": chan.decode("latin-1"), "payload": payload.hex()}
        case sbus.Cmsg(key, value):
            return {"type": "CMSG", "key": key.decode(), "value": value.hex()}
        case sbus.Recv(peer, unix_ns, verdict, datagram, interface):
            return {
                "type": "RECV",
                "peer": peer.decode(),
                "unix_ns": str(unix_ns),
                "verdict": verdict.decode(),
                "datagram": datagram.hex(),
            } | ({"interface": interface.decode()} if interface else {})
        case sbus.Datagram(datagram):
            return {"type": "BCCN", "datagram": datagram.hex()}
        case sbus.Pack(packets):
            return {"type": "PACK", "packets": [packet.hex() for packet in packets]}


# The golden vectors


@pytest.mark.parametrize("vector", golden("sbus", "valid") + golden("sbus", "tapped"))
def test_valid_packet(vector: dict[str, Any]):
    packet = bytes.fromhex(vector["packet"])
    parsed = sbus.parse(packet)
    assert described(parsed) == {field: vector[field] for field in described(parsed)}
    assert (parsed.serialize() == packet) or not vector["canonical"]
    assert sbus.parse(parsed.serialize()) == parsed


@pytest.mark.parametrize("vector", golden("sbus", "invalid"))
def test_invalid_packet(vector: dict[str, Any]):
    """The relay judges channels, patterns, keys and datagrams; here they only have to get there."""
    packet = bytes.fromhex(vector["packet"])
    if vector["code"] != "bad-packet":
        sbus.parse(packet)
        return
    with pytest.raises(PacketError) as caught:
        sbus.parse(packet)
    assert caught.value.code == "bad-packet"
    assert isinstance(caught.value, FramingError) == vector["closes"]
    assert caught.value.text.isprintable()


@pytest.mark.parametrize("vector", golden("sbus", "lines"))
def test_lines_for_people(vector: dict[str, Any]):
    kind = {"MSG": sbus.Msg, "CMSG": sbus.Cmsg}[vector["word"]]
    packet = kind(vector["key"].encode(), bytes.fromhex(vector["value"]))
    assert packet.serialize_line() == bytes.fromhex(vector["line"])


@pytest.mark.parametrize("vector", golden("sbus", "typed"))
def test_lines_that_are_typed(vector: dict[str, Any]):
    word, _, rest = bytes.fromhex(vector["packet"]).partition(b" ")
    assert word == b"MSG"
    assert sbus.Msg.parse_line(rest) == sbus.Msg(vector["chan"].encode(), bytes.fromhex(vector["payload"]))


def test_a_typed_line_needs_a_separator():
    with pytest.raises(PacketError, match="bad-packet packet: MSG needs a space or a NUL"):
        sbus.Msg.parse_line(b"test/chan\n")


def test_a_time_that_is_too_long_is_refused():
    """Python refuses to make a number of more than 4300 digits, with an error of its own."""
    with pytest.raises(PacketError):
        sbus.parse(b"RECV local " + b"1" * 5000 + b" ok\0")


def test_a_key_has_a_limit():
    assert sbus.Cmsg.parse(b"k" * sbus.KEY_LIMIT).key == b"k" * sbus.KEY_LIMIT
    with pytest.raises(PacketError):
        sbus.Cmsg.parse(b"k" * (sbus.KEY_LIMIT + 1))


# What must hold for all bytes

words = st.binary(min_size=1, max_size=30).filter(lambda word: not set(word) & set(b"\0\r\n "))
payloads = st.binary(max_size=300)
lone_packets = st.one_of(
    st.builds(sbus.Sub, words | st.just(b""), st.booleans()),
    st.builds(sbus.Unsub, words | st.just(b"")),
    st.builds(sbus.Msg, words, payloads),
    st.builds(
        sbus.Cmsg,
        st.text("abz/!-", min_size=1).map(str.encode),
        payloads.filter(lambda raw: not raw.endswith(b"\n")),
    ),
    st.builds(sbus.Recv, words, st.integers(0, 2**64 - 1), words, payloads, words | st.just(b"")),
    st.builds(sbus.Datagram, payloads.map(lambda raw: b"BCCN1" + raw)),
)
real_packets = st.sampled_from(
    [bytes.fromhex(vector["packet"]) for vector in entries("sbus", "valid") + entries("sbus", "invalid")]
)


@st.composite
def mutated_packets(draw: st.DrawFn) -> bytes:
    packet = draw(real_packets)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, min(len(packet), 40)))
        packet = packet[:start] + draw(st.binary(max_size=6)) + packet[start + draw(st.integers(0, 6)) :]
    return packet


def parsed_or_refused(parse: Callable[[bytes], sbus.Packet], raw: bytes) -> sbus.Packet | PacketError:
    try:
        return parse(raw)
    except PacketError as error:
        return error


@thorough
@given(lone_packets)
def test_a_packet_survives_the_bus(packet: sbus.Packet):
    assert sbus.parse(packet.serialize()) == packet


@thorough
@given(st.lists(lone_packets.map(lambda packet: packet.serialize())))
def test_packets_survive_a_pack(packets: list[bytes]):
    assert sbus.parse(sbus.pack(packets)) == sbus.Pack(tuple(packets))


@settings(deadline=None, max_examples=1000)
@given(mutated_packets() | st.binary(max_size=200))
def test_any_bytes_parse_or_are_a_packet_error(packet: bytes):
    outcome = parsed_or_refused(sbus.parse, packet)
    if isinstance(outcome, PacketError):
        assert outcome.code == "bad-packet"
        assert outcome.text.isprintable()


@thorough
@given(payloads)
def test_any_typed_line_parses_or_is_a_packet_error(rest: bytes):
    outcome = parsed_or_refused(sbus.Msg.parse_line, rest)
    assert isinstance(outcome, sbus.Msg) or outcome.code == "bad-packet"


def original(line: bytes) -> bytes:
    """What a line shows: its escapes undone, as the document says."""
    named = {b"n": b"\n", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}
    return re.sub(
        rb"\\(?:([nr0\\])|x([0-9a-f]{2}))",
        lambda found: named[found[1]] if found[1] else bytes.fromhex(found[2].decode()),
        line,
    )


# Texts full of what terminals obey.
hostile = st.one_of(
    payloads,
    st.text().map(str.encode),
    st.lists(
        st.sampled_from(
            [
                b"\x1b[2J",
                b"\x9b",
                b"\xc2\x9b",
                b"\xe2\x80\xae",
                b"\\",
                b"\\x1b",
                b"\t",
                b"\n",
                b"\xff",
                "ü€".encode(),
            ]
        )
    ).map(b"".join),
)


@thorough
@given(words, hostile)
def test_a_line_is_one_line(chan: bytes, payload: bytes):
    line = sbus.Msg(chan, payload).serialize_line()
    word, shown_chan, shown_payload = line.removesuffix(b"\n").split(b" ", 2)
    assert (word, line[-1:]) == (b"MSG", b"\n")
    assert (original(shown_chan), original(shown_payload)) == (chan, payload)
    assert set(filterfalse(str.isprintable, line[:-1].decode())) <= {"\t"}, "nothing that a terminal obeys"


@thorough
@given(words, hostile)
def test_an_answer_in_a_line_is_one_line(key: bytes, value: bytes):
    line = sbus.Cmsg(b"key", value).serialize_line()
    assert original(line) == b"CMSG key %b\n" % value
    assert set(filterfalse(str.isprintable, line[:-1].decode())) <= {"\t"}


@pytest.mark.parametrize("unit", [b"\x1b", b"\n", b"\xff", b"\x1ba", "\u202e".encode()])
def test_a_long_line_with_escapes_is_cut(unit: bytes):
    """So that no text costs much, or becomes too long for a socket."""
    longest = unit * (SHOWN_LIMIT // len(unit))
    assert original(sbus.shown(longest)) == longest
    for more in (1, 61440):
        text = longest[:SHOWN_LIMIT].ljust(SHOWN_LIMIT, b"x") + b"y" * more
        kept, _, missing = sbus.shown(text).rpartition(b"\\+")
        assert original(kept) + b"y" * int(missing) == text
        assert len(kept) <= 4 * SHOWN_LIMIT


def test_a_long_line_without_escapes_is_whole():
    text = ("ü" * 30_000).encode()
    assert sbus.shown(text) == text


def test_a_cut_within_a_letter_loses_nothing():
    text = b"\n" + ("€" * 4000).encode()
    kept, _, missing = sbus.shown(text).rpartition(b"\\+")
    assert original(kept) == text[: -int(missing)]


@given(st.binary())
def test_a_datagram_in_a_line_is_one_line(payload: bytes):
    line = sbus.line_of(sbus.Recv(b"10.0.0.2:5400", 7, b"magic", payload).serialize())
    assert line.startswith(b"RECV 10.0.0.2:5400 7 magic ")
    assert line[:-1].decode().isprintable() or b"\t" in line
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
