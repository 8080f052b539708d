"""Spool files: whole or not there, never changed, their numbers never used twice."""

import time
from mmap import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import ProtocolError
from bccnd.pipeline.source import spool_files
from bccnd.pipeline.source.spool_files import Header
from bccnd.wire.sbus import LENGTH

HEADER = Header("here", 5, 9, ["local/>"], (1, 2))


def framed(packets: list[bytes]) -> memoryview:
    return memoryview(b"".join(LENGTH.pack(len(packet)) + packet for packet in packets))


def test_a_written_file_reads_back(tmp_path: Path) -> None:
    packets = [b"one", b"", b"three\n{}", bytes(70_000)]
    written = spool_files.write(str(tmp_path), 7, 3, HEADER, framed(packets))
    assert spool_files.listed(str(tmp_path)) == [written]
    assert (written.number, written.messages, written.size) == (7, 3, Path(written.path).stat().st_size)
    header, content, starts, ends = spool_files.read(written.path)
    assert header == spool_files.header_of(written.path) == HEADER
    assert [content[start:end] for start, end in zip(starts, ends, strict=True)] == packets


@given(st.lists(st.binary(max_size=20)))
def test_packets_lie_between_their_lengths(packets: list[bytes]) -> None:
    frames = framed(packets)
    assert [bytes(frames[start:end]) for start, end in spool_files.spans(frames)] == packets


@given(st.binary(min_size=1, max_size=20))
def test_a_cut_file_is_an_error(noise: bytes) -> None:
    frames = framed([noise])
    for length in range(1, len(frames)):
        with pytest.raises(ProtocolError):
            list(spool_files.spans(frames[:length]))


def test_numbers_only_go_up(tmp_path: Path) -> None:
    first = spool_files.next_number(str(tmp_path))
    assert abs(first - time.time_ns() // 1000) < 10**7
    spool_files.write(str(tmp_path), first, 0, HEADER, framed([]))
    assert spool_files.next_number(str(tmp_path)) == first + 1
    spool_files.remove_through(str(tmp_path), first)
    assert spool_files.next_number(str(tmp_path)) == first + 1, "the newest stays"


def test_other_files_are_ignored_and_broken_headers_named(tmp_path: Path) -> None:
    for name in (".segment", "1-1.segment", "log", "00000000000000001-1.segment.gz"):
        (tmp_path / name).write_bytes(b"x")
    assert spool_files.listed(str(tmp_path)) == []
    bad = tmp_path / "00000000000000001-1.segment"
    bad.write_bytes(b'{"host": 1}\n')
    with pytest.raises(ProtocolError, match="not a spool file"):
        spool_files.read(str(bad))


def test_a_failed_attempt_leaves_nothing(tmp_path: Path) -> None:
    class Broken:
        def __buffer__(self, flags: int, /) -> memoryview:
            raise OSError

    with pytest.raises((OSError, TypeError)):
        spool_files.write(str(tmp_path), 1, 1, HEADER, Broken())  # type: ignore[arg-type]
    assert spool_files.listed(str(tmp_path)) == []
    spool_files.write(str(tmp_path), 1, 0, HEADER, framed([]))
    assert [each.number for each in spool_files.listed(str(tmp_path))] == [1]


def test_the_content_is_writable_for_compiled_functions(tmp_path: Path) -> None:
    written = spool_files.write(str(tmp_path), 1, 1, HEADER, framed([b"x"]))
    _, content, _, _ = spool_files.read(written.path)
    assert isinstance(content, mmap)
    assert not memoryview(content).readonly
