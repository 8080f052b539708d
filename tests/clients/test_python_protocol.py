"""The packets of the local protocol, as the Python client builds and parses them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccn.errors import InvalidError, ProtocolError
from bccn.protocol import (
    PACK,
    Message,
    Packer,
    build_control,
    build_msg,
    build_sub,
    parse,
    unpack,
)
from tests.golden import golden


def of_type(*types: str) -> list[Any]:
    return [param for param in golden("sbus", "valid") if param.values[0]["type"] in types]


@pytest.mark.parametrize("entry", of_type("MSG"))
def test_plain_messages_are_parsed(entry: dict[str, Any]) -> None:
    packet = bytes.fromhex(entry["packet"])
    message = parse(packet)
    assert isinstance(message, Message)
    assert message.payload == bytes.fromhex(entry["payload"])
    if entry["chan"].isascii():
        assert message.channel == entry["chan"]
        assert build_msg(message.channel, message.payload) == packet


@pytest.mark.parametrize("entry", of_type("RECV"))
def test_full_messages_are_parsed(entry: dict[str, Any]) -> None:
    message = parse(bytes.fromhex(entry["packet"]))
    assert isinstance(message, Message)
    assert (message.peer, message.time_ns, message.verdict) == (
        entry["peer"],
        int(entry["unix_ns"]),
        entry["verdict"],
    )
    assert message.datagram == bytes.fromhex(entry["datagram"])


def named(kind: str, section: str, begin: str) -> list[Any]:
    return [param for param in golden(kind, section) if param.values[0]["name"].startswith(begin)]


@pytest.mark.parametrize("entry", named("sbus", "invalid", "RECV: "))
def test_broken_full_messages_raise(entry: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        parse(bytes.fromhex(entry["packet"]))


@pytest.mark.parametrize("entry", golden("bccn1", "valid"))
def test_every_valid_datagram_is_parsed(entry: dict[str, Any]) -> None:
    datagram = bytes.fromhex(entry["datagram"])
    message = parse(b"RECV 10.0.0.1:5400 17 ok\0" + datagram)
    assert isinstance(message, Message)
    assert (message.src, str(message.seq), message.channel, message.payload, message.mode) == (
        entry["src"],
        str(int(entry["seq"])),
        entry["chan"],
        bytes.fromhex(entry["payload"]),
        entry["mode"],
    )


@pytest.mark.parametrize("entry", of_type("PACK"))
def test_packs_are_unpacked(entry: dict[str, Any]) -> None:
    packets = [bytes.fromhex(packet) for packet in entry["packets"]]
    assert list(unpack(bytes.fromhex(entry["packet"]))) == packets


@pytest.mark.parametrize(
    "entry", [param for param in of_type("SUB", "UNSUB") if param.values[0]["canonical"]]
)
def test_subscriptions_are_built(entry: dict[str, Any]) -> None:
    prefix = b"" if entry["type"] == "SUB" else b"UN"
    assert prefix + build_sub(entry["pattern"]) == bytes.fromhex(entry["packet"])


@given(st.binary(max_size=200) | st.binary(max_size=200).map(lambda tail: b"RECV a 1 ok\0BCCN1[3]" + tail))
def test_any_bytes_parse_or_raise_protocol_error(packet: bytes) -> None:
    try:
        event = parse(packet)
    except ProtocolError:
        return
    assert isinstance(event, Message | tuple)


@given(st.lists(st.binary(max_size=40)), st.integers(0, 120))
def test_packs_keep_order_and_limit(packets: list[bytes], limit: int) -> None:
    packer = Packer(limit)
    counted = [out for packet in packets for out in packer.add(b"x" + packet)] + packer.flush()
    sent = [out for out, _ in counted]
    assert all(len(out) <= limit for out in sent if out.startswith(PACK))
    unpacked = [part for out in sent for part in (unpack(out) if out.startswith(PACK) else [out])]
    assert unpacked == [b"x" + packet for packet in packets]
    assert sum(count for _, count in counted) == len(packets)
    assert packer.flush() == []


@pytest.mark.parametrize("tail", [b"\0", b"\0\0\0\x02a", b"\0\0\0\x01ab", b"\xff\xff\xff\xff"])
def test_a_broken_pack_raises(tail: bytes) -> None:
    with pytest.raises(ProtocolError):
        list(unpack(PACK + tail))


@pytest.mark.parametrize(
    "build",
    [
        lambda: build_msg("a\0b", b""),
        lambda: build_msg("caf\N{LATIN SMALL LETTER E WITH ACUTE}", b""),
        lambda: build_sub("a b"),
        lambda: build_sub("a\n"),
        lambda: build_sub("a\0b"),
        lambda: build_control(""),
        lambda: build_control("a b", "c"),
    ],
)
def test_arguments_that_cannot_be_framed_raise(build: Any) -> None:
    with pytest.raises(InvalidError):
        build()


def test_messages_compare_and_print() -> None:
    message = Message("!a/b", b"hi", src="h/p/1", seq=3)
    assert (message.mode, message.text) == ("directed", "hi")
    assert repr(message) == "Message('!a/b', b'hi', src='h/p/1', seq=3)"
    assert message == Message("!a/b", b"hi", src="h/p/1", seq=3)
    assert message != Message("!a/b", b"hi")
    assert Message("!", b"").mode == "all"
