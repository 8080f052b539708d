"""A path for a socket, and listeners that are closed at the end of a test."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bccnd.net.listener import Listener


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.sock"


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    """Opens listeners, and closes them at the end of the test."""
    with ExitStack() as opened:

        def open_one(where: Path | str, mode: int = 0o600, **permissions: str) -> Listener:
            listener = Listener.open(str(where), mode, **permissions)
            opened.callback(close_once, listener)
            return listener

        yield open_one


def close_once(listener: Listener) -> None:
    if listener.socket.fileno() >= 0:
        listener.close()
