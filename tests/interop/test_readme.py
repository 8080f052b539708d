"""The recipes of README.md, run as they stand on a host of their own; only the socket's path is replaced."""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon_process import DaemonProcess
from tests.hosts.segment import Host, Segment
from tests.packet_client import PATIENCE, PacketClient, wait_until

README = (Path(__file__).parents[2] / "README.md").read_text()
SOCKET = "/run/bccnd/bus.sock"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
RECIPES = [code.strip() for language, code in BLOCKS if language == "sh" and re.search("socat|tcpdump", code)]
PYTHON = [code for language, code in BLOCKS if language == "python"]

SUBSCRIBE = "socat - UNIX-CONNECT"
PUBLISH = "printf 'MSG "
TRACE = "tcpdump"
HEAR = "socat -u UDP4-RECV"
SEND = "printf 'BCCN1"


def recipe(beginning: str) -> str:
    (found,) = (code for code in RECIPES if code.startswith(beginning))
    return found


def test_every_recipe_is_run_here() -> None:
    assert sorted(RECIPES) == sorted(map(recipe, [SUBSCRIBE, PUBLISH, TRACE, HEAR, SEND]))


@pytest.mark.parametrize("shown", re.findall(r"BCCN1\[\d+\][^'\n]*", README))
def test_every_datagram_shown_counts_right(shown: str) -> None:
    length, _, body = shown.removeprefix("BCCN1[").partition("]")
    assert int(length) == len(body)


@pytest.fixture
def host() -> Iterator[Host]:
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("a host of its own needs root and ip (iproute2)")
    for tool in ("socat", "tcpdump"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    with Segment(["alpha"]) as segment:
        yield segment.hosts[0]


@pytest.fixture
def bus(host: Host, tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon with its defaults: port 5400, 255.255.255.255."""
    with DaemonProcess(tmp_path, "--host", "alpha", prefix=host.command([])) as daemon:
        yield daemon


class Terminal:
    """A shell that runs one recipe; typed keys go in through a pseudo-terminal, output comes by a pipe."""

    def __init__(self, host: Host, code: str) -> None:
        self._keys, terminal = pty.openpty()
        self.process = host.start(
            ["sh", "-c", code], stdin=terminal, stdout=subprocess.PIPE, start_new_session=True
        )
        os.close(terminal)

    def type(self, line: str) -> None:
        os.write(self._keys, line.encode() + b"\n")

    def read_until(self, ending: str) -> str:
        """What is shown up to and including `ending`."""
        assert self.process.stdout is not None
        shown = ""
        while not shown.endswith(ending):
            byte = self.process.stdout.read(1)
            assert byte, f"ended after {shown!r}"
            shown += byte.decode("latin-1")
        return shown

    def close(self) -> None:
        os.close(self._keys)
        with self.process:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGTERM)


@pytest.fixture
def run(host: Host, bus: DaemonProcess) -> Iterator[Callable[[str], Terminal]]:
    """Runs a recipe in a terminal of its own."""
    with ExitStack() as open_terminals:

        def run_one(beginning: str) -> Terminal:
            terminal = Terminal(host, recipe(beginning).replace(SOCKET, str(bus.socket)))
            open_terminals.callback(terminal.close)
            return terminal

        yield run_one


def test_socat_alone_subscribes_and_publishes(bus: DaemonProcess, run: Callable[[str], Terminal]) -> None:
    subscriber = run(SUBSCRIBE)
    subscriber.type("SUB demo/>")
    with PacketClient(bus.socket) as client:
        wait_until(lambda: client.status()["subscriptions"] == 1, "the typed subscription")
        assert run(PUBLISH).process.wait(PATIENCE) == 0
        assert subscriber.read_until("\n") == "MSG demo/greeting hello\n"
        client.publish("demo/x", b"two\nlines and a NUL \0")
        assert subscriber.read_until("\n") == "MSG demo/x two\\nlines and a NUL \\0\n"
        client.subscribe("demo/>")
        subscriber.type("MSG demo/typed by hand")
        assert client.message() == ("demo/typed", b"by hand")
        assert subscriber.read_until("\n") == "MSG demo/typed by hand\n"
        subscriber.type("CMSG ping")
        assert subscriber.read_until("\n").split() == ["CMSG", "pong"]
        subscriber.type("nonsense")
        assert subscriber.read_until("\n").startswith("CMSG error bad-packet ")


def test_socat_hears_the_wire(host: Host, bus: DaemonProcess, run: Callable[[str], Terminal]) -> None:
    wire = run(HEAR)
    with PacketClient(bus.socket) as client:
        wait_until(
            lambda: host.run(["ss", "-Hulpn", "sport = 5400"]).stdout.count("socat"), "socat to listen"
        )
        client.publish("demo/x", b"on the wire")
        src = client.request("whoami")
    assert re.fullmatch(rf"BCCN1\[\d+\]{src}:\d+:demo/x\|on the wire", wire.read_until("on the wire"))


def test_socat_sends_a_datagram_that_counts_right(bus: DaemonProcess, run: Callable[[str], Terminal]) -> None:
    with PacketClient(bus.socket) as client:
        client.subscribe("demo/>")
        for _ in range(2):
            assert run(SEND).process.wait(PATIENCE) == 0
            assert client.message() == ("demo/greeting", b"hello")


def test_tcpdump_shows_messages(host: Host, bus: DaemonProcess, run: Callable[[str], Terminal]) -> None:
    trace = run(TRACE)
    with PacketClient(bus.socket) as client:
        wait_until(lambda: "tcpdump" in host.run(["ss", "-H0p"]).stdout, "tcpdump to listen")
        client.publish("demo/x", b"traced")
    shown = trace.read_until(":demo/x|traced")
    assert "255.255.255.255.5400" in shown
    assert "BCCN1[" in shown


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
