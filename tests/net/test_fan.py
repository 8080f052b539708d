"""Each packet to every address, with few system calls."""

import socket
from collections.abc import Iterator
from errno import EACCES, EBADF, EINVAL
from itertools import accumulate

import pytest

from bccnd.net import fan
from bccnd.net.fan import DATAGRAM_LIMIT, DIVIDED_LIMIT, FanTable, divides
from bccnd.net.mmsg import BATCH, VECTOR, Arena
from tests.packet_client import PATIENCE

LOOPBACK = b"\x7f\0\0\1"
UDP_GRO = 104
SO_NO_CHECK = 11


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


def send_all(table: FanTable, sender: socket.socket, total: int, first: int = 0) -> list[int]:
    """How many went with each call."""
    steps = []
    while first < total:
        steps.append(table.send(sender.fileno(), first))
        assert steps[-1] > 0
        first += steps[-1]
    return steps


@pytest.mark.parametrize("divide", [False, True])
@pytest.mark.parametrize(("addresses", "packets"), [(1, 1), (1, BATCH), (3, 2), (20, BATCH), (64, BATCH)])
def test_everybody_gets_each_packet_once_in_order(
    sender: socket.socket, addresses: int, packets: int, divide: bool
) -> None:
    sent = [b"%d" % (100 + index) * (index // 7 % 5 + 1) for index in range(packets)]
    arena, starts, ends = laid_out(sent)
    targets = receivers(addresses)
    table = FanTable(arena, [(LOOPBACK, each.getsockname()[1]) for each in targets], divide=divide)
    total = table.point(starts, ends)
    assert total == addresses * packets
    send_all(table, sender, total)
    for each in targets:
        with each:
            assert received(each, packets) == sent


def test_a_later_batch_replaces_an_earlier_one(sender: socket.socket) -> None:
    arena, starts, ends = laid_out([b"one", b"second", b"3"])
    (target,) = receivers(1)
    table = FanTable(arena, [(LOOPBACK, target.getsockname()[1])])
    for chosen in ([0, 1], [2], [1, 2]):
        total = table.point([starts[at] for at in chosen], [ends[at] for at in chosen])
        assert table.send(sender.fileno(), 0) == total
    with target:
        assert received(target, 5) == [b"one", b"second", b"3", b"second", b"3"]


def test_it_goes_on_anywhere(sender: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """In calls of 4 datagrams, begun at the middle of a row."""
    monkeypatch.setattr(fan, "VECTOR", 4)
    arena, starts, ends = laid_out([b"a", b"b", b"c", b"d", b"e"])
    targets = receivers(2)
    table = FanTable(arena, [(LOOPBACK, each.getsockname()[1]) for each in targets])
    assert send_all(table, sender, table.point(starts, ends), 3) == [1, 4, 2]
    assert received(targets[0], 3) == [b"c", b"d", b"e"]
    assert received(targets[1], 4) == [b"b", b"c", b"d", b"e"]
    for each in targets:
        each.close()


def test_packets_of_one_length_travel_as_one(sender: socket.socket) -> None:
    """As a socket sees it that asks for datagrams undivided; the last of a run may be shorter."""
    assert divides(sender)
    arena, starts, ends = laid_out([b"abc", b"def", b"g", b"hij", b"long!", b"x" * 2000, b"y" * 2000])
    (target,) = receivers(1)
    with target:
        target.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        table = FanTable(arena, [(LOOPBACK, target.getsockname()[1])], divide=True)
        assert send_all(table, sender, table.point(starts, ends)) == [7]
        whole = [b"abcdefg", b"hij", b"long!", b"x" * 2000, b"y" * 2000]
        assert [target.recv(4000) for _ in whole] == whole


def test_a_run_is_no_longer_than_a_datagram(sender: socket.socket) -> None:
    packets = [b"%d" % (100 + index) * (DIVIDED_LIMIT // 3) for index in range(BATCH)]
    arena, starts, ends = laid_out(packets)
    (target,) = receivers(1)
    with target:
        target.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        table = FanTable(arena, [(LOOPBACK, target.getsockname()[1])], divide=True)
        send_all(table, sender, table.point(starts, ends))
        whole = [target.recv(70_000), target.recv(70_000)]
        assert b"".join(whole) == b"".join(packets)
        assert len(whole[0]) == DATAGRAM_LIMIT // len(packets[0]) * len(packets[0])


def test_it_goes_on_within_a_run(sender: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """In calls of two runs: what is left of one goes packet by packet, for one address, and then the next."""
    monkeypatch.setattr(fan, "VECTOR", 4)
    sent = [b"aa", b"ab", b"ac", b"b", b"ccc", b"dddd", b"ddde"]
    arena, starts, ends = laid_out(sent)
    targets = receivers(2)
    table = FanTable(arena, [(LOOPBACK, each.getsockname()[1]) for each in targets], divide=True)
    assert send_all(table, sender, table.point(starts, ends), 1) == [3, 6, 4]
    for each, first in zip(targets, (1, 0), strict=True):
        with each:
            assert received(each, len(sent) - first) == sent[first:]


def test_what_the_kernel_does_not_divide_goes_one_by_one(sender: socket.socket) -> None:
    """As where a link computes no checksums, which is the same to the kernel as a socket without them."""
    sender.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    sent = [b"one", b"two", b"six", b"four", b"five"]
    arena, starts, ends = laid_out(sent)
    targets = receivers(2)
    table = FanTable(arena, [(LOOPBACK, each.getsockname()[1]) for each in targets], divide=True)
    assert send_all(table, sender, table.point(starts, ends)) == [3, 3, 2, 2]
    for each in targets:
        with each:
            assert received(each, len(sent)) == sent


def test_a_kernel_that_does_not_divide_is_known() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as without:
        assert not divides(without)


def test_an_address_that_is_refused_is_told_apart(sender: socket.socket) -> None:
    """A broadcast address, which such a socket may not send to, and port 0."""
    arena, starts, ends = laid_out([b"x"])
    (target,) = receivers(1)
    port = target.getsockname()[1]
    table = FanTable(arena, [(LOOPBACK, port), (b"\x7f\xff\xff\xff", port), (LOOPBACK, 0), (LOOPBACK, port)])
    table.point(starts, ends)
    assert [table.send(sender.fileno(), at) for at in range(4)] == [1, -EACCES, -EINVAL, 1]
    assert table.send(-1, 0) == -EBADF
    with target:
        assert received(target, 2) == [b"x", b"x"]


def test_so_many_addresses_fit_one_call() -> None:
    arena, _, _ = laid_out([b"x"])
    table = FanTable(arena, [(LOOPBACK, port) for port in range(1, VECTOR + 1)])
    assert table.point([0], [1]) == VECTOR
