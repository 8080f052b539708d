"""Who is there: intervals are learnt, silence is noticed in time and once, and nothing grows without bound."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay.deadlines import Alarm
from bccnd.relay.options import Heartbeat
from bccnd.relay.presence import ASSUMED, CHECKS, EVENTS, Life, Presence, State

Happened = tuple[float, str, bytes]


class World:
    """A presence with a clock; ``heard`` is what the table of sources would say."""

    def __init__(self, limit: int = 100, misses: int = 3) -> None:
        self.now = 0.0
        self.heard: dict[bytes, float] = {}
        self.events: list[Happened] = []
        self.presence = self.made(limit, misses)

    def made(self, limit: int = 100, misses: int = 3) -> Presence:
        return Presence(self.heard.get, Heartbeat(misses=misses), limit, Alarm())

    def beat(self, src: bytes = b"a", text: bytes = b"", peer: bytes = b"10.0.0.2:5400") -> None:
        self.heard[src] = self.now
        self.presence.beat(src, text, self.now, peer)
        self.collect()

    def restarted(self, src: bytes) -> None:
        self.presence.restarted(src, self.now)
        self.collect()

    def check(self) -> None:
        self.presence.on_deadline(self.now)
        self.collect()

    def collect(self) -> None:
        self.events += [(self.now, str(event), src) for event, src, _ in self.presence.take_events()]

    def pass_(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.check()

    def beats(self, count: int, every: int, src: bytes = b"a") -> None:
        for _ in range(count):
            self.beat(src)
            self.pass_(every)

    def take(self) -> list[Happened]:
        taken, self.events = self.events, []
        return taken


def test_source_appears_falls_silent_once_and_comes_back() -> None:
    world = World()
    world.beats(5, 10)
    assert world.take() == [(0.0, "appeared", b"a")]
    world.pass_(500)
    assert world.take() == [(70.0, "silent", b"a")]
    world.beat()
    assert world.take() == [(550.0, "back", b"a")]


def test_source_heard_once_is_given_time() -> None:
    world = World()
    world.beat()
    world.pass_(int(3 * ASSUMED) - 1)
    assert len(world.take()) == 1
    world.pass_(1)
    assert world.take() == [(3 * ASSUMED, "silent", b"a")]


def test_any_message_is_a_sign_of_life() -> None:
    world = World()
    world.beats(3, 10)
    for _ in range(100):
        world.heard[b"a"] = world.now
        world.pass_(1)
    assert [event for _, event, _ in world.take()] == ["appeared"]
    world.pass_(100)
    assert [event for _, event, _ in world.take()] == ["silent"]
    world.heard[b"a"] = world.now + 0.5
    world.pass_(60)
    assert [event for _, event, _ in world.take()] == ["back", "silent"]


def test_source_that_left_stays_so_until_it_beats() -> None:
    world = World()
    world.beats(3, 10)
    world.beat(text=b"leaving")
    world.beat(text=b"leaving")
    world.heard[b"a"] = world.now + 1
    world.pass_(1000)
    assert [event for _, event, _ in world.take()] == ["appeared", "left"]
    world.beats(2, 10)
    assert [event for _, event, _ in world.take()] == ["back"]
    life = world.presence.get(b"a")
    assert life
    assert life.interval == 10.0
    world.beat(b"unknown", b"leaving")
    assert world.take() == []


def test_restart_is_reported_and_counts_as_heard() -> None:
    world = World()
    world.restarted(b"a")
    world.beats(3, 10)
    world.take()
    world.restarted(b"a")
    assert world.take() == [(30.0, "restarted", b"a")]
    world.pass_(40)
    world.take()
    world.restarted(b"a")
    assert [event for _, event, _ in world.take()] == ["restarted"]
    life = world.presence.get(b"a")
    assert life
    assert life.state is State.ALIVE


@pytest.mark.parametrize(
    ("gaps", "interval"),
    [
        ([10], 10),
        ([10, 10, 20, 10], 10),  # one lost
        ([20, 10], 10),  # the first one lost
        ([10, 30, 30], 30),  # slower from now on
        ([0.1], 1),
        ([10, 2], 2),
    ],
)
def test_the_interval_is_learnt(gaps: list[float], interval: float) -> None:
    life = Life(0.0)
    for gap in gaps:
        life.learn(gap)
    assert life.interval == interval


@given(st.integers(1, 60), st.lists(st.tuples(st.floats(-0.2, 0.2), st.booleans()), max_size=60))
def test_jitter_and_lost_beats_are_no_silence(interval: int, beats: list[tuple[float, bool]]) -> None:
    """Never three lost in a row, which is silence."""
    world = World(misses=4)
    last_lost = False
    for jitter, is_lost in [(0.0, False), (0.0, False), *beats]:
        world.now = round(world.now / interval) * interval + jitter * interval
        last_lost = is_lost and not last_lost
        if not last_lost:
            world.beat()
        world.now += interval * (1 - jitter)
        world.check()
    assert [event for _, event, _ in world.take()] == ["appeared"]


def test_the_version_is_what_a_daemon_says() -> None:
    world = World()
    for text, version in [(b"bccnd/1.2", "1.2"), (b"at work", ""), (b"bccnd/" + b"\xff" * 999, r"\xff" * 64)]:
        world.beat(text=text)
        life = world.presence.get(b"a")
        assert life
        assert life.version == version


def hosts_of(world: World) -> set[bytes]:
    return {src.partition(b"/")[0] for src, _ in world.presence}


@pytest.mark.parametrize("leaving", [False, True])
def test_a_host_pushes_out_only_its_own_sources(leaving: bool) -> None:
    world = World(limit=20)
    for number in range(15):
        world.beat(b"quiet%d/prog/1" % number, peer=b"10.0.1.%d:5400" % number)
    quiet = hosts_of(world)
    for number in range(1000):
        src = b"loud/prog/%d" % number
        world.beat(src, peer=b"10.0.0.2:5400")
        if leaving:
            world.beat(src, b"leaving", peer=b"10.0.0.2:5400")
        assert len(world.presence) <= 20
    assert hosts_of(world) == quiet | {b"loud"}
    world.beat(b"late/prog/1", peer=b"10.0.2.1:5400")
    assert hosts_of(world) == quiet | {b"loud", b"late"}, "whoever has most gives"


def test_invented_hosts_count_for_the_one_that_sends_them() -> None:
    """A name proves nothing, with a key or without."""
    world = World(limit=20)
    for number in range(12):
        world.beat(b"quiet%d/prog/1" % (number // 3), peer=b"10.0.1.%d:5400" % (number // 3))
        world.beat(b"quiet%d/prog/%d" % (number // 3, number), peer=b"10.0.1.%d:5400" % (number // 3))
    quiet = hosts_of(world)
    for number in range(1000):
        world.beat(b"made-up%d/prog/1" % number, peer=b"10.0.0.2:5400")
    for number in range(1000):
        world.beat(b"spoofed/prog/%d" % number, peer=b"10.1.%d.%d:5400" % divmod(number, 250))
    assert hosts_of(world) >= quiet
    assert len(world.presence) == 20
    world.beat(b"here/prog/1", peer=b"local")
    world.beat(b"here/prog/2", peer=b"local")
    assert world.presence.get(b"here/prog/2")


def test_when_full_the_gone_make_room_and_nobody_else() -> None:
    world = World(limit=3)
    for src in (b"a", b"b", b"c", b"d"):
        world.beat(src)
    assert [src for src, _ in world.presence] == [b"a", b"b", b"c"]
    world.beat(b"b", b"leaving")
    world.beat(b"e")
    assert [src for src, _ in world.presence] == [b"a", b"c", b"e"]


def test_forgotten_source_is_dropped_without_a_notice() -> None:
    world = World()
    world.beats(3, 10)
    world.beat(b"b", b"")
    world.beat(b"b", b"leaving")
    world.take()
    world.heard.clear()
    world.pass_(7200)
    assert (world.take(), len(world.presence), len(world.presence._due), len(world.presence._gone)) == (
        [],
        0,
        0,
        0,
    )


def test_a_flood_costs_bounded_memory_and_bounded_ticks() -> None:
    world = World(limit=50)
    for number in range(20_000):
        world.beat(b"f%d" % number)
        world.beat(b"f%d" % number, b"leaving")
    assert len(world.presence) == 50
    assert len(world.presence._due._heap) <= 64 + 2 * 50
    many = World(limit=10 * CHECKS)
    for number in range(3 * CHECKS):
        many.beat(b"%d" % number)
    many.take()
    many.now = 1000.0
    many.heard |= dict.fromkeys(many.heard, 999.0)
    for left in (2, 1, 0):
        many.check()
        assert len([src for src, _ in many.presence if (many.presence._due.get(src) or 0.0) <= many.now]) == (
            left * CHECKS
        )


def test_what_happens_to_many_at_once_comes_a_few_at_a_time() -> None:
    """Each event may have thousands of hearers."""
    world = World()
    for number in range(3 * EVENTS):
        world.beat(b"%d" % number)
    world.take()
    world.now = 1000.0
    for _ in range(3):
        assert world.presence.next_deadline() <= world.now
        world.check()
        assert [event for _, event, _ in world.take()] == ["silent"] * EVENTS
    world.check()
    assert not world.take()


# Against the obvious: every source looked at in every second


class Naive:
    """The rules said once more, without heap, laziness or bounds."""

    def __init__(self, misses: int) -> None:
        self.misses = misses
        self.state: dict[str, str] = {}
        self.interval: dict[str, float] = {}
        self.longer: dict[str, bool] = {}
        self.beaten: dict[str, float] = {}
        self.heard: dict[str, float] = {}

    def patience(self, src: str) -> float:
        return self.misses * (self.interval.get(src) or ASSUMED)

    def beat(self, src: str, now: float) -> Iterator[str]:
        before = self.state.get(src)
        if before in ("alive", "silent"):
            gap = min(max(now - self.beaten[src], 1.0), 3600.0)
            known = self.interval.get(src)
            longer = known is not None and gap > known * 1.5
            if known is None or gap < known * 0.75 or (longer and self.longer.get(src)):
                self.interval[src], self.longer[src] = gap, False
            elif longer:
                self.longer[src] = True
            else:
                self.interval[src], self.longer[src] = (3 * known + gap) / 4, False
        else:
            self.longer[src] = False
        self.beaten[src] = self.heard[src] = now
        self.state[src] = "alive"
        if before != "alive":
            yield "back" if before else "appeared"

    def leave(self, src: str, now: float) -> Iterator[str]:
        self.heard[src] = now
        if self.state.get(src) in ("alive", "silent"):
            self.state[src] = "left"
            yield "left"

    def tick(self, now: float) -> Iterator[tuple[str, str]]:
        for src, state in self.state.items():
            if state == "alive" and self.heard[src] + self.patience(src) <= now:
                self.state[src] = "silent"
                yield "silent", src


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["beat", "beat", "leave", "pass", "pass", "succeed"]),
        st.sampled_from("abc"),
        st.integers(1, 90),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=300)
@given(STEPS, st.integers(1, 4))
def test_nothing_differs_from_the_obvious(steps: list[tuple[str, str, int]], misses: int) -> None:
    world, naive = World(misses=misses), Naive(misses)
    for action, name, seconds in steps:
        src = name.encode()
        wanted: list[tuple[str, str]] = []
        if action == "beat":
            wanted = [(event, name) for event in naive.beat(name, world.now)]
            world.beat(src, b"")
        elif action == "leave":
            wanted = [(event, name) for event in naive.leave(name, world.now)]
            world.beat(src, b"leaving")
        elif action == "succeed":
            before = world.presence
            world.presence = world.made(misses=misses)
            world.presence.restore(before.state())
        else:
            for _ in range(seconds):
                world.pass_(1)
                wanted += naive.tick(world.now)
        assert sorted((event, about.decode()) for _, event, about in world.take()) == sorted(wanted)
        assert {src.decode(): str(life.state) for src, life in world.presence} == naive.state
