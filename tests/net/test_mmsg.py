"""Batches through real sockets: what is read is what was sent, whole, in order, once."""

import ctypes
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from errno import EAGAIN, EBADF, EINTR, EMSGSIZE, ENOTSOCK, EPIPE
from itertools import pairwise
from struct import pack
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.net import mmsg
from bccnd.net.mmsg import BATCH, VECTOR, Arena, ReceiveTable, SendTable
from tests.net.at_once import await_arrivals
from tests.packet_client import PATIENCE

LIMIT = 3000  # bytes, of the packets in these tests
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    left, right = seqpacket_pair()
    with left, right:
        yield left, right


def seqpacket_pair() -> Pair:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    left.setblocking(False)
    right.setblocking(False)
    return left, right


class Carrier:
    """An arena with both tables, and the packets of a run laid out in it."""

    def __init__(self, packets: Sequence[bytes] = (), *, limit: int = LIMIT) -> None:
        self.arena = Arena((BATCH + len(packets)) * (limit + 256))
        self.receive = ReceiveTable(self.arena, limit)
        self.send = SendTable(self.arena)
        self.starts = self.arena.slots(len(packets), limit)
        self.ends = [start + len(packet) for start, packet in zip(self.starts, packets, strict=True)]
        for start, end, packet in zip(self.starts, self.ends, packets, strict=True):
            self.arena.memory[start:end] = packet

    def read(self, receiver: socket.socket) -> list[bytes]:
        """One batch, as bytes."""
        starts, ends = self.receive.read(receiver.fileno())
        return [self.arena.memory[start:end] for start, end in zip(starts, ends, strict=True)]

    def carry(self, sender: socket.socket, receiver: socket.socket) -> list[bytes]:
        """Send all packets, reading when the socket is full; what arrived."""
        arrived: list[bytes] = []
        for begin in range(0, len(self.starts), VECTOR):
            count = len(self.starts[begin : begin + VECTOR])
            self.send.point(self.starts[begin : begin + VECTOR], self.ends[begin : begin + VECTOR])
            went = 0
            while went < count:
                more = self.send.send(sender.fileno(), count, went)
                if more < 0:
                    assert more == -EAGAIN
                    batch = self.read(receiver)
                    assert batch, "full, but nothing to read"
                    arrived += batch
                else:
                    went += more
        while batch := self.read(receiver):
            arrived += batch
        return arrived


def numbered(count: int, size: int = 8) -> list[bytes]:
    return [b"%d" % number + b"." * (size - len(b"%d" % number)) for number in range(count)]


# --- what arrives is what was sent ---


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(
        st.one_of(st.sampled_from([0, 1, 63, 64, 65, LIMIT - 1, LIMIT]), st.integers(0, LIMIT)), max_size=200
    ),
    seed=st.integers(0, 255),
)
def test_packets_of_any_size_arrive_whole_in_order(sizes: list[int], seed: int) -> None:
    packets = [bytes([(seed + number) % 256]) * size for number, size in enumerate(sizes)]
    left, right = seqpacket_pair()
    with left, right:
        assert Carrier(packets).carry(left, right) == packets


def test_many_packets_arrive_through_a_full_socket(pair: Pair) -> None:
    packets = numbered(2 * VECTOR + 7)
    assert Carrier(packets, limit=8).carry(*pair) == packets


def test_a_read_takes_at_most_a_batch(pair: Pair) -> None:
    left, right = pair
    packets = numbered(2 * BATCH + 5)
    carrier = Carrier()
    for packet in packets:
        left.send(packet)
    batches = [carrier.read(right) for _ in range(4)]
    assert [len(batch) for batch in batches] == [BATCH, BATCH, 5, 0]
    assert [packet for batch in batches for packet in batch] == packets


def test_a_read_takes_no_more_than_was_asked_for(pair: Pair) -> None:
    left, right = pair
    carrier = Carrier()
    for packet in numbered(5):
        left.send(packet)
    counts = [len(carrier.receive.read(right.fileno(), most)[0]) for most in (1, 3, 64, 64)]
    assert counts == [1, 3, 1, 0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0, 1, 7, 8]), min_size=1, max_size=5), max_size=8))
def test_reads_and_sends_are_those_of_a_new_table(runs: list[list[int]]) -> None:
    """The tables remember lengths and places, which may be the same next time, some of them or none."""
    carrier = Carrier([bytes(8)] * 5)
    left, right = seqpacket_pair()
    with left, right:
        for number, sizes in enumerate(runs):
            starts = carrier.starts[: len(sizes)]
            ends = [start + size for start, size in zip(starts, sizes, strict=True)]
            packets = [bytes([number]) * size for size in sizes]
            for start, end, packet in zip(starts, ends, packets, strict=True):
                carrier.arena.memory[start:end] = packet
            carrier.send.point(starts, ends)
            starts[:] = ends[:] = [0] * len(sizes)  # the lists are the caller's
            assert carrier.send.send(left.fileno(), len(sizes)) == len(sizes)
            found, after = carrier.receive.read(right.fileno())
            assert [
                carrier.arena.memory[start:end] for start, end in zip(found, after, strict=True)
            ] == packets
            found[:] = after[:] = [0] * len(sizes)


def test_pointing_to_the_same_places_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    carrier = Carrier([b"first", b"other", b"third"])
    starts, ends = carrier.starts, carrier.ends
    carrier.send.point(starts, ends)
    monkeypatch.setattr(mmsg, "array", None)
    carrier.send.point([*starts], [*ends])
    carrier.send.point(starts[:2], ends[:2])
    for other in (starts[1:], ends[1:]), (starts[:2], [ends[0], ends[1] - 1]):
        with pytest.raises(TypeError):
            carrier.send.point(*other)


def test_a_failed_pointing_is_not_remembered(pair: Pair) -> None:
    left, right = pair
    carrier = Carrier([b"first", b"other"])
    (first, other), first_end = carrier.starts, carrier.ends[0]
    carrier.send.point([first], [first_end])
    with pytest.raises(OverflowError):
        carrier.send.point([other], [other - 1])
    carrier.send.point([first], [first_end])
    assert carrier.send.send(left.fileno(), 1) == 1
    assert carrier.read(right) == [b"first"]


def test_nothing_to_read_is_an_empty_batch(pair: Pair) -> None:
    assert Carrier().receive.read(pair[0].fileno()) == ([], [])


@pytest.mark.parametrize("size", [LIMIT - 1, LIMIT, LIMIT + 1, 3 * LIMIT])
def test_a_longer_packet_fills_its_slot_and_touches_no_other(pair: Pair, size: int) -> None:
    left, right = pair
    carrier = Carrier()
    for packet in (b"before", b"x" * size, b"after"):
        left.send(packet)
    assert carrier.read(right) == [b"before", b"x" * min(size, LIMIT), b"after"]


def test_a_read_shows_nothing_of_the_one_before(pair: Pair) -> None:
    left, right = pair
    carrier = Carrier()
    left.send(b"long" * 100)
    assert carrier.read(right) == [b"long" * 100]
    left.send(b"short")
    left.send(b"")
    assert carrier.read(right) == [b"short", b""]


def test_one_pointing_serves_several_sockets() -> None:
    carrier = Carrier(numbered(50))
    carrier.send.point(carrier.starts, carrier.ends)
    pairs = [seqpacket_pair() for _ in range(3)]
    for left, right in pairs:
        assert carrier.send.send(left.fileno(), 50) == 50
        assert carrier.read(right) == numbered(50)
        left.close()
        right.close()


def test_a_later_pointing_replaces_the_earlier(pair: Pair) -> None:
    carrier = Carrier([b"one", b"two", b"three", b""])
    for wanted in ([0, 1, 2, 3], [3, 2], [1]):
        starts = [carrier.starts[index] for index in wanted]
        carrier.send.point(starts, [carrier.ends[index] for index in wanted])
        assert carrier.send.send(pair[0].fileno(), len(wanted)) == len(wanted)
        assert carrier.read(pair[1]) == [[b"one", b"two", b"three", b""][index] for index in wanted]


# --- full, gone, wrong ---


def test_a_full_socket_takes_a_part_and_later_exactly_the_rest(pair: Pair) -> None:
    left, right = pair
    packets = numbered(900, LIMIT)
    carrier = Carrier(packets)
    carrier.send.point(carrier.starts, carrier.ends)
    went = carrier.send.send(left.fileno(), 900)
    assert 0 < went < 900
    assert carrier.send.send(left.fileno(), 900, went) == -EAGAIN
    arrived = carrier.read(right)
    more = carrier.send.send(left.fileno(), 900, went)
    assert 0 < more < 900 - went
    while batch := carrier.read(right):
        arrived += batch
    assert arrived == packets[: went + more]


def test_a_packet_too_large_differs_from_one_that_waits(pair: Pair) -> None:
    left, _ = pair
    left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    carrier = Carrier([b"x" * 100_000], limit=100_000)
    carrier.send.point(carrier.starts, carrier.ends)
    assert carrier.send.send(left.fileno(), 1) == -EMSGSIZE


def test_a_closed_peer_is_an_errno_and_no_signal(pair: Pair) -> None:
    left, right = pair
    right.close()
    carrier = Carrier([b"x", b"y"])
    carrier.send.point(carrier.starts, carrier.ends)
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # would kill this process
    try:
        assert carrier.send.send(left.fileno(), 2) == -EPIPE
    finally:
        signal.signal(signal.SIGPIPE, before)


def test_a_reset_comes_once_and_before_the_last_packets(pair: Pair) -> None:
    """What the daemon builds on: after ECONNRESET the last packets are still there."""
    left, right = pair
    right.send(b"never read by the peer")
    left.send(b"last words")
    left.close()
    carrier = Carrier()
    with pytest.raises(ConnectionResetError):
        carrier.receive.read(right.fileno())
    assert carrier.read(right) == [b"last words"] + [b""] * (BATCH - 1)


def test_after_the_end_a_read_is_a_batch_of_nothing(pair: Pair) -> None:
    left, right = pair
    left.close()
    assert Carrier().read(right) == [b""] * BATCH


def test_a_wrong_descriptor_is_an_error_with_its_name() -> None:
    carrier = Carrier([b"x"])
    carrier.send.point(carrier.starts, carrier.ends)
    with pytest.raises(OSError, match="Bad file descriptor"):
        carrier.receive.read(-1)
    assert carrier.send.send(-1, 1) == -EBADF
    with open(os.devnull, "rb+") as file:
        with pytest.raises(OSError, match="on non-socket") as caught:
            carrier.receive.read(file.fileno())
        assert caught.value.errno == ENOTSOCK
        assert carrier.send.send(file.fileno(), 1) == -ENOTSOCK


# --- signals ---


def test_an_interrupted_call_is_made_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = {"_recvmmsg": 0, "_sendmmsg": 0}

    def interrupt_first(name: str) -> None:
        real = getattr(mmsg, name)

        def call(*arguments: Any) -> int:
            calls[name] += 1
            if calls[name] % 2:
                ctypes.set_errno(EINTR)
                return -1
            return int(real(*arguments))

        monkeypatch.setattr(mmsg, name, call)

    for name in calls:
        interrupt_first(name)
    assert Carrier(numbered(3)).carry(*pair) == numbered(3)
    assert min(calls.values()) >= 2


def test_signals_in_the_middle_lose_nothing(pair: Pair) -> None:
    arrived: list[bytes] = []
    signals = 0

    def count(signum: int, frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1

    carrier = Carrier(numbered(VECTOR), limit=8)
    before = signal.signal(signal.SIGALRM, count)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        rounds = 0
        while signals < 20:
            arrived += carrier.carry(*pair)
            rounds += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert arrived == numbered(VECTOR) * rounds


# --- datagrams ---


def udp() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    made.settimeout(PATIENCE)
    return made


def test_every_datagram_has_its_sender() -> None:
    arena = Arena((BATCH + 1) * 512)
    table = ReceiveTable(arena, 100, addresses=True)
    with udp() as receiver, udp() as one, udp() as two, udp() as three:
        # Twice: what the kernel wrote into the table of addresses must not disturb the next read.
        for senders in ([one, two, one, three], [three], [two, two, one]):
            for sender in senders:
                sender.sendto(b"x", receiver.getsockname())
            await_arrivals()
            starts, _ = table.read(receiver.fileno())
            assert len(starts) == len(senders)
            assert [table.peer(index) for index in range(len(starts))] == [
                (bytes((127, 0, 0, 1)), sender.getsockname()[1]) for sender in senders
            ]


def test_datagrams_of_one_sender_are_seen_together() -> None:
    table = ReceiveTable(Arena((BATCH + 1) * 512), 100, addresses=True)
    with udp() as receiver, udp() as first, udp() as second:
        for sender in (first, first, second, second, second, first):
            sender.sendto(b"x", receiver.getsockname())
        await_arrivals()
        table.read(receiver.fileno())
        assert [table.same_name(index, 6 - index) for index in range(6)] == [2, 1, 3, 2, 1, 1]
        assert table.same_name(2, 2) == 2
        one, two = [(bytes((127, 0, 0, 1)), sender.getsockname()[1]) for sender in (first, second)]
        assert table.peers(6) == [(one, 2), (two, 3), (one, 1)]
        for sender in (second, first, first):  # each alone, after one of the other
            sender.sendto(b"x", receiver.getsockname())
            await_arrivals()
            starts, _ = table.read(receiver.fileno())
            assert table.peers(len(starts)) == [(two if sender is second else one, 1)]


def test_a_datagram_without_payload_is_a_packet_of_length_zero() -> None:
    carrier = Carrier()
    with udp() as receiver, udp() as sender:
        for payload in (b"", b"x", b""):
            sender.sendto(payload, receiver.getsockname())
        await_arrivals()
        assert carrier.read(receiver) == [b"", b"x", b""]
        assert carrier.read(receiver) == []


def test_sending_to_an_address() -> None:
    with udp() as receiver, udp() as sender:
        host, port = receiver.getsockname()
        arena = Arena(3 * 1024)
        starts = arena.slots(3, 100)
        arena.memory[starts[1] : starts[1] + 2] = b"hi"
        address = pack("=H", socket.AF_INET) + port.to_bytes(2, "big") + socket.inet_aton(host)
        table = SendTable(arena, 3, to=address + bytes(8))
        table.point(starts, [starts[0], starts[1] + 2, starts[2] + 100])
        assert table.send(sender.fileno(), 3) == 3
        assert [receiver.recvfrom(200) for _ in range(3)] == [
            (payload, sender.getsockname()) for payload in (b"", b"hi", bytes(100))
        ]


def test_an_overflowing_buffer_loses_only_the_newest() -> None:
    carrier = Carrier()
    packets = numbered(500, 1000)
    with udp() as receiver, udp() as sender:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
        for packet in packets:
            sender.sendto(packet, receiver.getsockname())
        await_arrivals()
        arrived: list[bytes] = []
        while batch := carrier.read(receiver):
            arrived += batch
        assert 0 < len(arrived) < len(packets)
        assert arrived == packets[: len(arrived)]


# --- the arena ---


@given(requests=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3000)), max_size=10))
def test_slots_never_overlap(requests: list[tuple[int, int]]) -> None:
    arena = Arena(1 << 20)
    taken = sorted((slot, slot + size) for count, size in requests for slot in arena.slots(count, size))
    assert all(end <= begin for (_, end), (begin, _) in pairwise(taken))
    assert taken == [] or (taken[0][0] >= 0 and taken[-1][1] <= 1 << 20)


def test_an_arena_that_is_too_small_says_so() -> None:
    with pytest.raises(MemoryError, match="arena of 4096 bytes"):
        ReceiveTable(Arena(4096), 1000)


def test_slots_of_a_power_of_two_lie_on_different_cache_lines() -> None:
    first, second, *_ = Arena(1 << 20).slots(4, 4096)
    assert (second - first) % 4096 >= 64


def test_the_memory_and_its_view_are_the_same(pair: Pair) -> None:
    carrier = Carrier([b"seen"])
    assert bytes(carrier.arena.view[carrier.starts[0] : carrier.ends[0]]) == b"seen"
    carrier.send.point(carrier.starts, carrier.ends)
    carrier.arena.memory[carrier.starts[0] : carrier.ends[0]] = b"late"  # sent from where it lies
    assert carrier.send.send(pair[0].fileno(), 1) == 1
    assert pair[1].recv(10) == b"late"
