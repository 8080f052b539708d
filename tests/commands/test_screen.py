"""A terminal that is taken over and restored (``test_top`` has the signals)."""

import fcntl
import os
import pty
import select
import struct
import termios
from collections.abc import Iterator

import pytest

from bccnd.commands.board import TITLE, Line
from bccnd.commands.screen import ENTER, LEAVE, Screen
from tests.packet_client import PATIENCE


@pytest.fixture
def ends() -> Iterator[tuple[int, int]]:
    """(master, slave) of a pseudo-terminal of 30 by 5."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 5, 30, 0, 0))
    yield master, slave
    os.close(slave)
    os.close(master)


def shown(master: int, ending: bytes) -> bytes:
    """What was written to the terminal, up to ``ending``; a pseudo-terminal may hand it over in parts."""
    written = b""
    while not written.endswith(ending):
        assert select.select([master], [], [], PATIENCE)[0], written
        written += os.read(master, 1000)
    return written


def test_the_terminal_is_restored_after_a_fault(ends: tuple[int, int]) -> None:
    master, slave = ends
    before = termios.tcgetattr(slave)

    def fault() -> None:
        with Screen(slave, slave) as screen:
            assert screen.size() == (30, 5)
            assert termios.tcgetattr(slave) != before
            raise LookupError

    with pytest.raises(LookupError):
        fault()
    assert termios.tcgetattr(slave) == before
    assert shown(master, LEAVE) == ENTER + LEAVE


def test_lines_replace_those_before(ends: tuple[int, int]) -> None:
    master, slave = ends
    with Screen(slave, slave) as screen:
        shown(master, ENTER)
        screen.draw([Line("A B", TITLE), Line("1 é")])
        drawn = shown(master, "1 é\x1b[0m".encode()).replace(b"\r\r", b"\r").decode()
    assert drawn == "\x1b[H\x1b[K\x1b[7mA B\x1b[0m\r\n\x1b[K1 é\x1b[0m"


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        (b"qc", ["q", "c"]),
        (b"\x1b[C\x1bOD", [">", "<"]),
        (b"\x1b[15~r\x1b[A", ["r"]),
        (b"\x1b", ["\x1b"]),
        (b"\xc3\xa9", ["é"]),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_keys_are_read(ends: tuple[int, int], typed: bytes, keys: list[str]) -> None:
    master, slave = ends
    with Screen(slave, slave) as screen:
        os.write(master, typed)
        assert screen.wait(PATIENCE) == keys
        assert screen.wait(0) == []


def test_a_letter_may_come_in_two_parts(ends: tuple[int, int]) -> None:
    master, slave = ends
    with Screen(slave, slave) as screen:
        os.write(master, b"\xc3")
        assert screen.wait(PATIENCE) == []
        os.write(master, b"\xa9")
        assert screen.wait(PATIENCE) == ["é"]


def test_a_terminal_that_is_gone_ends_it() -> None:
    master, slave = pty.openpty()
    with Screen(slave, slave) as screen:
        os.close(master)
        assert screen.wait(PATIENCE) == []
        assert screen.ended_by
        screen.draw([Line("nobody sees it")])
    os.close(slave)


def test_an_unknown_size_is_80_by_24() -> None:
    read, write = os.pipe()
    assert Screen(read, write).size() == (80, 24)
    os.close(read)
    os.close(write)
