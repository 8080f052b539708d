"""What the tests of a daemon share."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bccnd.daemon.service import Daemon
from bccnd.net.bindings import Binding
from bccnd.net.endpoints import Endpoints
from bccnd.net.listener import Listener
from bccnd.process.configuration import load
from tests.daemon.in_process import InProcess
from tests.daemon_process import BCCND, LOOPBACK_BROADCAST, mortal


@pytest.fixture
def loopback(loopback_port: int) -> list[str]:
    return ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a daemon with the flags given; kills what a failed test leaves running."""
    with ExitStack() as running:

        def start_one(*flags: object, **options: object) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                mortal([*BCCND, *map(str, flags)]),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                **options,  # type: ignore[call-overload]
            )
            running.enter_context(process)
            running.callback(process.kill)
            return process

        yield start_one


@pytest.fixture
async def in_process(
    tmp_path: Path, loopback_port: int, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[InProcess]:
    async def never(_: Daemon) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Daemon, "_tick", never)
    path = tmp_path / "bus.sock"
    flags = ["--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    settings = load([*flags, "--socket", str(path)], {}).settings
    endpoints = Endpoints.open(
        [Binding(LOOPBACK_BROADCAST, loopback_port)], 1 << 20, lambda: Listener.open(str(path), 0o600)
    )
    daemon = Daemon(settings, (), endpoints, None, asyncio.get_running_loop(), lambda: (settings, ()))
    serving = asyncio.create_task(daemon.serve())
    running = InProcess(daemon, path)
    with running.opened:
        yield running
    daemon._stop.set()
    await serving
