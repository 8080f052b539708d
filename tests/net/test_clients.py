"""The way to the clients on real sockets: what went, what waits, and who has left."""

import errno
import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.net.clients import GONE, Clients
from bccnd.net.listener import Listener
from bccnd.net.mmsg import VECTOR, Arena
from tests.net.connections import connected
from tests.packet_client import PATIENCE, wait_until

SIZE = 1000  # bytes of a packet in these tests, at most


class Bus:
    """Clients of a daemon by pairs: ``ports`` are the daemon's ends, ``read(i)`` what the i-th client got."""

    def __init__(self, opened: ExitStack, clients: int, packets: int = 0) -> None:
        self.arena = Arena((packets + 8) * (SIZE + 256))
        self.clients = Clients(self.arena, 4096)
        self.packets = [b"%d:" % number + b"." * (number % 7) for number in range(packets)]
        self.starts = self.arena.slots(packets, SIZE)
        self.ends = [start + len(packet) for start, packet in zip(self.starts, self.packets, strict=True)]
        for start, end, packet in zip(self.starts, self.ends, self.packets, strict=True):
            self.arena.memory[start:end] = packet
        self.theirs: list[socket.socket] = []
        self.ports: list[int] = []
        for _ in range(clients):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            opened.enter_context(ours)
            self.theirs.append(opened.enter_context(theirs))
            ours.setblocking(False)
            theirs.setblocking(False)
            self.ports.append(ours.fileno())

    def run(self) -> dict[int, int]:
        return self.clients.send_group(self.ports, self.starts, self.ends)

    def read(self, index: int) -> list[bytes]:
        packets = []
        with suppress(BlockingIOError):
            while packet := self.theirs[index].recv(SIZE):
                packets.append(packet)
        return packets

    def fill(self, index: int) -> int:
        """Fill the socket of a client to the last packet; how many that took."""
        count = 0
        while self.clients.send(self.ports[index], b"full") == 1:
            count += 1
        return count


@pytest.fixture
def bus() -> Iterator[Callable[..., Bus]]:
    with ExitStack() as opened:
        yield lambda clients, packets=0: Bus(opened, clients, packets)


@pytest.mark.parametrize(
    "packet", [b"", b"x", b"y" * 66_000, memoryview(b"abc")[1:]], ids=["0", "1", "66k", "view"]
)
def test_one_packet_to_one_client(bus: Callable[..., Bus], packet: bytes) -> None:
    made = bus(1)
    assert made.clients.send(made.ports[0], packet) == 1
    assert made.theirs[0].recv(1 << 17) == bytes(packet)


@pytest.mark.parametrize("count", [1, 2, 64, 200])
def test_a_group_reaches_every_client(bus: Callable[..., Bus], count: int) -> None:
    made = bus(5, count)
    assert made.run() == {}
    assert all(made.read(index) == made.packets for index in range(5))


@pytest.mark.parametrize("count", [1, 900, 3 * VECTOR])
def test_a_full_client_delays_no_other(bus: Callable[..., Bus], count: int) -> None:
    made = bus(3, count)
    made.theirs[1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    filled = made.fill(1)
    for port in (made.ports[0], made.ports[2]):
        with socket.socket(fileno=os.dup(port)) as ours:
            ours.setsockopt(socket.SOL_SOCKET, 32, 8 << 20)  # SO_SNDBUFFORCE
    assert made.run() == {made.ports[1]: 0}
    assert made.read(0) == made.packets == made.read(2)
    assert made.read(1) == [b"full"] * filled
    # The outbox hands over what did not go: some now, the rest at the next turn.
    went, turns, arrived = 0, 0, []
    while went < count:
        went += made.clients.send_each(made.ports[1], made.packets[went:])
        arrived += made.read(1)
        turns += 1
    assert arrived == made.packets
    assert turns > 1 or count == 1


def test_a_group_that_fits_in_part_says_how_much(bus: Callable[..., Bus]) -> None:
    made = bus(1, 3 * VECTOR)
    (went,) = made.run().values()
    assert 0 < went < 3 * VECTOR
    assert made.read(0) == made.packets[:went]


def test_clients_that_left_differ_from_full_ones(bus: Callable[..., Bus]) -> None:
    made = bus(6, 300)
    made.fill(1)
    made.theirs[2].close()
    made.theirs[4].close()
    made.theirs[5].send(b"unread by us, which makes the end a reset")
    made.clients.send(made.ports[5], b"unread by them")
    made.theirs[5].close()
    fell_short = made.run()
    gone = {made.ports[index] for index in (2, 4, 5)}
    assert {port for port, went in fell_short.items() if went == GONE} == gone
    assert fell_short[made.ports[1]] == 0
    for index in (0, 3):
        went = fell_short.get(made.ports[index], 300)
        assert made.read(index) == made.packets[:went]
        assert went > 200


def test_a_lone_packet_to_the_gone_and_the_full(bus: Callable[..., Bus]) -> None:
    made = bus(4, 1)
    made.fill(1)
    made.theirs[2].close()
    assert made.run() == {made.ports[1]: 0, made.ports[2]: GONE}
    assert made.read(0) == made.packets == made.read(3)


def test_a_client_that_leaves_in_the_middle_of_a_group(
    bus: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket is full after a part; when the rest is tried, it has left."""
    made = bus(2, 3 * VECTOR)
    table = made.clients._table
    real = table.send

    def leave_after_a_part(fd: int, count: int, first: int = 0) -> int:
        went = real(fd, count, first)
        if fd == made.ports[0] and 0 < went < count:
            made.theirs[0].close()
        return went

    monkeypatch.setattr(table, "send", leave_after_a_part)
    fell_short = made.run()
    assert fell_short[made.ports[0]] == GONE
    assert made.read(1) == made.packets[: fell_short[made.ports[1]]]


def test_a_full_client_gets_nothing_of_the_next_table(
    bus: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were it tried again, it could get later packets in front of those that wait."""
    made = bus(1, 2 * VECTOR)
    real = made.clients._table.send

    def drain_after_full(fd: int, count: int, first: int = 0) -> int:
        went = real(fd, count, first)
        if went < 0:
            arrived.extend(made.read(0))
        return went

    arrived: list[bytes] = []
    monkeypatch.setattr(made.clients._table, "send", drain_after_full)
    (went,) = made.run().values()
    assert 0 < went < VECTOR
    assert arrived + made.read(0) == made.packets[:went]


def test_send_each_stops_at_the_first_that_waits(bus: Callable[..., Bus]) -> None:
    made = bus(2)
    packets = [b"%d" % number for number in range(2000)]
    went = made.clients.send_each(made.ports[0], packets)
    assert 0 < went < 2000
    assert made.clients.send_each(made.ports[0], packets[went : went + 1]) == 0
    assert made.read(0) == packets[:went]
    assert made.clients.send_each(made.ports[0], packets[:1]) == 1
    assert made.read(0) == packets[:1]
    assert made.clients.send_each(made.ports[0], []) == 0
    made.theirs[1].close()
    assert made.clients.send_each(made.ports[1], packets) == GONE
    assert made.clients.send_each(made.ports[1], packets[:1]) == GONE


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 100, 4095, 4096, 4097, 9000]), max_size=300), st.integers(1, 300))
def test_send_each_with_packets_around_the_size_of_the_scratch(sizes: list[int], reads: int) -> None:
    """Those that fit go side by side, a longer one alone; through a socket that is full now and then."""
    packets = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    with ExitStack() as opened:
        made = Bus(opened, 1)
        arrived: list[bytes] = []
        went = 0
        while went < len(packets):
            more = made.clients.send_each(made.ports[0], packets[went:])
            assert more >= 0
            went += more
            arrived += [made.theirs[0].recv(10_000) for _ in range(min(reads, went - len(arrived)))]
        arrived += [made.theirs[0].recv(10_000) for _ in range(went - len(arrived))]
        assert arrived == packets


def test_a_kernel_short_of_memory_makes_a_client_wait(
    bus: Callable[..., Bus], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bus(1, 3)
    for reason in (errno.ENOBUFS, errno.ENOMEM):

        def refuse(*_: object, reason: int = reason) -> int:
            raise OSError(reason, os.strerror(reason))

        with monkeypatch.context() as short:
            short.setattr(os, "write", refuse)
            assert made.clients.send(made.ports[0], b"x") == 0
        with monkeypatch.context() as short:
            short.setattr(made.clients._table, "send", lambda *_, reason=reason: -reason)
            assert made.run() == {made.ports[0]: 0}
    assert made.run() == {}


def test_the_end_of_a_connection_frees_a_blocked_sender(path: Path, listen: Callable[..., Listener]) -> None:
    """What a client sees when the daemon is killed: an error, not an endless wait."""
    listener = listen(path)
    errors: list[OSError] = []
    sent = threading.Event()

    def flood(client: socket.socket) -> None:
        try:
            while True:
                client.send(bytes(1000))
                sent.set()
        except OSError as error:
            errors.append(error)

    with connected(listener) as client:
        client.settimeout(None)
        (ours,) = listener.accept()
        thread = threading.Thread(target=flood, args=[client])
        thread.start()
        assert sent.wait(PATIENCE)
        wait_until(lambda: not select.select([], [client], [], 0)[1], "a full socket")
        ours.close()
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert isinstance(errors[0], BrokenPipeError | ConnectionResetError)


def test_signals_in_the_middle_of_calls_are_nobodys_end(bus: Callable[..., Bus]) -> None:
    made = bus(3, 100)
    signals: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda signum, _: signals.append(signum))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        while len(signals) < 20:
            assert made.run() == {}
            assert all(made.read(index) == made.packets for index in range(3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_unread_falls_with_each_packet_that_is_read(bus: Callable[..., Bus]) -> None:
    made = bus(1)
    (port,) = made.ports
    assert made.clients.unread(port) == 0
    filled = made.fill(0)
    before = made.clients.unread(port)
    for _ in range(filled):
        assert made.theirs[0].recv(SIZE)
        assert made.clients.unread(port) < before
        before = made.clients.unread(port)
    assert before == 0
