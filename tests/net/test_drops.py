"""Overflows and filtered datagrams counted apart, with made-up counts and with real sockets."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bccnd.net import drops
from bccnd.net import filter as bpf
from bccnd.net.drops import KernelDrops, buffer_of, cookie_of, overflows
from tests.net.at_once import await_arrivals

SNMP = """\
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
Udp: 100 1 12 99 7 0 1 0 4
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors
UdpLite: 0 0 0 0 500 0 0 0 500
"""
SNMP6 = "Udp6InDatagrams 9\nUdp6RcvbufErrors \t20\nUdp6MemErrors 1\nUdpLite6RcvbufErrors 500\n"


def test_overflows_of_both_protocols_and_of_memory_count(tmp_path: Path) -> None:
    snmp, snmp6 = tmp_path / "snmp", tmp_path / "snmp6"
    snmp.write_text(SNMP)
    assert overflows(snmp, snmp6) == 11
    snmp6.write_text(SNMP6)
    assert overflows(snmp, snmp6) == 32
    assert overflows() >= 0


class Counted:
    """An account of sockets; the test sets their counts and those of their namespace."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sockets: dict[int, int] = {}  # cookie -> drops
        self.namespace: int | None = 1000
        monkeypatch.setattr(drops, "cookie_of", lambda cookie: cookie)
        monkeypatch.setattr(drops, "buffer_of", lambda cookie: drops.Buffer(0, 0, self.sockets[cookie]))
        self.account = KernelDrops(self.look)

    def look(self) -> int:
        if self.namespace is None:
            raise PermissionError
        return self.namespace

    def sample(self) -> tuple[int, int]:
        self.account.sample(self.sockets)  # type: ignore[arg-type]
        return self.account.dropped, self.account.filtered


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def test_drops_the_namespace_did_not_see_were_filtered(counted: Counted) -> None:
    counted.sockets = {1: 5, 2: 2}
    assert counted.sample() == (0, 7)
    counted.sockets, counted.namespace = {1: 9, 2: 6}, 1003
    assert counted.sample() == (3, 12)
    assert counted.sample() == (3, 12)


def test_overflows_of_other_sockets_are_not_ours(counted: Counted) -> None:
    counted.namespace = 5000
    assert counted.sample() == (0, 0)
    counted.sockets, counted.namespace = {1: 4}, 6000
    assert counted.sample() == (4, 0)  # no more than ours dropped


def test_counts_wrap_and_sockets_come_and_go(counted: Counted) -> None:
    counted.sockets = {1: 2**32 - 3}
    assert counted.sample() == (0, 2**32 - 3)
    counted.sockets, counted.namespace = {1: 2, 2: 1}, 1006
    assert counted.sample() == (6, 2**32 - 3)
    counted.sockets = {}
    assert counted.sample() == (6, 2**32 - 3)


def test_without_namespace_counts_every_drop_is_overflow(counted: Counted) -> None:
    counted.namespace = None
    counted.sockets = {1: 5}
    assert counted.sample() == (5, 0)
    counted.sockets = {1: 8}
    assert counted.sample() == (8, 0)


def test_a_successor_goes_on_with_the_same_sockets(counted: Counted) -> None:
    counted.sockets, counted.namespace = {1: 5}, 1002
    assert counted.sample() == (2, 3)
    successor = KernelDrops(counted.look)
    successor.restore(counted.account.state())
    counted.sockets, counted.namespace = {1: 9}, 1006  # between two looks
    counted.account = successor
    assert counted.sample() == (6, 3)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with ExitStack() as opened:
        receiver, sender = (
            opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) for _ in range(2)
        )
        receiver.bind(("127.0.0.1", 0))
        sender.connect(receiver.getsockname())
        yield receiver, sender


def test_a_real_overflow_and_a_real_refusal_are_kept_apart(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    receiver, sender = pair
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    bpf.attach(receiver, b"BCCN")
    account = KernelDrops()
    for _ in range(30):
        sender.send(b"other")
    await_arrivals()
    account.sample([receiver])
    assert account.filtered + account.dropped == 30  # other programs of this machine may overflow meanwhile
    before = account.dropped
    for _ in range(50):
        sender.send(b"BCCN" + bytes(1000))
    await_arrivals()
    assert buffer_of(receiver).used > 0
    lost = account.sample([receiver])
    receiver.setblocking(False)
    taken = 0
    while True:
        try:
            receiver.recv(2048)
        except BlockingIOError:
            break
        taken += 1
    assert lost == account.dropped - before == 50 - taken > 0


def test_a_cookie_is_of_the_socket_not_of_the_descriptor(pair: tuple[socket.socket, socket.socket]) -> None:
    receiver, sender = pair
    with receiver.dup() as same:
        assert cookie_of(same) == cookie_of(receiver) != cookie_of(sender)
