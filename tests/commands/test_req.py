"""``bccn req`` with a real daemon."""

import json
import os
import pty
import threading
from pathlib import Path

import pytest

import bccn as client
from tests.command_line import HOUR, bccn, ended, hour_passes, start, start_with_clock
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient
from tests.request_server import serving

PATIENT = str(PATIENCE)


@pytest.mark.parametrize(
    ("arguments", "stdin", "printed"),
    [
        (["hello"], b"", b"HELLO\n"),
        ([], b"two\nlines\n", b"TWO\nLINES\n"),
        (["-m", "-x"], b"", None),
        (["-m=-x"], b"", b"-X\n"),
        (["-n"], b"ignored", b"\n"),
        (["-f", "/dev/null"], b"", b"\n"),
        (["a", "-N"], b"", b"A"),
        (["a\n", "-0"], b"", b"A\n\0"),
        (["a", "-F", "%x;%p"], b"", b"41;A\n"),
        (["\x1b[1m"], b"", b"\x1b[1M\n"),
    ],
)
def test_a_reply_is_printed(
    daemon: DaemonProcess, arguments: list[str], stdin: bytes, printed: bytes | None
) -> None:
    with serving(daemon, "up", lambda request: request.payload.upper()):
        done = bccn(daemon, "req", "-W", PATIENT, "up", *arguments, stdin=stdin)
    if printed is None:
        assert (done.returncode, done.stdout) == (2, b"")
    else:
        assert (done.returncode, done.stdout, done.stderr) == (0, printed, b"")


def test_the_source_of_a_reply_is_printed(daemon: DaemonProcess) -> None:
    with serving(daemon, "up", lambda request: request.payload.upper()) as name:
        assert bccn(daemon, "req", "-W", PATIENT, "-v", "up", "x").stdout == f"{name} X\n".encode()
        reply = json.loads(bccn(daemon, "req", "-W", PATIENT, "--json", "up", "x").stdout)
    assert (reply["src"], reply["payload"], reply["mode"]) == (name, "X", "directed")


def test_several_replies_are_printed_as_they_come(daemon: DaemonProcess) -> None:
    go_on = threading.Event()

    def late(_: client.Request) -> str:
        assert go_on.wait(PATIENCE)
        return "late"

    with serving(daemon, "who", lambda _: "early"), serving(daemon, "who", late):
        process = start(daemon, "req", "-W", PATIENT, "--replies", "2", "who", "")
        assert process.stdout
        assert process.stdout.readline() == b"early\n"
        go_on.set()
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (0, b"late\n", b"")


@pytest.mark.parametrize(
    ("wanted", "code", "reported"), [("all", 0, ""), ("3", 3, "bccn: 2 of 3 replies on who within 3600 s\n")]
)
def test_replies_that_come_in_time_are_printed(
    daemon: DaemonProcess, tmp_path: Path, wanted: str, code: int, reported: str
) -> None:
    clock = tmp_path / "clock"
    with serving(daemon, "who", lambda _: "one"), serving(daemon, "who", lambda _: "other"):
        process = start_with_clock(daemon, clock, "req", "-C", wanted, "-W", str(HOUR), "who", "")
        assert process.stdout
        assert {process.stdout.readline() for _ in range(2)} == {b"one\n", b"other\n"}
        hour_passes(daemon, clock, "!", lambda: process.poll() is not None)
        assert ended(process) == (code, b"", reported)


@pytest.mark.parametrize(
    ("channel", "reported"),
    [
        ("nobody", b"bccn: nobody listens to nobody\n"),
        ("local/x", b"bccn: nobody on this host listens to local/x, a local channel\n"),
    ],
)
def test_nobody_listens_is_code_6(daemon: DaemonProcess, channel: str, reported: bytes) -> None:
    done = bccn(daemon, "req", "-W", "60", channel, "x")
    assert (done.returncode, done.stdout, done.stderr) == (6, b"", reported)


@pytest.mark.parametrize("arguments", [["silent"], ["-C", "all", "silent"], ["--wait-anyway", "nobody"]])
def test_no_reply_is_code_3(daemon: DaemonProcess, arguments: list[str]) -> None:
    with PacketClient(daemon.socket) as silent:
        silent.subscribe("silent")
        done = bccn(daemon, "req", "-W", "0.4", *arguments, stdin=b"x")
    reported = b"bccn: no reply on %b within 0.4 s\n" % arguments[-1].encode()
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", reported)


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["up"], "MSG up: 15"),
        (["not a channel"], "bad-channel"),
        (["up", "-C", "0"], "'0' is not a whole number"),
        (["up", "-C", "none"], "'none' is not a whole number"),
        (["up", "x", "-n"], "not both"),
        (["up", "-F", "%y"], "means nothing"),
        ([], "CHANNEL"),
    ],
)
def test_wrong_usage_is_code_2(daemon: DaemonProcess, arguments: list[str], reported: str) -> None:
    done = bccn(daemon, "req", *arguments, stdin=b"x" * 1500)
    assert (done.returncode, done.stdout) == (2, b"")
    assert reported in done.stderr.decode()


def test_the_daemon_itself_replies(daemon: DaemonProcess) -> None:
    done = bccn(daemon, "req", "-W", PATIENT, "!here/bccnd", "ping")
    assert (done.returncode, done.stdout[:5]) == (0, b"pong ")
    done = bccn(daemon, "req", "-W", PATIENT, "!here/bccnd", "listeners some/channel")
    assert (done.returncode, done.stdout) == (0, b"listeners 0\n")


def test_on_a_terminal_a_reply_keeps_its_lines_and_nothing_else(daemon: DaemonProcess) -> None:
    with serving(daemon, "up", lambda _: b"one\ntwo\x1b[2J\r\n"):
        ours, theirs = pty.openpty()
        process = start(daemon, "req", "-W", PATIENT, "up", "x", stdout=theirs)
        os.close(theirs)
        process.communicate(timeout=PATIENCE)
        shown = os.read(ours, 1000)
        os.close(ours)
    assert shown == b"one\r\ntwo\\e[2J\\r\r\n"
