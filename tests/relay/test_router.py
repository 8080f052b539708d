"""From a channel to who gets its messages: against the rules, and what a cache must not remember."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bccnd.errors import PacketError
from bccnd.relay import pattern as patterns
from bccnd.relay import router as routing
from bccnd.relay.identity import Names, Peer
from bccnd.relay.rights import Rights
from bccnd.relay.router import CHANGES_LIMIT, DEPARTED_LIMIT, GENERATIONS, INNER_STARS_LIMIT, Route, Router
from bccnd.relay.session import Format, Session
from bccnd.wire.bccn1 import matches_target
from tests.relay.fakes import Bus, FakeClient, routes_of

CHANNELS = [b"a", b"b", b"a/b", b"a/c", b"a/b/c", b"a.b", b"a.b.c", b"local/x", b"locals", b"!", b"!here"]
CHANNELS += [b"!here/prog/1", b"!here/prog/1/*", b"!here/prog", b"!elsewhere"]
PATTERNS = [
    b"",
    b">",
    b"a",
    b"b",
    b"a/b",
    b"a/",
    b"a/>",
    b"*/b",
    b"a/*",
    b"a.b",
    b"a.>",
    b"a.",
    b"a*",
    b"local/>",
]


class Host:
    """A router and the names of its sessions."""

    def __init__(self, cache_limit: int = 1000) -> None:
        self.names = Names(b"here")
        self.router = Router(self.names, ["local/>", "private"], cache_limit=cache_limit)
        self.connected = 0

    def session(self, *subscriptions: bytes) -> Session:
        self.connected += 1
        peer = Peer(self.connected, 0, 0, b"prog")
        session = Session(self.connected, self.connected + 100, peer, rights=Rights(), now=0.0)
        session.name = self.names.assign(peer, session)
        for pattern in subscriptions:
            self.router.subscribe(session, pattern)
        return session

    def members(self, channel: bytes) -> list[Session]:
        route = self.router.route(channel)
        members = route.full + route.lines + route.single
        assert len(members) == route.size
        assert sorted(route.plain + route.packed, key=id) == sorted(route.single, key=id)
        assert route.single_ports == [session.port for session in route.single]
        assert route.plain_ports == [session.port for session in route.plain]
        return sorted(members, key=lambda session: session.number)


def should_get(session: Session, channel: bytes) -> bool:
    """The rules, one after the other."""
    if session.tap:
        return False
    if channel == b"!":
        return session.listening
    if channel.startswith(b"!"):
        return session.listening and matches_target(channel[1:], session.name)
    return any(patterns.matches(pattern, separator, channel) for separator, pattern in session.subscriptions)


which = st.integers(0, 3)
a_pattern = st.sampled_from(PATTERNS)
a_channel = st.sampled_from(CHANNELS)


class Routes(RuleBasedStateMachine):
    """A route has the subscribers that the rules give it, whatever is cached."""

    @initialize(cache_limit=st.sampled_from([1, 2, 1000]))
    def start(self, cache_limit: int):
        self.cache_limit = cache_limit
        self.host = Host(cache_limit)
        self.router = self.host.router
        self.sessions = [self.host.session() for _ in range(4)]

    @rule(which=which, pattern=a_pattern)
    def subscribe(self, which: int, pattern: bytes):
        session = self.sessions[which]
        if not (session.separator == b"." and pattern == b"*/b"):  # "*" in the middle of a token
            self.router.subscribe(session, pattern)

    @rule(which=which, data=st.data())
    def unsubscribe(self, which: int, data: st.DataObject):
        session = self.sessions[which]
        held = [pattern for separator, pattern in session.subscriptions if separator == session.separator]
        if held:
            self.router.unsubscribe(session, data.draw(st.sampled_from(held)))

    @rule(which=which)
    def listen(self, which: int):
        self.router.listen(self.sessions[which])

    @rule(which=which)
    def leave_and_return(self, which: int):
        self.leave(self.sessions[which])
        self.sessions[which] = self.host.session()

    @rule(which=which, place=st.sampled_from([b"elsewhere", b"here", b"here/prog/1"]))
    def rename(self, which: int, place: bytes):
        session, new = self.sessions[which], b"%b/%d" % (place, which)
        old = session.name
        self.host.names.rename(old, new, session.peer, granted=True, next_seq=1)
        session.name = new
        self.router.renamed(session, old, new)

    @rule(which=which, form=st.sampled_from(Format), packed=st.booleans(), tap=st.booleans())
    def serve_otherwise(self, which: int, form: Format, packed: bool, tap: bool):
        session = self.sessions[which]
        session.format, session.packed, session.tap = form, packed, tap
        self.router.service_changed(session)

    @rule(which=which, separator=st.sampled_from(patterns.SEPARATORS))
    def separate(self, which: int, separator: bytes):
        self.sessions[which].separator = separator

    @rule(channel=a_channel)
    def look(self, channel: bytes):
        ordered = sorted(self.sessions, key=lambda session: session.number)
        expected = [session for session in ordered if should_get(session, channel)]
        assert self.host.members(channel) == expected
        route = self.router.route(channel)
        assert route.full == [session for session in expected if session.format is Format.FULL]
        assert route.lines == [session for session in expected if session.format is Format.LINES]
        assert route.packed == [session for session in route.single if session.packed]
        assert route.local == (channel == b"local/x")

    @rule()
    def look_at_all(self):
        for channel in CHANNELS:
            self.look(channel)

    @invariant()
    def is_bounded_and_counted(self):
        sizes = [len(self.router._young), *(len(routes) for _, routes in self.router._aged)]
        assert sum(sizes) <= self.cache_limit + 1
        assert len(sizes) <= 1 + GENERATIONS
        held = [sum(session.subscriptions.values()) for session in self.sessions]
        assert self.router.subscriptions == sum(held)

    def leave(self, session: Session):
        self.router.leave(session)
        self.host.names.release(session.name, 1)

    def teardown(self):
        self.look_at_all()
        for session in self.sessions:
            self.leave(session)
        router = self.router
        assert router.subscriptions == len(self.host.names) == 0
        assert not router._listening
        assert not any(route.members for route in routes_of(router))
        assert all(index.empty() for index in [*router._indexes.values(), *router._notices.values()])
        assert {(session.footprint, session.inner_stars) for session in self.sessions} == {(0, 0)}


Routes.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
test_routes_follow_the_rules = Routes.TestCase


# One by one


def test_one_copy_however_many_patterns_match():
    host = Host()
    session = host.session(b"a/b", b"a/*", b"a/>", b"", b"a/b")
    assert host.members(b"a/b") == [session]


def test_pattern_held_twice_is_removed_twice():
    host = Host()
    session = host.session(b"a", b"a")
    assert host.router.subscriptions == 2
    host.router.unsubscribe(session, b"a")
    assert host.members(b"a") == [session]
    host.router.unsubscribe(session, b"a")
    assert host.members(b"a") == []
    with pytest.raises(PacketError, match="not-subscribed"):
        host.router.unsubscribe(session, b"a")


@pytest.mark.parametrize("pattern", [b"a/b", b"a/*", b"a/>", b"a/", b"a*/b", b">", b""])
def test_a_subscription_counts_at_once(pattern: bytes):
    """Whatever was looked up before."""
    host = Host()
    session = host.session()
    assert host.members(b"a/b") == host.members(b"!") == []
    host.router.subscribe(session, pattern)
    assert host.members(b"a/b") == host.members(b"!") == [session]
    host.router.unsubscribe(session, pattern)
    assert host.members(b"a/b") == []


def test_patterns_of_the_two_separators_are_apart():
    host = Host()
    session = host.session(b"a/*")
    session.separator = b"."
    with pytest.raises(PacketError, match="not-subscribed"):
        host.router.unsubscribe(session, b"a/*")
    host.router.subscribe(session, b"a.*")
    assert host.members(b"a.b") == host.members(b"a/b") == [session]


def test_nobody_is_addressed_before_it_listens():
    host = Host()
    silent, listening, subscribed = host.session(), host.session(), host.session(b"a")
    host.router.listen(listening)
    assert host.members(b"!") == host.members(b"!here") == [listening, subscribed]
    assert host.members(b"!" + silent.name) == []


def test_client_without_subscriptions_still_listens():
    host = Host()
    session = host.session(b"a")
    host.router.unsubscribe(session, b"a")
    assert host.members(b"!") == [session]


def test_addressed_channels_are_not_matched_by_patterns():
    host = Host()
    other = host.session(b"", b">", b"*")
    host.session(b"a")
    assert host.members(b"!here/prog/2") != [other]
    assert host.members(b"!elsewhere") == []


@pytest.mark.parametrize(
    ("channel", "local"),
    [
        (b"local/x", True),
        (b"private", True),
        (b"local", False),
        (b"local/", False),
        (b"locals/x", False),
        (b"private/x", False),
        (b"!", False),
        (b"!local/x", False),
    ],
)
def test_local_channels(channel: bytes, local: bool):
    assert Host().router.route(channel).local == local


def test_channels_with_the_same_subscribers_share_a_route():
    host = Host()
    host.session(b"a/>")
    first = host.router.route(b"a/1")
    assert host.router.route(b"a/2") is first
    assert host.router.route(b"b") is not first


def test_subscription_to_one_channel_keeps_others_cached():
    host = Host()
    session = host.session(b"a", b"b")
    kept = host.router.route(b"b")
    host.router.route(b"a")
    host.router.unsubscribe(session, b"a")
    assert set(host.router._young) == {b"b"}
    assert host.router.route(b"b") is kept


def test_leaving_publisher_keeps_the_cache_and_listener_does_not():
    host = Host()
    staying, publisher, listening = host.session(b"a/>"), host.session(), host.session()
    host.router.listen(listening)
    route, everybody = host.router.route(b"a/b"), host.router.route(b"!")
    host.router.leave(publisher)
    assert host.router.route(b"a/b") is route
    assert host.router.route(b"!") is everybody
    host.router.leave(listening)
    assert host.members(b"!") == [staying]


def test_the_oldest_channels_leave_a_full_cache():
    host = Host(cache_limit=4)
    session = host.session(b">")
    for number in range(10):
        assert host.members(b"a/%d" % number) == [session]
    ((_, aged),) = host.router._aged
    assert [*aged, *host.router._young] == [b"a/6", b"a/7", b"a/8", b"a/9"]


def test_a_channel_in_use_stays_in_the_cache():
    host = Host(cache_limit=4)
    host.session(b">")
    kept = host.router.route(b"in/use")
    for number in range(10):
        host.router.route(b"a/%d" % number)
        assert host.router.known(b"in/use") is kept
    assert host.router.known(b"a/0") is None


def test_impossible_pattern_is_refused_and_changes_nothing():
    host = Host()
    session = host.session()
    with pytest.raises(PacketError, match="bad-pattern"):
        host.router.subscribe(session, b"a*b")
    assert (host.router.subscriptions, session.subscriptions, session.listening) == (0, Counter(), False)


def test_directed_channel_of_the_old_generation_is_forgotten():
    host = Host(cache_limit=2)
    host.members(b"!")
    host.members(b"a")  # now "!" is of the old generation
    assert host.router.known(b"!") is not None  # and now of the young one again, which makes the other old
    listening = host.session(b"b")
    assert host.members(b"!") == [listening]


# What a change costs: counted, never timed


@contextmanager
def counting(owner: object, name: str) -> Iterator[list[Any]]:
    """The first arguments of all calls of this method."""
    calls: list[Any] = []
    method = getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments[0])
        return method(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield calls


def steps(action: Callable[[], object]) -> int:
    """How many functions it calls, those of C among them."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def cached(host: Host, count: int, form: bytes = b"a/%d") -> list[bytes]:
    channels = [form % number for number in range(count)]
    for channel in channels:
        host.router.route(channel)
    return channels


def toggle(host: Host, session: Session, pattern: bytes) -> None:
    host.router.subscribe(session, pattern)
    host.router.unsubscribe(session, pattern)


def test_a_pattern_leaves_the_routes_it_does_not_match():
    host = Host(cache_limit=10_000)
    session = host.session(b"a/>")
    concerned, others = cached(host, 50, b"z%d"), cached(host, 500)
    routes = [host.router.route(channel) for channel in others]
    with counting(host.router, "_find") as found:
        for _ in range(20):
            toggle(host, session, b"z*")
            assert [host.router.route(channel) for channel in others] == routes
        assert found == []
        for channel in [*concerned, *concerned]:
            host.router.route(channel)
        assert found == concerned


def test_a_pattern_costs_the_same_for_any_number_of_channels():
    """Neither the calls nor what a call copies: the young routes are set aside as they are."""
    costs = []
    for count in (10, 1000):
        host = Host(cache_limit=10_000)
        session = host.session(b"a/>")
        cached(host, count)
        young = host.router._young
        costs.append(steps(partial(toggle, host, session, b"*")))
        assert [routes is young for _, routes in host.router._aged] == [True]
    assert costs[0] == costs[1]


def test_setting_routes_aside_copies_only_those_used_since():
    host = Host(cache_limit=10_000)
    session = host.session(b"a/>")
    channels = cached(host, 1000)
    copied = 0
    merged = routing._merged

    def counted(older: routing.Generation, newer: routing.Generation) -> routing.Generation:
        nonlocal copied
        copied += min(len(older[1]), len(newer[1]))
        return merged(older, newer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "_merged", counted)
        for number in range(100):
            toggle(host, session, b"z%d*" % (number % 7))
            for channel in channels[:3]:
                host.router.route(channel)
    assert 0 < copied <= 3 * 100


def test_a_service_change_looks_nobody_up():
    """Whoever changes how it is served, and however often: each route in use is sorted anew, once."""
    host = Host()
    sessions = [host.session(b"a/>", b"*") for _ in range(8)]
    channels = cached(host, 50)
    with counting(host.router, "_find") as found, counting(Route, "sort") as sorted_anew:
        for number in range(400):
            session = sessions[number % 8]
            session.packed = not session.packed
            host.router.service_changed(session)
            for channel in channels:
                assert (session in host.router.route(channel).packed) == session.packed
    assert found == []
    assert len(sorted_anew) == 400  # they share one route


def test_a_tap_comes_and_goes_without_a_look_up():
    host = Host()
    session, other = host.session(b"a/>"), host.session(b"a/b")
    assert host.members(b"a/b") == [session, other]
    with counting(host.router, "_find") as found:
        for tap in (True, False):
            session.tap = tap
            host.router.service_changed(session)
            assert host.members(b"a/b") == ([other] if tap else [session, other])
    assert found == []


def test_one_that_leaves_looks_nobody_up():
    host = Host()
    staying, leaving = host.session(b"a/>"), host.session(b"a/*")
    channels = cached(host, 50)
    with counting(host.router, "_find") as found:
        host.router.leave(leaving)
        routes = {host.router.route(channel) for channel in channels}
    assert found == []
    assert [route.single for route in routes] == [[staying]]


def test_sessions_that_left_are_soon_forgotten():
    """Though nobody asks for the routes that had them."""
    host = Host(cache_limit=1 << 16)
    host.session(b"stays")
    for number in range(3 * DEPARTED_LIMIT):
        session = host.session(b"a/>")
        host.router.route(b"a/%d" % number)
        host.router.leave(session)
        host.names.release(session.name, 1)
    del session
    gc.collect()
    alive = [each for each in gc.get_objects() if isinstance(each, Session) and not each.listening]
    assert len([each for each in alive if each.peer.program == b"prog"]) <= DEPARTED_LIMIT + 1


def test_changed_patterns_that_are_compared_are_bounded():
    """Beyond that a route costs one look-up, as that of a new channel."""
    host = Host(cache_limit=10_000)
    session = host.session(b"a/>")
    channels = cached(host, 100)
    for number in range(2 * CHANGES_LIMIT):
        toggle(host, session, b"z/*/%d*" % number)
        assert host.router._changes._weight <= CHANGES_LIMIT + 1
        assert host.members(b"a/in/use") == [session]
    with counting(host.router, "_find") as found:
        for channel in [*channels, *channels]:
            assert host.members(channel) == [session]
        assert found == channels
    with counting(host.router, "_find") as found:
        toggle(host, session, b"z/*/x*")
        for channel in channels:
            assert host.members(channel) == [session]
    assert found == []


def test_a_rename_leaves_the_channels_of_other_names():
    host = Host()
    sessions = [host.session(b"a") for _ in range(20)]
    renaming = sessions[0]
    others = [b"!", *(b"!" + session.name for session in sessions[1:])]
    cached_routes = [host.router.route(channel) for channel in others]
    host.router.route(b"!here")
    with counting(host.router, "_find") as found:
        for number in range(50):
            old, renaming.name = renaming.name, b"here/prog/1/%d" % number
            host.names.rename(old, renaming.name, renaming.peer, granted=True, next_seq=1)
            host.router.renamed(renaming, old, renaming.name)
            assert [host.members(channel) for channel in others[1:]] == [[other] for other in sessions[1:]]
            assert [host.router.known(channel) for channel in others[1:]] == cached_routes[1:]
            assert host.members(b"!" + old) == []
            assert host.members(b"!" + renaming.name + b"/*") == [renaming]
            assert host.members(b"!here") == sessions
    assert not {*found} & {*others[1:]}


def test_a_directed_look_up_costs_what_it_finds():
    costs = []
    for others in (10, 1000):
        host = Host(cache_limit=10_000)
        meant = host.session(b"a")
        for _ in range(others):
            host.session(b"a")
        costs.append(steps(partial(host.router.route, b"!here/prog/1/*")))
        assert host.members(b"!here/prog/1/*") == [meant]
    assert costs[1] <= costs[0] + 10  # one block of names more to search


def test_a_notice_costs_the_same_for_many_other_patterns():
    costs = []
    for others in (10, 1000):
        host = Host(cache_limit=10_000)
        asking = host.session(b"local/presence/>", *(b"local/x%d*" % number for number in range(others)))
        host.session(b">", b"local/")
        costs.append(steps(partial(host.router.route, b"local/presence/left/x")))
        assert host.members(b"local/presence/left/x") == [asking]
    assert costs[0] == costs[1]


# What a client takes


def test_stars_in_the_middle_are_bounded_for_a_client():
    host = Host()
    session, other = host.session(), host.session()
    for number in range(INNER_STARS_LIMIT // 2):
        host.router.subscribe(session, b"%d*/*/x" % number)
    with pytest.raises(PacketError, match="limit"):
        host.router.subscribe(session, b"*/x")
    assert session.inner_stars == INNER_STARS_LIMIT
    host.router.subscribe(session, b"0*/*/x")  # held already
    host.router.subscribe(session, b"x/*")
    host.router.subscribe(other, b"*/x")
    host.router.unsubscribe(session, b"1*/*/x")
    host.router.subscribe(session, b"*/x")
    host.router.leave(session)
    assert (session.inner_stars, session.footprint) == (0, 0)


def test_the_footprint_is_that_of_all_patterns():
    host = Host()
    session = host.session(b"a/b", b"a/*", b"a/*/c", b"a/b")
    held = [pattern for _, pattern in session.subscriptions]
    assert session.footprint == sum(map(patterns.pattern_cost, held))
    for pattern in (b"a/b", b"a/*/c", b"a/*"):
        host.router.unsubscribe(session, pattern)
    assert session.footprint == patterns.pattern_cost(b"a/b")  # held twice


# As clients see it: steps of the whole relay for a packet


def steps_of_packets(bus: Bus, client: FakeClient, *packets: bytes) -> int:
    bus.assert_consistent = lambda: None  # type: ignore[method-assign]  # which costs more than all else
    client.say(*packets)  # once for what only the first takes
    return steps(lambda: client.say(*packets))


def test_a_sub_costs_the_same_for_any_number_of_channels():
    costs = []
    for count in (10, 1000):
        bus = Bus()
        client, publisher = bus.connect(), bus.connect()
        for number in range(count):
            publisher.say(b"MSG local/%d\0x" % number)
        costs.append(steps_of_packets(bus, client, b"SUB local/z*", b"UNSUB local/z*"))
    assert costs[0] == costs[1]


def test_a_message_costs_the_same_whoever_says_pack_on():
    costs = []
    for count in (1, 200):
        bus = Bus(local=(">",))
        clients = [bus.connect(*(b"SUB a/" + b"b" * each + b"*" for each in range(count))) for _ in range(4)]
        publisher = bus.connect(b"MSG a/bb\0x")

        def both(bus: Bus = bus, other: FakeClient = clients[0], publisher: FakeClient = publisher) -> None:
            other.say(b"CMSG pack\0on")
            publisher.say(b"MSG a/bb\0x")

        bus.assert_consistent = lambda: None  # type: ignore[method-assign]
        both()
        costs.append(steps(both))
    assert costs[1] <= costs[0] + 10


def test_a_new_channel_costs_no_more_for_long_patterns():
    """Of hundreds of tokens, by the hundred."""
    costs = []
    for count in (1, 200):
        bus = Bus(local=(">",))
        bus.connect(*(b"SUB " + b"a/" * 400 + b"%d/" % number + b"b/" * 50 for number in range(count)))
        publisher = bus.connect(b"MSG x\0x")
        bus.assert_consistent = lambda: None  # type: ignore[method-assign]
        packet = b"MSG " + b"a/" * 400 + b"0/" + b"b/" * 50 + b"c\0x"
        costs.append(steps(partial(publisher.say, packet)))
    assert costs[1] <= costs[0] + 10  # three lengths instead of one


def test_a_sub_costs_the_same_for_any_other_last_values():
    costs = []
    for count in (10, 1000):
        bus = Bus(retain=["state/>"])
        publisher, client = bus.connect(), bus.connect()
        for number in range(count):
            publisher.say(b"MSG state/%d\0x" % number)
        costs.append(steps_of_packets(bus, client, b"SUB state/7/>", b"UNSUB state/7/>"))
    assert costs[1] <= costs[0] + 10  # the next block of keys


def test_a_rename_costs_a_directed_message_no_scan():
    costs = []
    for count in (10, 500):
        bus = Bus()
        for _ in range(count):
            bus.connect(b"CMSG listen", program=b"other")
        renaming, publisher = bus.connect(b"CMSG listen", pid=7), bus.connect()
        bus.assert_consistent = lambda: None  # type: ignore[method-assign]

        def both(renaming: FakeClient = renaming, publisher: FakeClient = publisher) -> None:
            renaming.say(b"CMSG name\0here/prog/7/a")
            publisher.say(b"MSG !here/prog\0x")
            renaming.say(b"CMSG name\0here/prog/7/b")
            publisher.say(b"MSG !here/prog\0x")

        both()
        costs.append(steps(both))
    assert costs[1] <= costs[0] + 20


def test_long_channels_count_for_more_in_the_cache() -> None:
    host = Host(cache_limit=1000)
    for number in range(5000):
        host.router.route(b"x" * 1000 + b"/%d" % number)
    routes = [host.router._young, *(routes for _, routes in host.router._aged)]
    assert sum(len(channel) for generation in routes for channel in generation) < 1000 * 170
