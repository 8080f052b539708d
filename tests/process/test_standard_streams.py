"""Stdin, stdout and stderr: closed, full, or without a reader, for every program and sub-command."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.commands.parsers import COMMANDS
from bccnd.errors import UnavailableError
from bccnd.process import standard_streams
from bccnd.process.standard_streams import CommandLine, complain, counted, printable, write
from bccnd.wire import pcap
from bccnd.wire.udp import UdpDatagram
from tests.command_line import ROOT, environment, publish
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, answers, mortal
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import free_port

PIPE_ENDS = -signal.SIGPIPE

# How a program finds its streams, as a shell says it. A broken pipe is made by the test.
STREAMS = {
    "stdin closed": "<&-",
    "stdout closed": ">&-",
    "stderr closed": "2>&-",
    "all closed": "<&- >&- 2>&-",
    "stdout full": ">/dev/full",
    "stderr full": "2>/dev/full",
    "all full": ">/dev/full 2>/dev/full",
    "broken pipe": "",
}
TAKES_NOTHING = {"stdout closed", "all closed", "stdout full", "all full"}
COMPLAINTS = {
    "stdout closed": "stdout is closed",
    "stdout full": "stdout: No space left on device",
}

BCCN, BCCND = ["-m", "bccnd.cli"], ["-m", "bccnd.daemon"]
RECORD, PIPELINE = ["-m", "bccnd.recorder"], ["-m", "bccnd.pipeline.cli"]
COLLECT, BACKBONE = ["-m", "bccnd.pipeline.collect"], ["-m", "bccnd.backbone"]
UPLINK = [
    "-m",
    "bccnd.uplink",
    "--carrier",
    "fyrehose://127.0.0.1:4900",
    "--name",
    "x",
    "--config",
    "/dev/null",
]
MUX = ["-m", "bccnd.mux"]
SPOOL = ["-m", "bccnd.pipeline.source.spool"]

# Programs that print something and end. {folder} has a capture.
PRINTING = {
    "bccn --help": [*BCCN, "--help"],
    "bccn --version": [*BCCN, "--version"],
    "bccn sub --help": [*BCCN, "sub", "--help"],
    "bccn sub": [*BCCN, "sub", "-C", "1", "kept/>"],
    "bccn sub --json": [*BCCN, "sub", "--json", "-C", "1", "kept/>"],
    "bccn req": [*BCCN, "req", "!here/bccnd", "ping"],
    "bccn dump": [*BCCN, "dump", "-r", "{folder}/capture"],
    "bccn dump -w": [*BCCN, "dump", "-r", "{folder}/capture", "-w", "-"],
    "bccn watch": [*BCCN, "watch", "-C", "1", "local/nobody"],
    "bccn who": [*BCCN, "who"],
    "bccn who --json": [*BCCN, "who", "--json"],
    "bccn ping": [*BCCN, "ping", "-c", "1", "-W", "30", "here"],
    "bccn status": [*BCCN, "status"],
    "bccn status --json": [*BCCN, "status", "--json"],
    "bccn top": [*BCCN, "top", "--once", "-d", "0.1"],
    "bccn top --json": [*BCCN, "top", "--once", "--json", "-d", "0.1"],
    "bccn doctor": [*BCCN, "doctor"],
    "bccn completion": [*BCCN, "completion", "bash"],
    "bccn manual": [*BCCN, "manual", "--output", "{folder}/man"],
    "bccnd --check": [*BCCND, "--check"],
    "bccnd --help": [*BCCND, "--help"],
    "bccnd --version": [*BCCND, "--version"],
    "bccnd-record --check": [*RECORD, "--check", "--output", "{folder}/recorded"],
    "bccnd-record --help": [*RECORD, "--help"],
    "bccnd-backbone --check": [*BACKBONE, "--check", "--listen", "127.0.0.1:4900", "--config", "/dev/null"],
    "bccnd-uplink --check": [*UPLINK, "--check"],
    "bccnd-dndm --check": ["-m", "bccnd.dndm", "--check", "--config", "/dev/null"],
    "bccnd-mux --check": [*MUX, "--check", "--listen", "unix:/none", "--config", "/dev/null"],
    "bccnd-pipeline --help": [*PIPELINE, "--help"],
    "bccnd-collect --help": [*COLLECT, "--help"],
    "spool --help": [*SPOOL, "--help"],
}
# Programs that print nothing on stdout: it may be anything.
SILENT = {
    "bccn pub": ([*BCCN, "pub", "a/b", "c"], 0),
    "bccn pub -v": ([*BCCN, "pub", "-v", "a/b", "c"], 0),
    "bccn pub -s": ([*BCCN, "pub", "-s", "a/b"], 0),
    "bccn sub -E": ([*BCCN, "sub", "-E", "a/b"], 0),
    "bccn sub -W": ([*BCCN, "sub", "-W", "0.1", "a/b"], 3),
    "bccn backbone": ([*BCCN, "backbone", "status", "nowhere"], 2),
    "bccn links": ([*BCCN, "links"], 6),
    "bccnd --check --quiet": ([*BCCND, "--check", "--quiet"], 0),
    "bccn, wrong usage": ([*BCCN, "pub"], 2),
    "bccnd, wrong usage": ([*BCCND, "--bogus"], 2),
    "bccnd-record, wrong usage": ([*RECORD, "--bogus"], 2),
    "bccnd-pipeline, wrong usage": ([*PIPELINE, "--bogus"], 2),
    "bccnd-collect, wrong usage": ([*COLLECT, "--bogus"], 2),
}
# Programs that go on until they get SIGTERM, and how they end then.
LASTING = {
    "bccn sub": ([*BCCN, "sub", "nobody/here"], -signal.SIGTERM),
    "bccn dump": ([*BCCN, "dump", "nobody/here"], -signal.SIGTERM),
    "bccn reply": ([*BCCN, "reply", "nobody/here", "--", "cat"], 0),
    "bccnd": ([*BCCND, "--socket", "{folder}/other.sock", "--port", "{port}"], 0),
    "bccnd-record": ([*RECORD, "--output", "{folder}/recorded", "--socket", "{socket}"], 0),
}


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A daemon with a retained message on ``kept/one``."""
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    keeps = {"BCCND_RETAIN__PATTERNS": "kept/>"}
    with DaemonProcess(tmp_path_factory.mktemp("bus"), *flags, environ=keeps) as daemon:
        publish(daemon, ("kept/one", b"hello"))
        yield daemon


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a capture of one datagram."""
    folder = tmp_path_factory.mktemp("capture")
    datagram = UdpDatagram("10.0.0.1", 5400, "10.0.0.255", 5400, b"BCCN1[12]a/b/1:7:c/d|e")
    data = datagram.serialize()
    packet = pcap.Packet(time.time_ns(), data, len(data))
    (folder / "capture").write_bytes(pcap.header("test", "test") + packet.serialize())
    return folder


def filled(words: list[str], bus: DaemonProcess, folder: Path) -> list[str]:
    values = {"{folder}": str(folder), "{socket}": str(bus.socket), "{port}": str(free_port())}
    for mark, value in values.items():
        words = [word.replace(mark, value) for word in words]
    return [sys.executable, *words]


def started(words: list[str], bus: DaemonProcess, folder: Path, streams: str) -> subprocess.Popen[bytes]:
    """The program with its streams in this state; stderr is a file in ``folder`` unless they say otherwise."""
    command = shlex.join(filled(words, bus, folder))
    output: int = subprocess.DEVNULL
    if streams == "broken pipe":
        reading, output = os.pipe()
        os.close(reading)
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            mortal(["sh", "-c", f"exec {command} {STREAMS[streams]}"]),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=stderr,
            env={**environment(bus.socket), "BCCND_BROADCAST": LOOPBACK_BROADCAST},
        )
    if output != subprocess.DEVNULL:
        os.close(output)
    return process


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("program", PRINTING)
def test_a_lost_stdout_is_one_line_and_exit_code_1(
    bus: DaemonProcess, capture: Path, tmp_path: Path, program: str, streams: str
) -> None:
    os.link(capture / "capture", tmp_path / "capture")
    code = started(PRINTING[program], bus, tmp_path, streams).wait(PATIENCE)
    complained = (tmp_path / "stderr").read_text()
    if streams in TAKES_NOTHING:
        assert code == 1, complained
        name = program.split()[0].replace("spool", "bccnd spool")
        assert complained == (f"{name}: {COMPLAINTS[streams]}\n" if streams in COMPLAINTS else "")
    else:
        assert code == (PIPE_ENDS if streams == "broken pipe" else 0), complained
        assert complained == ""


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("program", SILENT)
def test_who_prints_nothing_needs_no_stdout(
    bus: DaemonProcess, tmp_path: Path, program: str, streams: str
) -> None:
    words, expected = SILENT[program]
    code = started(words, bus, tmp_path, streams).wait(PATIENCE)
    complained = (tmp_path / "stderr").read_text()
    assert code == (PIPE_ENDS if (streams, program) == ("broken pipe", "bccn sub -W") else expected), (
        complained
    )
    assert "Traceback" not in complained


@pytest.mark.parametrize(
    "streams", ["stdin closed", "stdout closed", "stderr closed", "all closed", "stdout full", "stderr full"]
)
@pytest.mark.parametrize("program", LASTING)
def test_no_socket_takes_the_number_of_a_closed_stream(
    bus: DaemonProcess, tmp_path: Path, program: str, streams: str
) -> None:
    words, expected = LASTING[program]
    process = started(words, bus, tmp_path, streams)
    other = tmp_path / "other.sock"
    wait_until(
        lambda: process.poll() is not None or connected(bus, process.pid) or answers(other),
        "the program at work",
    )
    assert process.poll() is None, (tmp_path / "stderr").read_text()
    links = [os.readlink(f"/proc/{process.pid}/fd/{descriptor}") for descriptor in range(3)]
    assert [link for link in links if not link.startswith(("/dev/", str(tmp_path)))] == []
    process.terminate()
    assert process.wait(PATIENCE) == expected, (tmp_path / "stderr").read_text()
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def connected(bus: DaemonProcess, pid: int) -> bool:
    with PacketClient(bus.socket) as client:
        return any(row["pid"] == pid for row in json.loads(client.request("clients"))["clients"])


@pytest.mark.parametrize("streams", ["stdout closed", "all closed", "stdout full", "broken pipe"])
@pytest.mark.parametrize(
    "words",
    [
        [*BCCND, "--socket", "@", "--port", "{port}"],
        [*SPOOL, "{folder}/spool", "--socket", "{socket}"],
    ],
    ids=["bccnd", "spool"],
)
def test_who_cannot_say_where_it_is_does_not_start(
    bus: DaemonProcess, tmp_path: Path, words: list[str], streams: str
) -> None:
    deadline = time.monotonic() + PATIENCE
    # On a busy machine the daemon may not answer in the ten seconds that a spooler gives it: then it starts again.
    while (code := started(words, bus, tmp_path, streams).wait(PATIENCE)) == UnavailableError.exit_code:
        assert time.monotonic() < deadline, (tmp_path / "stderr").read_text()
    complained = (tmp_path / "stderr").read_text()
    assert code == (PIPE_ENDS if streams == "broken pipe" else 1), complained
    assert "Traceback" not in complained
    assert complained.count("stdout") == (1 if streams in COMPLAINTS else 0)


def test_payloads_do_not_become_packets(bus: DaemonProcess, tmp_path: Path) -> None:
    with PacketClient(bus.socket) as witness:
        witness.subscribe("stolen/>")
        process = started([*BCCN, "sub", "-C", "1", "bait/>"], bus, tmp_path, "stdout closed")
        wait_until(lambda: connected(bus, process.pid), "the subscriber")
        while process.poll() is None:
            witness.publish("bait/one", b"MSG stolen/rights\0x")
            assert witness.drain() == []
        assert process.wait(PATIENCE) == 1


def test_every_program_of_the_project_is_in_the_table() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        programs = set(tomllib.load(file)["project"]["scripts"])
    names = [*PRINTING, *SILENT, *LASTING]
    assert programs <= {name.split()[0] for name in names}
    assert {f"bccn {command}" for command in COMMANDS} <= set(names)


# --- what strangers wrote ---


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain", "plain"),
        (b"caf\xc3\xa9 \xe2\x82\xac", "caf\N{LATIN SMALL LETTER E WITH ACUTE} \N{EURO SIGN}"),
        (b"\x1b]0;title\x07", "\\e]0;title\\x07"),
        (b"two\nlines\r\t\0", "two\\nlines\\r\\t\\0"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_nothing_moves_the_cursor(raw: str | bytes, shown: str) -> None:
    assert printable(raw) == shown


@given(st.binary() | st.text())
def test_all_of_it_is_printable(raw: str | bytes) -> None:
    assert printable(raw).isprintable()


def test_a_complaint_is_one_line_whatever_is_in_it(capfd: pytest.CaptureFixture[str]) -> None:
    complain("bccn", "what \x1b[31m\n\u202e\x9b\udc80")
    assert capfd.readouterr() == ("", "bccn: what \\e[31m\\n\\u202e\\x9b\\udc80\n")


def test_wrong_usage_repeats_arguments_safely(capfd: pytest.CaptureFixture[str]) -> None:
    parser = CommandLine(prog="program", usage="program")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["\x1b]0;title\x07"])
    assert ended.value.code == 2
    assert capfd.readouterr().err.splitlines() == [
        "usage: program", "program: error: unrecognized arguments: \\e]0;title\\x07",
    ]  # fmt: skip


def test_all_our_parsers_complain_like_that() -> None:
    used = [
        path.name
        for path in (ROOT / "bccnd").rglob("*.py")
        if "ArgumentParser(" in path.read_text() and path.name != Path(standard_streams.__file__).name
    ]
    assert used == []
    assert issubclass(CommandLine, argparse.ArgumentParser)


def test_nouns_have_a_plural() -> None:
    assert [counted(count, "source") for count in (0, 1, 2)] == ["0 sources", "1 source", "2 sources"]


# --- writing ---


def test_a_non_blocking_pipe_gets_everything() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    data = bytes(range(256)) * 1024
    writer = threading.Thread(target=write, args=(writing, data))
    writer.start()
    received = b""
    while len(received) < len(data):
        received += os.read(reading, 65536)
    writer.join(PATIENCE)
    assert received == data
    os.close(reading)
    os.close(writing)
