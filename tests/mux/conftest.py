"""A door before a daemon that the tests of a module share."""

from collections.abc import Iterator

import pytest

from tests.clients.door import Door
from tests.daemon_process import DaemonProcess
from tests.mux.mux_client import MuxClient


@pytest.fixture(scope="module")
def door(shared_daemon: DaemonProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with Door(tmp_path_factory.mktemp("door"), shared_daemon.socket) as started:
        yield started


@pytest.fixture
def client(door: Door) -> Iterator[MuxClient]:
    with MuxClient(door.socket) as connected:
        yield connected
