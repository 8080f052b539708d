"""Frames: by the vectors, there and back, in pieces, within noise, and within limits."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import DndmError
from bccnd.wire.dndm.frame import (
    FRAME_LIMIT,
    HEADER_LIMIT,
    HEADERLESS,
    LINE_LIMIT,
    MAGIC,
    Frame,
    Reader,
    parse,
)
from tests.golden import golden
from tests.wire.dndm import plain_dndm

FRAMES = st.builds(Frame, st.none() | st.binary(max_size=40), st.binary(max_size=60))
# Noise with pieces of magics, and sizes that promise much.
NOISE = st.lists(
    st.sampled_from([MAGIC, HEADERLESS, MAGIC[:3], HEADERLESS[:2], b"\xfa", b"\0\0\0\4", b"\xff\xff\xff\xff"])
    | st.binary(max_size=9),
    max_size=6,
).map(b"".join)


@pytest.mark.parametrize("vector", golden("dndm", "frames"))
def test_a_frame_is_what_the_vector_says(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["frame"])
    header = None if vector["header"] is None else bytes.fromhex(vector["header"])
    assert parse(data) == Frame(header, bytes.fromhex(vector["message"]))
    assert parse(data).serialize() == data
    assert Reader().feed(data) == [parse(data)]


@pytest.mark.parametrize("vector", golden("dndm", "wrong_frames"))
def test_a_wrong_frame_breaks_its_rule(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["frame"])
    with pytest.raises(DndmError) as caught:
        parse(data)
    assert caught.value.rule == vector["rule"]
    reader = Reader()
    assert reader.feed(data) == []
    assert reader.fault is not None
    assert reader.fault.rule == vector["rule"]


@given(FRAMES)
def test_the_second_codec_writes_the_same(frame: Frame) -> None:
    if frame.header is None:
        assert frame.serialize() == plain_dndm.headerless(frame.message)
    else:
        assert frame.serialize() == plain_dndm.frame(frame.header, frame.message)
        assert plain_dndm.split(frame.serialize()) == frame


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_pieces_of_any_size_give_the_same(frames: list[Frame], sizes: list[int]) -> None:
    data = b"".join(frame.serialize() for frame in frames)
    reader, got, at = Reader(), [], 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        got += reader.feed(data[at : at + size])
        at += size
    assert got == frames
    assert (reader.fault, reader.waiting, reader.skipped) == (None, 0, 0)


@given(st.lists(st.tuples(NOISE, FRAMES), max_size=4), st.booleans())
def test_noise_hides_no_frame_for_long(pieces: list[tuple[bytes, Frame]], by_byte: bool) -> None:
    """A false beginning ends when the line is silent, at the latest."""
    data = b"".join(noise + frame.serialize() for noise, frame in pieces)
    reader = Reader(LINE_LIMIT, noisy=True)
    got = [
        frame
        for piece in ([bytes([octet]) for octet in data] if by_byte else [data])
        for frame in reader.feed(piece)
    ]
    while reader.waiting:
        got += reader.resume()
    wanted = iter(got)
    assert all(frame in wanted for _, frame in pieces)
    assert reader.fault is None
    assert reader.skipped == len(data) - sum(len(frame.serialize()) for frame in got)


def test_a_serial_line_finds_the_next_magic() -> None:
    frame = Frame(b"\x18\x01", b"hello")
    reader = Reader(LINE_LIMIT, noisy=True)
    spoiled = bytearray(frame.serialize())
    spoiled[11] ^= 1
    data = b"\xfa\xda" + bytes(spoiled) + b"boot: \xff" + frame.serialize()
    got = [found for octet in data for found in reader.feed(bytes([octet]))]
    assert got == [frame]
    assert reader.skipped == len(data) - len(frame.serialize())


def test_nothing_is_read_behind_a_fault() -> None:
    frame = Frame(b"", b"x")
    reader = Reader()
    assert reader.feed(frame.serialize() + b"\0" + frame.serialize()) == [frame]
    assert reader.fault is not None
    assert reader.feed(frame.serialize()) == []
    assert reader.resume() == []
    assert reader.waiting == 0


@pytest.mark.parametrize(
    ("announced", "rule"),
    [
        (MAGIC + struct.pack(">I", FRAME_LIMIT - 7), "size"),
        (MAGIC + struct.pack(">I", 7), "size"),
        (HEADERLESS + struct.pack(">I", 3), "size"),
        (HEADERLESS + b"\xff\xff\xff\xff", "size"),
        (MAGIC + struct.pack(">II", 4096, HEADER_LIMIT + 1), "header"),
        (MAGIC + struct.pack(">II", 100, 93), "header"),
        (HEADERLESS + struct.pack(">II", 100, 97), "message"),
        (MAGIC + struct.pack(">III", 100, 0, 93), "message"),
        (b"\xfa\xdb", "magic"),
    ],
)
def test_sizes_are_refused_before_what_they_announce(announced: bytes, rule: str) -> None:
    reader = Reader()
    assert reader.feed(announced[:-1]) == []
    assert reader.fault is None
    reader.feed(announced[-1:])
    assert reader.fault is not None
    assert reader.fault.rule == rule


def test_the_longest_frame_is_written_and_read() -> None:
    longest = Frame(b"h", bytes(FRAME_LIMIT - 17))
    data = longest.serialize()
    assert len(data) == FRAME_LIMIT
    assert Reader().feed(data) == [longest]
    with pytest.raises(DndmError, match="size"):
        Frame(b"h", bytes(FRAME_LIMIT - 16)).serialize()
    with pytest.raises(DndmError, match="header"):
        Frame(bytes(HEADER_LIMIT + 1), b"").serialize()


@pytest.mark.parametrize("cut", [1, 7, 11, 15, 16])
def test_half_a_frame_is_no_frame(cut: int) -> None:
    data = Frame(b"", b"x").serialize()
    with pytest.raises(DndmError, match="size"):
        parse(data[:cut])
    with pytest.raises(DndmError, match="size"):
        parse(data + data[:cut])
