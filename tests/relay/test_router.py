"""From a channel to who gets its messages: against the rules, and what a cache must not remember."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bccnd.errors import PacketError
from bccnd.relay import pattern as patterns
from bccnd.relay.router import GENERATIONS, INNER_STARS_LIMIT
from bccnd.relay.session import Format, Session
from bccnd.wire.bccn1 import matches_target, split_target
from bccnd.wire.repair import CHANNEL
from tests.relay.fakes import routes_of
from tests.relay.host import Host

CHANNELS = [b"a", b"b", b"a/b", b"a/c", b"a/b/c", b"a.b", b"a.b.c", b"local/x", b"locals", b"!", b"!here"]
CHANNELS += [b"!here/prog/1", b"!here/prog/1/*", b"!here/prog", b"!elsewhere", b"!elsewhere/1", CHANNEL]
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
    b"!>",
    b"!elsewhere",
    b"!elsewhere/>",
]


def is_answered_here(target: bytes, sessions: list[Session]) -> bool:
    """Whether it is a name of this host, or of one program that listens here."""
    exact, value = split_target(target)
    listening = [session.name for session in sessions if session.listening]
    return value.split(b"/")[0] == b"here" or (exact and value in listening)


def should_get(session: Session, channel: bytes, sessions: list[Session]) -> bool:
    """The rules, one after the other."""
    if session.tap:
        return False
    if channel == b"!":
        return session.listening
    if channel.startswith(b"!"):
        target = channel[1:]
        return session.listening and (
            matches_target(target, session.name)
            or (
                channel != CHANNEL
                and not is_answered_here(target, sessions)
                and any(
                    pattern.startswith(b"!") and patterns.matches(pattern[1:], separator, target)
                    for separator, pattern in session.subscriptions
                )
            )
        )
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
        expected = [session for session in ordered if should_get(session, channel, ordered)]
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
        sizes = [len(self.router.cached), *(len(routes) for _, routes in self.router._aged)]
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
        for indexes in (router._indexes, router._notices, router._directed):
            assert all(index.empty() for index in indexes.values())
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


def test_impossible_pattern_is_refused_and_changes_nothing():
    host = Host()
    session = host.session()
    with pytest.raises(PacketError, match="bad-pattern"):
        host.router.subscribe(session, b"a*b")
    assert (host.router.subscriptions, session.subscriptions, session.listening) == (0, Counter(), False)


# What is remembered


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
    assert set(host.router.cached) == {b"b"}
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
    assert [*aged, *host.router.cached] == [b"a/6", b"a/7", b"a/8", b"a/9"]


def test_a_channel_in_use_stays_in_the_cache():
    host = Host(cache_limit=4)
    host.session(b">")
    kept = host.router.route(b"in/use")
    for number in range(10):
        host.router.route(b"a/%d" % number)
        assert host.router.known(b"in/use") is kept
    assert host.router.known(b"a/0") is None


def test_directed_channel_of_the_old_generation_is_forgotten():
    host = Host(cache_limit=2)
    host.members(b"!")
    host.members(b"a")  # now "!" is of the old generation
    assert host.router.known(b"!") is not None  # and now of the young one again, which makes the other old
    listening = host.session(b"b")
    assert host.members(b"!") == [listening]


def test_long_channels_count_for_more_in_the_cache() -> None:
    host = Host(cache_limit=1000)
    for number in range(5000):
        host.router.route(b"x" * 1000 + b"/%d" % number)
    routes = [host.router.cached, *(routes for _, routes in host.router._aged)]
    assert sum(len(channel) for generation in routes for channel in generation) < 1000 * 170


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


# What is directed to others


def test_a_bridge_gets_what_is_directed_elsewhere():
    host = Host()
    bridge, other = host.session(b"!>"), host.session(b"!there/>")
    for channel in (b"!there/prog/7", b"!there/prog", b"!there/prog/7/*"):
        assert host.members(channel) == [bridge, other]
    assert host.members(b"!there") == [bridge]
    assert host.members(b"!") == [bridge, other], "as all who listen"
    for channel in (b"!here/prog/99", b"!here/prog", b"!here", b"!here/bccnd", b"!here/bccnd/0"):
        assert bridge not in host.members(channel) or bridge.name.startswith(channel[1:])
    assert host.members(CHANNEL) == []
    assert host.members(b"there/prog/7") == []


def test_a_name_that_listens_here_is_answered_here():
    host = Host()
    bridge, named = host.session(b"!>"), host.session()
    assert host.members(b"!plant/pump/7") == [bridge]
    host.names.rename(named.name, b"plant/pump/7", named.peer, True, 0)
    host.router.renamed(named, named.name, b"plant/pump/7")
    named.name = b"plant/pump/7"
    assert host.members(b"!plant/pump/7") == [bridge], "it does not listen"
    host.router.listen(named)
    assert host.members(b"!plant/pump/7") == [named]
    assert host.members(b"!plant/pump") == [bridge, named], "others may bear such names elsewhere"
    host.router.leave(named)
    assert host.members(b"!plant/pump/7") == [bridge]


def test_directed_routes_follow_the_patterns_of_bridges():
    host = Host()
    bridge, other = host.session(b"a"), host.session(b"b")
    channels = [b"!there/prog/7", b"!there/x", b"!far/prog/1"]
    for pattern, matched in ((b"!there/>", 2), (b"!*/prog/*", 2), (b"!there/x", 1), (b"!>", 3)):
        assert [host.members(channel) for channel in channels] == [[], [], []]
        host.router.subscribe(bridge, pattern)
        assert sum(host.members(channel) == [bridge] for channel in channels) == matched
        host.router.unsubscribe(bridge, pattern)
    assert host.members(channels[0]) == []
    host.router.subscribe(other, b"!>")
    host.router.leave(other)
    assert host.members(channels[0]) == []


@pytest.mark.parametrize("separator", [b"/", b"."])
def test_targets_are_matched_by_tokens(separator: bytes):
    host = Host()
    bridge = host.session()
    bridge.separator = separator
    host.router.subscribe(bridge, b"!there.lan" + separator + b">")
    assert (host.members(b"!there.lan/prog/1") == [bridge]) is (separator == b"/")
    assert (host.members(b"!there.lan.x") == [bridge]) is (separator == b".")


def test_a_change_of_plain_patterns_leaves_directed_routes():
    host = Host()
    host.session(b"!>")
    route = host.router.route(b"!there/prog/7")
    host.session(b"x*").served_at = 0
    assert host.router.route(b"!there/prog/7") is route


@pytest.mark.parametrize("pattern", [b"!", b"!/cred/0", b"!?", b"!?/a", b"!!a", b"!a*b", b"!a b"])
def test_what_nobody_can_be_called_is_no_pattern(pattern: bytes):
    host = Host()
    with pytest.raises(PacketError, match="bad-pattern"):
        host.router.subscribe(host.session(), pattern)
