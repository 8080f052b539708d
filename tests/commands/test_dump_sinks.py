"""The screen and the capture file."""

import errno
import os
import struct
from pathlib import Path

import pytest

from bccnd.commands.dissection import dissect
from bccnd.commands.dump_sinks import CaptureFile, Screen
from bccnd.commands.sightings import Sighting
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.pcap import Packet, Reader
from bccnd.wire.udp import PAYLOAD_LIMIT

OPEN = Integrity()
DATAGRAM = OPEN.seal(b"a:1:b|c")


def seen(datagram: bytes = DATAGRAM) -> Sighting:
    return Sighting(10**18, "local", "ok", "local", dissect(datagram, OPEN))


def read(path: Path) -> list[Packet]:
    reader = Reader()
    packets = list(reader.feed(path.read_bytes()))
    reader.finish()
    return packets


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda fd: fd == 1)
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.delenv("NO_COLOR", raising=False)


def screen(**flags: bool) -> Screen:
    return Screen(**{"verbose": False, "hexadecimal": False, "as_json": False} | flags)


@pytest.mark.usefixtures("terminal")
def test_colours_and_width_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    long = seen(OPEN.seal(b"a:1:b|" + b"x" * 100))
    assert b"\x1b[" in screen().shown(long)
    monkeypatch.setenv("NO_COLOR", "1")
    assert b"\x1b" not in screen().shown(long)
    assert len(screen().shown(long).decode()) == 61
    monkeypatch.setattr(os, "isatty", lambda _: False)
    assert b"x" * 100 in screen().shown(long)


def test_each_option_adds_its_lines() -> None:
    assert screen().shown(seen()).count(b"\n") == 1
    assert screen(verbose=True).shown(seen()).count(b"\n") == 5
    assert screen(hexadecimal=True).shown(seen()).count(b"\n") == 2
    assert screen(as_json=True).shown(seen()).startswith(b"{")
    assert b"datagram_hex" in screen(as_json=True, hexadecimal=True).shown(seen())


def test_a_file_is_a_capture_from_its_first_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    sink = CaptureFile(str(path), [], None)
    assert read(path) == []
    assert sink.missing(3) == b""
    assert sink.missing(4) == b""
    sink.write(sink.shown(seen()))
    sink.write(sink.shown(seen()))
    assert [packet.missing for packet in read(path)] == [7, 0]


def test_too_long_messages_are_left_out_and_reported_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sink = CaptureFile(str(tmp_path / "file"), [], None)
    for _ in range(3):
        assert sink.shown(seen(bytes(PAYLOAD_LIMIT + 1))) == b""
    assert capfd.readouterr().err.count("\n") == 1


def test_room_shrinks(tmp_path: Path) -> None:
    sink = CaptureFile(str(tmp_path / "file"), [], 1000)
    before = sink.room
    data = sink.shown(seen())
    sink.write(data)
    assert before is not None
    assert sink.room == before - len(data) == 1000 - (tmp_path / "file").stat().st_size


def test_a_full_disk_leaves_whole_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    sink = CaptureFile(str(path), [], None)
    sink.write(sink.shown(seen()))
    real = os.write

    def half(fd: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space left on device") as caught:
        sink.write(sink.shown(seen()))
    assert caught.value.filename == str(path)
    assert len(read(path)) == 1


def test_the_capture_names_its_writer(tmp_path: Path) -> None:
    CaptureFile(str(tmp_path / "file"), [], None)
    data = (tmp_path / "file").read_bytes()
    assert struct.unpack_from("<I", data, 8) == (0x1A2B3C4D,)
    assert b"bccnd " in data[:60]
