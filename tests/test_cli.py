"""The ``bccn`` command apart from its sub-commands."""

import subprocess
import sys
from pathlib import Path

import pytest

from bccnd import __version__
from bccnd.commands.parsers import COMMANDS
from tests.command_line import ROOT, bccn, environment
from tests.daemon_process import DaemonProcess

NOWHERE = Path("/nonexistent/bus.sock")


def test_version() -> None:
    assert bccn(NOWHERE, "--version").stdout.decode() == f"bccn {__version__}\n"


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_a_terminal_and_shows_how(command: str) -> None:
    done = bccn(NOWHERE, *filter(None, [command]), "--help")
    text = done.stdout.decode()
    assert done.returncode == 0
    assert max(map(len, text.splitlines())) <= 80
    assert ("examples:" in text) is bool(command)
    assert "$BCCN_SOCKET" in text


def test_commands_and_their_modules_match() -> None:
    modules = {
        path.stem for path in (ROOT / "bccnd" / "commands").glob("*.py") if "\ndef run(" in path.read_text()
    }
    assert modules == set(COMMANDS)


@pytest.mark.parametrize(
    "arguments", [[], ["bogus"], ["pub"], ["sub"], ["sub", "x", "-C", "0"], ["sub", "x", "-W", "nan"]]
)
def test_wrong_usage_shows_the_usage(arguments: list[str]) -> None:
    done = bccn(NOWHERE, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(b"usage: bccn")


def test_a_missing_command_is_named_alone() -> None:
    done = bccn(NOWHERE)
    assert done.stderr.decode().splitlines()[-1].endswith("arguments are required: COMMAND")


def test_a_missing_daemon_is_exit_code_5_in_two_lines() -> None:
    done = bccn(NOWHERE, "pub", "a", "b")
    assert done.returncode == 5
    assert done.stderr.decode().splitlines() == [
        "bccn: no daemon at /nonexistent/bus.sock: No such file or directory",
        "bccn: is bccnd running? --socket PATH or $BCCN_SOCKET names another socket",
    ]


@pytest.mark.parametrize("place", ["before", "after"])
def test_socket_may_stand_before_or_after_the_command(daemon: DaemonProcess, place: str) -> None:
    socket = ["--socket", str(daemon.socket)]
    words = [*socket, "status"] if place == "before" else ["status", *socket]
    assert bccn(NOWHERE, *words).returncode == 0


def test_a_short_command_imports_nothing_slow(daemon: DaemonProcess) -> None:
    program = (
        "import sys\nbefore = set(sys.modules)  # an editable installation loads these\n"
        "from bccnd.cli import main\n"
        "assert main(['pub', 'a', 'b']) == 0\nprint(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(daemon.socket), capture_output=True, check=True
    )
    slow = {
        "asyncio",
        "typing",
        "dataclasses",
        "logging",
        "threading",
        "pathlib",
        "json",
        "pydantic",
        "uvloop",
    }
    assert slow & set(done.stdout.decode().split()) == set()
