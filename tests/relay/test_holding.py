"""Clients that hold publishers: who may go on holding them, and who is closed."""

import pytest

from bccnd.relay.holding import WINDOW_SECONDS, may_hold
from bccnd.relay.identity import Peer
from bccnd.relay.options import Policy
from bccnd.relay.rights import Grant, Rights
from bccnd.relay.session import Session
from bccnd.wire import sbus
from tests.relay.fakes import Bus, FakeClient, messages, options, slow


def held(bus: Bus) -> FakeClient:
    publisher = bus.connect()
    publisher.say(*messages(*range(400)))
    assert publisher.held
    return publisher


def test_a_reader_that_reads_slowly_but_steadily_stays():
    """Its socket is never empty enough to take more: only what it has not read shows that it reads."""
    bus = Bus(block_seconds=5, block_floor=0)
    reader = slow(bus, "block")
    publisher = held(bus)
    bus.transport.unread_bytes[reader.port] = 100_000
    for _ in range(60):
        bus.transport.unread_bytes[reader.port] -= 35
        bus.tick(1)
    assert reader.connected
    assert publisher.held


@pytest.mark.parametrize("unread", [0, 100_000])
def test_a_reader_that_reads_nothing_is_closed(unread: int):
    """Whatever part of it the system keeps for the reader, and shows."""
    bus = Bus(block_seconds=5)
    reader = slow(bus, "block")
    publisher = held(bus)
    bus.transport.unread_bytes[reader.port] = unread
    bus.tick(1)
    bus.tick(3)
    assert reader.connected
    assert publisher.held
    assert publisher.unread
    bus.tick(2)
    assert bus.closed == {reader.name: "slow"}
    assert not publisher.held
    assert not publisher.unread


def test_block_client_that_takes_a_little_stays():
    bus = Bus(block_seconds=5, block_floor=0)
    reader = slow(bus, "block", packets=100)
    publisher = bus.connect()
    publisher.say(*messages(*range(100)))
    for _ in range(10):
        bus.tick(4)
        reader.take(1)
    assert reader.connected
    assert publisher.held


def test_a_shorter_time_holds_for_those_who_block_already():
    bus = Bus(block_seconds=60)
    reader = slow(bus, "block")
    publisher = bus.connect()
    publisher.say(*messages(*range(4)))
    bus.tick(10)
    assert publisher.held
    bus.reconfigure(options=options(block_seconds=5))
    bus.tick(1)
    assert bus.closed == {reader.name: "slow"}
    assert not publisher.held


@pytest.mark.parametrize("policy", [Policy.DROP_OLDEST, Policy.DROP_NEWEST])
def test_only_block_clients_are_closed_for_being_slow(policy: Policy):
    bus = Bus()
    reader = slow(bus, policy)
    bus.connect().say(*messages(*range(100)))
    bus.tick(1000)
    assert reader.connected


def test_the_time_begins_with_the_backlog():
    bus = Bus(block_seconds=5)
    reader = slow(bus, "block")
    bus.tick(1000)
    bus.connect().say(*messages(*range(4)))
    bus.tick(1)
    assert reader.connected


@pytest.mark.parametrize(("floor", "stays"), [(30, True), (50, False), (0, True)])
def test_a_reader_below_the_floor_is_closed(floor: int, stays: bool):
    """It takes 40 messages a second, some more once a while: publishers go on in between, and wait for the most."""
    bus = Bus(block_floor=floor)
    reader = slow(bus, "block")
    publisher = held(bus)
    for _ in range(30):
        if reader.connected:
            publisher.say(*messages(*range(160)))
            reader.take(160)
            reader.stop_reading()
        bus.tick(4)
    assert reader.connected == stays
    if not stays:
        assert bus.closed == {reader.name: "slow"}


def test_a_reader_that_holds_nobody_for_long_stays():
    """It takes everything at once, though there is little to take."""
    bus = Bus(block_floor=1000)
    reader, publisher = slow(bus, "block"), bus.connect()
    for _ in range(30):
        publisher.say(*messages(*range(8)))
        assert publisher.held
        reader.take()
        reader.stop_reading()
        assert not publisher.held
        bus.tick(1)
    assert reader.connected


def test_longer_block_seconds_are_a_longer_window():
    bus = Bus(block_seconds=60, block_floor=10)
    reader = slow(bus, "block")
    held(bus)
    bus.tick(WINDOW_SECONDS + 1)
    bus.tick(30)
    assert reader.connected


def test_nothing_is_looked_at_once_nobody_has_waited_for_a_while():
    bus = Bus()
    reader = slow(bus, "block")
    held(bus)
    reader.take()
    for _ in range(15):
        bus.tick(1)
    assert bus.relay.holding.state() == []
    assert bus.relay.holding.next_deadline() == float("inf")


@pytest.mark.parametrize(
    ("holder", "publisher", "expected"),
    [((5, True), (5, True), True), ((5, True), (5, False), True), ((5, False), (5, False), True),
     ((5, False), (5, True), False), ((6, True), (5, True), False)],
)  # fmt: skip
def test_a_client_may_hold_its_own_user_of_its_own_namespace(
    holder: tuple[int, bool], publisher: tuple[int, bool], expected: bool
):
    made = []
    for uid, resident in (holder, publisher):
        peer = Peer(7, uid, 0, b"prog", resident=resident)
        made.append(Session(1, 1, peer, rights=Rights([Grant(block_own=True)]), now=0.0))
    made[0].queue_asked["policy"] = "block"
    assert may_hold(*made) is expected


def feed(bus: Bus, uid: int, count: int = 40) -> FakeClient:
    """A publisher that says something once, and has no more to say."""
    feeder = bus.connect(b"CMSG pack\0on", uid=uid)
    feeder.say(sbus.pack([b"MSG own\0"] * count))
    return feeder


@pytest.mark.parametrize("with_more", [False, True], ids=["of one user", "of another with more to say"])
def test_what_a_reader_takes_of_its_own_does_not_count(with_more: bool):
    """It reads four times what the floor asks for, and nothing of those who wait."""
    bus = Bus(block_floor=10)
    reader = bus.connect(b"SUB a", b"SUB own", b"CMSG queue\0packets=1 policy=block", uid=0)
    reader.stop_reading()
    feed(bus, uid=0, count=40)
    victim = bus.connect(uid=1000 if with_more else 0)
    victim.say(*messages(*range(100)))
    assert victim.held
    for _ in range(int(WINDOW_SECONDS) * 4):
        if not reader.connected:
            break
        feeder = feed(bus, uid=0, count=40)
        if with_more:
            feeder.say(b"MSG own\0")
        reader.take(40)
        reader.stop_reading()
        bus.tick(1)
    assert bus.closed == {reader.name: "slow"}
    assert not victim.held


def test_a_reader_that_works_may_hold_many_publishers():
    """Each of them gets a tenth of what the floor asks for, and all together more than that."""
    bus = Bus(block_floor=30)
    reader = slow(bus, "block")
    publishers = [bus.connect() for _ in range(10)]
    for publisher in publishers:
        publisher.say(*messages(*range(2000)))
    for _ in range(60):
        reader.take(40)
        reader.stop_reading()
        bus.tick(1)
    assert reader.connected
    assert all(publisher.held for publisher in publishers)


def test_a_reader_of_one_long_read_stays():
    """Nothing more of its publisher is read for many windows: what was read goes through meanwhile."""
    bus = Bus(block_floor=30)
    reader, publisher = slow(bus, "block"), bus.connect(b"CMSG pack\0on")
    publisher.say(sbus.pack([b"MSG a\0"] * 4000), b"MSG a\0more")
    for _ in range(90):
        reader.take(40)
        reader.stop_reading()
        bus.tick(1)
    assert reader.connected
    assert publisher.held
