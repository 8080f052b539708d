"""Whether somebody listens to what is watched: against a look at everybody, and within bounds."""

from itertools import product
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bccnd.relay import pattern as patterns
from bccnd.relay.deadlines import Alarm
from bccnd.relay.lookout import ROUND_SECONDS, TURN_STEPS, Key, Lookout, Watch
from bccnd.relay.meter import Meter
from bccnd.relay.session import Session
from bccnd.relay.state import Rules
from bccnd.wire.bccn1 import Integrity
from tests.golden import golden
from tests.relay.fakes import options
from tests.relay.host import Host

TOKENS = b"a", b"b", b"a*", b"*", b""
PATTERNS = sorted({b"/".join(each) for size in (1, 2, 3) for each in product(TOKENS, repeat=size)})
PATTERNS += [*(pattern + b"/>" for pattern in PATTERNS[:25] if pattern), b">"]
CHANNELS = [
    b"/".join(each) for size in (1, 2, 3, 4) for each in product((b"a", b"b", b"ab", b"z", b""), repeat=size)
]
CHANNELS += [b"local/a", b"local/b", b"local/a/b"]


class Looking:
    """A lookout, whose meter is that of its router, and the sessions that it looks at."""

    def __init__(self) -> None:
        self.host = Host()
        self.meter = self.host.router._meter
        rules = Rules(options(local=("local/>", "private")), Integrity(), None)  # type: ignore[arg-type]
        self.alarm = Alarm()
        self.lookout = Lookout(self.host.router, rules, self.meter, self.alarm)
        self.now = 1.0

    def watch(self, pattern: bytes, owner: object = None, user: int = 1, separator: bytes = b"/") -> Watch:
        watch = Watch((separator, pattern), owner, user)
        self.lookout.add(watch, self.now)
        return watch

    def settle(self) -> list[Watch]:
        """Look until there is nothing left to look at."""
        changed = []
        while (due := self.lookout.next_deadline()) != float("inf"):
            self.now = max(self.now, due)
            changed += self.lookout.on_deadline(self.now)
        return changed


def meet_somewhere(one: Key, other: Key) -> bool:
    return any(
        patterns.matches(one[1], one[0], channel) and patterns.matches(other[1], other[0], channel)
        for channel in CHANNELS
    )


def test_patterns_meet_if_they_have_a_channel_in_common():
    found = {
        pattern: {chan for chan in CHANNELS if patterns.matches(pattern, b"/", chan)} for pattern in PATTERNS
    }
    wrong = [
        (one, other)
        for one, other in product(PATTERNS, repeat=2)
        if patterns.meet(one, other, b"/") is not bool(found[one] & found[other])
    ]
    assert wrong == []


FEW = st.sampled_from(
    [b"a", b"a/b", b"b/a/b", b"a/>", b"a/", b"*/b", b"a*/b", b">", b"b/*/a", b"local/a", b"local/>"]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sub"), st.integers(0, 3), FEW),
        st.tuples(st.just("unsub"), st.integers(0, 3), FEW),
        st.tuples(st.just("tap"), st.integers(0, 3), st.none()),
        st.tuples(st.just("leave"), st.integers(0, 3), st.none()),
        st.tuples(st.just("watch"), st.integers(0, 4), FEW),
        st.tuples(st.just("unwatch"), st.integers(0, 9), st.none()),
        st.tuples(st.just("settle"), st.none(), st.none()),
        st.tuples(st.just("turn"), st.none(), st.none()),
    ),
    max_size=30,
)


class History:
    """Four sessions that come, go and change, and what is watched meanwhile; ``expected``: the naive answer."""

    def __init__(self) -> None:
        self.looking = Looking()
        self.sessions: list[Session] = [self.looking.host.session() for _ in range(4)]
        self.watches: list[Watch] = []

    def take(self, what: str, who: int, pattern: bytes) -> None:
        looking, watches = self.looking, self.watches
        if what == "watch":
            watches.append(looking.watch(pattern, self.sessions[who] if who < 4 else None, who % 2))
        elif what == "unwatch" and watches:
            looking.lookout.remove(watches.pop(who % len(watches)))
        elif what == "settle":
            looking.settle()
        elif what == "turn":
            looking.lookout.on_deadline(looking.now)
        elif what in ("sub", "unsub", "tap", "leave"):
            self._change(what, self.sessions[who], pattern)

    def _change(self, what: str, session: Session, pattern: bytes) -> None:
        router = self.looking.host.router
        if what == "sub":
            router.subscribe(session, pattern)
        elif what == "unsub" and (b"/", pattern) in session.subscriptions:
            router.unsubscribe(session, pattern)
        elif what == "tap":
            session.tap = not session.tap
            router.service_changed(session)
        elif what == "leave":
            for watch in [watch for watch in self.watches if watch.owner is session]:
                self.watches.remove(watch)
                self.looking.lookout.remove(watch)
            router.leave(session)
            self.sessions[self.sessions.index(session)] = self.looking.host.session()

    def expected(self, watch: Watch) -> bool:
        foreign = watch.owner is None
        return any(
            meet_somewhere(watch.key, key)
            for session in self.sessions
            if session is not watch.owner and not session.tap
            for key in session.subscriptions
            if not (foreign and (key[1].startswith(b"local/") or watch.key[1].startswith(b"local/a")))
        )


@given(STEPS)
@settings(max_examples=100)
@example([("watch", 4, b"a/>"), ("sub", 0, b"a/b"), ("settle", None, None), ("tap", 0, None)])
@example(
    [("watch", 0, b"*/b"), ("sub", 0, b"a/b"), ("turn", None, None), ("sub", 1, b">"), ("leave", 1, None)]
)
def test_what_is_known_is_what_a_look_at_everybody_finds(steps: list[tuple[str, int, bytes]]) -> None:
    history = History()
    for step in steps:
        history.take(*step)
    history.looking.settle()
    for watch in history.watches:
        assert watch.listened is history.expected(watch), (
            watch,
            [each.subscriptions for each in history.sessions],
        )


@pytest.mark.parametrize("entry", golden("watches", "meeting"))
def test_patterns_meet_as_the_vectors_say(entry: dict[str, Any]) -> None:
    one, other, separator = entry["one"].encode(), entry["other"].encode(), entry["separator"].encode()
    assert patterns.meet(one, other, separator) is patterns.meet(other, one, separator) is entry["meet"]


def test_patterns_of_two_separators_may_meet():
    looking = Looking()
    sub = looking.host.session()
    sub.separator = b"."
    looking.host.router.subscribe(sub, b"a.b*")
    watches = {pattern: looking.watch(pattern) for pattern in (b"a.bc", b"a/>", b"b/>", b"a*")}
    dotted = looking.watch(b"a.*", separator=b".")
    looking.settle()
    assert {pattern: watch.listened for pattern, watch in watches.items()} == {
        b"a.bc": True, b"a/>": False, b"b/>": False, b"a*": True,
    }  # fmt: skip
    assert dotted.listened


def test_a_change_is_seen_soon_and_no_more_often():
    looking = Looking()
    session, watch = looking.host.session(), looking.watch(b"a/>")
    assert looking.settle() == [watch]
    looking.host.router.subscribe(session, b"a/b")
    assert looking.settle() == [watch]
    seen = looking.now
    looking.host.router.unsubscribe(session, b"a/b")
    assert looking.lookout.next_deadline() == seen + ROUND_SECONDS
    assert looking.settle() == [watch]
    for _ in range(100):
        looking.host.router.subscribe(session, b"a/b")
        looking.host.router.unsubscribe(session, b"a/b")
    assert looking.settle() == []


def test_who_watches_much_delays_nobody_else():
    looking = Looking()
    crowd = [
        looking.host.session(*[b"c%d/%d/>" % (number, each) for each in range(100)]) for number in range(50)
    ]
    many = [looking.watch(b"*/%d/no*" % number, user=1) for number in range(500)]
    looking.lookout.on_deadline(looking.now)
    assert any(watch.listened is None for watch in many)
    alone = looking.watch(b"c7/>", user=2)
    turns = 0
    while alone.listened is None:
        looking.now = looking.lookout.next_deadline()
        looking.lookout.on_deadline(looking.now)
        turns += 1
    assert turns <= 10
    assert any(watch.listened is None for watch in many)
    assert len(crowd) == 50


def test_a_turn_is_bounded():
    looking = Looking()
    crowd = [
        looking.host.session(*[b"c%d/%d/>" % (number, each) for each in range(100)]) for number in range(50)
    ]
    watches = [looking.watch(b"*/x%d/*" % number) for number in range(10)]
    while any(watch.listened is None for watch in watches):
        before = looking.meter.steps
        looking.now = looking.lookout.next_deadline()
        looking.lookout.on_deadline(looking.now)
        assert looking.meter.steps - before < 2 * TURN_STEPS
    assert len(crowd) == 50


@pytest.mark.parametrize("length", [10, 900])
def test_a_turn_takes_only_a_part_of_a_session(length: int) -> None:
    looking = Looking()
    begun = b"a*/" + b"b/" * (length // 2)
    session = looking.host.session(*[b"%b%d" % (begun, number) for number in range(1000)])
    watch, turns = looking.watch(begun + b"no"), 0
    while watch.listened is None:
        before = looking.meter.steps
        looking.now = max(looking.now, looking.lookout.next_deadline())
        looking.lookout.on_deadline(looking.now)
        turns += 1
        assert looking.meter.steps - before < 1.5 * TURN_STEPS
    assert turns >= (len(session.subscriptions) * length) // (4 * TURN_STEPS)
    assert watch.listened is False


def test_watches_that_come_and_go_leave_nothing():
    looking = Looking()
    kept = looking.watch(b"kept/>")
    for number in range(100):
        looking.lookout.remove(looking.watch(b"%d/>" % number))
    (round_,) = looking.lookout._rounds.values()
    assert list(round_.watches) == [kept]
    assert looking.settle() == [kept]


def test_a_subscription_costs_the_same_however_many_watch():
    costs = []
    for count in (0, 2000):
        looking = Looking()
        session = looking.host.session()
        for number in range(count):
            looking.watch(b"a%d/*/b" % number)
        looking.settle()
        before = looking.meter.steps
        for number in range(50):
            looking.host.router.subscribe(session, b"a%d/>" % number)
        costs.append(looking.meter.steps - before)
    assert costs[0] == costs[1]


def test_nothing_is_left_of_what_was_watched():
    looking = Looking()
    session, watch = looking.host.session(b"a"), looking.watch(b"a")
    looking.lookout.remove(watch)
    assert looking.settle() == []
    looking.host.router.unsubscribe(session, b"a")
    assert looking.lookout.next_deadline() == float("inf")
    assert not looking.lookout._users
    assert not looking.lookout._rounds
    assert isinstance(looking.meter, Meter)
