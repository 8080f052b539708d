"""A network segment on one machine: every host is a network namespace, a bridge joins them.

    namespace <prefix>-switch          namespace <prefix>-alpha
        br0 --- to-alpha ============= eth0 10.99.0.1/24, lo, default route
            \\-- to-beta  ============= eth0 10.99.0.2/24  (namespace <prefix>-beta)

The veth pairs and the bridge are made inside the namespaces: nothing ever appears on the machine's own
interfaces, and removing the namespaces removes everything. A name carries the pid of the process that made it. What
a crashed run left behind has the pid of a dead process, and the next run removes it. The hosts share only the file
system, so a test connects to the Unix socket of any daemon directly.
"""

import ctypes
import itertools
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.daemon_process import mortal
from tests.packet_client import PATIENCE, wait_until
from tests.plain_bccn import PlainSocket, plain_socket

BROADCAST = "255.255.255.255"
KIND = "bccnd-test"  # how the names of namespaces begin
RUN_FOLDER = Path("/run/netns")
T = TypeVar("T")

_count = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


def ip(*arguments: str) -> str:
    """Runs ip(8). Its error message becomes that of the exception."""
    result = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False)
    if result.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {result.stderr.strip()}")
    return result.stdout


def remove_stale(kind: str = KIND) -> list[str]:
    """Removes the namespaces of processes that no longer live; returns their names."""
    named = re.compile(rf"{kind}-(\d+)-\d+-")
    stale = [
        path.name
        for path in (RUN_FOLDER.iterdir() if RUN_FOLDER.is_dir() else ())
        if (match := named.match(path.name)) and not Path(f"/proc/{match[1]}").exists()
    ]
    for name in stale:
        try:
            ip("netns", "del", name)
        except RuntimeError as error:  # another process may be at it
            wait_until(partial(_gone, name), f"it to be gone: {error}", 1.0)
    return stale


def _gone(name: str) -> bool:
    return not (RUN_FOLDER / name).exists()


@contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Sockets that this thread makes within the block belong to `namespace`."""
    with Path("/proc/self/ns/net").open() as before, (RUN_FOLDER / namespace).open() as wanted:
        _enter(wanted.fileno())
        try:
            yield
        finally:
            _enter(before.fileno())


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def forwards(namespace: str, bridge: str) -> bool:
    """Whether all ports of a bridge forward.

    On a busy machine it drops what comes until the kernel has seen all links up.
    """
    ports = json.loads(ip("-n", namespace, "-d", "-j", "link", "show", "master", bridge))
    return all(port["linkinfo"]["info_slave_data"]["state"] == "forwarding" for port in ports)


class Host:
    """One namespace of a segment. Its daemon uses ``name`` as the host's name."""

    def __init__(self, name: str, namespace: str, address: str) -> None:
        self.name = name
        self.namespace = namespace
        self.address = address

    def command(self, argv: Sequence[str]) -> list[str]:
        """`argv` as a command that runs on this host; the process keeps its pid (ip(8) does not fork)."""
        return ["ip", "netns", "exec", self.namespace, *argv]

    def start(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts a process here that does not outlive this one."""
        return subprocess.Popen(mortal(self.command(argv)), **options)

    def run(self, argv: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(argv),
            **{"capture_output": True, "text": True, "timeout": PATIENCE, "check": True} | options,
        )

    def make(self, factory: Callable[[], T]) -> T:
        """Calls `factory`; the sockets it makes are on this host."""
        with inside(self.namespace):
            return factory()

    def udp_socket(self, port: int) -> PlainSocket:
        """A plain BCCN socket on this host: 0.0.0.0, SO_REUSEADDR, SO_BROADCAST."""
        return self.make(lambda: plain_socket(port))


class Segment:
    """Hosts joined by a bridge; a context manager that leaves nothing behind."""

    def __init__(self, names: Sequence[str], kind: str = KIND) -> None:
        remove_stale(kind)
        self._prefix = f"{kind}-{os.getpid()}-{next(_count)}-"
        self._switch = self._prefix + "switch"
        self._made: list[str] = []
        self.hosts: list[Host] = []
        try:
            self._add_namespace(self._switch)
            ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
            ip("-n", self._switch, "link", "set", "br0", "up")
            for number, name in enumerate(names, start=1):
                self._add_host(name, f"10.99.0.{number}")
            wait_until(lambda: forwards(self._switch, "br0"), "the bridge to forward")
        except BaseException:
            self.close()
            raise

    def _add_namespace(self, name: str) -> None:
        ip("netns", "add", name)
        self._made.append(name)
        ip("-n", name, "link", "set", "lo", "up")

    def _add_host(self, name: str, address: str) -> None:
        host = Host(name, self._prefix + name, address)
        port = f"to-{name}"[:15]
        self._add_namespace(host.namespace)
        ip(
            "-n",
            self._switch,
            "link",
            "add",
            port,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            host.namespace,
        )
        ip("-n", self._switch, "link", "set", port, "master", "br0", "up")
        ip("-n", host.namespace, "address", "add", f"{address}/24", "brd", "+", "dev", "eth0")
        ip("-n", host.namespace, "link", "set", "eth0", "up")
        ip("-n", host.namespace, "route", "add", "default", "dev", "eth0")
        self.hosts.append(host)

    def close(self) -> None:
        while self._made:
            ip("netns", "del", self._made.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
