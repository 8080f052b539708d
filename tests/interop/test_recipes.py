"""The recipes of the documents, run as they stand on a host of their own; only the socket's path is replaced."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import bccn
from tests.daemon_process import DaemonProcess
from tests.documents import DOCUMENTS, blocks, coded, rows, section
from tests.hosts.segment import Host, Segment
from tests.needs import require
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.running_program import RunningProgram

SOCKET = "/run/bccnd/bus.sock"
# The clients' own READMEs are for the tests of each client.
BLOCKS = [block for block in blocks() if not re.fullmatch(r"clients/\w+/README\.md", block.document)]
SHELL = [block.code.strip() for block in BLOCKS if block.language == "sh"]
RECIPES = [code for code in SHELL if re.search("socat|tcpdump", code)]
WIRE = "bccnd/wire/BCCN1.md"
PYTHON = [block.code for block in BLOCKS if block.language == "python" and block.document != WIRE]

SUBSCRIBE = "socat - UNIX-CONNECT"
PUBLISH = "printf 'MSG "
TRACE = "tcpdump"
HEAR = "socat -u UDP4-RECV"
SEND = "printf 'BCCN1"
# Commands that other tests run: of the quick start, the units, the metrics, the uplink and the door; and the first
# steps, as in the first of them.
RUN_ELSEWHERE = [
    "sh etc/quickstart.sh", "install -Dm644", "curl -s http://127.0.0.1:9540/metrics", "bccnd &",
    "openssl rand -hex 32 > /etc/bccnd/link-keys", 'new="openssl req -x509',
]  # fmt: skip


def recipe(beginning: str) -> str:
    (found,) = (code for code in RECIPES if code.startswith(beginning))
    return found


def test_every_recipe_is_run_here() -> None:
    assert sorted(RECIPES) == sorted(map(recipe, [SUBSCRIBE, PUBLISH, TRACE, HEAR, SEND]))


def test_every_other_command_is_run_elsewhere() -> None:
    others = [code for code in SHELL if code not in RECIPES]
    assert [code for code in others if not code.startswith(tuple(RUN_ELSEWHERE))] == []


def datagrams_shown() -> list[str]:
    """Without sessions, which are hex (``tests/clients/test_protocol.py``), and wrong ones, which the test of
    BCCN1.md holds against the parser.
    """
    text = re.sub(
        r"^```(?:session|dropped)\n.*?^```$",
        "",
        "\n".join(DOCUMENTS.values()),
        flags=re.DOTALL | re.MULTILINE,
    )
    return sorted(set(re.findall(r"BCCN1\[\d+\][^'`\s]+[^'`\n]*", text)))


@pytest.mark.parametrize("shown", datagrams_shown())
def test_every_datagram_shown_counts_right(shown: str) -> None:
    length, _, body = shown.removeprefix("BCCN1[").partition("]")
    assert int(length) == len(body)


@pytest.fixture
def host() -> Iterator[Host]:
    require("root", "ip", "socat", "tcpdump")
    with Segment(["alpha"]) as segment:
        yield segment.hosts[0]


@pytest.fixture
def bus(host: Host, tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon with its defaults: port 5400, 255.255.255.255."""
    with DaemonProcess(tmp_path, "--host", "alpha", prefix=host.command([])) as daemon:
        yield daemon


@pytest.fixture
def run(host: Host, bus: DaemonProcess) -> Iterator[Callable[[str], RunningProgram]]:
    """Runs a recipe in a terminal of its own."""
    with ExitStack() as open_terminals:

        def run_one(beginning: str) -> RunningProgram:
            code = recipe(beginning).replace(SOCKET, str(bus.socket))
            terminal = RunningProgram(host.command(["sh", "-c", code]))
            open_terminals.callback(terminal.close)
            return terminal

        yield run_one


def test_socat_alone_subscribes_and_publishes(
    bus: DaemonProcess, run: Callable[[str], RunningProgram]
) -> None:
    subscriber = run(SUBSCRIBE)
    subscriber.type("SUB demo/>")
    with PacketClient(bus.socket) as client:
        wait_until(lambda: client.status()["subscriptions"] == 1, "the typed subscription")
        assert run(PUBLISH).process.wait(PATIENCE) == 0
        assert subscriber.read_line() == "MSG demo/greeting hello"
        client.publish("demo/x", b"two\nlines and a NUL \0")
        assert subscriber.read_line() == "MSG demo/x two\\nlines and a NUL \\0"
        client.publish("demo/\x1b[31m", b"\x1b]0;title\x07 \xc2\x9b2J \\")
        assert subscriber.read_line() == "MSG demo/\\x1b[31m \\x1b]0;title\\x07 \\xc2\\x9b2J \\\\"
        client.subscribe("demo/>")
        subscriber.type("MSG demo/typed by hand")
        assert client.message() == ("demo/typed", b"by hand")
        assert subscriber.read_line() == "MSG demo/typed by hand"
        subscriber.type("CMSG ping")
        assert subscriber.read_line().split() == ["CMSG", "pong"]
        subscriber.type("nonsense")
        assert subscriber.read_line().startswith("CMSG error bad-packet ")


@pytest.mark.parametrize("payload", ["hello", "7 of 9", "0", "12345", "00"])
def test_a_published_payload_may_begin_with_a_digit(daemon: DaemonProcess, payload: str) -> None:
    code = recipe(PUBLISH).replace(SOCKET, str(daemon.socket)).replace("hello", payload)
    with PacketClient(daemon.socket) as client:
        client.subscribe("demo/>")
        subprocess.run(["sh", "-c", code], check=True, timeout=PATIENCE)
        assert client.message() == ("demo/greeting", payload.encode())


def test_socat_hears_the_wire(host: Host, bus: DaemonProcess, run: Callable[[str], RunningProgram]) -> None:
    wire = run(HEAR)
    with PacketClient(bus.socket) as client:
        wait_until(
            lambda: host.run(["ss", "-Hulpn", "sport = 5400"]).stdout.count("socat"), "socat to listen"
        )
        client.publish("demo/x", b"on the wire")
        src = client.request("whoami")
    assert re.fullmatch(rf"BCCN1\[\d+\]{src}:\d+:demo/x\|on the wire", wire.read_until("on the wire"))


def test_socat_sends_a_datagram_that_counts_right(
    bus: DaemonProcess, run: Callable[[str], RunningProgram]
) -> None:
    with PacketClient(bus.socket) as client:
        client.subscribe("demo/>")
        for _ in range(2):
            assert run(SEND).process.wait(PATIENCE) == 0
            assert client.message() == ("demo/greeting", b"hello")


def test_tcpdump_shows_messages(bus: DaemonProcess, run: Callable[[str], RunningProgram]) -> None:
    trace = run(TRACE)
    with PacketClient(bus.socket) as client:
        trace.read_until("listening on any")
        client.publish("demo/x", b"traced")
    shown = trace.read_until(":demo/x|traced")
    assert "255.255.255.255.5400" in shown
    assert "BCCN1[" in shown


@pytest.mark.parametrize("code", PYTHON, ids=["client", "plain-socket"])
def test_ten_lines_of_python_send_digits_too(daemon: DaemonProcess, code: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", code.replace(SOCKET, str(daemon.socket)).replace("hello", "7 of 9")],
        env={**os.environ, "BCCN_SOCKET": str(daemon.socket)},
        capture_output=True, text=True, check=True, timeout=PATIENCE,
    )  # fmt: skip
    assert shown.stdout == "demo/greeting 7 of 9\n"


def test_no_document_shows_a_nul_that_swallows_a_digit() -> None:
    """Of printf and of string literals: what follows a short ``\\0`` may be a digit once somebody changes it."""
    short = re.compile(r"(?:printf |b)['\"][^'\"\n]*\\0(?![0-7]{2})\w")
    assert [name for name, text in DOCUMENTS.items() if short.search(text)] == []


@pytest.mark.parametrize("code", PYTHON, ids=["client", "plain-socket"])
def test_a_client_in_ten_lines_of_python(daemon: DaemonProcess, code: str) -> None:
    assert len(code.splitlines()) <= 10
    shown = subprocess.run(
        [sys.executable, "-c", code.replace(SOCKET, str(daemon.socket))],
        env={**os.environ, "BCCN_SOCKET": str(daemon.socket)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert shown.stdout == "demo/greeting hello\n"


def test_a_whole_program_takes_part_without_a_daemon(daemon: DaemonProcess, loopback_port: int) -> None:
    code = "".join(block.code for block in blocks(WIRE) if block.language == "python")
    code = code.replace("255.255.255.255", "127.255.255.255").replace("5400", str(loopback_port))
    with PacketClient(daemon.socket) as client:
        name = client.request("whoami")
        client.subscribe("demo/>")
        program = RunningProgram([sys.executable, "-c", f"{code}\nmain()"])
        try:
            assert client.message() == ("demo/greeting", b"hello")
            client.publish("other/x", b"not wanted")
            client.publish("demo/x", b"heard")
            assert program.read_until("heard").startswith(f"(b'{name}', ")
        finally:
            program.close()


def pattern_table() -> list[tuple[str, str, bool]]:
    """(pattern, channel, whether it matches)"""
    cells = rows(section("clients/PROTOCOL.md", "Channels and patterns"), of=1)
    return [
        (pattern, channel, column == 1)
        for row in cells
        for pattern in coded(row[0])
        for column in (1, 2)
        for channel in coded(row[column])
        if "!" not in channel and "..." not in channel
    ]


@pytest.mark.parametrize(("pattern", "channel", "expected"), pattern_table())
def test_the_table_of_patterns_is_right(pattern: str, channel: str, expected: bool) -> None:
    assert bccn.matches(pattern, channel) is expected


@pytest.mark.parametrize("code", [block.code for block in BLOCKS if block.language == "toml"])
def test_settings_that_are_shown_are_toml(code: str) -> None:
    assert tomllib.loads(code)
