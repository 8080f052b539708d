"""The socket of the backbone: what is refused for one, and what waits for room."""

import socket
from collections.abc import Iterator
from errno import EAGAIN, ECONNREFUSED

import pytest

from bccnd.backbone.outlet import Outlet, open_socket
from bccnd.errors import ConfigError, UnavailableError
from bccnd.net.fan import FanTable
from bccnd.wire.fyrehose import PACKET_LIMIT, Address, Push
from tests.packet_client import PATIENCE, wait_until

LOOPBACK = b"\x7f\0\0\1"
UDP_GRO = 104


@pytest.fixture
def outlet() -> Iterator[Outlet]:
    made = Outlet(open_socket(("127.0.0.1", 0), 1 << 20))
    yield made
    made.close()


@pytest.fixture
def clients() -> Iterator[list[socket.socket]]:
    made = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(3)]
    for each in made:
        each.bind(("127.0.0.1", 0))
        each.settimeout(PATIENCE)
    yield made
    for each in made:
        each.close()


def address(each: socket.socket) -> Address:
    return LOOPBACK, each.getsockname()[1]


def batch(outlet: Outlet, sender: socket.socket, *packets: bytes) -> tuple[list[int], list[int]]:
    """Have it read these packets."""
    for packet in packets:
        sender.sendto(packet, outlet.socket.getsockname())
    starts: list[int] = []
    ends: list[int] = []

    def all_here() -> bool:
        more = outlet.read()
        starts.extend(more[0])
        ends.extend(more[1])
        return len(starts) == len(packets)

    wait_until(all_here, "the packets")
    return starts, ends


def test_what_is_read_goes_to_everybody(outlet: Outlet, clients: list[socket.socket]) -> None:
    longest = Push(bytes(PACKET_LIMIT - 9)).serialize()
    starts, ends = batch(outlet, clients[0], longest)
    assert (ends[0] - starts[0], outlet.senders(1)) == (PACKET_LIMIT, [(address(clients[0]), 1)])
    outlet.deliver(starts, ends, [address(each) for each in clients], 1)
    assert not outlet.pending
    assert [each.recv(70_000) for each in clients] == [longest] * 3
    assert (outlet.delivered, outlet.unsent) == (3, 0)


def test_a_batch_of_one_length_is_one_datagram_to_each(outlet: Outlet, clients: list[socket.socket]) -> None:
    """As a socket sees it that asks for datagrams undivided, and one that does not."""
    clients[1].setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
    outlet.deliver(*batch(outlet, clients[0], b"one", b"two"), [address(each) for each in clients], 1)
    assert clients[1].recv(100) == b"onetwo"
    assert [clients[2].recv(100) for _ in range(2)] == [b"one", b"two"]
    assert outlet.delivered == 6


def test_where_no_way_leads_is_asked_once_a_run(
    outlet: Outlet, clients: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broadcast address, which such a socket may not send to."""
    calls, send = [], FanTable.send

    def counted(table: FanTable, fd: int, first: int) -> int:
        calls.append(first)
        return send(table, fd, first)

    monkeypatch.setattr(FanTable, "send", counted)
    packets = [b"%02d" % number for number in range(20)]
    to = [address(clients[0]), (b"\x7f\xff\xff\xff", 9), address(clients[1])]
    outlet.deliver(*batch(outlet, clients[2], *packets), to, 1)
    assert [[each.recv(100) for _ in packets] for each in clients[:2]] == [packets] * 2
    assert (outlet.delivered, outlet.unsent, outlet.pending) == (40, 20, False)
    assert len(calls) == 3


def test_without_subscribers_nothing_is_sent(outlet: Outlet, clients: list[socket.socket]) -> None:
    outlet.deliver(*batch(outlet, clients[0], b"x"), [], 0)
    assert (outlet.pending, outlet.delivered) == (False, 0)


def test_who_cannot_be_reached_harms_nobody(outlet: Outlet, clients: list[socket.socket]) -> None:
    """A closed port, an address that may not be sent to, and one that the kernel refuses."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        gone = address(closed)
    refused = b"\x7f\xff\xff\xff", 9
    to = [refused, address(clients[0]), gone, (LOOPBACK, 0), address(clients[1])]
    for version in range(3):
        outlet.deliver(*batch(outlet, clients[2], b"one", b"two"), to, version)
    for each in clients[:2]:
        assert [each.recv(100) for _ in range(6)] == [b"one", b"two"] * 3
    assert outlet.unsent == 12
    outlet.reply(b"x", refused)
    assert outlet.unsent == 13


def test_an_error_of_an_earlier_datagram_is_passed_over(
    outlet: Outlet, clients: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, ends = batch(outlet, clients[0], b"x")
    send, failures = FanTable.send, [-ECONNREFUSED]
    monkeypatch.setattr(
        FanTable, "send", lambda fan, fd, first: failures.pop() if failures else send(fan, fd, first)
    )
    outlet.deliver(starts, ends, [address(clients[0]), address(clients[1])], 1)
    assert clients[1].recv(100) == b"x"
    assert (outlet.delivered, outlet.unsent, outlet.pending) == (1, 1, False)


def test_what_finds_no_room_waits_or_is_given_up(
    outlet: Outlet, clients: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    send, full = FanTable.send, [False, True]
    monkeypatch.setattr(FanTable, "send", lambda fan, fd, first: -EAGAIN if full[0] else send(fan, fd, first))
    to = [address(each) for each in clients]
    starts, ends = batch(outlet, clients[0], b"x")
    full[0] = True
    outlet.deliver(starts, ends, to, 1)
    assert outlet.pending
    full[0] = False
    outlet.go_on()
    assert not outlet.pending
    assert [each.recv(100) for each in clients] == [b"x"] * 3
    full[0] = True
    outlet.deliver(starts, ends, to, 1)
    outlet.give_up()
    assert (outlet.pending, outlet.delivered, outlet.unsent) == (False, 3, 3)


def test_an_address_that_cannot_be_had_is_named(outlet: Outlet) -> None:
    where = outlet.socket.getsockname()
    with pytest.raises(UnavailableError, match=f"127.0.0.1:{where[1]}/udp is taken"):
        open_socket(where, 1 << 20)
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:0: is no address of this host"):
        open_socket(("192.0.2.1", 0), 1 << 20)
