"""Each packet to every address, with few system calls."""

import socket
from collections.abc import Iterator
from errno import EACCES, EBADF, EINVAL
from itertools import accumulate

import pytest

from bccnd.net import mmsg
from bccnd.net.mmsg import BATCH, VECTOR, Arena, FanTable
from tests.packet_client import PATIENCE

LOOPBACK = b"\x7f\0\0\1"


@pytest.fixture
def sender() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        yield made


def receivers(count: int) -> list[socket.socket]:
    made = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for each in made:
        each.bind(("127.0.0.1", 0))
        each.settimeout(PATIENCE)
    return made


def laid_out(packets: list[bytes]) -> tuple[Arena, list[int], list[int]]:
    edges = list(accumulate(map(len, packets), initial=0))
    arena = Arena(edges[-1] + 1)
    arena.memory[: edges[-1]] = b"".join(packets)
    return arena, edges[:-1], edges[1:]


def received(each: socket.socket, count: int) -> list[bytes]:
    return [each.recv(2048) for _ in range(count)]


@pytest.mark.parametrize(("addresses", "packets"), [(1, 1), (1, BATCH), (3, 2), (20, BATCH), (64, BATCH)])
def test_everybody_gets_each_packet_once_in_order(
    sender: socket.socket, addresses: int, packets: int
) -> None:
    sent = [b"%d" % index * (index % 5 + 1) for index in range(packets)]
    arena, starts, ends = laid_out(sent)
    targets = receivers(addresses)
    fan = FanTable(arena, [(LOOPBACK, each.getsockname()[1]) for each in targets])
    total, done = fan.point(starts, ends), 0
    assert total == addresses * packets
    while done < total:
        went = fan.send(sender.fileno(), done)
        assert went > 0
        done += went
    for each in targets:
        with each:
            assert received(each, packets) == sent


def test_a_later_batch_replaces_an_earlier_one(sender: socket.socket) -> None:
    arena, starts, ends = laid_out([b"one", b"second", b"3"])
    (target,) = receivers(1)
    fan = FanTable(arena, [(LOOPBACK, target.getsockname()[1])])
    for chosen in ([0, 1], [2], [1, 2]):
        total = fan.point([starts[at] for at in chosen], [ends[at] for at in chosen])
        assert fan.send(sender.fileno(), 0) == total
    with target:
        assert received(target, 5) == [b"one", b"second", b"3", b"second", b"3"]


def test_it_goes_on_anywhere(sender: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """In calls of 4 datagrams, begun at the middle of a row."""
    monkeypatch.setattr(mmsg, "VECTOR", 4)
    arena, starts, ends = laid_out([b"a", b"b", b"c", b"d", b"e"])
    targets = receivers(2)
    fan = FanTable(arena, [(LOOPBACK, each.getsockname()[1]) for each in targets])
    total, done = fan.point(starts, ends), 3
    steps = []
    while done < total:
        steps.append(fan.send(sender.fileno(), done))
        done += steps[-1]
    assert steps == [1, 4, 2]
    assert received(targets[0], 3) == [b"c", b"d", b"e"]
    assert received(targets[1], 4) == [b"b", b"c", b"d", b"e"]
    for each in targets:
        each.close()


def test_an_address_that_is_refused_is_told_apart(sender: socket.socket) -> None:
    """A broadcast address, which such a socket may not send to, and port 0."""
    arena, starts, ends = laid_out([b"x"])
    (target,) = receivers(1)
    port = target.getsockname()[1]
    fan = FanTable(arena, [(LOOPBACK, port), (b"\x7f\xff\xff\xff", port), (LOOPBACK, 0), (LOOPBACK, port)])
    fan.point(starts, ends)
    assert [fan.send(sender.fileno(), at) for at in range(4)] == [1, -EACCES, -EINVAL, 1]
    assert fan.send(-1, 0) == -EBADF
    with target:
        assert received(target, 2) == [b"x", b"x"]


def test_so_many_addresses_fit_one_call() -> None:
    arena, _, _ = laid_out([b"x"])
    fan = FanTable(arena, [(LOOPBACK, port) for port in range(1, VECTOR + 1)])
    assert fan.point([0], [1]) == VECTOR
