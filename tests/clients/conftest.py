"""Python clients of a real daemon, and drivers of every language."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import bccn
from bccn.session import Session
from tests.clients.drivers import Doorway, Driver, Language
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE

Connect = Callable[..., bccn.Client]
Start = Callable[[Language], Driver]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of the Python clients wait as long as a test does: a busy machine may stand still for five seconds."""
    defaults = Session.__init__.__kwdefaults__
    assert defaults
    monkeypatch.setitem(defaults, "timeout", PATIENCE)


@pytest.fixture(scope="session")
def doorway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doorway]:
    """The way to a daemon for drivers that cannot open its socket."""
    opened = Doorway(tmp_path_factory.mktemp("door"))
    yield opened
    opened.close()


@pytest.fixture
def start(tmp_path: Path, doorway: Doorway) -> Iterator[Start]:
    """Starts drivers, and ends them with the test."""
    numbers = count()
    with ExitStack() as stack:
        yield lambda language: stack.enter_context(
            Driver(language, tmp_path / f"stderr{next(numbers)}", doorway)
        )


@pytest.fixture
def connect(daemon: DaemonProcess) -> Iterator[Connect]:
    """Clients of ``daemon``; closed at the end."""
    clients: list[bccn.Client] = []

    def make(**settings: Any) -> bccn.Client:
        settings.setdefault("timeout", PATIENCE)
        clients.append(bccn.Client(daemon.socket, **settings))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def received(client: bccn.Client) -> tuple[str, bytes]:
    message = client.receive(PATIENCE)
    assert message is not None, "nothing came"
    return message.channel, message.payload


def nothing_comes(client: bccn.Client) -> bool:
    client.barrier()
    return client.receive(0) is None


def publish(client: bccn.Client, messages: Iterable[tuple[str, bytes | str]]) -> None:
    """As one batch."""
    with client.batch():
        for channel, payload in messages:
            client.publish(channel, payload)
