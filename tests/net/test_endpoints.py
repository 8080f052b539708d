"""The sockets of a daemon together: all or none, and the same ones for a successor."""

import ast
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bccnd.errors import UnavailableError
from bccnd.net.endpoints import Endpoints
from bccnd.net.listener import Listener
from bccnd.net.ways import Way
from tests.daemon_process import LOOPBACK_BROADCAST
from tests.plain_bccn import plain_socket

RECEIVE_BYTES = 1 << 16


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.sock"


@pytest.fixture
def ways(loopback_port: int) -> list[Way]:
    return [Way(LOOPBACK_BROADCAST, loopback_port), Way(LOOPBACK_BROADCAST, loopback_port, "lo", 1)]


@contextmanager
def opened(path: Path, ways: list[Way]) -> Iterator[Endpoints]:
    endpoints = Endpoints.open(ways, RECEIVE_BYTES, lambda: Listener.open(str(path), 0o600))
    yield endpoints
    close(endpoints)


def close(endpoints: Endpoints) -> None:
    endpoints.listener.close()
    for segment in endpoints.segments:
        segment.close()


def open_descriptors() -> set[str]:
    """What every descriptor of this process is open on."""
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


def test_one_segment_for_each_way_and_the_listener(path: Path, ways: list[Way]) -> None:
    with opened(path, ways) as endpoints:
        assert [segment.way for segment in endpoints.segments] == ways
        assert endpoints.listener.name == str(path)


def test_a_segment_that_cannot_be_leaves_nothing_open(path: Path, ways: list[Way]) -> None:
    before = open_descriptors()
    with (
        pytest.raises(UnavailableError, match="nosuch0"),
        opened(path, [*ways, replace(ways[0], interface="nosuch0")]),
    ):
        pass
    assert open_descriptors() == before
    assert not path.exists()


def test_a_listener_that_cannot_be_leaves_nothing_open(path: Path, ways: list[Way]) -> None:
    path.write_text("precious")
    before = open_descriptors()
    with pytest.raises(UnavailableError), opened(path, ways):
        pass
    assert open_descriptors() == before


def test_a_successor_has_the_same_sockets_with_what_waits_in_them(path: Path, ways: list[Way]) -> None:
    with opened(path, ways) as old, plain_socket(0) as sender:
        sender.sendto(b"for whoever serves", (LOOPBACK_BROADCAST, ways[0].port))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
            # Those of clients stand before the others, so that no position leads to the right one.
            descriptors = {"client/1": 1234} | passed_on(old)
            new = Endpoints.succeed(ways, RECEIVE_BYTES, old.state(), descriptors)
            assert [segment.socket.recv(100) for segment in new.segments] == [b"for whoever serves"] * 2
            (accepted,) = new.listener.accept()
            accepted.close()
        assert new.listener.name == str(path)
        close(new)


def test_a_successor_with_other_ways_keeps_what_it_can(path: Path, ways: list[Way]) -> None:
    before = open_descriptors()
    with opened(path, ways) as old, plain_socket(0) as sender:
        sender.sendto(b"still here", (LOOPBACK_BROADCAST, ways[0].port))
        elsewhere = Way(LOOPBACK_BROADCAST, 0)
        new = Endpoints.succeed([elsewhere, ways[1]], RECEIVE_BYTES, old.state(), passed_on(old))
        assert [segment.way.interface for segment in new.segments] == [None, "lo"]
        with pytest.raises(BlockingIOError):
            new.segments[0].socket.recv(100)
        assert new.segments[1].socket.recv(100) == b"still here"
        close(new)
    assert open_descriptors() == before  # what was not wanted any more included


def test_the_state_is_plain_values(path: Path, ways: list[Way]) -> None:
    with opened(path, ways) as endpoints:
        state = endpoints.state()
        assert ast.literal_eval(repr(state)) == state
