"""Datagrams that wait for room: with a manual clock and a scripted network, and with a real socket."""

import asyncio
import heapq
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from errno import EMSGSIZE, ENETDOWN, ENETUNREACH, EPERM
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.net import egress
from bccnd.net.broadcast import SegmentSocket, SegmentWriter, gather_bytes
from bccnd.net.egress import COPIES_LIMIT, PENDING_LIMIT, RETRY_SECONDS, STALL_SECONDS, Egress
from bccnd.net.mmsg import Arena
from tests.packet_client import PATIENCE


class ManualLoop:
    """The part of an event loop that an Egress uses; time passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self.now + delay, callback, args, cast(asyncio.AbstractEventLoop, self))
        self._count += 1
        heapq.heappush(self._due, (self.now + delay, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def get_debug(self) -> bool:
        return False

    def timers(self) -> int:
        return sum(not handle.cancelled() for _, _, handle in self._due)

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, handle = heapq.heappop(self._due)
            if not handle.cancelled():
                handle._run()
        self.now = until


class Network:
    """In the place of a SegmentWriter: takes `room` datagrams, and refuses those in `refused`."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.refused: dict[bytes, int] = {}
        self.taken: list[bytes] = []
        self.memory: list[bytes] = []  # a span is the index of one datagram

    def send(self, starts: list[int], ends: list[int]) -> tuple[int, int, int]:
        return self.send_bytes(self.as_bytes(starts, ends))

    def as_bytes(self, starts: list[int], ends: list[int]) -> list[bytes]:
        return [self.memory[start] for start, _ in zip(starts, ends, strict=True)]

    def send_bytes(self, datagrams: Sequence[bytes]) -> tuple[int, int, int]:
        refused = error = 0
        for done, datagram in enumerate(datagrams):
            if datagram in self.refused:
                refused += 1
                error = self.refused[datagram]
            elif self.room:
                self.room -= 1
                self.taken.append(datagram)
                error = 0
            else:
                return done, refused, error
        return len(datagrams), refused, error


class Rig:
    """An Egress with all that surrounds it."""

    def __init__(self, room: int = 1 << 30, **options: Any) -> None:
        self.loop = ManualLoop()
        self.network = Network(room)
        self.reliefs = self.calls = 0
        self.egress = Egress(
            cast(asyncio.AbstractEventLoop, self.loop),
            cast(SegmentWriter, self.network),
            self._relieved,
            **options,
        )

    def send(self, datagrams: list[bytes]) -> None:
        """By turns from the arena, which then changes, and from elsewhere."""
        self.calls += 1
        if self.calls % 2:
            self.network.memory = list(datagrams)
            spans = list(range(len(datagrams)))
            self.egress.send(spans, spans)
            self.network.memory = [b"overwritten"] * len(datagrams)
        else:
            self.egress.send_bytes(datagrams)

    def _relieved(self) -> None:
        assert not self.egress.congested
        self.reliefs += 1

    @property
    def counts(self) -> tuple[int, int]:
        return self.egress.sent, self.egress.unsent


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


# --- waiting ---


def test_datagrams_go_at_once_and_start_no_timer() -> None:
    rig = Rig()
    rig.send(numbered(3))
    assert rig.network.taken == numbered(3)
    assert rig.counts == (3, 0)
    assert rig.loop.timers() == 0


def test_waiting_datagrams_go_later_in_order() -> None:
    rig = Rig(room=2)
    rig.send(numbered(5))
    assert rig.network.taken == numbered(2)
    rig.network.room = 1
    rig.loop.advance(RETRY_SECONDS)
    assert rig.network.taken == numbered(3)
    rig.network.room = 10
    rig.loop.advance(RETRY_SECONDS)
    assert rig.network.taken == numbered(5)
    assert rig.counts == (5, 0)
    assert rig.loop.timers() == 0


def test_nothing_overtakes_waiting_datagrams() -> None:
    rig = Rig(room=0)
    rig.send(numbered(2))
    rig.network.room = 10
    rig.send(numbered(2, first=2))  # there would be room, but others were first
    assert rig.network.taken == []
    rig.loop.advance(RETRY_SECONDS)
    assert rig.network.taken == numbered(4)


@given(
    st.lists(
        st.one_of(
            st.integers(0, 30).map(lambda n: ("send", n)), st.integers(0, 30).map(lambda n: ("room", n))
        )
    )
)
def test_order_is_kept_and_all_is_counted(steps: list[tuple[str, int]]) -> None:
    rig = Rig(room=0)
    published = 0
    for step, number in steps:
        if step == "send":
            rig.send(numbered(number, first=published))
            published += number
        else:
            rig.network.room += number
            rig.loop.advance(RETRY_SECONDS)
        assert rig.network.taken == numbered(len(rig.network.taken))
        assert rig.egress.sent == len(rig.network.taken)
    rig.egress.close()
    assert rig.egress.sent + rig.egress.unsent == published
    assert rig.loop.timers() == 0


def test_the_newest_are_given_up_when_too_many_wait() -> None:
    rig = Rig(room=0)
    rig.send(numbered(PENDING_LIMIT - 1))
    rig.send(numbered(5, first=PENDING_LIMIT - 1))
    assert rig.counts == (0, 4)
    rig.send([b"later"])
    assert rig.counts == (0, 5)
    rig.network.room = 1 << 30
    rig.loop.advance(RETRY_SECONDS)
    assert rig.network.taken == numbered(PENDING_LIMIT)
    assert rig.counts == (PENDING_LIMIT, 5)


# --- congestion ---


def test_congestion_lasts_from_half_full_to_a_quarter() -> None:
    rig = Rig(room=0)
    rig.send(numbered(PENDING_LIMIT // 2))
    assert not rig.egress.congested
    rig.send([b"one more"])
    assert rig.egress.congested
    rig.network.room = PENDING_LIMIT // 4 + 1
    rig.loop.advance(RETRY_SECONDS)
    assert rig.egress.congested
    assert rig.reliefs == 0
    rig.network.room = 1
    rig.loop.advance(RETRY_SECONDS)
    assert not rig.egress.congested
    assert rig.reliefs == 1
    rig.network.room = 1 << 30
    rig.loop.advance(RETRY_SECONDS)
    assert rig.reliefs == 1


def test_only_relief_ends_congestion() -> None:
    """Without the call, publishers that it holds up would wait for ever."""
    rig = Rig(room=0)
    rig.send(numbered(PENDING_LIMIT))
    rig.network.room = PENDING_LIMIT * 5 // 8
    rig.loop.advance(RETRY_SECONDS)
    rig.send([b"of somebody who was not held"])
    assert rig.egress.congested
    rig.network.room = 1 << 30
    rig.loop.advance(RETRY_SECONDS)
    assert not rig.egress.congested
    assert rig.reliefs == 1


def test_relief_sends_behind_waiting_datagrams() -> None:
    rig = Rig(room=0)
    rig.egress._on_relief = lambda: rig.send([b"resumed"])
    rig.send(numbered(PENDING_LIMIT))
    rig.network.room = PENDING_LIMIT * 7 // 8
    rig.loop.advance(RETRY_SECONDS)
    rig.network.room = 1 << 30
    rig.loop.advance(RETRY_SECONDS)
    assert rig.network.taken == [*numbered(PENDING_LIMIT), b"resumed"]


# --- refusals ---


def test_a_refusal_costs_the_refused_datagram_only() -> None:
    rig = Rig()
    rig.network.refused = {b"1": EMSGSIZE, b"2": EMSGSIZE}
    rig.send(numbered(5))
    assert rig.network.taken == [b"0", b"3", b"4"]
    assert rig.counts == (3, 2)
    assert rig.egress.error == 0  # something went out again


def test_a_refusal_is_reported_until_a_datagram_goes_out() -> None:
    rig = Rig()
    rig.network.refused = {b"0": ENETUNREACH, b"1": ENETDOWN}
    rig.send(numbered(2))
    assert rig.egress.error == ENETDOWN
    rig.send([])
    assert rig.egress.error == ENETDOWN
    rig.send([b"fine"])
    assert rig.egress.error == 0


def test_a_refused_datagram_that_waited_is_given_up() -> None:
    rig = Rig(room=0)
    rig.send(numbered(3))
    rig.network.refused = dict.fromkeys(numbered(3), EPERM)
    rig.loop.advance(RETRY_SECONDS)
    assert rig.counts == (0, 3)
    assert rig.egress.error == EPERM
    assert rig.loop.timers() == 0


def test_a_stalled_binding_is_emptied_and_relieved() -> None:
    rig = Rig(room=1)
    rig.send(numbered(PENDING_LIMIT))
    rig.loop.advance(STALL_SECONDS - 0.1)
    assert rig.counts == (1, 0)
    rig.network.room = 1  # one is enough to go on waiting
    rig.loop.advance(STALL_SECONDS - 0.1)
    assert rig.counts == (2, 0)
    assert rig.reliefs == 0
    rig.loop.advance(0.2)
    assert rig.counts == (2, PENDING_LIMIT - 2)
    assert rig.reliefs == 1
    assert rig.loop.timers() == 0


# --- copies ---


def test_further_copies_follow_after_the_spread() -> None:
    rig = Rig(copies=3, spread=0.02)
    rig.send([b"a", b"b"])
    rig.loop.advance(0.01)
    rig.send([b"c"])
    assert rig.network.taken == [b"a", b"b", b"c"]
    rig.loop.advance(0.01)
    assert rig.network.taken == [b"a", b"b", b"c", b"a", b"b"]
    rig.loop.advance(1)
    assert rig.network.taken == [b"a", b"b", b"c", b"a", b"b", b"c", b"a", b"b", b"c"]
    assert rig.counts == (9, 0)
    assert rig.loop.timers() == 0
    assert rig.egress._copies_waiting == 0


def test_one_copy_needs_no_timer() -> None:
    rig = Rig(copies=1, spread=0.02)
    rig.send([b"a"])
    assert rig.loop.timers() == 0


def test_further_copies_are_of_what_was_sent() -> None:
    rig = Rig(copies=2, spread=0.02)
    outgoing = [b"a"]
    rig.send(outgoing)
    outgoing.clear()
    rig.loop.advance(0.02)
    assert rig.network.taken == [b"a", b"a"]


def test_further_copies_take_no_room_from_first_ones() -> None:
    rig = Rig(room=0, copies=2, spread=RETRY_SECONDS * 10)
    first = numbered(PENDING_LIMIT // 4)
    rig.send(first)
    rig.send(numbered(PENDING_LIMIT // 2, first=PENDING_LIMIT // 4))
    rig.loop.advance(RETRY_SECONDS * 10)  # congested: the copies are given up
    assert rig.counts == (0, PENDING_LIMIT * 3 // 4)
    rig.send(numbered(PENDING_LIMIT // 4, first=PENDING_LIMIT * 3 // 4))
    assert rig.counts == (0, PENDING_LIMIT * 3 // 4)
    rig.network.room = 1 << 30
    rig.loop.advance(RETRY_SECONDS)
    assert rig.network.taken == numbered(PENDING_LIMIT)


def test_further_copies_wait_for_their_turn() -> None:
    rig = Rig(room=0, copies=2, spread=RETRY_SECONDS * 10)
    rig.send(numbered(10))
    rig.loop.advance(RETRY_SECONDS * 10)
    rig.network.room = 1 << 30
    rig.loop.advance(RETRY_SECONDS)
    assert rig.network.taken == numbered(10) * 2
    assert rig.counts == (20, 0)


def test_further_copies_are_bounded_and_counted() -> None:
    rig = Rig(copies=2, spread=1.0)
    rig.send([b"x"] * COPIES_LIMIT)
    rig.send([b"y"])
    assert rig.counts == (COPIES_LIMIT + 1, 1)
    rig.loop.advance(1.0)
    assert rig.counts == (2 * COPIES_LIMIT + 1, 1)
    rig.send([b"z"])  # there is room again
    rig.loop.advance(1.0)
    assert rig.network.taken[-2:] == [b"z", b"z"]


# --- a pause, and a successor ---


def test_a_pause_sends_nothing_and_forgets_nothing() -> None:
    rig = Rig(room=2, copies=2, spread=0.02)
    rig.send(numbered(4))
    rig.egress.pause()
    rig.network.room = 1 << 30
    rig.loop.advance(1)
    assert rig.network.taken == numbered(2)
    rig.egress.resume()
    rig.loop.advance(RETRY_SECONDS)
    assert rig.network.taken == numbered(4)
    rig.loop.advance(1)
    assert rig.network.taken == numbered(4) * 2
    assert rig.counts == (8, 0)
    assert rig.loop.timers() == 0


def test_a_congested_binding_is_relieved_after_a_pause() -> None:
    rig = Rig(room=0)
    rig.send(numbered(PENDING_LIMIT))
    rig.egress.pause()
    rig.loop.advance(1)
    rig.network.room = 1 << 30
    rig.egress.resume()
    rig.loop.advance(RETRY_SECONDS)
    assert rig.reliefs == 1
    assert rig.network.taken == numbered(PENDING_LIMIT)


def test_a_successor_sends_waiting_datagrams_and_copies() -> None:
    old, new = Rig(room=1, copies=3, spread=0.02), Rig(copies=3, spread=0.02)
    old.send(numbered(3))
    old.egress.pause()
    new.egress.restore(old.egress.state())
    new.loop.advance(1)
    assert new.network.taken == []  # the old one may still go on
    new.egress.resume()
    new.loop.advance(1)
    assert new.network.taken == [b"1", b"2", *numbered(3), *numbered(3)]
    assert new.counts == (8, 0)
    assert new.egress._copies_waiting == 0


# --- the end ---


def test_at_the_end_the_rest_is_sent_or_counted() -> None:
    rig = Rig(room=0)
    rig.send(numbered(5))
    rig.network.room = 3
    rig.egress.close()
    assert rig.network.taken == numbered(3)
    assert rig.counts == (3, 2)
    assert rig.loop.timers() == 0


def test_after_the_end_nothing_is_sent() -> None:
    rig = Rig(copies=3, spread=0.02)
    rig.send([b"a"])
    rig.egress.close()
    rig.loop.advance(1)
    assert rig.network.taken == [b"a"]
    assert rig.loop.timers() == 0


# --- a real socket and a real loop ---


class FullSometimes:
    """Sends datagrams as a segment socket does, over a Unix socket pair: a loopback UDP socket is never full."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.arrived: list[bytes] = []

    def sender(self) -> int:
        return self.ours.fileno()

    def destination(self) -> bytes:
        return b""

    def read(self, most: int) -> None:
        with suppress(BlockingIOError):
            for _ in range(most):
                self.arrived.append(self.theirs.recv(2000))


@pytest.fixture
def full_sometimes() -> Iterator[FullSometimes]:
    made = FullSometimes()
    with made.ours, made.theirs:
        yield made


async def test_through_a_full_socket_all_arrive_in_order(full_sometimes: FullSometimes) -> None:
    loop = asyncio.get_running_loop()
    arena = Arena(1 << 18)
    writer = SegmentWriter(arena, cast(SegmentSocket, full_sometimes), arena.slots(1, gather_bytes(1400))[0])
    relieved = asyncio.Event()
    outbound = Egress(loop, writer, relieved.set)
    datagrams = [b"%d" % number for number in range(PENDING_LIMIT)]
    outbound.send_bytes(datagrams[:5000])
    assert outbound.congested
    assert 0 < outbound.sent < 5000
    loop.add_reader(full_sometimes.theirs, full_sometimes.read, 500)
    async with asyncio.timeout(PATIENCE):
        await relieved.wait()
        outbound.send_bytes(datagrams[5000:])
        while len(full_sometimes.arrived) < PENDING_LIMIT:
            await asyncio.sleep(RETRY_SECONDS)
    loop.remove_reader(full_sometimes.theirs)
    assert full_sometimes.arrived == datagrams
    assert (outbound.sent, outbound.unsent) == (PENDING_LIMIT, 0)
    outbound.close()


async def test_a_reader_that_stops_costs_a_second(
    full_sometimes: FullSometimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "STALL_SECONDS", 0.05)
    arena = Arena(1 << 18)
    writer = SegmentWriter(arena, cast(SegmentSocket, full_sometimes), arena.slots(1, gather_bytes(1400))[0])
    relieved = asyncio.Event()
    outbound = Egress(asyncio.get_running_loop(), writer, relieved.set)
    outbound.send_bytes([b"x"] * PENDING_LIMIT)
    async with asyncio.timeout(PATIENCE):
        await relieved.wait()
    assert outbound.sent + outbound.unsent == PENDING_LIMIT
    full_sometimes.read(PENDING_LIMIT)
    assert len(full_sometimes.arrived) == outbound.sent
    outbound.send_bytes([b"fresh"])
    full_sometimes.read(1)
    assert full_sometimes.arrived[-1] == b"fresh"
    outbound.close()
