"""What an uplink does of each thing when there is too much of it: messages a second, what waits, what comes."""

from bccnd.uplink.journal import Limits
from bccnd.uplink.options import Rate
from tests.uplink.segment import datagram
from tests.uplink.test_core import World, taken


def test_a_rate_bounds_what_is_carried() -> None:
    world = World()
    berlin, paris = world.uplink(rates=(Rate(b"door/>", 10.0, 5.0),)), world.uplink(b"paris")
    for seq in range(1, 101):
        berlin.offer(datagram(seq))
    world.pass_on(1.0)
    berlin.offer(datagram(101))
    world.pass_on()
    assert len(taken(paris)) == 6
    assert berlin.counts["rate"] == 95


def test_a_site_that_is_cut_off_for_an_hour_loses_nothing() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    berlin.offer(datagram(1))
    world.pass_on()
    world.medium.carriers[0].connected = False
    for seq in range(2, 3602):
        berlin.offer(datagram(seq))
        world.pass_on(1.0)
    assert berlin.facts()["outbox"]["datagrams"] == 3600
    world.medium.carriers[0].connected = True
    for _ in range(100):
        world.pass_on(0.1)
    assert taken(paris) == [datagram(seq) for seq in range(1, 3602)]
    assert berlin.facts()["outbox"] == {
        "datagrams": 0,
        "bytes": 0,
        "next": 3602,
        "floor": 3602,
        "given_up": 0,
    }


def test_an_outbox_that_was_full_for_an_hour_is_told_as_loss() -> None:
    world = World()
    berlin, paris = world.uplink(batch_bytes=0), world.uplink(b"paris")
    berlin._journal.limits = Limits(outbox_bytes=100_000)
    berlin.offer(datagram(1))
    world.pass_on()
    world.medium.carriers[0].connected = False
    for seq in range(2, 3602):
        berlin.offer(datagram(seq, payload=bytes(100)))
        world.pass_on(1.0)
    given_up = berlin.facts()["outbox"]["given_up"]
    assert given_up > 2000
    world.medium.carriers[0].connected = True
    for _ in range(100):
        world.pass_on(0.1)
    got = taken(paris)
    assert got[1:] == [datagram(seq, payload=bytes(100)) for seq in range(2 + given_up, 3602)]
    assert paris.inbound.received.lost == given_up


def test_more_than_the_segment_takes_is_asked_for_again() -> None:
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris", ready_bytes=10_000, hold_bytes=20_000)
    berlin.offer(datagram(1))
    world.pass_on(0.1)
    got = taken(paris)
    for seq in range(2, 1000):
        berlin.offer(datagram(seq))
        if seq % 10 == 0:
            world.pass_on(0.1)
        if seq == 500:
            got += paris.take()  # there is room again, and a gap: nothing is to be held behind it
    world.pass_on()
    assert paris.full
    assert paris._ready_bytes < 20_000
    for _ in range(100):
        if paris.full:
            got += taken(paris)
            world.medium.carriers[1].begin(paris.begin())
            world.pass_on()
    got += taken(paris)
    assert got == [datagram(seq) for seq in range(1, 1000)]
    assert paris.inbound.received.lost == 0


def test_a_message_of_any_size_crosses_alone_or_with_others() -> None:
    world = World()
    berlin, paris = world.uplink(batch_bytes=500), world.uplink(b"paris")
    sizes = [0, 1, 400, 480, 500, 1300, 1990, 3, 1990, 1990, 5]
    sent = [datagram(seq, payload=bytes(size)) for seq, size in enumerate(sizes, 1)]
    for each in sent:
        berlin.offer(each)
    berlin.offer(datagram(99, payload=bytes(2100)))
    world.pass_on()
    assert taken(paris) == sent
    assert berlin.counts["unsound"] == 1
