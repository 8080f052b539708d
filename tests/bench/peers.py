"""The relays to measure. Each run starts one anew, on sockets of its own, and ends it by its pid.

To add one, write a function that yields a running ``Relay`` and name it in ``CONTENDERS``.
"""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.programs import LoadProcess, MeasurementError, Programs
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess, ServiceProcess, die_with_parent
from tests.packet_client import PacketClient
from tests.plain_bccn import free_port

START_SECONDS = 20.0
SEARCHED = os.defpath + ":/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin"  # where Debian puts servers


@dataclass(frozen=True)
class Relay:
    """A relay that runs. ``address`` and ``protocol`` are words of the load programs."""

    address: str
    protocol: str
    pid: int

    def status(self) -> dict[str, Any]:
        """Of bccnd alone: what it says of itself."""
        with PacketClient(Path(self.address.removeprefix("bus:"))) as client:
            return client.status()


@dataclass(frozen=True)
class Contender:
    """``start(folder)`` gives the running relay; ``packed``: its clients agree to packing.

    ``program``: what has to be installed; empty for what this tree makes itself.
    """

    name: str
    start: Callable[[Path], AbstractContextManager[Relay]]
    packed: bool = False
    program: str = ""

    def path(self) -> str | None:
        return shutil.which(self.program, path=SEARCHED) if self.program else ""


def bccnd(
    *flags: str,
    prefix: Sequence[str] = (),
    segment: str = LOOPBACK_BROADCAST,
    port: int | None = None,
    tree: Path | None = None,
    settings: Mapping[str, str] = {},
) -> Callable[[Path], AbstractContextManager[Relay]]:
    """``tree``: the checkout whose daemon it is, with what is compiled in it; this one by default. ``settings``: by
    their names in the environment.
    """
    environ = dict(settings) | ({"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"} if tree else {})

    @contextmanager
    def start(folder: Path) -> Iterator[Relay]:
        where = ["--host", "bench", "--broadcast", segment, "--port", str(port or free_port())]
        with DaemonProcess(folder, *where, *flags, prefix=prefix, environ=environ) as daemon:
            yield Relay(f"bus:{daemon.socket}", "bus", daemon.process.pid)

    return start


def limit(programs: Programs, packet: int = 2048) -> Callable[[Path], AbstractContextManager[Relay]]:
    @contextmanager
    def start(folder: Path) -> Iterator[Relay]:
        path = folder / "limit.sock"
        with _running(
            [str(programs.limit), str(path), str(packet)], folder, socket.AF_UNIX, str(path)
        ) as pid:
            yield Relay(f"bus:{path}", "bus", pid)

    return start


def backbone(tree: Path | None = None) -> Callable[[Path], AbstractContextManager[Relay]]:
    """``bccnd-backbone``, of the checkout ``tree`` or this one."""

    @contextmanager
    def start(folder: Path) -> Iterator[Relay]:
        port = free_port()
        command = [sys.executable, "-m", "bccnd.backbone", "--state", str(folder / "sequence")]
        environ = {"PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"} if tree else {}
        with _Backbone(
            [*command, "--listen", f"127.0.0.1:{port}"], folder / "server.log", environ
        ) as process:
            yield Relay(f"udp:{port}", "fyrehose", process.process.pid)

    return start


class _Backbone(ServiceProcess):
    def start(self) -> None:
        self.launch()
        deadline = time.monotonic() + START_SECONDS
        while "serving" not in self.log:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise MeasurementError(f"bccnd-backbone does not start: {self.log.strip()}")
            time.sleep(0.005)


def bare(programs: Programs, *words: str) -> Callable[[Path], AbstractContextManager[Relay]]:
    """A backbone that decides nothing (``load/bare.c``, which knows these words)."""

    @contextmanager
    def start(_folder: Path) -> Iterator[Relay]:
        port = free_port()
        with LoadProcess([programs.bare, str(port), *words]) as running:
            running.await_ready()
            yield Relay(f"udp:{port}", "fyrehose", running.process.pid)
            running.terminate()

    return start


@contextmanager
def nats(folder: Path) -> Iterator[Relay]:
    """With room for a subscriber that is behind, or it would be cut off (docs.nats.io, "Slow Consumers")."""
    port = _free_tcp_port()
    configuration = folder / "nats.conf"
    configuration.write_text(f'listen: "127.0.0.1:{port}"\nwrite_deadline: "60s"\nmax_pending: 4294967296\n')
    with _running(
        [_found("nats-server"), "-c", str(configuration)], folder, socket.AF_INET, ("127.0.0.1", port)
    ) as pid:
        yield Relay(f"tcp:{port}", "nats", pid)


@contextmanager
def redis(folder: Path) -> Iterator[Relay]:
    """Nothing on disk; subscribers that are behind are not cut off."""
    port = _free_tcp_port()
    options = [
        "--bind",
        "127.0.0.1",
        "--port",
        str(port),
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        str(folder),
    ]
    unlimited = ["--client-output-buffer-limit", "pubsub 0 0 0"]
    with _running(
        [_found("redis-server"), *options, *unlimited], folder, socket.AF_INET, ("127.0.0.1", port)
    ) as pid:
        yield Relay(f"tcp:{port}", "redis", pid)


@contextmanager
def mosquitto(folder: Path) -> Iterator[Relay]:
    """Without Nagle's delays, and with any number of messages waiting for a subscriber."""
    port = _free_tcp_port()
    configuration = folder / "mosquitto.conf"
    configuration.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nset_tcp_nodelay true\n"
        "max_queued_messages 0\nmax_queued_bytes 0\nlog_type error\nlog_dest stderr\nuser root\n"
    )
    with _running(
        [_found("mosquitto"), "-c", str(configuration)], folder, socket.AF_INET, ("127.0.0.1", port)
    ) as pid:
        yield Relay(f"tcp:{port}", "mqtt", pid)


@contextmanager
def dbus(folder: Path) -> Iterator[Relay]:
    """dbus-daemon on a private bus with the limits of a session bus (dbus-broker needs systemd to start it)."""
    path = folder / "dbus.sock"
    configuration = folder / "dbus.conf"
    limits = ("incoming_bytes", "outgoing_bytes", "message_size")
    configuration.write_text(
        '<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"\n'
        ' "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">\n'
        f"<busconfig><type>session</type><listen>unix:path={path}</listen><auth>EXTERNAL</auth>\n"
        '<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>'
        '<allow own="*"/></policy>\n'
        + "".join(f'<limit name="max_{name}">1000000000</limit>\n' for name in limits)
        + '<limit name="max_connections_per_user">100000</limit>'
        '<limit name="max_completed_connections">100000</limit></busconfig>\n'
    )
    command = [
        _found("dbus-daemon"),
        f"--config-file={configuration}",
        "--nofork",
        "--nopidfile",
        "--nosyslog",
    ]
    with _running(command, folder, socket.AF_UNIX, str(path)) as pid:
        yield Relay(f"unix:{path}", "dbus", pid)


BROKERS = (
    Contender("nats", nats, program="nats-server"),
    Contender("redis", redis, program="redis-server"),
    Contender("mosquitto", mosquitto, program="mosquitto"),
    Contender("dbus", dbus, program="dbus-daemon"),
)


@contextmanager
def _running(command: Sequence[str], folder: Path, family: int, address: object) -> Iterator[int]:
    """Runs a server until the block is left, once it accepts connections; its pid."""
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent)
    with process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _accepts(family, address):
                if process.poll() is not None or time.monotonic() > deadline:
                    said = (folder / "server.log").read_text(errors="replace").strip()
                    raise MeasurementError(f"{command[0]} does not start: {said}")
                time.sleep(0.005)
            yield process.pid
        finally:
            process.kill()


def _accepts(family: int, address: object) -> bool:
    with socket.socket(
        family, socket.SOCK_SEQPACKET if str(address).endswith("limit.sock") else socket.SOCK_STREAM
    ) as probe:
        try:
            probe.connect(address)  # type: ignore[arg-type]
        except OSError:
            return False
        return True


def _found(program: str) -> str:
    path = shutil.which(program, path=SEARCHED)
    if path is None:
        raise MeasurementError(f"{program} is not installed")
    return path


def _free_tcp_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
