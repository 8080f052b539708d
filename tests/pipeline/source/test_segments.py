"""Segments: whole or not there, never changed, their numbers never used twice."""

import time
from mmap import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import ProtocolError
from bccnd.pipeline.source import segments
from bccnd.pipeline.source.segments import Header
from bccnd.wire.sbus import LENGTH

HEADER = Header("here", 5, 9, ["local/>"], (1, 2))


def framed(packets: list[bytes]) -> memoryview:
    return memoryview(b"".join(LENGTH.pack(len(packet)) + packet for packet in packets))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    packets = [b"one", b"", b"three\n{}", bytes(70_000)]
    written = segments.write(str(tmp_path), 7, 3, HEADER, framed(packets))
    assert segments.listed(str(tmp_path)) == [written]
    assert (written.number, written.messages, written.size) == (7, 3, Path(written.path).stat().st_size)
    header, content, starts, ends = segments.read(written.path)
    assert header == segments.header_of(written.path) == HEADER
    assert [content[start:end] for start, end in zip(starts, ends, strict=True)] == packets


@given(st.lists(st.binary(max_size=20)))
def test_packets_lie_between_their_lengths(packets: list[bytes]) -> None:
    frames = framed(packets)
    assert [bytes(frames[start:end]) for start, end in segments.places(frames)] == packets


@given(st.binary(min_size=1, max_size=20))
def test_what_is_cut_is_told(noise: bytes) -> None:
    frames = framed([noise])
    for length in range(1, len(frames)):
        with pytest.raises(ProtocolError):
            list(segments.places(frames[:length]))


def test_numbers_go_on_and_begin_above_all_that_were(tmp_path: Path) -> None:
    first = segments.next_number(str(tmp_path))
    assert abs(first - time.time_ns() // 1000) < 10**7
    segments.write(str(tmp_path), first, 0, HEADER, framed([]))
    assert segments.next_number(str(tmp_path)) == first + 1
    segments.remove_through(str(tmp_path), first)
    assert segments.next_number(str(tmp_path)) == first + 1, "the newest stays"


def test_what_is_none_is_not_looked_at(tmp_path: Path) -> None:
    for name in (".segment", "1-1.segment", "log", "00000000000000001-1.segment.gz"):
        (tmp_path / name).write_bytes(b"x")
    assert segments.listed(str(tmp_path)) == []
    bad = tmp_path / "00000000000000001-1.segment"
    bad.write_bytes(b'{"host": 1}\n')
    with pytest.raises(ProtocolError, match="no segment"):
        segments.read(str(bad))


def test_an_attempt_that_failed_leaves_nothing(tmp_path: Path) -> None:
    class Broken:
        def __buffer__(self, flags: int, /) -> memoryview:
            raise OSError

    with pytest.raises((OSError, TypeError)):
        segments.write(str(tmp_path), 1, 1, HEADER, Broken())  # type: ignore[arg-type]
    assert segments.listed(str(tmp_path)) == []
    segments.write(str(tmp_path), 1, 0, HEADER, framed([]))
    assert [each.number for each in segments.listed(str(tmp_path))] == [1]


def test_the_memory_is_as_the_compiled_functions_want_it(tmp_path: Path) -> None:
    written = segments.write(str(tmp_path), 1, 1, HEADER, framed([b"x"]))
    _, content, _, _ = segments.read(written.path)
    assert isinstance(content, mmap)
    assert not memoryview(content).readonly
