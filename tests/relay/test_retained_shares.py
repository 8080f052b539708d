"""Whose last values go when there is no room for more: whoever has most gives first."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.relay.options import Retain
from bccnd.relay.retained import Kept, Retained
from bccnd.relay.succession import restore, state_of
from tests.relay.fakes import Bus, datagram
from tests.relay.last_values import ALL, cost, filled, rows

thorough = settings(deadline=None, max_examples=200)


def said(chan: bytes, count: int) -> list[bytes]:
    return [b"MSG state/%b/%d\0x" % (chan, number) for number in range(count)]


@pytest.mark.parametrize("bound", [{"channels": 100}, {"bytes": 128 << 10}])
def test_no_source_pushes_out_what_another_has_said(bound: dict[str, int]):
    bus = Bus(retain=["state/>"], **{f"retain_{name}": value for name, value in bound.items()})
    modest, greedy = bus.connect(), bus.connect()
    modest.say(*said(b"modest", 20))
    greedy.say(*[b"MSG state/greedy/%d\0" % number + bytes(900) for number in range(500)])
    late = bus.connect()
    heard = late.ask(b"SUB state/modest/>")
    assert len(heard) == 20
    assert len(late.ask(b"SUB state/greedy/>")) > 50


def test_no_user_pushes_out_what_another_has_said():
    bus = Bus(retain=["state/>"], retain_channels=1000)
    bus.connect(uid=1000).say(*said(b"modest", 100))
    for number in range(70):
        bus.connect(uid=1001).say(*said(b"greedy/%d" % number, 60))
    late = bus.connect()
    assert len(late.ask(b"SUB state/modest/>")) == 100
    assert len(late.ask(b"SUB state/greedy/>")) > 800


@pytest.mark.parametrize(
    ("src", "peer"),
    [
        (b"there/prog/%d", b"10.0.0.9:%d"),  # many sources of a host
        (b"there%d/prog/1", b"10.0.0.9:%d"),  # many hosts of an address
        (b"there/prog/1", b"10.0.1.%d:5400"),  # many addresses of a host
    ],
)
def test_no_host_pushes_out_what_others_have_said(src: bytes, peer: bytes):
    bus = Bus(retain=["state/>"], retain_channels=240)
    bus.connect().say(*said(b"modest", 50))
    for at in range(50):
        bus.hear(datagram(b"modest/prog/1", at + 1, b"state/modest/there/%d" % at, b"x"))
    for number in range(255):
        source = src.replace(b"%d", b"%d" % number)
        whole = datagram(source, number + 1, b"state/greedy/%d" % number, b"x")
        bus.hear(whole, peer=peer % number)
    assert len(bus.connect().ask(b"SUB state/modest/>")) == 100


def test_what_a_bridge_brings_is_of_its_user():
    bus = Bus(retain=["state/>"], retain_channels=120)
    bus.connect().say(*said(b"modest", 50))
    bridge = bus.connect(privileged=True)
    for number in range(200):
        bridge.say(datagram(b"far%d/prog/1" % number, 1, b"state/far/%d" % number, b"x"))
    late = bus.connect()
    assert len(late.ask(b"SUB state/modest/>")) == 50
    assert len(late.ask(b"SUB state/far/>")) == 70


def test_a_successor_knows_who_has_said_what():
    old, new = (Bus(retain=["state/>"], retain_channels=60) for _ in range(2))
    old.connect(uid=1001).say(*said(b"greedy", 30))
    old.connect(uid=1000).say(*said(b"modest", 20))
    restore(new.relay, state_of(old.relay) | {"sessions": []}, {})
    for number in range(40):
        new.connect(uid=1001).say(b"MSG state/greedy/more/%d\0x" % number)
    assert len(new.connect().ask(b"SUB state/modest/>")) == 20


def test_what_a_predecessor_left_without_users_is_taken_over():
    retained = filled(b"a", b"b")
    successor = filled()
    successor.restore(retained.state())
    assert rows(successor) == rows(retained)
    successor.restore(retained.state(), [1000, 1001])
    assert successor.users() == [1000, 1001]


@thorough
@given(
    script=st.lists(
        st.tuples(st.sampled_from([None, 1, 2]), st.integers(0, 2), st.integers(0, 5), st.integers(0, 900)),
        max_size=60,
    ),
    channels=st.integers(1, 5),
    size=st.integers(600, 9000),
)
def test_who_has_most_gives(script: list[tuple[int | None, int, int, int]], channels: int, size: int):
    """Each message is of a user, or of an address, and of a source, on a channel, so long."""
    retained = Retained(Retain(ALL, channels=channels, bytes=size))
    oracle: dict[bytes, tuple[Kept, int | None]] = {}
    for user, source, chan_number, length in script:
        chan = b"c%d" % chan_number
        whole = datagram(b"s%d" % source, 1, chan, b"x" * length)
        message = Kept(b"10.0.0.1:1", 5, whole, len(whole) - length)
        before = dict(oracle)
        retained.keep(chan, message, user)
        before.pop(chan, None)
        if length and cost([(chan, message)]) <= size:
            before[chan] = message, user
        there = dict(rows(retained))
        given_up = before.keys() - there
        assert there.keys() <= before.keys()
        oracle = {each: before[each] for each in there}
        assert cost(there.items()) <= retained.size <= size
        assert len(there) <= channels
        owners: Counter[int | None] = Counter()
        sources: Counter[tuple[int | None, bytes]] = Counter()
        for each, (kept_there, whose) in before.items():
            weight = size + cost([(each, kept_there)]) * channels
            owners[whose] += weight
            sources[whose, kept_there.source] += weight
        if len(given_up) == 1:  # of several the shares shrink meanwhile
            message, whose = before[given_up.pop()]
            assert owners[whose] == max(owners.values())
            assert sources[whose, message.source] == max(
                sources[whose, each] for each in map(b"s%d".__mod__, range(3))
            )
