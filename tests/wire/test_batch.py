"""Whole batches: the compiled functions against those in Python, and those against the plain way, byte by byte."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import FramingError, WireError
from bccnd.wire import batch, native, sbus
from bccnd.wire.bccn1 import RECEIVE_LIMIT, SEQ_LIMIT, Integrity, Level, Message
from tests.golden import entries
from tests.needs import cannot_run
from tests.relay.rubble import datagrams, mostly, payloads
from tests.wire.memory import laid_out

KEYS = (b"correct horse battery staple", b"yesterday's key", b"k" * 65)
DEPLOYMENTS = [
    Integrity(),
    Integrity(KEYS),
    Integrity(KEYS[1:]),
    Integrity(KEYS, Level.HMAC),
    Integrity(KEYS[1:], Level.HMAC),
    Integrity((), Level.CRC32),
    Integrity(KEYS, Level.CRC32),
]
ROOM = 64 * RECEIVE_LIMIT
thorough = settings(deadline=None, max_examples=400)


def test_the_extension_was_built():
    """Or half of this file compares nothing."""
    if os.environ.get("BCCN_PURE"):
        cannot_run("no Rust here, as tests/run.sh has said")
    assert native.COMPILED


# Datagrams in

received = datagrams(
    DEPLOYMENTS,
    [b"x", b"y", b"?", b"host/prog/1", b"s" * 128, b"s" * 129, b"", b"a b"],
    st.integers(1, 4) | st.sampled_from([10**18, 10**19 - 1, 10**19, SEQ_LIMIT - 1, SEQ_LIMIT]),
    st.sampled_from([b"demo/a", b"demo/b", b"!", b"!?", b"!?x", b"c" * 1024, b"c" * 1025, b"", b"\x80"]),
    payloads | st.just(b"p" * 1900),
)


def plainly(integrity: Integrity, datagram: bytes) -> Message | None:
    try:
        src, seq, chan, chan_at, payload_at = integrity.open(datagram)
    except WireError:
        return None
    assert datagram[chan_at : payload_at - 1] == chan
    return Message(src, seq, chan, datagram[payload_at:])


@thorough
@given(
    integrity=st.sampled_from(DEPLOYMENTS),
    read=st.lists(received, max_size=12),
    room=st.just(ROOM) | st.integers(0, 200),
)
def test_a_batch_opens_as_its_datagrams_do(integrity: Integrity, read: list[bytes], room: int):
    memory, starts, ends = laid_out(read, room=room)
    begin = len(memory) - room
    before = memory[:begin]
    opened = batch.PlainCodec(integrity).open(memory, starts, ends, (begin, len(memory)))
    assert memory[:begin] == before
    indexes, at = [], begin
    for part in opened:
        if isinstance(part, int):
            indexes.append(part)
            continue
        index, src, seq, chan, firsts, afters = part
        for number, (first, after) in enumerate(zip(firsts, afters, strict=True)):
            message = sbus.Msg.parse(memory[first + 4 : after])
            assert plainly(integrity, read[index + number]) == Message(
                src, seq + number, chan, message.payload
            )
            assert message.chan == chan
            assert sbus.LENGTH.unpack_from(memory, first - 4)[0] == after - first
            assert first == at + 4  # side by side, as in a PACK
            at = after
        indexes += range(index, index + len(firsts))
    assert indexes == list(range(len(read)))
    if room == ROOM:
        left = [read[part] for part in opened if isinstance(part, int)]
        assert all(integrity.open_sound(datagram) is None for datagram in left)
    compare_opening(integrity, read, room, opened, memory[:])


def compare_opening(
    integrity: Integrity, read: list[bytes], room: int, opened: list[batch.Run | int], left: bytes
) -> None:
    memory, starts, ends = laid_out(read, room=room)
    region = (len(memory) - room, len(memory))
    compiled = native.codec_of(integrity).open(memory, starts, ends, region)
    # One that finds no room may be given up sooner by one than by the other: both go the plain way.
    if room == ROOM:
        assert compiled == opened
        assert memory[:] == left
    assert [type(field) for part in compiled if not isinstance(part, int) for field in part] == [
        int, bytes, int, bytes, list, list,
    ] * sum(not isinstance(part, int) for part in compiled)  # fmt: skip


@pytest.mark.parametrize("vector", [*entries("bccn1", "valid"), *entries("bccn1", "invalid")], ids=str)
def test_the_golden_datagrams(vector: dict[str, Any]):
    integrity = Integrity([bytes.fromhex(vector["key"])] if vector["key"] else [], Level(vector["required"]))
    datagram = bytes.fromhex(vector["datagram"])
    results = []
    for codec in (batch.PlainCodec(integrity), native.codec_of(integrity)):
        memory, starts, ends = laid_out([datagram] * 2, room=ROOM)
        results.append((codec.open(memory, starts, ends, (len(memory) - ROOM, len(memory))), memory[:]))
    assert results[0] == results[1]


def test_a_run_has_one_source_one_channel_and_no_gap():
    fields = [
        (b"x", 1, b"a"),
        (b"x", 2, b"a"),
        (b"x", 4, b"a"),
        (b"x", 5, b"b"),
        (b"y", 6, b"b"),
        (b"y", 7, b"b"),
    ]
    read = [Integrity().seal(b"%b:%d:%b|p" % field) for field in fields]
    read.insert(1, b"rubbish")
    for codec in (batch.PlainCodec(Integrity()), native.codec_of(Integrity())):
        memory, starts, ends = laid_out(read, room=ROOM)
        opened = codec.open(memory, starts, ends, (len(memory) - ROOM, len(memory)))
        shape = [part if isinstance(part, int) else (*part[:4], len(part[4])) for part in opened]
        assert shape == [
            (0, b"x", 1, b"a", 1), 1, (2, b"x", 2, b"a", 1), (3, b"x", 4, b"a", 1), (4, b"x", 5, b"b", 1),
            (5, b"y", 6, b"b", 2),
        ]  # fmt: skip


# Datagrams out


@thorough
@given(
    integrity=st.sampled_from(DEPLOYMENTS),
    seq=st.integers(0, 10**18),
    messages=st.lists(st.tuples(st.sampled_from([b"demo/a", b"b", b"c" * 1024]), payloads), max_size=5),
)
def test_a_batch_is_sealed_as_its_messages_are(
    integrity: Integrity, seq: int, messages: list[tuple[bytes, bytes]]
):
    packets = [sbus.Msg(chan, payload).serialize() for chan, payload in messages]
    plainly = [
        integrity.seal(Message(b"host/x/1", number, chan, payload).serialize())
        for number, (chan, payload) in enumerate(messages, seq)
    ]
    size = sum(map(len, plainly))
    for codec in (batch.PlainCodec(integrity), native.codec_of(integrity)):
        for spare in (0, 100):
            memory, starts, ends = laid_out(packets, room=size + spare)
            before, region = memory[:], (len(memory) - size - spare, len(memory))
            assert codec.datagrams(b"host/x/1", seq, memory, starts, ends) == plainly
            firsts, afters = codec.seal(b"host/x/1", seq, memory, starts, ends, region)
            assert [memory[first:after] for first, after in zip(firsts, afters, strict=True)] == plainly
            assert [region[0], *afters][:-1] == firsts or not plainly, "side by side"
            assert (
                memory[: region[0]] + memory[region[0] + size :]
                == before[: region[0]] + before[region[0] + size :]
            )


@pytest.mark.parametrize("codec", [batch.PlainCodec(Integrity()), native.codec_of(Integrity())], ids=type)
def test_a_region_without_room_is_refused(codec: batch.Codec):
    memory, starts, ends = laid_out([b"MSG a\0x"] * 2, room=100)
    size = sum(map(len, codec.datagrams(b"x", 1, memory, starts, ends)))
    after = memory[-100 + size - 1 :]
    with pytest.raises(ValueError, match="no room"):
        codec.seal(b"x", 1, memory, starts, ends, (len(memory) - 100, len(memory) - 100 + size - 1))
    assert memory[-100 + size - 1 :] == after


# Packets of a client

channels = [b"a", b"b/c", b"d"]
routes = {b"a": "one", b"b/c": "one", b"d": "other"}
packets = mostly(
    st.builds(
        lambda chan, payload: b"MSG %b\0%b" % (chan, payload), st.sampled_from([*channels, b"?"]), payloads
    ),
    [b"MSG ", b"a", b"\0", b"SUB ", b"MSG a\0"],
)


@thorough
@given(
    read=st.lists(packets, min_size=1, max_size=12),
    first=st.integers(0, 3),
    longest=st.tuples(st.integers(0, 40), st.integers(0, 40)) | st.just((9999, 9999)),
)
def test_packets_are_alike_while_their_route_is_the_same(
    read: list[bytes], first: int, longest: tuple[int, int]
):
    memory, starts, ends = laid_out(read)

    def fits(packet: bytes) -> bool:
        chan, nul, payload = packet[4:].partition(b"\0")
        sound = packet.startswith(b"MSG ") and nul
        return (
            bool(sound)
            and routes.get(chan) == "one"
            and len(packet) <= longest[0]
            and len(payload) <= longest[1]
        )

    first = min(first, len(read))
    expected = next((at for at in range(first, len(read)) if not fits(read[at])), len(read))
    for alike in (batch.alike, native.alike):
        assert alike(memory, (starts, ends), first, routes, "one", longest) == expected


@settings(deadline=None, max_examples=1000)
@given(
    st.lists(payloads).map(sbus.pack)
    | st.binary(max_size=60).map(lambda raw: b"PACK " + raw)
    | packets.map(lambda packet: sbus.pack([packet, b"MSG a\0"]))
)
@pytest.mark.parametrize("unpack", [batch.unpack, native.unpack], ids=["python", "compiled"])
def test_both_ways_to_unpack_agree(unpack: Callable[..., Any], packet: bytes):
    """Also with other bytes around it; of a PACK inside only the plain way complains."""
    memory, (start,), (end,) = laid_out([packet])
    found = unpack(memory, start, end)
    inside = found and tuple(memory[first:last] for first, last in zip(*found, strict=True))
    if inside is None or any(each.startswith(sbus.PACK) for each in inside):
        with pytest.raises(FramingError, match="beyond" if inside is None else "inside another"):
            sbus.parse(packet)
    else:
        assert sbus.parse(packet) == sbus.Pack(inside)


# With and without


def test_it_can_be_switched_off():
    program = "from bccnd.wire import native; print(native.COMPILED, native.alike.__module__)"
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "BCCN_PURE": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.split() == ["False", "bccnd.wire.batch"]


# What a caller can get wrong


def test_the_compiled_functions_keep_to_the_memory():
    if not native.COMPILED:
        cannot_run("not compiled")
    memory, starts, ends = laid_out([b"MSG a\0"])
    codec = native.codec_of(Integrity())
    for bad in (([0], [len(memory) + 1]), ([9], [8]), ([0, 1], [1])):
        with pytest.raises(ValueError, match="outside the memory"):
            codec.open(memory, *bad, (0, 0))
        with pytest.raises(ValueError, match="outside the memory"):
            codec.datagrams(b"x", 1, memory, *bad)
        with pytest.raises(ValueError, match="outside the memory"):
            codec.seal(b"x", 1, memory, *bad, (len(memory), len(memory)))
    for region in ((0, len(memory) + 1), (9, 8)):
        with pytest.raises(ValueError, match="outside the memory"):
            codec.seal(b"x", 1, memory, starts, ends, region)
    with pytest.raises(ValueError, match="inside the region"):
        codec.seal(b"x", 1, memory, starts, ends, (0, len(memory)))
    with pytest.raises(ValueError, match="outside the memory"):
        codec.open(memory, starts, ends, (0, len(memory) + 1))
    with pytest.raises(ValueError, match="outside the memory"):
        native.unpack(memory, 0, len(memory) + 1)
    with pytest.raises(ValueError, match="outside the memory"):
        native.alike(memory, ([0], [len(memory) + 1]), 0, {}, None, (9, 9))
    for wrong in (b"read-only", memoryview(bytearray(8))[::2]):
        with pytest.raises(ValueError, match="writable and contiguous"):
            native.unpack(wrong, 0, 1)
    with pytest.raises((OverflowError, TypeError)):
        codec.open(memory, [-1], [1], (0, 0))
