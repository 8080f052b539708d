"""Whole batches: what is compiled does what is written in Python, to the last byte of the memory.

The input is a script: datagrams, or packets of a client, each made up of pieces, or one that is repeated with the
next number; the deployment; how much room there is.
"""

import mmap
from collections.abc import Iterable

from bccnd.wire import batch, native, sbus
from bccnd.wire.bccn1 import RECEIVE_LIMIT, Integrity, Level
from tests.fuzz.fuzzer import Script
from tests.golden import entries

KEYS = (b"an old key of ours", b"n" * 65)
INTEGRITIES = [Integrity(), Integrity(KEYS), Integrity(KEYS, Level.HMAC), Integrity(KEYS[1:], Level.HMAC)]
SOURCES = [b"x", b"?", b"host/prog/1", b"s" * 128]
CHANNELS = [b"demo/a", b"demo/b", b"!", b"!?", b"c" * 1024]
ROUTES = {b"demo/a": SOURCES, b"demo/b": SOURCES, b"!": CHANNELS}
SLOT, BATCH = RECEIVE_LIMIT + 64, 8
ROOM = SLOT * BATCH
MEMORIES = [mmap.mmap(-1, ROOM + RECEIVE_LIMIT * BATCH) for _ in range(2)]
RUBBLE = b"MSG demo/a\0BCCN1[" * (len(MEMORIES[0]) // 17 + 1)


def one_input(data: bytes) -> None:
    script = Script(data)
    integrity = INTEGRITIES[script.number(len(INTEGRITIES))]
    room = ROOM, ROOM + (script.number(256) * 16 if script.number(2) else RECEIVE_LIMIT * BATCH)
    datagrams = [datagram(script, integrity, number) for number in range(script.number(BATCH + 1))]
    starts, ends = [], []
    for memory in MEMORIES:
        memory[:] = RUBBLE[: len(memory)]
        starts = [SLOT * slot for slot in range(len(datagrams))]
        ends = [start + len(each) for start, each in zip(starts, datagrams, strict=True)]
        for start, end, each in zip(starts, ends, datagrams, strict=True):
            memory[start:end] = each
    plain, compiled = MEMORIES
    opened = batch.PlainCodec(integrity).open(plain, starts, ends, room)
    assert_same_opened(opened, native.codec_of(integrity).open(compiled, starts, ends, room), whole=room[1])
    packets(script, starts, ends)
    seq = int.from_bytes(script.chunk()[:7], "big")
    compiled[:] = plain[:]
    for codec, memory in ((batch.PlainCodec(integrity), plain), (native.codec_of(integrity), compiled)):
        datagrams = codec.datagrams(b"host/prog/1", seq, memory, starts, ends)
        if sum(map(len, datagrams)) <= room[1] - room[0]:
            spans = codec.seal(b"host/prog/1", seq, memory, starts, ends, room)
            assert [memory[start:end] for start, end in zip(*spans, strict=True)] == datagrams
    assert plain[:] == compiled[:]


def assert_same_opened(plain: list[batch.Run | int], compiled: list[batch.Run | int], *, whole: int) -> None:
    """Where the room is short, one may give a datagram up sooner than the other."""
    if whole == len(MEMORIES[0]):
        assert compiled == plain
        assert MEMORIES[0][:] == MEMORIES[1][:]
    assert indexes(compiled) == indexes(plain)


def indexes(opened: list[batch.Run | int]) -> list[int]:
    return [
        index
        for part in opened
        for index in ([part] if isinstance(part, int) else range(part[0], part[0] + len(part[4])))
    ]


def packets(script: Script, starts: list[int], ends: list[int]) -> None:
    """The same places as packets of a client, with other bytes in some of them."""
    memory = MEMORIES[0]
    for start, end in zip(starts, ends, strict=True):
        packet = (b"", b"MSG demo/a\0", b"MSG demo/b\0x", b"PACK ", b"MSG ")[
            script.number(5)
        ] + script.chunk()
        memory[start : start + min(len(packet), end - start)] = packet[: end - start]
        assert native.unpack(memory, start, end) == batch.unpack(memory, start, end)
    longest = script.number(256), script.number(256)
    for first in range(len(starts) + 1):
        plain, compiled = (
            alike(memory, (starts, ends), first, ROUTES, SOURCES, longest)
            for alike in (batch.alike, native.alike)
        )
        assert plain == compiled


def datagram(script: Script, integrity: Integrity, number: int) -> bytes:
    if script.number(4) == 0:
        return script.chunk()[:RECEIVE_LIMIT]
    src = SOURCES[script.number(len(SOURCES))]
    chan = CHANNELS[script.number(len(CHANNELS))]
    seq = number + script.number(2) + (10**18 if script.number(8) == 0 else 0)
    return integrity.seal(b"%b:%d:%b|%b" % (src, seq, chan, script.chunk()))[: RECEIVE_LIMIT + 1]


def seeds() -> Iterable[bytes]:
    for entry in [*entries("bccn1", "valid"), *entries("bccn1", "invalid")]:
        raw = bytes.fromhex(entry["datagram"])[:255]
        yield bytes((0, 0, 0, 3)) + b"".join(bytes((0, len(raw))) + raw for _ in range(3))
    for entry in entries("sbus", "valid"):
        raw = bytes.fromhex(entry["packet"])[:255]
        yield bytes((2, 0, 0, 2)) + bytes((1, 2, 0, 0, 1, 3)) * 4 + bytes((0, len(raw))) + raw
    yield sbus.pack([b"MSG demo/a\0x"] * 4)
