"""Replacements that fail: the predecessor serves on. If the predecessor dies, the successor serves or leaves."""

import resource
import signal
from pathlib import Path

import pytest

from bccnd.relay.succession import FORMAT
from bccnd.restart import VARIABLE
from tests.daemon_process import LOOPBACK_BROADCAST
from tests.packet_client import PacketClient, wait_until
from tests.replaceable_daemon import ReplaceableDaemon
from tests.replacement.conftest import Start

# Seconds until one that hangs is given up, in the step in which it does, and in all others.
IMPATIENT, PATIENT = 1, 30
LIMITS = """
import bccnd.restart as it
limited = it.Successor._killed_on_failure
it.Successor._killed_on_failure = lambda self, _, step: limited(self, {steps}.get(step, {others}), step)
it.EXIT_SECONDS = {leaving}
"""
INSTEAD_OF_GO = "import os, socket, time\nfrom bccnd.restart import TAKEN, Predecessor\ndef wait(self):\n"
PATCHED = "\nPredecessor.wait_for_go = wait"

FEW_DESCRIPTORS = """
import resource
from bccnd.restart import Predecessor
receive = Predecessor._receive_descriptors
def receive_few(self):
    resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))
    return receive(self)
Predecessor._receive_descriptors = receive_few
"""

FAILURES = {
    "ends at once": ("raise SystemExit(7)", "left with code 7"),
    "hangs at the start": ("import time; time.sleep(60)", "not ready within 1 seconds"),
    "closes the conversation and hangs": (
        f"import os, time; os.close(int(os.environ[{VARIABLE!r}])); time.sleep(60)",
        "left with code -9",
    ),
    "talks nonsense": (
        f"import os; os.write(int(os.environ[{VARIABLE!r}]), b'hello'); raise SystemExit(8)",
        "left with code 8",
    ),
    "dies while it takes over": (f"{INSTEAD_OF_GO}    os._exit(9){PATCHED}", "left with code 9"),
    "hangs while it takes over": (
        f"{INSTEAD_OF_GO}    time.sleep(60){PATCHED}",
        "not done with taking over within 1 seconds",
    ),
    "dies with GO unread": (
        f"{INSTEAD_OF_GO}    self._talk.send(TAKEN); self._talk.recv(9, socket.MSG_PEEK); os._exit(9){PATCHED}",
        "left with code 9",
    ),
    "hangs with GO unread": (
        f"{INSTEAD_OF_GO}    self._talk.send(TAKEN); time.sleep(60){PATCHED}",
        "not serving within 1 seconds",
    ),
    "cannot read the state": (
        "import bccnd.relay.succession as it; it.FORMATS = (0,)",
        f"cannot take over state of format {FORMAT}",
    ),
    "may not open as many files": (
        FEW_DESCRIPTORS,
        "too few file descriptors",
    ),
}


@pytest.mark.parametrize(("successor", "reason"), FAILURES.values(), ids=FAILURES)
def test_a_failing_successor_changes_nothing(start: Start, successor: str, reason: str) -> None:
    hanging = {reason.partition(" within ")[0].removeprefix("not "): IMPATIENT}
    leaving = IMPATIENT if "-9" in reason else PATIENT
    daemon = start(begin_with=LIMITS.format(steps=hanging, others=PATIENT, leaving=leaving))
    with PacketClient(daemon.socket) as client, PacketClient(daemon.socket) as other:
        client.subscribe("a")
        for number in range(8):
            other.publish("a", b"%d" % number)
        before = daemon.descriptors()
        daemon.begin_with(successor)
        daemon.signal(signal.SIGUSR2)
        wait_until(lambda: daemon.logged("not replaced, still serving"), "a line in the log")
        assert reason in daemon.logged("not replaced, still serving")[0]["reason"]
        assert [number for _, number in client.messages()] == [b"%d" % number for number in range(8)]
        assert client.status()["pid"] == daemon.pid
        assert daemon.children() == []
        wait_until(lambda: daemon.descriptors() <= before, "no more descriptors than before")
        other.publish("a", b"still served")
        assert client.message() == ("a", b"still served")


def test_wrong_settings_are_reported_and_change_nothing(tmp_path: Path, loopback_port: int) -> None:
    file = tmp_path / "bccnd.toml"
    file.write_text(f'host = "here"\nbroadcast = "{LOOPBACK_BROADCAST}"\nport = {loopback_port}\n')
    with ReplaceableDaemon(tmp_path, "--config", str(file)) as daemon:
        file.write_text("port = 99999\n")
        daemon.signal(signal.SIGUSR2)
        wait_until(lambda: daemon.logged("not replaced, still serving"), "a line in the log")
        (line,) = daemon.logged("not replaced, still serving")
        assert "port" in line["reason"]
        assert str(file) in line["reason"]
        with PacketClient(daemon.socket) as client:
            assert client.status()["segments"][0]["port"] == loopback_port


@pytest.mark.parametrize(
    ("begin_with", "reason"),
    [
        (
            "import sys; sys.executable = '/nonexistent/python'",
            "cannot start /nonexistent/python: No such file",
        ),
        ("import sys; sys.orig_argv[1:] = ['/nonexistent/bccnd']", "left with code 2"),
    ],
    ids=["interpreter", "program"],
)
def test_a_missing_program_changes_nothing(start: Start, begin_with: str, reason: str) -> None:
    daemon = start(begin_with=begin_with)
    daemon.signal(signal.SIGUSR2)
    wait_until(lambda: daemon.logged("not replaced, still serving"), "a line in the log")
    assert reason in daemon.logged("not replaced, still serving")[0]["reason"]
    with PacketClient(daemon.socket) as client:
        assert client.status()["pid"] == daemon.pid


@pytest.mark.parametrize(
    "fault",
    [
        "import bccnd.daemon.service as it\nit.state_of = lambda relay: 1 / 0",
        "import bccnd.daemon.service as it\nit.state_of = lambda relay: it",
    ],
    ids=["state", "pickling"],
)
def test_an_internal_fault_leaves_nobody_waiting(start: Start, fault: str) -> None:
    daemon = start(begin_with=fault)
    with PacketClient(daemon.socket) as client:
        client.drain()
        for tries in range(1, 3):
            daemon.signal(signal.SIGUSR2)
            wait_until(lambda n=tries: len(daemon.logged("not replaced, still serving")) == n, "a line")
            assert client.drain() == []
            assert daemon.children() == []
    assert "exception" in daemon.logged("not replaced, still serving")[0]
    assert daemon.terminate() == 0
    daemon.log_file.write_text("")  # this traceback is expected


def test_without_a_free_descriptor_the_old_program_serves_on(start: Start) -> None:
    daemon = start()
    with PacketClient(daemon.socket) as client:
        client.drain()
        soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (daemon.descriptors(), hard))
        daemon.signal(signal.SIGUSR2)
        wait_until(lambda: daemon.logged("not replaced, still serving"), "a line in the log")
        assert "Too many open files" in daemon.logged("not replaced, still serving")[0]["reason"]
        assert client.drain() == []
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (soft, hard))
        daemon.replace()
        assert client.drain() == []


def test_the_successor_serves_if_the_old_program_dies_late(start: Start) -> None:
    """It has received everything and waits in vain for GO."""
    dies = """
import os, signal
from bccnd.restart import TAKEN, Successor
expect = Successor._expect
async def and_die(self, word):
    await expect(self, word)
    if word == TAKEN:
        os.kill(os.getpid(), signal.SIGKILL)
Successor._expect = and_die
"""
    daemon = start(begin_with=dies)
    daemon.begin_with("")
    with PacketClient(daemon.socket) as client:
        client.subscribe("a")
        assert daemon.replace()
        client.publish("a", b"still served")
        assert client.message() == ("a", b"still served")


def test_the_successor_exits_if_the_old_program_dies_early(start: Start) -> None:
    """It has nothing to take over. The service manager starts a new daemon."""
    daemon = start(
        begin_with="import os, bccnd.daemon.service as it\nit.state_of = lambda relay: os.kill(os.getpid(), 9)"
    )
    with PacketClient(daemon.socket) as client:
        client.drain()
        daemon.signal(signal.SIGUSR2)
        assert daemon.wait() == -signal.SIGKILL
        assert client.receive() == b""
    wait_until(lambda: "bccnd: the old program has left" in daemon.log, "the successor's last line")
