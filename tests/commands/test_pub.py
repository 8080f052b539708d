"""``bccn pub`` with a real daemon."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import bccn, ended, start
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until


@pytest.fixture
def witness(daemon: DaemonProcess) -> Iterator[PacketClient]:
    with PacketClient(daemon.socket) as client:
        client.subscribe("")
        yield client


@pytest.mark.parametrize(
    ("arguments", "stdin", "payloads"),
    [
        (["word"], b"", [b"word"]),
        (["-5"], b"", [b"-5"]),
        (["-m=-word"], b"", [b"-word"]),
        (["--", "-word"], b"", [b"-word"]),
        (["-n"], b"ignored", [b""]),
        ([], b"all\nof it\n", [b"all\nof it\n"]),
        (["-s"], b"\0\xff", [b"\0\xff"]),
        (["-l"], b"one\n\ntwo\nlast", [b"one", b"", b"two", b"last"]),
        (["x", "--repeat", "3"], b"", [b"x", b"x", b"x"]),
        (["-t", "n{n}", "--repeat", "2", "--repeat-delay", "0.01"], b"", [b"n1", b"n2"]),
        (["{n}"], b"", [b"{n}"]),
        (["-t", "-l"], b"a{n}\nb{n}\n", [b"a1", b"b2"]),
    ],
)
def test_each_source_of_a_message(
    daemon: DaemonProcess, witness: PacketClient, arguments: list[str], stdin: bytes, payloads: list[bytes]
) -> None:
    done = bccn(daemon, "pub", "a", *arguments, stdin=stdin)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert witness.messages() == [("a", payload) for payload in payloads]


def test_a_file_is_published(daemon: DaemonProcess, witness: PacketClient, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(range(256)))
    assert bccn(daemon, "pub", "a", "-f", str(file)).returncode == 0
    assert witness.messages() == [("a", bytes(range(256)))]
    done = bccn(daemon, "pub", "a", "-f", str(tmp_path / "none"))
    assert (done.returncode, done.stderr.decode()) == (
        2,
        f"bccn: {tmp_path}/none: No such file or directory\n",
    )
    assert b"longer than 1048576 bytes" in bccn(daemon, "pub", "a", "-f", "/dev/zero").stderr


def test_templates_reach_the_channel(daemon: DaemonProcess, witness: PacketClient) -> None:
    assert bccn(daemon, "pub", "-t", "a/{n}", "{unix} {time}", "--repeat", "2").returncode == 0
    [(first, payload), (second, _)] = witness.messages()
    assert (first, second) == ("a/1", "a/2")
    unix, _, time = payload.partition(b" ")
    assert float(unix) > 1e9
    assert time.endswith(b"Z")


@pytest.mark.parametrize(
    ("arguments", "code", "reported"),
    [
        (["a b", "x"], 2, "MSG a b: 1 to 1024 ASCII characters"),
        (["a", "-m", "x" * 1500], 2, "at most 1400 (too-large)"),
        (["a\u20ac", "x"], 2, "must be ASCII without white space"),
        (["a", "x", "--name", "white space"], 2, "(bad-name)"),
        (["a", "x", "-l"], 2, "not both"),
        (["a", "-l", "--repeat", "2"], 2, "reads its lines once"),
    ],
)
def test_a_refused_message_is_reported_in_one_line(
    daemon: DaemonProcess, arguments: list[str], code: int, reported: str
) -> None:
    done = bccn(daemon, "pub", *arguments)
    [line] = done.stderr.decode().splitlines()
    assert line.startswith("bccn: ")
    assert reported in line
    assert done.returncode == code


def test_rejected_lines_do_not_stop_the_others(daemon: DaemonProcess, witness: PacketClient) -> None:
    long = b"".join(b"x" * size + b"\n" for size in range(1500, 1512))
    done = bccn(daemon, "pub", "a", "-l", stdin=b"first\n" + long + b"last\n")
    lines = done.stderr.decode().splitlines()
    assert done.returncode == 2
    assert len(lines) == 11
    assert lines[-1] == "bccn: 12 messages were rejected; the first 10 are shown above"
    assert witness.messages() == [("a", b"first"), ("a", b"last")]


def test_lines_are_published_as_they_come(daemon: DaemonProcess, witness: PacketClient) -> None:
    process = start(daemon, "pub", "a", "-l", "-v")
    assert process.stdin
    for line in (b"one", b"two"):
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        assert witness.message() == ("a", line)
    code, _, reported = ended(process)
    assert code == 0
    assert reported.startswith("bccn: published 2 messages as here/")


def test_many_lines_all_arrive(daemon: DaemonProcess, witness: PacketClient) -> None:
    witness.request("queue", "packets=10000")
    lines = [b"%d" % number for number in range(5000)]
    assert bccn(daemon, "pub", "local/a", "-l", stdin=b"\n".join(lines)).returncode == 0
    assert witness.messages() == [("local/a", line) for line in lines]


def test_it_waits_for_a_daemon_that_restarts(daemon: DaemonProcess) -> None:
    process = start(daemon, "pub", "a", "-l")
    assert process.stdin
    process.stdin.write(b"one\n")
    process.stdin.flush()
    with PacketClient(daemon.socket) as client:
        wait_until(lambda: client.status()["counters"]["published"], "a message was published")
    daemon.kill()
    daemon.start()
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        process.stdin.write(b"two\n")
        process.stdin.flush()
        assert client.message() == ("a", b"two")
    code, _, reported = ended(process)
    assert code == 5
    assert reported.splitlines() == [
        "bccn: the daemon went away",
        "bccn: connected to the daemon again",
        "bccn: the daemon went away: 1 message may not have been published",
    ]


def test_an_interrupt_ends_it_silently(daemon: DaemonProcess) -> None:
    process = start(daemon, "pub", "a", "x", "--repeat", "2", "--repeat-delay", str(PATIENCE * 9))
    with PacketClient(daemon.socket) as client:
        wait_until(lambda: client.status()["counters"]["published"], "a message was published")
    os.kill(process.pid, signal.SIGINT)
    assert ended(process) == (-signal.SIGINT, b"", "")
