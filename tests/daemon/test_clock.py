"""A wall clock that is set forward and back, while the daemon runs and while it does not: nothing may stall."""

import contextlib
import os
import re
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.needs import require
from tests.packet_client import PATIENCE, PacketClient, wait_until

SOURCE = Path(__file__).with_name("stepped_clock.c")
DAY, YEAR = 86400, 365 * 86400
KEY = b"the-key-of-both-daemons"


class SteppedClock:
    """``environ`` gives a process this clock instead of the true one."""

    def __init__(self, folder: Path) -> None:
        library = folder / "stepped_clock.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
        self._file = folder / "clock-step"
        self._file.write_bytes(bytes(8))
        self.environ = {"LD_PRELOAD": str(library), "CLOCK_STEP": str(self._file)}

    def set(self, seconds: int) -> None:
        """Let the clock be wrong by so much from now on."""
        with self._file.open("r+b") as stream:  # in place: it is mapped
            stream.write(struct.pack("q", seconds * 10**9))


@pytest.fixture
def clock(tmp_path: Path) -> SteppedClock:
    require("gcc")
    return SteppedClock(tmp_path)


class Hosts:
    """Two daemons on the loopback: ``near`` has the stepped clock, ``far`` hears it and drops replays."""

    def __init__(self, folder: Path, port: int, clock: SteppedClock) -> None:
        keys = folder / "keys"
        keys.touch(0o600)
        keys.write_bytes(KEY)
        flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(port), "--key-file", str(keys))
        for name in ("near", "far"):
            (folder / name).mkdir()
        self.near = DaemonProcess(
            folder / "near",
            "--host",
            "near",
            *flags,
            environ={**clock.environ, "BCCND_QUEUE__BLOCK_SECONDS": "3"},
        )
        self.far = DaemonProcess(folder / "far", "--host", "far", *flags)

    def assert_heard(self, listener: PacketClient, text: bytes) -> None:
        """What a new connection publishes here, always under the same name, is heard there."""
        with PacketClient(self.near.socket) as client:
            assert client.request("whoami").endswith(f"/{os.getpid()}")
            client.publish("demo/x", text)
            client.drain()
        assert listener.message() == ("demo/x", text)


@pytest.fixture
def hosts(tmp_path: Path, loopback_port: int, clock: SteppedClock) -> Iterator[Hosts]:
    hosts = Hosts(tmp_path, loopback_port, clock)
    with ExitStack() as running:
        running.enter_context(hosts.far)
        running.enter_context(hosts.near)
        yield hosts


@pytest.fixture
def listener(hosts: Hosts) -> Iterator[PacketClient]:
    with PacketClient(hosts.far.socket) as client:
        client.subscribe("demo/>")
        yield client


def stamp_of(packet: bytes) -> float:
    match = re.match(rb"RECV \S+ (\d+) ok\0", packet)
    assert match, packet
    return int(match[1]) / 1e9


def test_only_stamps_follow_a_clock_that_is_stepped(
    hosts: Hosts, listener: PacketClient, clock: SteppedClock
) -> None:
    with PacketClient(hosts.near.socket) as old, PacketClient(hosts.near.socket) as watching:
        watching.request("format", "full")
        watching.subscribe("demo/>")
        uptime = old.status()["uptime"]
        for number, step in enumerate([0, -DAY, -40 * YEAR, 10 * YEAR, 0, -3600, DAY, 0]):
            clock.set(step)
            old.publish("demo/x", b"old %d" % number)
            assert listener.message() == ("demo/x", b"old %d" % number)
            assert stamp_of(watching.receive()) - time.time() == pytest.approx(step, abs=60)
            with PacketClient(hosts.near.socket) as new:
                new.publish("demo/x", b"new %d" % number)
                assert listener.message() == ("demo/x", b"new %d" % number)
            watching.receive()
        assert uptime < old.status()["uptime"] < uptime + 60
    status = listener.status()
    assert not set(status["rejected"]) & {"replayed", "duplicate", "late"}, status["rejected"]


@pytest.mark.parametrize("step", [-DAY, 10 * YEAR])
def test_timeouts_go_on_after_a_step(hosts: Hosts, clock: SteppedClock, step: int) -> None:
    """A stopped client that holds a publisher is cut off after block_seconds, whatever the wall clock says."""
    with (
        PacketClient(hosts.near.socket) as stopped,
        PacketClient(hosts.near.socket) as publisher,
        PacketClient(hosts.near.socket) as asking,
    ):
        stopped.request("queue", "packets=1 policy=block")
        stopped.subscribe("local/>")
        publisher.socket.setblocking(False)
        while not asking.holds():
            with contextlib.suppress(BlockingIOError):
                publisher.publish("local/x", bytes(60_000))
        clock.set(step)
        publisher.socket.settimeout(PATIENCE)
        assert publisher.drain() == []
    assert '"reason": "slow"' in hosts.near.log


@pytest.mark.parametrize("step", [-DAY, 10 * YEAR])
@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_a_restart_with_another_clock_is_heard_at_once(
    hosts: Hosts, listener: PacketClient, clock: SteppedClock, end: str, step: int
) -> None:
    for number in range(2):
        for wrong in (0, step):
            clock.set(wrong)
            hosts.assert_heard(listener, b"%d %d" % (number, wrong))
            getattr(hosts.near, end)()
            hosts.near.start()
            hosts.assert_heard(listener, b"%d %d again" % (number, wrong))
    assert "replayed" not in listener.status()["rejected"]
    sources = re.findall(r'"lost":(\d+)', listener.request("sources"))
    assert set(sources) == {"0"}, "a restart is no loss"


def test_without_sequence_file_a_clock_set_back_silences(
    hosts: Hosts, listener: PacketClient, clock: SteppedClock
) -> None:
    """As after a reboot that empties /run: what the README says cannot be had."""
    hosts.assert_heard(listener, b"before")
    hosts.near.terminate()
    hosts.near.socket.with_name("bus.sock.seq").unlink()
    clock.set(-DAY)
    hosts.near.start()
    with PacketClient(hosts.near.socket) as client:
        client.publish("demo/x", b"behind")
        wait_until(lambda: replayed_at(hosts.far) == 1, "the far daemon to drop it")
        client.name(client.request("whoami") + "/another")  # another name is another source
        client.publish("demo/x", b"heard")
        assert listener.message() == ("demo/x", b"heard")


def replayed_at(daemon: DaemonProcess) -> int:
    with PacketClient(daemon.socket) as asking:
        return asking.rejected("replayed")
