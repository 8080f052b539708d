"""Three hosts on a segment and daemons for them, for every test in this folder."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from tests.daemon_process import DaemonProcess
from tests.hosts.segment import BROADCAST, Host, Segment
from tests.needs import require

HOSTS = ("alpha", "beta", "gamma")
PORT = 5400
KEY = b"the-key-that-all-hosts-of-this-segment-share"

# For daemons that neither ask for what was lost nor say what they sent last.
UNREPAIRED = {"BCCND_REPAIR__ON": "false"}


class StartDaemon(Protocol):
    def __call__(
        self,
        host: Host,
        *flags: str,
        key: bytes | None = KEY,
        environ: Mapping[str, str] = {},
        ready: bool = True,
    ) -> DaemonProcess: ...


@pytest.fixture(autouse=True, scope="session")
def _namespaces_can_be_made() -> None:
    require("root", "ip")


@pytest.fixture
def segment(_namespaces_can_be_made: None) -> Iterator[Segment]:
    with Segment(HOSTS) as made:
        yield made


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[StartDaemon]:
    """Starts the daemon of a host, with the segment's key or another or none. All end with the test."""
    with starting(tmp_path) as start:
        yield start


@pytest.fixture
def unrepairing(start_daemon: StartDaemon, segment: Segment) -> list[DaemonProcess]:
    """The same for tests that count each datagram: what is lost stays lost, and nothing is sent but messages."""
    return start_all(start_daemon, segment, UNREPAIRED)


@pytest.fixture
def daemons(start_daemon: StartDaemon, segment: Segment) -> list[DaemonProcess]:
    """A daemon on each host, all with the segment's key."""
    return start_all(start_daemon, segment)


@pytest.fixture(scope="module")
def shared_segment(_namespaces_can_be_made: None) -> Iterator[Segment]:
    """The same for all tests of a module that leave links, routes and daemons as they are."""
    with Segment(HOSTS) as made:
        yield made


@pytest.fixture(scope="module")
def shared_daemons(
    tmp_path_factory: pytest.TempPathFactory, shared_segment: Segment
) -> Iterator[list[DaemonProcess]]:
    with starting(tmp_path_factory.mktemp("hosts")) as start:
        yield start_all(start, shared_segment)


@contextmanager
def starting(where: Path) -> Iterator[StartDaemon]:
    """Daemons that run on one core: what is sent from several in turn, the kernel may disorder."""
    cores = sorted(os.sched_getaffinity(0))
    core = cores[os.getpid() % len(cores)]
    with ExitStack() as running:

        def start(
            host: Host,
            *flags: str,
            key: bytes | None = KEY,
            environ: Mapping[str, str] = {},
            ready: bool = True,
        ) -> DaemonProcess:
            folder = where / host.name
            folder.mkdir()
            if key is not None:
                file = folder / "keys"
                file.touch(0o600)
                file.write_bytes(key + b"\n")
                flags = ("--key-file", str(file), *flags)
            flags = ("--host", host.name, "--broadcast", BROADCAST, "--port", str(PORT), *flags)
            daemon = DaemonProcess(folder, *flags, prefix=host.command([]), environ=environ)
            daemon.launch()
            running.push(daemon)
            os.sched_setaffinity(daemon.process.pid, {core})
            if ready:
                daemon.wait_until_ready()
            return daemon

        yield start


def start_all(start: StartDaemon, segment: Segment, environ: Mapping[str, str] = {}) -> list[DaemonProcess]:
    started = [start(host, ready=False, environ=environ) for host in segment.hosts]
    for daemon in started:
        daemon.wait_until_ready()
    return started
