"""``bccn top`` with a real daemon, into a pipe and in a pseudo-terminal."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bccnd.commands.screen import ENTER, LEAVE
from tests.command_line import COMMAND, PATIENT, bccn, ended, environment, start
from tests.daemon_process import DaemonProcess, die_with_parent
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.plain_bccn import datagram, plain_socket


class Terminal:
    """A program in a terminal of its own; ``frame``: the lines it drew last."""

    def __init__(self, daemon: DaemonProcess, *arguments: str, columns: int = 80, lines: int = 24) -> None:
        self.master, slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(slave)
        self.output = b""
        self.slave = slave
        self.process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment(daemon.socket),
            preexec_fn=lambda: (die_with_parent(), os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
        )  # fmt: skip

    def resize(self, columns: int, lines: int) -> None:
        self.lines = lines
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", lines, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, seconds: float = 0.02) -> None:
        while select.select([self.master], [], [], seconds)[0]:
            self.output += os.read(self.master, 65536)

    @property
    def frame(self) -> list[str]:
        self.read()
        frames = [frame.split(b"\n") for frame in self.output.split(b"\x1b[H")[1:]]
        whole = [frame for frame in frames if len(frame) == self.lines and frame[-1].endswith(b"\x1b[0m")]
        return [re.sub(r"\x1b\[\d*[mK]|\r", "", line.decode()) for line in whole[-1]] if whole else []

    def wait_for(self, text: str) -> list[str]:
        wait_until(
            lambda: [line for line in self.frame if text in line], lambda: f"{text!r} on {self.output!r}"
        )
        return self.frame

    def end(self) -> int:
        """The exit code; the terminal must be as it was."""
        wait_until(lambda: self.read() or self.process.poll() is not None, self._why_not_ended)
        self.read()
        assert termios.tcgetattr(self.slave) == self.before
        assert self.output.count(ENTER) == self.output.count(LEAVE)
        return self.process.returncode

    def _why_not_ended(self) -> str:
        """Where it stays, and whether a signal waits for it."""
        about = Path("/proc", str(self.process.pid))
        kept = ("State", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")
        state = [line for line in (about / "status").read_text().splitlines() if line.startswith(kept)]
        return f"the end: {state}, in {(about / 'wchan').read_text()}, after {self.output[-3000:]!r}"


@contextmanager
def terminal(
    daemon: DaemonProcess, *arguments: str, columns: int = 80, lines: int = 24
) -> Iterator[Terminal]:
    opened = Terminal(daemon, *arguments, columns=columns, lines=lines)
    try:
        yield opened
    finally:
        if opened.process.poll() is None:
            opened.process.kill()
        opened.process.wait(PATIENCE)
        os.close(opened.master)
        os.close(opened.slave)


def test_a_live_table_shows_rates_and_ends_with_q(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket) as client, terminal(daemon, "top", "-d", "0.2") as top:
        client.subscribe("a/>")
        name = client.request("whoami")
        top.wait_for(name)

        def flowing() -> bool:
            client.publish("a/b", b"x")
            client.drain()
            [row] = [line.split() for line in top.frame if line.startswith(name)] or [["0"] * 7]
            return "-" not in row and float(row[5]) > 0 and float(row[6]) > 0

        wait_until(flowing, "rates")
        frame = top.frame
        assert len(frame) == 24
        assert frame[0].startswith("bccnd 0.1.0 on here, pid ")
        assert frame[-1].startswith("every 0.2 s   q quit")
        top.press("q")
        assert top.end() == 0


def test_keys_change_the_view(daemon: DaemonProcess) -> None:
    with PacketClient(daemon.socket), terminal(daemon, "top", "-d", "0.1") as top:
        top.wait_for("by OUT/S")
        top.press("\x1b[C")
        top.wait_for("by DROPS")
        top.press("s")
        top.wait_for("0 sources")
        top.press("?")
        top.wait_for("quit")
        top.press("c/nobody\r")
        top.wait_for("with 'nobody'")
        top.press(" ")
        top.wait_for("PAUSED")
        top.press("q")
        assert top.end() == 0


def test_a_resized_terminal_is_drawn_anew_at_once(daemon: DaemonProcess) -> None:
    with terminal(daemon, "top", "-d", "300") as top:
        top.wait_for("every 300 s")
        top.resize(60, 10)
        wait_until(lambda: len(top.frame) == 10, "ten lines")
        assert max(map(len, top.frame)) <= 60
        top.press("q")
        assert top.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back(daemon: DaemonProcess, number: signal.Signals) -> None:
    with terminal(daemon, "top") as top:
        top.wait_for("every 2 s")
        top.process.send_signal(number)
        assert top.end() == -number


def test_ctrl_c_ends_it_as_a_signal(daemon: DaemonProcess) -> None:
    with terminal(daemon, "top") as top:
        top.wait_for("every 2 s")
        top.press("\x03")
        assert top.end() == -signal.SIGINT


def test_the_terminal_is_restored_while_it_is_stopped(daemon: DaemonProcess) -> None:
    with terminal(daemon, "top") as top:
        top.wait_for("every 2 s")
        top.process.send_signal(signal.SIGTSTP)
        wait_until(lambda: top.read() or top.output.endswith(LEAVE), "the terminal back")
        wait_until(lambda: termios.tcgetattr(top.slave) == top.before, "its settings")
        top.output = b""
        top.process.send_signal(signal.SIGCONT)
        top.wait_for("every 2 s")
        top.press("q")
        wait_until(lambda: top.process.poll() is not None, "the end")
        assert termios.tcgetattr(top.slave) == top.before


def test_it_waits_for_a_daemon_that_is_away(daemon: DaemonProcess) -> None:
    with terminal(daemon, "top", "-d", "0.1") as top:
        top.wait_for("0 clients")
        assert daemon.terminate() == 0
        top.wait_for("no daemon at")
        assert [line for line in top.frame if "0 clients" in line]  # the last figures stay
        daemon.start()
        wait_until(lambda: f"pid {daemon.process.pid}," in top.frame[0], "the new daemon")
        wait_until(lambda: not [line for line in top.frame if "no daemon" in line], "no complaint")
        top.press("q")
        assert top.end() == 0


def test_it_waits_for_a_daemon_that_does_not_answer(daemon: DaemonProcess) -> None:
    with terminal(daemon, "top", "-d", "0.1") as top:
        top.wait_for("0 clients")
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            top.wait_for("waiting for it")
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        wait_until(
            lambda: top.frame and not [line for line in top.frame if "waiting" in line], "figures again"
        )
        top.press("q")
        assert top.end() == 0


def test_sources_and_their_loss(daemon: DaemonProcess, loopback_port: int) -> None:
    with plain_socket(loopback_port) as out:
        for seq in (1, 2, 3, 5):
            out.sendto(datagram("there/a/1", seq, "a/b", b"x"), ("127.255.255.255", loopback_port))
        with PacketClient(daemon.socket) as client:
            wait_until(lambda: client.status()["counters"]["received"] == 4, "the datagrams")
    lines = (
        bccn(daemon, "top", "--once", "--sources", "-d", "0.1", command=PATIENT).stdout.decode().splitlines()
    )
    [row] = [line.split() for line in lines if line.startswith("there/a/1")]
    assert row[3:5] == ["1", "20.0%"]
    assert max(map(len, lines)) <= 80


def test_a_pipe_gets_a_table_for_each_interval(daemon: DaemonProcess) -> None:
    began = time.monotonic()
    done = bccn(daemon, "top", "-n", "2", "-d", "0.3", command=PATIENT)
    assert (done.returncode, done.stderr) == (0, b"")
    assert time.monotonic() - began > 0.6
    assert done.stdout.count(b"bccnd 0.1.0 on here") == 2
    assert b"\x1b" not in done.stdout


def test_json_has_an_object_for_each_interval(daemon: DaemonProcess) -> None:
    """However many of them pass until all is counted."""
    with PacketClient(daemon.socket) as client:
        client.subscribe("a/>")
        process = start(daemon, "top", "--json", "-d", "0.2", command=PATIENT)
        assert process.stdout
        first = json.loads(process.stdout.readline())
        for _ in range(10):
            client.publish("a/b", b"x")
        client.drain()
        counted = [0.0, 0.0, 0.0]
        while min(counted) < 9.5:
            shown = json.loads(process.stdout.readline())
            [row] = shown["clients"]
            for at, rate in enumerate((shown["rates"]["published"], row["in"], row["out"])):
                counted[at] += rate * shown["seconds"]
        process.terminate()
        code, _, err = ended(process)
    assert (code, err) == (-signal.SIGTERM, "")
    assert counted == pytest.approx([10, 10, 10])
    assert first["more"] == {"clients": False, "sources": False}
    assert 0.2 <= first["seconds"] < PATIENCE
    done = bccn(daemon, "top", "--json", "-d", "0.1", "-n", "2", command=PATIENT)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)


def test_rows_limit_what_is_read(daemon: DaemonProcess) -> None:
    clients = [PacketClient(daemon.socket) for _ in range(5)]
    lines = (
        bccn(daemon, "top", "--once", "-d", "0.1", "--rows", "3", command=PATIENT)
        .stdout.decode()
        .splitlines()
    )
    assert "3 clients by OUT/S, highest first; and more (--rows N)" in lines
    for client in clients:
        client.close()


def test_without_a_daemon_it_is_code_5(daemon: DaemonProcess) -> None:
    done = bccn(daemon.socket.parent / "nowhere", "top", "--once", "-d", "0.1")
    assert done.returncode == 5
    assert done.stdout == b""
    assert b"no daemon at" in done.stderr


@pytest.mark.parametrize("words", [["-d", "0"], ["-s", "size"], ["--clients", "--sources"], ["-n", "0"]])
def test_wrong_usage_is_code_2(daemon: DaemonProcess, words: list[str]) -> None:
    assert bccn(daemon, "top", *words).returncode == 2
