"""Datagrams that have to wait: by a manual clock and a network of our choosing, and through a real, full socket."""

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
from bccnd.net.broadcast import SegmentSocket, SegmentWriter, copies_bytes
from bccnd.net.egress import COPIES_LIMIT, PENDING_LIMIT, RETRY_SECONDS, STALL_SECONDS, Egress
from bccnd.net.mmsg import Arena


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
        return self.send_copies(self.copies(starts, ends))

    def copies(self, starts: list[int], ends: list[int]) -> list[bytes]:
        return [self.memory[start] for start, _ in zip(starts, ends, strict=True)]

    def send_copies(self, datagrams: Sequence[bytes]) -> tuple[int, int, int]:
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


class Way:
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
            self.egress.send_copies(datagrams)

    def _relieved(self) -> None:
        assert not self.egress.congested
        self.reliefs += 1

    @property
    def counts(self) -> tuple[int, int]:
        return self.egress.sent, self.egress.unsent


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


# --- waiting ---


def test_what_the_network_takes_goes_at_once_and_starts_no_timer() -> None:
    way = Way()
    way.send(numbered(3))
    assert way.network.taken == numbered(3)
    assert way.counts == (3, 0)
    assert way.loop.timers() == 0


def test_what_has_to_wait_goes_later_in_order() -> None:
    way = Way(room=2)
    way.send(numbered(5))
    assert way.network.taken == numbered(2)
    way.network.room = 1
    way.loop.advance(RETRY_SECONDS)
    assert way.network.taken == numbered(3)
    way.network.room = 10
    way.loop.advance(RETRY_SECONDS)
    assert way.network.taken == numbered(5)
    assert way.counts == (5, 0)
    assert way.loop.timers() == 0


def test_nothing_overtakes_what_waits() -> None:
    way = Way(room=0)
    way.send(numbered(2))
    way.network.room = 10
    way.send(numbered(2, first=2))  # there would be room, but others were first
    assert way.network.taken == []
    way.loop.advance(RETRY_SECONDS)
    assert way.network.taken == numbered(4)


@given(
    st.lists(
        st.one_of(
            st.integers(0, 30).map(lambda n: ("send", n)), st.integers(0, 30).map(lambda n: ("room", n))
        )
    )
)
def test_whatever_the_network_does_order_is_kept_and_all_is_counted(steps: list[tuple[str, int]]) -> None:
    way = Way(room=0)
    published = 0
    for step, number in steps:
        if step == "send":
            way.send(numbered(number, first=published))
            published += number
        else:
            way.network.room += number
            way.loop.advance(RETRY_SECONDS)
        assert way.network.taken == numbered(len(way.network.taken))
        assert way.egress.sent == len(way.network.taken)
    way.egress.close()
    assert way.egress.sent + way.egress.unsent == published
    assert way.loop.timers() == 0


def test_the_newest_are_given_up_when_too_many_wait() -> None:
    way = Way(room=0)
    way.send(numbered(PENDING_LIMIT - 1))
    way.send(numbered(5, first=PENDING_LIMIT - 1))
    assert way.counts == (0, 4)
    way.send([b"later"])
    assert way.counts == (0, 5)
    way.network.room = 1 << 30
    way.loop.advance(RETRY_SECONDS)
    assert way.network.taken == numbered(PENDING_LIMIT)
    assert way.counts == (PENDING_LIMIT, 5)


# --- congestion ---


def test_congested_from_more_than_half_until_less_than_a_quarter() -> None:
    way = Way(room=0)
    way.send(numbered(PENDING_LIMIT // 2))
    assert not way.egress.congested
    way.send([b"one more"])
    assert way.egress.congested
    way.network.room = PENDING_LIMIT // 4 + 1
    way.loop.advance(RETRY_SECONDS)
    assert way.egress.congested
    assert way.reliefs == 0
    way.network.room = 1
    way.loop.advance(RETRY_SECONDS)
    assert not way.egress.congested
    assert way.reliefs == 1
    way.network.room = 1 << 30
    way.loop.advance(RETRY_SECONDS)
    assert way.reliefs == 1


def test_a_send_between_a_quarter_and_a_half_does_not_end_congestion_without_relief() -> None:
    """Publishers held by it would be held for ever: they wait for the call."""
    way = Way(room=0)
    way.send(numbered(PENDING_LIMIT))
    way.network.room = PENDING_LIMIT * 5 // 8
    way.loop.advance(RETRY_SECONDS)
    way.send([b"of somebody who was not held"])
    assert way.egress.congested
    way.network.room = 1 << 30
    way.loop.advance(RETRY_SECONDS)
    assert not way.egress.congested
    assert way.reliefs == 1


def test_what_relief_sends_comes_after_what_waited() -> None:
    way = Way(room=0)
    way.egress._on_relief = lambda: way.send([b"resumed"])
    way.send(numbered(PENDING_LIMIT))
    way.network.room = PENDING_LIMIT * 7 // 8
    way.loop.advance(RETRY_SECONDS)
    way.network.room = 1 << 30
    way.loop.advance(RETRY_SECONDS)
    assert way.network.taken == [*numbered(PENDING_LIMIT), b"resumed"]


# --- refusals ---


def test_a_refusal_costs_the_refused_datagram_only() -> None:
    way = Way()
    way.network.refused = {b"1": EMSGSIZE, b"2": EMSGSIZE}
    way.send(numbered(5))
    assert way.network.taken == [b"0", b"3", b"4"]
    assert way.counts == (3, 2)
    assert way.egress.error == 0  # something went out again


def test_the_last_refusal_is_told_until_something_goes_out() -> None:
    way = Way()
    way.network.refused = {b"0": ENETUNREACH, b"1": ENETDOWN}
    way.send(numbered(2))
    assert way.egress.error == ENETDOWN
    way.send([])
    assert way.egress.error == ENETDOWN
    way.send([b"fine"])
    assert way.egress.error == 0


def test_what_waited_is_given_up_when_the_network_refuses_it() -> None:
    way = Way(room=0)
    way.send(numbered(3))
    way.network.refused = dict.fromkeys(numbered(3), EPERM)
    way.loop.advance(RETRY_SECONDS)
    assert way.counts == (0, 3)
    assert way.egress.error == EPERM
    assert way.loop.timers() == 0


def test_a_way_that_takes_nothing_for_too_long_is_emptied_and_relieved() -> None:
    way = Way(room=1)
    way.send(numbered(PENDING_LIMIT))
    way.loop.advance(STALL_SECONDS - 0.1)
    assert way.counts == (1, 0)
    way.network.room = 1  # one is enough to go on waiting
    way.loop.advance(STALL_SECONDS - 0.1)
    assert way.counts == (2, 0)
    assert way.reliefs == 0
    way.loop.advance(0.2)
    assert way.counts == (2, PENDING_LIMIT - 2)
    assert way.reliefs == 1
    assert way.loop.timers() == 0


# --- copies ---


def test_copies_follow_after_the_spread_each_once() -> None:
    way = Way(copies=3, spread=0.02)
    way.send([b"a", b"b"])
    way.loop.advance(0.01)
    way.send([b"c"])
    assert way.network.taken == [b"a", b"b", b"c"]
    way.loop.advance(0.01)
    assert way.network.taken == [b"a", b"b", b"c", b"a", b"b"]
    way.loop.advance(1)
    assert way.network.taken == [b"a", b"b", b"c", b"a", b"b", b"c", b"a", b"b", b"c"]
    assert way.counts == (9, 0)
    assert way.loop.timers() == 0
    assert way.egress._copies_waiting == 0


def test_one_copy_needs_no_timer() -> None:
    way = Way(copies=1, spread=0.02)
    way.send([b"a"])
    assert way.loop.timers() == 0


def test_copies_are_of_what_was_sent_not_of_what_the_caller_does_with_its_list() -> None:
    way = Way(copies=2, spread=0.02)
    outgoing = [b"a"]
    way.send(outgoing)
    outgoing.clear()
    way.loop.advance(0.02)
    assert way.network.taken == [b"a", b"a"]


def test_copies_take_no_room_from_first_copies() -> None:
    way = Way(room=0, copies=2, spread=RETRY_SECONDS * 10)
    first = numbered(PENDING_LIMIT // 4)
    way.send(first)
    way.send(numbered(PENDING_LIMIT // 2, first=PENDING_LIMIT // 4))
    way.loop.advance(RETRY_SECONDS * 10)  # congested: the copies are given up
    assert way.counts == (0, PENDING_LIMIT * 3 // 4)
    way.send(numbered(PENDING_LIMIT // 4, first=PENDING_LIMIT * 3 // 4))
    assert way.counts == (0, PENDING_LIMIT * 3 // 4)
    way.network.room = 1 << 30
    way.loop.advance(RETRY_SECONDS)
    assert way.network.taken == numbered(PENDING_LIMIT)


def test_copies_wait_while_there_is_room_for_all() -> None:
    way = Way(room=0, copies=2, spread=RETRY_SECONDS * 10)
    way.send(numbered(10))
    way.loop.advance(RETRY_SECONDS * 10)
    way.network.room = 1 << 30
    way.loop.advance(RETRY_SECONDS)
    assert way.network.taken == numbered(10) * 2
    assert way.counts == (20, 0)


def test_copies_to_come_are_bounded_and_counted_when_they_are_not_made() -> None:
    way = Way(copies=2, spread=1.0)
    way.send([b"x"] * COPIES_LIMIT)
    way.send([b"y"])
    assert way.counts == (COPIES_LIMIT + 1, 1)
    way.loop.advance(1.0)
    assert way.counts == (2 * COPIES_LIMIT + 1, 1)
    way.send([b"z"])  # there is room again
    way.loop.advance(1.0)
    assert way.network.taken[-2:] == [b"z", b"z"]


# --- a pause, and a successor ---


def test_a_pause_sends_nothing_and_forgets_nothing() -> None:
    way = Way(room=2, copies=2, spread=0.02)
    way.send(numbered(4))
    way.egress.pause()
    way.network.room = 1 << 30
    way.loop.advance(1)
    assert way.network.taken == numbered(2)
    way.egress.resume()
    way.loop.advance(RETRY_SECONDS)
    assert way.network.taken == numbered(4)
    way.loop.advance(1)
    assert way.network.taken == numbered(4) * 2
    assert way.counts == (8, 0)
    assert way.loop.timers() == 0


def test_a_congested_way_is_relieved_after_a_pause() -> None:
    way = Way(room=0)
    way.send(numbered(PENDING_LIMIT))
    way.egress.pause()
    way.loop.advance(1)
    way.network.room = 1 << 30
    way.egress.resume()
    way.loop.advance(RETRY_SECONDS)
    assert way.reliefs == 1
    assert way.network.taken == numbered(PENDING_LIMIT)


def test_a_successor_sends_what_waited_and_the_copies_to_come() -> None:
    old, new = Way(room=1, copies=3, spread=0.02), Way(copies=3, spread=0.02)
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


def test_at_the_end_what_can_go_goes_and_the_rest_is_counted() -> None:
    way = Way(room=0)
    way.send(numbered(5))
    way.network.room = 3
    way.egress.close()
    assert way.network.taken == numbered(3)
    assert way.counts == (3, 2)
    assert way.loop.timers() == 0


def test_after_the_end_nothing_is_sent() -> None:
    way = Way(copies=3, spread=0.02)
    way.send([b"a"])
    way.egress.close()
    way.loop.advance(1)
    assert way.network.taken == [b"a"]
    assert way.loop.timers() == 0


# --- a real socket and a real loop ---


class FullSometimes:
    """Datagrams over a Unix socket pair, since a loopback UDP socket is never full; sent the way a segment's are."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.arrived: list[bytes] = []

    def fileno(self) -> int:
        return self.ours.fileno()

    def destination(self) -> bytes:
        return b""

    def read(self, most: int) -> None:
        with suppress(BlockingIOError):
            for _ in range(most):
                self.arrived.append(self.theirs.recv(2000))


@pytest.fixture
def full_sometimes() -> Iterator[FullSometimes]:
    way = FullSometimes()
    with way.ours, way.theirs:
        yield way


async def test_through_a_full_socket_all_arrive_in_order(full_sometimes: FullSometimes) -> None:
    loop = asyncio.get_running_loop()
    arena = Arena(1 << 18)
    writer = SegmentWriter(arena, cast(SegmentSocket, full_sometimes), arena.slots(1, copies_bytes(1400))[0])
    relieved = asyncio.Event()
    way = Egress(loop, writer, relieved.set)
    datagrams = [b"%d" % number for number in range(PENDING_LIMIT)]
    way.send_copies(datagrams[:5000])
    assert way.congested
    assert 0 < way.sent < 5000
    loop.add_reader(full_sometimes.theirs, full_sometimes.read, 500)
    async with asyncio.timeout(10):
        await relieved.wait()
        way.send_copies(datagrams[5000:])
        while len(full_sometimes.arrived) < PENDING_LIMIT:
            await asyncio.sleep(RETRY_SECONDS)
    loop.remove_reader(full_sometimes.theirs)
    assert full_sometimes.arrived == datagrams
    assert (way.sent, way.unsent) == (PENDING_LIMIT, 0)
    way.close()


async def test_a_reader_that_stops_is_given_up_on(
    full_sometimes: FullSometimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress, "STALL_SECONDS", 0.05)
    arena = Arena(1 << 18)
    writer = SegmentWriter(arena, cast(SegmentSocket, full_sometimes), arena.slots(1, copies_bytes(1400))[0])
    relieved = asyncio.Event()
    way = Egress(asyncio.get_running_loop(), writer, relieved.set)
    way.send_copies([b"x"] * PENDING_LIMIT)
    async with asyncio.timeout(10):
        await relieved.wait()
    assert way.sent + way.unsent == PENDING_LIMIT
    full_sometimes.read(PENDING_LIMIT)
    assert len(full_sometimes.arrived) == way.sent
    way.send_copies([b"fresh"])
    full_sometimes.read(1)
    assert full_sometimes.arrived[-1] == b"fresh"
    way.close()
