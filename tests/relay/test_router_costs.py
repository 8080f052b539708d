"""What a change of subscribers, and a packet that makes one, cost: counted, never timed."""

import gc
from collections.abc import Callable
from functools import partial

import pytest

from bccnd.relay import router as routing
from bccnd.relay.changes import CHANGES_LIMIT
from bccnd.relay.router import DEPARTED_LIMIT, Route
from bccnd.relay.session import Session
from tests.relay.counting import calls_of, steps
from tests.relay.fakes import Bus, FakeClient
from tests.relay.host import Host


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
    with calls_of(host.router, "_find") as found:
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
        young = host.router.cached
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
    with calls_of(host.router, "_find") as found, calls_of(Route, "sort") as sorted_anew:
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
    with calls_of(host.router, "_find") as found:
        for tap in (True, False):
            session.tap = tap
            host.router.service_changed(session)
            assert host.members(b"a/b") == ([other] if tap else [session, other])
    assert found == []


def test_one_that_leaves_looks_nobody_up():
    host = Host()
    staying, leaving = host.session(b"a/>"), host.session(b"a/*")
    channels = cached(host, 50)
    with calls_of(host.router, "_find") as found:
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
    with calls_of(host.router, "_find") as found:
        for channel in [*channels, *channels]:
            assert host.members(channel) == [session]
        assert found == channels
    with calls_of(host.router, "_find") as found:
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
    with calls_of(host.router, "_find") as found:
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


# As clients see it: steps of the whole relay for a packet


def unchecked(**values: object) -> Bus:
    """One that does not look whether all is well, which costs more than all else."""
    bus = Bus(**values)
    bus.assert_consistent = lambda: None  # type: ignore[method-assign]
    return bus


def say_each(*said: tuple[FakeClient, bytes]) -> None:
    for client, packet in said:
        client.say(packet)


def steps_again(action: Callable[[], object]) -> int:
    """The steps of an action without those that only the first takes."""
    action()
    return steps(action)


def test_a_sub_costs_the_same_for_any_number_of_channels():
    costs = []
    for count in (10, 1000):
        bus = unchecked()
        client, publisher = bus.connect(), bus.connect()
        publisher.say(*[b"MSG local/%d\0x" % number for number in range(count)])
        costs.append(steps_again(partial(client.say, b"SUB local/z*", b"UNSUB local/z*")))
    assert costs[0] == costs[1]


def test_a_message_costs_the_same_whoever_says_pack_on():
    costs = []
    for count in (1, 200):
        bus = unchecked(local=(">",))
        clients = [bus.connect(*(b"SUB a/" + b"b" * each + b"*" for each in range(count))) for _ in range(4)]
        publisher = bus.connect(b"MSG a/bb\0x")
        both = (clients[0], b"CMSG pack\0on"), (publisher, b"MSG a/bb\0x")
        costs.append(steps_again(partial(say_each, *both)))
    assert costs[1] <= costs[0] + 10


def test_a_new_channel_costs_no_more_for_long_patterns():
    """Of hundreds of tokens, by the hundred."""
    costs = []
    for count in (1, 200):
        bus = unchecked(local=(">",))
        bus.connect(*(b"SUB " + b"a/" * 400 + b"%d/" % number + b"b/" * 50 for number in range(count)))
        publisher = bus.connect(b"MSG x\0x")
        packet = b"MSG " + b"a/" * 400 + b"0/" + b"b/" * 50 + b"c\0x"
        costs.append(steps(partial(publisher.say, packet)))
    assert costs[1] <= costs[0] + 10  # three lengths instead of one


def test_a_sub_costs_the_same_for_any_other_last_values():
    costs = []
    for count in (10, 1000):
        bus = unchecked(retain=["state/>"])
        client, publisher = bus.connect(), bus.connect()
        publisher.say(*[b"MSG state/%d\0x" % number for number in range(count)])
        costs.append(steps_again(partial(client.say, b"SUB state/7/>", b"UNSUB state/7/>")))
    assert costs[1] <= costs[0] + 10  # the next block of keys


def test_a_rename_costs_a_directed_message_no_scan():
    costs = []
    for count in (10, 500):
        bus = unchecked()
        for _ in range(count):
            bus.connect(b"CMSG listen", program=b"other")
        renaming, directed = bus.connect(b"CMSG listen", pid=7), (bus.connect(), b"MSG !here/prog\0x")
        names = [(renaming, b"CMSG name\0here/prog/7/" + last) for last in (b"a", b"b")]
        costs.append(steps_again(partial(say_each, names[0], directed, names[1], directed)))
    assert costs[1] <= costs[0] + 20
