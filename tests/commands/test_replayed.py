"""``bccn sub --since`` through a real door, before a record that is written for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bccnd.mux.span import SECOND_NS
from tests.clients.door import Door
from tests.command_line import bccn
from tests.daemon_process import DaemonProcess
from tests.mux.test_record import NOON, record, rows

# The recorder's end of the record, and the second behind it.
END = 10
UNTIL = str(NOON // SECOND_NS + 1)


@pytest.fixture(scope="module")
def door(shared_daemon: DaemonProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    folder = tmp_path_factory.mktemp("door")
    record(
        folder / "recorded", (0, END, [rows(1, payload=b"one"), rows(2, payload=b"\xff\n"), rows(3)])
    ).end()
    with Door(folder, shared_daemon.socket, "--recorded", str(folder / "recorded")) as started:
        yield started


def test_what_was_recorded_is_printed(shared_daemon: DaemonProcess, door: Door) -> None:
    words = ["sub", "--connect", door.address, "-F", "%U %s #%n %c %p", "a/>"]
    done = bccn(shared_daemon, *words, "--since", "0", "--until", UNTIL)
    at = NOON // SECOND_NS
    assert done.stdout.splitlines(keepends=True) == [
        b"%d.000000001 here/a #1 a/x one\n" % at,
        b"%d.000000002 here/a #2 a/x \xff\n" % at, b"\n",
        b"%d.000000003 here/a #3 a/x hello\n" % at,
    ]  # fmt: skip
    assert done.returncode == 0
    first, last = done.stderr.decode().splitlines()
    assert first.startswith("bccn: not recorded: 1970-01-01T00:00:00")
    assert first.endswith("Z, nothing was recorded")
    assert last.endswith("Z, the recorder has not written it")


def test_it_ends_after_a_number_or_a_time(shared_daemon: DaemonProcess, door: Door) -> None:
    words = ["sub", "--connect", door.address, "-q", "--since", "0"]
    done = bccn(shared_daemon, *words, "-C", "1", "-x", "b", "a/>")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"one\n", b"")
    done = bccn(shared_daemon, *words, "-W", "0.2", "nothing/>")
    assert (done.returncode, done.stdout) == (3, b"")
    assert done.stderr == b"bccn: sub: timed out after 0.2 s and 0 messages\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["--since", "soon", "a"],
            2,
            "'soon' is no time, such as 2026-11-21T10:00:00Z or 10m for 10 minutes ago",
        ),
        (["--since", "10x", "a"], 2, "10x: must be ISO 8601, seconds since 1970, or before now as in -10m"),
        (["--since", "0", "a", "b"], 2, "--since takes one PATTERN"),
        (["--until", "0", "a"], 2, "--until needs --since"),
        (["--since", "1 2", "a"], 2, "'1 2' is no time"),
        (["--since", "0", "a*b"], 2, "SUB a*b"),
    ],
)
def test_what_is_wrong_is_a_line(
    shared_daemon: DaemonProcess, door: Door, words: list[str], code: int, said: str
) -> None:
    done = bccn(shared_daemon, "sub", "--connect", door.address, *words)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr.decode().splitlines()[-1]


def test_without_a_door_or_a_record_it_says_so(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    words = ["sub", "--connect", f"unix:{tmp_path}/mux.sock", "--since", "10m", "a"]
    done = bccn(shared_daemon, *words)
    assert done.returncode == 5
    assert done.stderr.startswith(b"bccn: no door at unix:")
    with Door(tmp_path, shared_daemon.socket):
        done = bccn(shared_daemon, *words)
        assert done.returncode == 5
        assert done.stderr == (b"bccn: this door has no recordings: its setting recorded names no folder\n")
