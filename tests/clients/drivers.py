"""Every language's conformance driver: how it is built, run and spoken to (clients/CONFORMANCE.md).

A language plugs in by an entry in ``LANGUAGES``.
"""

import fcntl
import os
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Self
from urllib.parse import unquote_to_bytes

import pytest

from tests.clients.door import Door
from tests.daemon_process import mortal
from tests.needs import require
from tests.packet_client import PATIENCE

CLIENTS = Path(__file__).parents[2] / "clients"
BUILD_SECONDS = 300
# Seconds that a driver waits for what must come: less than the test waits for the driver.
LATEST = 20

# Whatever is built for Go looks for races: so Go's own library, the most of it, is built once and not twice. What has
# raced says so on stderr at once; by default each program would wait a second for that at its end.
RACES = {"CGO_ENABLED": "1", "GOFLAGS": "-race -buildvcs=false", "GORACE": "atexit_sleep_ms=0"}

# Tests, driver and examples of Rust share what is built. It is built once, so without names for a debugger, and
# without parts to build it again from.
QUICK_BUILD = {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_INCREMENTAL": "0"}

# A JVM that starts soon: it ends before a slower compiler, or another collector, would pay.
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

Word = str | bytes | int


@dataclass(frozen=True)
class Language:
    """``build`` and ``run`` are executed in ``folder``, below clients/; ``toolchain`` are the commands on PATH that
    this takes. The driver answers the commands that it ``lacks`` with ``error unsupported``, and does not know yet
    those that it ``owes``. A client that
    ``reads_ahead`` takes packets before the program receives them: what it loses may have several gaps. One that
    ``needs_door`` cannot open the daemon's socket, and is given the address of a door before it."""

    name: str
    folder: str
    toolchain: tuple[str, ...]
    run: tuple[str, ...]
    build: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict, hash=False)
    lacks: frozenset[str] = frozenset()
    owes: frozenset[str] = frozenset()
    reads_ahead: bool = False
    needs_door: bool = False

    def __str__(self) -> str:
        return self.name


LANGUAGES = (
    Language(
        "python",
        folder="python",
        toolchain=(),
        run=(sys.executable, "conformance/driver.py"),
        environ={"PYTHONPATH": str(CLIENTS / "python")},
    ),
    Language(
        "c",
        folder="c",
        toolchain=("make", "gcc"),
        build=("make", "--silent", "build/driver", "CC=gcc"),
        run=("build/driver",),
        lacks=frozenset({"ask", "cancel", "stream"}),
    ),
    Language(
        "c++",
        folder="c",
        toolchain=("make", "gcc", "g++"),
        build=("make", "--silent", "build/driver-cpp", "CC=gcc", "CXX=g++"),
        run=("build/driver-cpp",),
        lacks=frozenset({"cancel", "stream"}),
    ),
    Language(
        "perl",
        folder="perl",
        toolchain=("perl",),
        run=("perl", "-Ilib", "conformance/driver.pl"),
        lacks=frozenset({"stream"}),
    ),
    Language(
        "go",
        folder="go",
        toolchain=("go", "gcc"),  # gcc: the race detector is linked by cgo
        build=("go", "build", "-o", "build/driver", "./conformance"),
        run=("build/driver",),
        environ=RACES,
        lacks=frozenset({"dispatch", "fork", "poll"}),
        reads_ahead=True,
    ),
    Language(
        "rust",
        folder="rust",
        toolchain=("cargo", "cc"),
        build=(
            "cargo",
            "build",
            "--quiet",
            "--locked",
            "--all-features",
            "--target-dir=build",
            "--examples",
        ),
        run=("build/debug/examples/driver",),
        environ=QUICK_BUILD,
        lacks=frozenset({"ask", "cancel", "dispatch"}),
    ),
    Language(
        "shell",
        folder="shell",
        toolchain=("sh", "awk", "socat"),
        run=("sh", "conformance/driver.sh"),
        lacks=frozenset(
            {"cancel", "clients", "datagram", "pack", "poll", "sources", "status", "stream", "tap"}
        ),
        reads_ahead=True,
    ),
    Language(
        "java",
        folder="java",
        toolchain=("java", "javac"),
        build=("sh", "conformance/build.sh"),
        run=("java", *JVM, "-cp", "build/main:build/programs", "Driver"),
        lacks=frozenset({"dispatch", "fork", "poll"}),
        reads_ahead=True,
        needs_door=True,
    ),
    Language(
        "javascript",
        folder="javascript",
        toolchain=("node",),
        run=("node", "conformance/driver.js"),
        lacks=frozenset({"dispatch", "fork", "poll"}),
        reads_ahead=True,
        needs_door=True,
    ),
)

# The first once more, by another way. Of the tests of pairs it has two.
PYTHON_DOOR = replace(LANGUAGES[0], name="python-door", reads_ahead=True, needs_door=True)

each_language = pytest.mark.parametrize("language", [*LANGUAGES, PYTHON_DOOR], ids=str)


@contextmanager
def building(folder: Path) -> Iterator[None]:
    """One process at a time builds in `folder`: of tests that run side by side, the others find its result."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@cache
def build(language: Language) -> None:
    """Once a process; it needs the toolchain."""
    require(*language.toolchain)
    folder = CLIENTS / language.folder
    if language.build:
        with building(folder):
            result = subprocess.run(
                language.build,
                cwd=folder,
                env={**os.environ, **language.environ},
                capture_output=True,
                text=True,
                timeout=BUILD_SECONDS,
                check=False,
            )
        assert result.returncode == 0, result.stdout + result.stderr


class Doorway:
    """One door for all daemons that drivers are sent to, one after the other: it takes a process to start. Its daemon
    is a link to the socket of whichever is meant. A driver that connects again comes to the last that was opened."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemon = folder / "daemon.sock"
        self._door: Door | None = None

    def to(self, path: str) -> str:
        """The address by which a client reaches the daemon at `path`."""
        new = self._folder / "new.sock"
        new.symlink_to(path)
        new.replace(self._daemon)
        if self._door is None:
            self._door = Door(self._folder, self._daemon)
            self._door.__enter__()
        return self._door.address

    @property
    def address(self) -> str:
        return f"unix:{self._folder / 'mux.sock'}"

    def close(self) -> None:
        if self._door is not None:
            self._door.__exit__(None)


class Driver:
    """A driver process; a context manager that asserts that it ends by itself, with nothing on stderr unless it
    ``reports``."""

    reports = False

    def __init__(self, language: Language, log: Path, doorway: Doorway | None = None) -> None:
        build(language)
        self.language = language
        self._doorway = doorway if language.needs_door else None
        self._log = log
        self._buffer = b""
        self._asked = ""
        self._is_patient = False
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                mortal(language.run),
                cwd=CLIENTS / language.folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, **language.environ, **self._environ},
                bufsize=0,
            )

    def ask(self, *words: Word) -> None:
        """Give a command without waiting for its answer."""
        assert self.process.stdin
        if words[0] == "timeout":
            self._is_patient = True
        # The five seconds of a program are few on a busy machine.
        if words[0] == "open" and not self._is_patient:
            self("timeout", LATEST)
        if self._doorway and words[0] == "open":
            address = self._doorway.to(str(words[1]) if len(words) > 1 else os.environ["BCCN_SOCKET"])
            words = ("open", address) if len(words) > 1 else words
        self._asked = " ".join(map(_encoded, words))
        self.process.stdin.write(self._asked.encode() + b"\n")

    def answer(self) -> list[str]:
        """The words of the answer, ``ok`` or ``error`` and the code first, still encoded."""
        assert self.process.stdout
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            what = f"{self.language}: {self._asked[:200]!r}: "
            assert ready, what + f"no answer\n{self.log}"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            assert data, what + f"the driver has ended\n{self.log}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("ascii").split(" ")

    def ok(self) -> list[bytes]:
        """The decoded words after the ``ok`` that has to come."""
        word, *words = self.answer()
        assert word == "ok", f"{self.language}: {self._asked[:200]!r} gave {word} {words}\n{self.log}"
        return [_decoded(each) for each in words]

    def __call__(self, *words: Word) -> list[bytes]:
        """Do something that succeeds."""
        self.ask(*words)
        return self.ok()

    def error(self, *words: Word) -> str:
        """Do something that fails: the code."""
        self.ask(*words)
        word, code, *_ = [*self.answer(), ""]
        assert word == "error", f"{self.language}: {self._asked[:200]!r} gave {word} {code}"
        return code

    def open(self, path: Path | str) -> str:
        """The name the daemon knows it by."""
        return self("open", str(path))[0].decode()

    def messages(self) -> list[tuple[str, bytes]]:
        """(channel, payload) of every message that the daemon has for it by now; nothing but messages."""
        self("barrier")
        found = []
        while (event := self("recv", 0))[0] == b"msg":
            found.append((event[1].decode(), event[2]))
        assert event == [b"timeout"], event
        return found

    def patiently(self, *words: Word) -> list[bytes]:
        """Do something that succeeds in the end: again when its time is over, as on a busy machine it may be."""
        while True:
            self.ask(*words)
            word, *rest = self.answer()
            if word == "ok" or rest[0] not in ("timeout", "unavailable"):
                assert word == "ok", f"{self.language}: {self._asked[:200]!r} gave {word} {rest}"
                return [_decoded(each) for each in rest]

    def await_reconnection(self) -> None:
        while (event := self("recv", LATEST)) == [b"disconnected"]:
            pass
        assert event == [b"reconnected"]

    @property
    def waits(self) -> bool:
        """Whether it has read the command, and sleeps."""
        assert self.process.stdin
        unread = fcntl.ioctl(self.process.stdin, termios.FIONREAD, bytes(4))
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        return not any(unread) and stat.rpartition(") ")[2].startswith("S")

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def _environ(self) -> dict[str, str]:
        return {"BCCN_CONNECT": self._doorway.address} if self._doorway else {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        try:
            code: int | None = self.process.wait(1.0 if kind else PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        self.process.stdout.close()
        if kind is None:
            assert (code, self.log if not self.reports else "") == (0, ""), self.language


def _encoded(word: Word) -> str:
    data = word if isinstance(word, bytes) else str(word).encode()
    plain = range(0x21, 0x7F)
    return "".join(chr(byte) if byte in plain and byte != 0x25 else f"%{byte:02X}" for byte in data) or "%"


def _decoded(word: str) -> bytes:
    return b"" if word == "%" else unquote_to_bytes(word)


def unless_lacking(
    language: Language, command: str, argument: str, start: Callable[[Language], Driver]
) -> None:
    """Ends the test for a language that lacks or owes `command`, once its driver has said so itself."""
    if command in language.owes:
        assert start(language).error(command, *argument.split()) == "usage"
        pytest.xfail(f"{language} owes {command}")
    if command in language.lacks:
        assert start(language).error(command, *argument.split()) == "unsupported"
        pytest.xfail(f"{language} has no {command}")
