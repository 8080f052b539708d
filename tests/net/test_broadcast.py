"""Segments on the loopback's broadcast address, and on links of network namespaces that can be slow or go down."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from errno import EMSGSIZE, ENETUNREACH, ENODEV
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import RefusedError, UnavailableError
from bccnd.net.bindings import Binding
from bccnd.net.broadcast import SegmentReader, SegmentSocket, SegmentWriter, gather_bytes
from bccnd.net.egress import Egress
from bccnd.net.mmsg import BATCH, Arena
from tests.daemon_process import LOOPBACK_BROADCAST
from tests.hosts.segment import BROADCAST, Host, ip
from tests.hosts.segment import Segment as Link
from tests.needs import require
from tests.net.at_once import await_arrivals
from tests.net.nobody import as_nobody
from tests.packet_client import PATIENCE, wait_until
from tests.plain_bccn import plain_socket

LIMIT = 1400  # bytes of a datagram in these tests

Open = Callable[..., SegmentSocket]


@pytest.fixture
def open_segment(loopback_port: int) -> Iterator[Open]:
    """Opens segments on the loopback; closes them with the test."""
    with ExitStack() as opened:

        def open_one(
            port: int = loopback_port,
            interface: str | None = None,
            index: int = 0,
            receive_bytes: int = 1 << 20,
        ) -> SegmentSocket:
            binding = Binding(LOOPBACK_BROADCAST, port, interface, index)
            segment = SegmentSocket(binding, receive_bytes=receive_bytes)
            opened.callback(segment.close)
            return segment

        yield open_one


class Ends:
    """Reading and writing with one arena, as the daemon does."""

    def __init__(self, slot_size: int = LIMIT) -> None:
        self.arena = Arena((2 * BATCH + 2) * (slot_size + 256))
        self.reader = SegmentReader(self.arena, LIMIT)
        self.room = self.arena.slots(1, gather_bytes(slot_size))[0]

    def writer(self, segment: SegmentSocket) -> SegmentWriter:
        return SegmentWriter(self.arena, segment, self.room)

    def read(self, segment: SegmentSocket) -> list[bytes]:
        """All that is there, or was sent on this host."""
        await_arrivals()
        datagrams: list[bytes] = []
        while True:
            starts, ends = self.reader.read(segment)
            if not starts:
                return datagrams
            datagrams += [self.arena.memory[start:end] for start, end in zip(starts, ends, strict=True)]


def numbered(count: int, size: int = 10) -> list[bytes]:
    return [b"%d" % number + b"." * (size - len(b"%d" % number)) for number in range(count)]


# --- opening ---


def test_the_socket_is_set_up_for_the_daemon(open_segment: Open, loopback_port: int) -> None:
    segment = open_segment()
    made = segment.socket
    assert made.getsockname() == ("0.0.0.0", loopback_port)  # noqa: S104
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR)
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)
    assert not made.getblocking()
    assert not made.get_inheritable()


def test_port_zero_becomes_the_port_of_the_kernel(open_segment: Open) -> None:
    segment = open_segment(port=0)
    assert segment.binding.port == segment.socket.getsockname()[1] != 0
    assert segment.destination()[2:4] == segment.binding.port.to_bytes(2, "big")


def test_the_destination_is_a_sockaddr_in(open_segment: Open, loopback_port: int) -> None:
    family, port, address, zero = struct.unpack("=H2s4s8s", open_segment().destination())
    assert family == socket.AF_INET
    assert int.from_bytes(port, "big") == loopback_port
    assert socket.inet_ntoa(address) == LOOPBACK_BROADCAST
    assert zero == bytes(8)


@pytest.mark.needs("root")
def test_root_gets_the_receive_buffer_it_asks_for(open_segment: Open) -> None:
    beyond = int(Path("/proc/sys/net/core/rmem_max").read_text()) + 4096
    segment = open_segment(receive_bytes=beyond)
    assert segment.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * beyond  # the kernel doubles


@pytest.mark.needs("root")
def test_others_get_what_the_system_allows(loopback_port: int) -> None:
    allowed = int(Path("/proc/sys/net/core/rmem_max").read_text())

    def size() -> str:
        segment = SegmentSocket(Binding(LOOPBACK_BROADCAST, loopback_port, None), receive_bytes=allowed * 2)
        return str(segment.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))

    assert as_nobody(size) == str(allowed * 2)


def test_a_port_that_its_program_does_not_share(open_segment: Open, loopback_port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as selfish:
        selfish.bind(("0.0.0.0", loopback_port))  # noqa: S104
        with pytest.raises(UnavailableError, match=rf"port {loopback_port}/udp is taken .*ss -ulnp"):
            open_segment()
    open_segment()


def test_a_missing_interface_is_reported(open_segment: Open) -> None:
    with pytest.raises(UnavailableError, match="interface nosuch0: has gone"):
        open_segment(interface="nosuch0")


@pytest.mark.needs("root")
def test_a_port_that_only_root_may_use(loopback_port: int) -> None:
    def refusal() -> str:
        with pytest.raises(RefusedError) as caught:
            SegmentSocket(Binding(LOOPBACK_BROADCAST, 99, None), receive_bytes=4096)
        return str(caught.value)

    assert as_nobody(refusal, namespace=True) == (
        "port 99/udp: not permitted to bind to it; needs root or CAP_NET_BIND_SERVICE, or a port from 1024 on"
    )


# --- sharing the port ---


def test_every_program_on_the_port_hears_every_broadcast(open_segment: Open, loopback_port: int) -> None:
    ends = Ends()
    first, second = open_segment(), open_segment()
    with plain_socket(loopback_port) as plain:
        assert ends.writer(first).send_bytes([b"from the first"]) == (1, 0, 0)
        plain.sendto(b"from the plain one", (LOOPBACK_BROADCAST, loopback_port))
        both = [b"from the first", b"from the plain one"]
        assert ends.read(first) == both == ends.read(second)
        assert [plain.recv(100) for _ in both] == both


def test_a_unicast_reaches_one_of_them(open_segment: Open, loopback_port: int) -> None:
    ends = Ends()
    segments = [open_segment(), open_segment()]
    with plain_socket(0) as plain:
        plain.sendto(b"to you", ("127.0.0.1", loopback_port))
        assert sorted(ends.read(segment) for segment in segments) == [[], [b"to you"]]


@pytest.mark.parametrize("index", [0, 1])
def test_datagrams_come_from_the_port(open_segment: Open, loopback_port: int, index: int) -> None:
    ends = Ends()
    segment = open_segment(interface="lo", index=index)
    ends.writer(segment).send_bytes([b"x"])
    await_arrivals()
    starts, _ = ends.reader.read(segment)
    assert len(starts) == 1
    assert ends.reader.peer(0).endswith(b":%d" % loopback_port)


def test_where_the_link_is_known_a_connected_socket_sends(open_segment: Open, loopback_port: int) -> None:
    ends = Ends()
    plain, connected = open_segment(), open_segment(interface="lo", index=socket.if_nametoindex("lo"))
    assert plain.sender() == plain.fileno()
    assert connected.sender() != connected.fileno()
    sender = socket.socket(fileno=os.dup(connected.sender()))
    with sender, plain_socket(0) as stranger:
        assert sender.getpeername() == (LOOPBACK_BROADCAST, loopback_port)
        assert not sender.get_inheritable()
        assert ends.writer(plain).send_bytes([b"to all"]) == (1, 0, 0)
        stranger.sendto(b"to one", ("127.0.0.1", loopback_port))
        heard = ends.read(plain) + ends.read(connected)
        assert sorted(heard) == [b"to all", b"to all", b"to one"]
        with pytest.raises(BlockingIOError):
            sender.recv(100, socket.MSG_DONTWAIT)


# --- sending and receiving ---


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(
        st.one_of(st.sampled_from([0, 1, LIMIT - 1, LIMIT]), st.integers(0, LIMIT)), max_size=3 * BATCH
    )
)
def test_datagrams_arrive_as_they_were_sent(sizes: list[int]) -> None:
    datagrams = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    ends = Ends()
    segment = SegmentSocket(Binding(LOOPBACK_BROADCAST, 0, "lo"), receive_bytes=4 << 20)
    try:
        assert ends.writer(segment).send_bytes(datagrams) == (len(datagrams), 0, 0)
        assert ends.read(segment) == datagrams
    finally:
        segment.close()


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1, 9000, 65507])
def test_a_datagram_too_long_is_seen_to_be(open_segment: Open, loopback_port: int, size: int) -> None:
    segment = open_segment()
    with plain_socket(0) as plain:
        plain.sendto(b"x" * size, (LOOPBACK_BROADCAST, loopback_port))
        plain.sendto(b"after", (LOOPBACK_BROADCAST, loopback_port))
    assert [len(datagram) for datagram in Ends().read(segment)] == [min(size, LIMIT + 1), 5]


def test_a_refused_datagram_does_not_take_others_along(open_segment: Open) -> None:
    """Refused are those that UDP cannot carry; in the first, the middle and the last place of the tables."""
    ends = Ends(slot_size=70_000)
    segment = open_segment(receive_bytes=4 << 20)
    sendable = numbered(3 * BATCH)
    datagrams = list(sendable)
    for place in (0, BATCH - 1, BATCH, 2 * BATCH + 7, 3 * BATCH + 4):
        datagrams.insert(place, bytes(66_000))
    assert ends.writer(segment).send_bytes(datagrams) == (len(datagrams), 5, EMSGSIZE)
    assert ends.read(segment) == sendable
    assert ends.writer(segment).send_bytes([bytes(66_000), b"fine"]) == (2, 1, 0)
    assert ends.writer(segment).send_bytes([b"fine", bytes(66_000)]) == (2, 1, EMSGSIZE)
    assert ends.writer(segment).send_bytes([]) == (0, 0, 0)


def test_nothing_goes_through_a_closed_segment(open_segment: Open) -> None:
    ends = Ends()
    segment = open_segment()
    segment.close()
    done, refused, error = ends.writer(segment).send_bytes(numbered(3))
    assert (done, refused) == (3, 3)
    assert error
    with pytest.raises(OSError, match="Bad file descriptor"):
        ends.reader.read(segment)


# --- links of their own ---


@pytest.fixture
def link() -> Iterator[Link]:
    require("root", "ip", "tc")
    with Link(["alpha", "beta"]) as made:
        yield made


def segment_on(host: Host, interface: str | None = None, *, connected: bool = False) -> SegmentSocket:
    def opened() -> SegmentSocket:
        index = socket.if_nametoindex("eth0") if connected else 0
        return SegmentSocket(Binding(BROADCAST, 5400, interface, index), receive_bytes=4 << 20)

    return host.make(opened)


@pytest.mark.parametrize(("interface", "connected"), [(None, False), ("eth0", False), ("eth0", True)])
def test_a_link_that_goes_down_and_comes_back(link: Link, interface: str | None, connected: bool) -> None:
    """While it is down a send is refused at once and reading is quiet: no error, nothing to spin on."""
    alpha, beta = link.hosts
    ends = Ends()
    with ExitStack() as opened:
        near, far = segment_on(alpha, interface, connected=connected), segment_on(beta)
        opened.callback(near.close)
        opened.callback(far.close)
        writer = ends.writer(near)
        assert writer.send_bytes([b"before"]) == (1, 0, 0)
        wait_until(lambda: ends.read(far) == [b"before"], "the datagram on the other host")
        ends.read(near)
        ip("-n", alpha.namespace, "link", "set", "eth0", "down")
        done, refused, error = writer.send_bytes(numbered(100))
        assert (done, refused, error) == (100, 100, ENETUNREACH)
        assert ends.read(near) == []
        ip("-n", alpha.namespace, "link", "set", "eth0", "up")
        ip("-n", alpha.namespace, "route", "replace", "default", "dev", "eth0")
        wait_until(
            lambda: writer.send_bytes([b"after"]) == (1, 0, 0) and b"after" in ends.read(far), "the link"
        )


def test_connected_anew_it_sends_from_the_new_address(link: Link) -> None:
    alpha, beta = link.hosts
    ends = Ends()
    with ExitStack() as opened:
        near, far = segment_on(alpha, "eth0", connected=True), segment_on(beta)
        opened.callback(near.close)
        opened.callback(far.close)

        def arrives_from(address: str) -> bool:
            assert ends.writer(near).send_bytes([b"x"]) == (1, 0, 0)
            wait_until(lambda: bool(ends.reader.read(far)[0]), "the datagram on the other host")
            return ends.reader.peer(0) == f"{address}:5400".encode()

        assert arrives_from(alpha.address)
        ip("-n", alpha.namespace, "address", "replace", "10.77.0.1/16", "dev", "eth0")
        ip("-n", alpha.namespace, "address", "del", f"{alpha.address}/24", "dev", "eth0")
        ip("-n", alpha.namespace, "route", "replace", "default", "dev", "eth0")
        alpha.make(near.connect)
        assert arrives_from("10.77.0.1")


def test_an_interface_that_is_removed_is_refused_and_quiet(link: Link) -> None:
    alpha, _ = link.hosts
    ends = Ends()
    segment = segment_on(alpha, "eth0")
    try:
        ip("-n", alpha.namespace, "link", "delete", "eth0")
        assert ends.writer(segment).send_bytes(numbered(3)) == (3, 3, ENODEV)
        assert ends.read(segment) == []
    finally:
        segment.close()


async def test_a_slow_link_makes_datagrams_wait_and_loses_none(link: Link) -> None:
    """A link of 40 Mbit/s: the socket's buffer is full after some, the rest goes as there is room, in order."""
    alpha, beta = link.hosts
    shape = [
        "tc",
        "qdisc",
        "add",
        "dev",
        "eth0",
        "root",
        "tbf",
        "rate",
        "40mbit",
        "burst",
        "20k",
        "limit",
        "4m",
    ]
    alpha.run(shape)
    ends = Ends()
    near, far = segment_on(alpha), segment_on(beta)
    near.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
    outbound = Egress(asyncio.get_running_loop(), ends.writer(near), lambda: None)
    arrived: list[bytes] = []
    datagrams = numbered(1000, size=1000)
    try:
        outbound.send_bytes(datagrams)
        assert 0 < outbound.sent < len(datagrams)
        async with asyncio.timeout(PATIENCE):
            while len(arrived) < len(datagrams):
                arrived += ends.read(far)
                await asyncio.sleep(0.005)
        assert arrived == datagrams
        assert (outbound.sent, outbound.unsent) == (1000, 0)
    finally:
        outbound.close()
        near.close()
        far.close()
