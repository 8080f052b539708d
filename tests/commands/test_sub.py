"""``bccn sub`` with a real daemon."""

import json
import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from bccnd.wire.dndm import messages_pb2 as pb
from tests.command_line import bccn, ended, publish, subscriber
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE

MESSAGES = [("a/b", b"one"), ("a/c", b"\x1b\xff\n"), ("a/b", b"two")]


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        ([], b"one\n\x1b\xff\n\ntwo\n"),
        (["-v"], b"a/b one\na/c \x1b\xff\n\na/b two\n"),
        (["-N"], b"one\x1b\xff\ntwo"),
        (["-0"], b"one\0\x1b\xff\n\0two\0"),
        (["-F", "%c:%x"], b"a/b:6f6e65\na/c:1bff0a\na/b:74776f\n"),
        (["-x", "*/c", "-C", "2"], b"one\ntwo\n"),
        (["-C", "1"], b"one\n"),
        (["--separator", ".", "-C", "3"], b"one\n\x1b\xff\n\ntwo\n"),
    ],
)
def test_each_option_prints_its_format(daemon: DaemonProcess, arguments: list[str], printed: bytes) -> None:
    process = subscriber(daemon, "", *([] if "-C" in arguments else ["-C", "3"]), *arguments)
    publish(daemon, *MESSAGES)
    assert ended(process) == (0, printed, "")


def test_json_has_source_number_and_time(daemon: DaemonProcess) -> None:
    process = subscriber(daemon, "a/>", "--json", "-C", "2")
    publish(daemon, *MESSAGES)
    _, out, _ = ended(process)
    first, second = (json.loads(line) for line in out.splitlines())
    assert (first["channel"], first["payload"], first["peer"]) == ("a/b", "one", "local")
    assert first["src"].startswith("here/")
    assert second["seq"] == first["seq"] + 1
    assert second["payload_hex"] == "1bff0a"


def test_messages_to_it_by_name_and_to_all(daemon: DaemonProcess) -> None:
    process = subscriber(daemon, "-v", "--name", "desk/one", "-C", "2", "nothing")
    publish(daemon, ("!desk", b"you"), ("!", b"all"))
    assert ended(process) == (0, b"!desk you\n! all\n", "")


def test_each_message_is_written_at_once(daemon: DaemonProcess) -> None:
    process = subscriber(daemon, "a")
    assert process.stdout
    for payload in (b"one", b"two"):
        publish(daemon, ("a", payload))
        assert process.stdout.readline() == payload + b"\n"
    process.kill()
    process.communicate()


def test_a_timeout_has_its_own_exit_code(daemon: DaemonProcess) -> None:
    process = subscriber(daemon, "a", "-W", "3", "-C", "2")
    publish(daemon, ("a", b"x"))
    assert ended(process) == (3, b"x\n", "bccn: sub: timed out after 3 s and 1 of 2 messages\n")
    done = bccn(daemon, "sub", "a", "-W", "0")
    assert (done.returncode, done.stdout) == (3, b"")


def test_exit_once_subscribed(daemon: DaemonProcess) -> None:
    assert bccn(daemon, "sub", "a", "-E").returncode == 0
    done = bccn(daemon, "sub", "a*b", "-E")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"bad-pattern" in done.stderr


def test_a_wrong_format_is_refused_at_once(daemon: DaemonProcess) -> None:
    done = bccn(daemon, "sub", "a", "-F", "%z")
    assert (done.returncode, done.stderr) == (2, b"bccn: format: '%z' means nothing; see bccn sub --help\n")


def test_a_restart_of_the_daemon_is_reported(daemon: DaemonProcess) -> None:
    process = subscriber(daemon, "a", "-C", "2", "-W", str(PATIENCE))
    publish(daemon, ("a", b"before"))
    assert process.stdout
    assert process.stdout.readline() == b"before\n"
    daemon.kill()
    daemon.start()
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:  # messages before it is back do not count
        publish(daemon, ("a", b"after"))
    assert ended(process) == (
        0,
        b"after\n",
        "bccn: the daemon went away\nbccn: connected to the daemon again\n",
    )


def test_losses_are_reported_on_stderr(daemon: DaemonProcess) -> None:
    process = subscriber(daemon, "local/a")
    os.kill(process.pid, signal.SIGSTOP)
    publish(daemon, *[("local/a", b"x" * 60_000)] * 200)
    os.kill(process.pid, signal.SIGCONT)
    assert process.stderr
    assert process.stdout
    while select.select([process.stderr, process.stdout], [], [], PATIENCE)[0] != [process.stderr]:
        process.stdout.read1()
    assert b"messages lost" in process.stderr.readline()
    process.kill()
    process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_it_silently(daemon: DaemonProcess, number: signal.Signals) -> None:
    process = subscriber(daemon, "a")
    os.kill(process.pid, number)
    assert ended(process) == (-number, b"", "")


def test_a_reader_that_leaves_ends_it_silently(daemon: DaemonProcess) -> None:
    process = subscriber(daemon, "a", stdin=subprocess.DEVNULL)
    assert process.stdout
    process.stdout.close()
    assert process.wait(PATIENCE) == -signal.SIGPIPE
    assert process.stderr
    assert process.stderr.read() == b""
    process.stderr.close()


def test_on_a_terminal_nothing_moves_the_cursor(daemon: DaemonProcess) -> None:
    leader, follower = pty.openpty()
    process = subscriber(
        daemon, "a", "-C", "1", stdout=follower, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    publish(daemon, ("a", b"\x1b[2Jclear\n"))
    _, _, reported = ended(process)
    assert os.read(leader, 1000) == b"\\e[2Jclear\\n\r\n"
    assert reported == ""
    os.close(leader)
    os.close(follower)


def test_on_a_terminal_it_says_that_it_has_subscribed(daemon: DaemonProcess) -> None:
    leader, follower = pty.openpty()
    process = subscriber(daemon, "a", stderr=follower)
    assert os.read(leader, 1000).startswith(b"bccn: subscribed to a as here/")
    process.kill()
    process.communicate()
    os.close(leader)
    os.close(follower)


def test_messages_of_protobuf_are_shown_and_made_as_json(daemon: DaemonProcess, tmp_path: Path) -> None:
    types = FileDescriptorSet()
    pb.DESCRIPTOR.CopyToProto(types.file.add())
    file, channel = tmp_path / "set.pb", f"dndm/a/{pb.Intent.DESCRIPTOR.full_name}"
    file.write_bytes(types.SerializeToString())
    process = subscriber(daemon, "-v", "--proto", str(file), "-C", "3", "dndm/>")
    done = bccn(daemon, "pub", "--proto", str(file), "--json", '{"route": "T@a", "hops": 2}', channel)
    assert (done.returncode, done.stderr) == (0, b"")
    publish(daemon, (channel, b"\xff"), (channel, b"\xff"))
    code, out, err = ended(process)
    assert code == 0
    assert out == channel.encode() + b' {"route": "T@a", "hops": "2"}\n' + 2 * (channel.encode() + b" \xff\n")
    assert err.startswith(f"bccn: sub: {channel}: no {pb.Intent.DESCRIPTOR.full_name}: ")
    assert err.count("\n") == 1
