"""The ``bccn`` command apart from its sub-commands."""

import select
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from bccnd import __version__
from bccnd.commands.parsers import COMMANDS
from bccnd.process.standard_streams import printable
from tests.command_line import PATIENT, ROOT, bccn, ended, environment, start
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PACKET_LIMIT, PATIENCE, PacketClient, crowded, wait_until
from tests.plain_bccn import datagram, plain_socket

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


# What people type by mistake, and what the last line of the answer says. {folder} is one, {binary} no text.
SILLY: dict[str, tuple[list[str], str]] = {
    "no such command": (["\x1b[31mpubb"], "invalid choice: '\\x1b[31mpubb'"),
    "unknown option": (["status", "--\x1b]0;title\x07"], "unrecognized arguments: --\\e]0;title\\x07"),
    "two payloads": (["pub", "a", "b", "-m", "c"], "give PAYLOAD or an option"),
    "three words": (["pub", "a", "b", "c"], "unrecognized arguments: c"),
    "space in a channel": (["pub", "a b", "c"], "MSG a b: "),
    "newline in a channel": (["pub", "a\nb", "c"], "MSG a\\nb: "),
    "channel of another alphabet": (["pub", "ä", "c"], "must be ASCII"),
    "channel that is no text": (["pub", "\udcff", "c"], "channel '\\udcff'"),
    "file that is a folder": (["pub", "a", "-f", "{folder}"], "{folder}: Is a directory"),
    "file without a name": (["pub", "a", "-f", ""], "--file: the name is empty"),
    "file that cannot be read": (["req", "a", "-f", "/proc/self/mem"], "/proc/self/mem: Input/output error"),
    "lines again and again": (["pub", "a", "-l", "--repeat", "2"], "--repeat does not go with -l"),
    "message too large": (["pub", "a", "x" * 3000], "on the wire, at most 1400 (too-large)"),
    "name with a space": (["pub", "a", "b", "--name", "c d"], "CMSG name: "),
    "half a star": (["sub", "a*b"], "SUB a*b: "),
    "directed half star": (["sub", "!a*b"], "SUB !a*b: "),
    "excluded half star": (["sub", "a", "-x", "b*c"], "--exclude: 'b*c' matches nothing: after '*'"),
    "format without a letter": (["sub", "a", "-F", "%"], "format: '%' means nothing"),
    "negative wait": (["sub", "a", "-W=-1"], "--wait: '-1' is not a number of seconds"),
    "many digits": (["sub", "a", "-C", "9" * 5000], "--count: "),
    "no command to run": (["reply", "a"], "give the command to run, after --"),
    "command that is missing": (["reply", "a", "--", "\x1b[1mx"], "reply: \\e[1mx: no such command"),
    "command that is a folder": (["reply", "a", "--", "{folder}"], "{folder}: no such command"),
    "capture that is a folder": (["dump", "-r", "{folder}"], "{folder}: Is a directory"),
    "capture that is none": (["dump", "-r", "{binary}"], "{binary}: not a capture file"),
    "capture without a name": (["dump", "-w", ""], "--write: the name is empty"),
    "capture into a folder": (["dump", "-w", "{folder}"], "{folder}: Is a directory"),
    "unknown verdict": (["dump", "--verdict", "ok,bad"], "no verdict is called 'bad'; they are "),
    "pattern of a dump": (["dump", "a*b"], "'a*b' matches nothing"),
    "source of a dump": (["dump", "--src", "a b"], "'a b' matches nothing"),
    "size without a file": (["dump", "--size", "9"], "--size needs -w"),
    "who with a half star": (["who", "a*b"], "'a*b' matches nothing"),
    "ping of a source": (["ping", "here/bccnd"], "HOST is the first part of a source"),
    "ping of nobody": (["ping", ""], "HOST is the first part of a source"),
    "ping of everybody": (["ping", "*"], "HOST is the first part of a source"),
    "ping of two words": (["ping", "a b"], "HOST is the first part of a source"),
    "no rows": (["status", "--rows", "0"], "--rows: '0' is not a whole number above 0"),
    "no pause": (["top", "-d", "0"], "--delay: 0 s is too short"),
    "unknown column": (["top", "--sort", "x"], "--sort: invalid choice: 'x'"),
    "settings without a name": (["doctor", "--config", ""], "--config: the name is empty"),
    "unknown shell": (["completion", "csh"], "SHELL: invalid choice: 'csh'"),
    "pages into nothing": (["manual", "--output", ""], "--output: the name is empty"),
    "pages into a file": (["manual", "--output", "{binary}"], "{binary}/man1: Not a directory"),
}


@pytest.mark.parametrize("mistake", SILLY)
def test_a_mistake_is_named_in_the_last_line(
    shared_daemon: DaemonProcess, tmp_path: Path, mistake: str
) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    words, wanted = SILLY[mistake]
    places = {"{folder}": str(tmp_path), "{binary}": str(tmp_path / "binary")}
    for mark, place in places.items():
        words, wanted = [word.replace(mark, place) for word in words], wanted.replace(mark, place)
    done = bccn(shared_daemon, *words)
    complained = done.stderr.decode()
    assert done.returncode == 2, complained
    assert wanted in complained.splitlines()[-1]
    assert "Traceback" not in complained
    assert all(char.isprintable() or char == "\n" for char in complained)


@pytest.mark.parametrize(
    "words",
    [
        ["status"], ["who"], ["who", "--all"], ["top", "--once", "-d", "0.1"], ["doctor"],
        ["dump", "-C", "1", "a/>"], ["dump", "-C", "1", "-v", "a/>"], ["dump", "-C", "1", "-x", "a/>"],
        ["sub", "-C", "1", "--json", ">"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_strangers_wrote_moves_no_cursor(
    daemon: DaemonProcess, loopback_port: int, words: list[str]
) -> None:
    name, channel = "far/\x1b]0;owned\x07/\x1b[31m", "a/\x1b[2J"
    with PacketClient(daemon.socket) as stranger, plain_socket(loopback_port) as plain:
        stranger.subscribe("never/\x1b[1m")

        def write(number: int) -> None:
            plain.sendto(datagram(name, number, "a/b", b"\x1b[5m"), (LOOPBACK_BROADCAST, loopback_port))
            stranger.publish(channel, "\x1b[5m\x9b\u202e\xff".encode("latin-1", "replace") + b"\xc2\x9b")
            stranger.drain()

        write(1)
        wait_until(lambda: stranger.status()["counters"]["accepted"], "the source to be known")
        process = start(daemon, *words, command=PATIENT)
        for number in count(2):
            if process.poll() is not None:
                break
            write(number)
        code, out, err = ended(process)
    assert code == 0, err
    shown = out.decode() + err
    assert [char for char in shown if not char.isprintable() and char != "\n"] == []
    assert "\\e" in shown or "\\u001b" in shown or words[0] == "doctor"


# --- a daemon that is busy, or says why it closes ---


def answer(listening: socket.socket, farewell: bytes = b"") -> list[bytes]:
    """Serve whoever comes until one that has asked has gone, and return what was published; with ``farewell``, say
    only that to one.
    """
    connections, published, asked = [listening], [], set()
    with ExitStack() as open_ones:
        while True:
            for ready in select.select(connections, [], [], PATIENCE)[0]:
                if ready is listening:
                    connections.append(open_ones.enter_context(listening.accept()[0]))
                    continue
                packet = ready.recv(PACKET_LIMIT)
                if farewell:
                    ready.send(b"CMSG closing\0" + farewell)
                    return [packet]
                if packet.startswith(b"MSG "):
                    published.append(packet)
                elif packet.startswith(b"CMSG whoami"):
                    ready.send(b"CMSG whoami\0here/x/1")
                elif packet.startswith(b"CMSG ping"):
                    ready.send(b"CMSG pong\0" + packet[len(b"CMSG ping\0") :])
                    asked.add(ready)
                elif not packet and ready in asked:
                    return published


def test_a_busy_daemon_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with crowded(path) as listening, ThreadPoolExecutor() as pool:
        done = pool.submit(bccn, path, "pub", "a/b", "c")
        assert answer(listening) == [b"MSG a/b\0c"]
        assert (done.result().returncode, done.result().stderr) == (0, b"")


def test_a_daemon_that_stays_busy_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "bus.sock"
    with crowded(path):
        done = bccn(path, "pub", "a", "b")
    assert done.returncode == 5
    assert done.stderr.decode().splitlines() == [
        f"bccn: the daemon at {path} is busy: more programs connect than it accepts",
        "bccn: it is stuck, or a program connects over and over: journalctl -u bccnd",
    ]


@pytest.mark.parametrize(
    ("reason", "code", "advice"),
    [
        ("limit: 7 clients at most", 4, "bccn: end some of its clients (bccn top --clients), or "),
        ("shutdown", 5, "bccn: it stops, or is being replaced: "),
        ("slow", 5, "bccn: read faster, "),
        ("\x1b[31m", 5, "bccn: the daemon closes the connection: \\e[31m"),
    ],
)
def test_what_the_daemon_says_is_what_the_command_says(
    tmp_path: Path, reason: str, code: int, advice: str
) -> None:
    path = tmp_path / "bus.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening, ThreadPoolExecutor() as pool:
        listening.bind(str(path))
        listening.listen(1)
        done = pool.submit(bccn, path, "status")
        answer(listening, reason.encode())
        complained = done.result().stderr.decode().splitlines()
    assert done.result().returncode == code
    assert complained[0] == f"bccn: the daemon closes the connection: {printable(reason)}"
    assert complained[-1].startswith(advice)
