"""The sockets of a daemon: all are opened or none, and a successor keeps them."""

import ast
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bccnd.errors import UnavailableError
from bccnd.net.bindings import Binding
from bccnd.net.endpoints import Endpoints
from bccnd.net.listener import Listener
from tests.daemon_process import LOOPBACK_BROADCAST
from tests.plain_bccn import plain_socket

RECEIVE_BYTES = 1 << 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.sock"


@pytest.fixture
def bindings(loopback_port: int) -> list[Binding]:
    return [Binding(LOOPBACK_BROADCAST, loopback_port), Binding(LOOPBACK_BROADCAST, loopback_port, "lo", 1)]


@contextmanager
def opened(path: Path, bindings: list[Binding]) -> Iterator[Endpoints]:
    endpoints = Endpoints.open(bindings, RECEIVE_BYTES, lambda: Listener.open(str(path), 0o600))
    yield endpoints
    close(endpoints)


def close(endpoints: Endpoints) -> None:
    endpoints.listener.close()
    for segment in endpoints.segments:
        segment.close()


def open_descriptors() -> set[str]:
    """Every descriptor of this process, and the file it is open on."""
    names = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            names.add(f"{entry.name} {entry.readlink()}")
        except FileNotFoundError:  # that of the listing itself
            continue
    return {name for name in names if "/proc/" not in name}


def passed_on(endpoints: Endpoints) -> dict[str, int]:
    """The descriptors as another process gets them."""
    return {name: os.dup(descriptor) for name, descriptor in endpoints.descriptors.items()}


def test_each_binding_has_a_socket_besides_the_listener(path: Path, bindings: list[Binding]) -> None:
    with opened(path, bindings) as endpoints:
        assert [segment.binding for segment in endpoints.segments] == bindings
        assert endpoints.listener.name == str(path)


def test_a_binding_that_fails_leaves_nothing_open(path: Path, bindings: list[Binding]) -> None:
    before = open_descriptors()
    with (
        pytest.raises(UnavailableError, match="nosuch0"),
        opened(path, [*bindings, replace(bindings[0], interface="nosuch0")]),
    ):
        pass
    assert open_descriptors() == before
    assert not path.exists()


def test_a_listener_that_fails_leaves_nothing_open(path: Path, bindings: list[Binding]) -> None:
    path.write_text("precious")
    before = open_descriptors()
    with pytest.raises(UnavailableError), opened(path, bindings):
        pass
    assert open_descriptors() == before


def test_a_successor_keeps_the_sockets_and_what_they_hold(path: Path, bindings: list[Binding]) -> None:
    with opened(path, bindings) as old, plain_socket(0) as sender:
        sender.sendto(b"for whoever serves", (LOOPBACK_BROADCAST, bindings[0].port))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
            # A client's descriptor comes first: names count, not positions.
            descriptors = {"client/1": 1234} | passed_on(old)
            new = Endpoints.succeed(bindings, RECEIVE_BYTES, old.state(), descriptors)
            assert [segment.socket.recv(100) for segment in new.segments] == [b"for whoever serves"] * 2
            (accepted,) = new.listener.accept()
            accepted.close()
        assert new.listener.name == str(path)
        close(new)


def test_a_successor_keeps_only_the_bindings_it_wants(path: Path, bindings: list[Binding]) -> None:
    before = open_descriptors()
    with opened(path, bindings) as old, plain_socket(0) as sender:
        sender.sendto(b"still here", (LOOPBACK_BROADCAST, bindings[0].port))
        elsewhere = Binding(LOOPBACK_BROADCAST, 0)
        new = Endpoints.succeed([elsewhere, bindings[1]], RECEIVE_BYTES, old.state(), passed_on(old))
        assert [segment.binding.interface for segment in new.segments] == [None, "lo"]
        with pytest.raises(BlockingIOError):
            new.segments[0].socket.recv(100)
        assert new.segments[1].socket.recv(100) == b"still here"
        close(new)
    assert open_descriptors() == before  # the socket that nobody wants is closed as well


def test_the_state_is_plain_values(path: Path, bindings: list[Binding]) -> None:
    with opened(path, bindings) as endpoints:
        state = endpoints.state()
        assert ast.literal_eval(repr(state)) == state
