"""Plain BCCN programs in three languages on the daemon's host and port: both hear every broadcast."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.needs import require
from tests.packet_client import PacketClient
from tests.running_program import RunningProgram

PROGRAMS = Path(__file__).parent / "programs"


class PlainProgram(RunningProgram):
    """Lines in are published, lines out are the datagrams it hears."""

    def __init__(self, command: list[str]) -> None:
        super().__init__(command)
        assert self.read_line() == "ready"

    def publish(self, chan: str, payload: str) -> None:
        self.type(f"{chan} {payload}")

    def hear(self) -> str:
        """The next datagram, but for what daemons say about lost ones, which takes several lines."""
        while not (line := self.read_line()).startswith("BCCN1[") or ":!bccnd/repair|" in line:
            pass
        return line


class StartPlain(Protocol):
    def __call__(self, language: str) -> PlainProgram: ...


@pytest.fixture
def start_plain(loopback_port: int, tmp_path: Path) -> Iterator[StartPlain]:
    with ExitStack() as running:

        def start(language: str) -> PlainProgram:
            program = PlainProgram([*command(language, tmp_path), LOOPBACK_BROADCAST, str(loopback_port)])
            running.callback(program.close)
            return program

        yield start


def command(language: str, folder: Path) -> list[str]:
    tool = {"python": sys.executable, "perl": "perl", "c": "gcc"}[language]
    require(tool)
    if language == "c":
        subprocess.run([tool, "-Wall", "-Werror", "-o", folder / "plain", PROGRAMS / "plain.c"], check=True)
        return [str(folder / "plain")]
    return [tool, str(PROGRAMS / ("plain.pl" if language == "perl" else "plain.py"))]


@pytest.fixture
def heard_first(request: pytest.FixtureRequest, start_plain: StartPlain) -> PlainProgram:
    return start_plain(request.param)


LANGUAGES = ["python", "perl", "c"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_program_may_start_after_the_daemon(
    daemon: DaemonProcess, start_plain: StartPlain, language: str
) -> None:
    converse(daemon, start_plain(language))


@pytest.mark.parametrize("heard_first", LANGUAGES, indirect=True)
def test_a_program_may_start_before_the_daemon(heard_first: PlainProgram, daemon: DaemonProcess) -> None:
    converse(daemon, heard_first)


def converse(daemon: DaemonProcess, program: PlainProgram) -> None:
    with PacketClient(daemon.socket) as subscriber, PacketClient(daemon.socket) as publisher:
        subscriber.subscribe("demo/>")
        src = publisher.request("whoami")
        for number in range(100):
            publisher.publish("demo/daemon", b"%d" % number)
            datagram = program.hear()
            head, _, body = datagram.partition("]")
            assert head == f"BCCN1[{len(body)}"
            assert body.startswith(f"{src}:")
            assert body.endswith(f":demo/daemon|{number}")
            assert subscriber.message() == ("demo/daemon", b"%d" % number)
            program.publish("demo/plain", str(number))
            assert program.hear().endswith(f"]?:{number + 1}:demo/plain|{number}")  # its own comes back to it
            assert subscriber.message() == ("demo/plain", b"%d" % number)
        assert subscriber.messages() == []


def test_plain_programs_keep_hearing_each_other(daemon: DaemonProcess, start_plain: StartPlain) -> None:
    programs = [start_plain(language) for language in LANGUAGES]
    with PacketClient(daemon.socket) as subscriber:
        subscriber.subscribe("demo/>")
        for number, program in enumerate(programs):
            program.publish("demo/x", f"from {number}")
            for other in programs:
                assert other.hear().endswith(f"demo/x|from {number}")
            assert subscriber.message() == ("demo/x", f"from {number}".encode())


def test_a_program_with_reuseport_shares_the_port_too(
    daemon: DaemonProcess, tmp_path: Path, loopback_port: int
) -> None:
    program = PlainProgram(
        [*command("python", tmp_path), LOOPBACK_BROADCAST, str(loopback_port), "reuseport"],
    )
    try:
        converse(daemon, program)
    finally:
        program.close()
