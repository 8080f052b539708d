"""The client in a world of virtual time, whose backbone is killed."""

import pytest

from bccnd.backbone.numbers import RESERVE
from bccnd.wire.fyrehose import REQUEST, SEQ_LIMIT
from tests.uplink.fyrehose_world import World, connected, numbered


def test_a_crash_of_the_backbone_holds_nothing_up() -> None:
    world = World()
    one, other = world.station(position=1), world.station(position=1)
    connected(world, one, other)
    one.publish(*numbered("before", 20))
    world.run(1.0)
    world.kill()
    world.run(0.5)
    world.start()
    asked = world.sent.get(REQUEST, 0)
    after = numbered("after", 20)
    one.publish(*after)
    world.run(2.0)
    assert set(after) <= other.ear.messages
    world.settle(lambda: other.ear.completes[-1] > RESERVE)
    assert world.sent[REQUEST] - asked < 2 * 600
    facts = other.client.facts()
    assert facts.lost == 0
    assert abs(facts.skipped - RESERVE) < 600
    assert facts.behind == 0


def test_who_is_cut_off_before_a_crash_misses_nothing() -> None:
    world = World(delay=(0.002, 0.0))
    one, other, away = (world.station(position=1) for _ in range(3))
    connected(world, one, other, away)
    world.cut.add(away.address)
    wanted = numbered("one", 3000)
    one.publish(*wanted[:2500])
    world.settle(lambda: len(one.ear.numbers) == 2500)
    world.kill()
    world.run(0.2)
    world.start()
    one.publish(*wanted[2500:])
    world.settle(lambda: len(one.ear.numbers) == 3000)
    world.run(6.0)
    assert not away.client.connected
    world.cut.clear()
    world.run(2.0)
    one.publish(b"the last")
    world.settle(lambda: {*wanted, b"the last"} <= away.ear.messages)


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_delays_nothing_by_more_than_two_seconds(seed: int) -> None:
    """With a loss of 5 %, also what was published while the backbone was away."""
    world = World(seed, 0.05, delay=(0.002, 0.003))
    one, *others = (world.station(position=1) for _ in range(3))
    connected(world, one, *others)
    said: dict[bytes, float] = {}

    def speak() -> None:
        message = b"message %d" % len(said)
        said[message] = world.now
        one.publish(message)
        if len(said) < 800:
            world.at(world.now + 0.005, speak)

    speak()
    one.say_each_second()
    world.run(1.0)
    world.kill()
    world.run(1.0)
    world.start()
    began = world.now
    world.settle(lambda: all(each.ear.completes[-1] > RESERVE for each in others))
    assert world.now - began < 2.5
    world.run(5.0)
    for each in others:
        late = {said[each.ear.heard[at]] for at, when in each.ear.came_at.items()
                if each.ear.heard[at] in said and when > 2.0 + max(began, said[each.ear.heard[at]])}  # fmt: skip
        assert not late
        assert set(said) <= each.ear.messages


def test_what_was_said_between_two_crashes_is_found() -> None:
    """It is short, and far from all that its hearer knows."""
    world = World()
    one, other, away = (world.station(position=1) for _ in range(3))
    connected(world, one, other, away)
    one.publish(b"before")
    world.settle(lambda: b"before" in away.ear.messages)
    world.cut.add(away.address)
    for name in "between", "after":
        world.kill()
        world.run(0.3)
        world.start()
        world.run(0.6)
        one.publish(*numbered(name, 20))
        world.settle(lambda: not one.outbox and set(numbered(name, 20)) <= other.ear.messages)  # noqa: B023
    world.cut.clear()
    one.say_each_second()
    world.settle(lambda: {*numbered("between", 20), *numbered("after", 20)} <= away.ear.messages)


def test_numbers_that_begin_anew_are_heard() -> None:
    """A backbone without a state file; positions rise all the same."""
    world = World()
    one, other = world.station(position=1), world.station(position=1)
    connected(world, one, other)
    one.publish(*numbered("before", 1000))
    world.settle(lambda: len(one.ear.numbers) == 1000)
    for era in range(1, 4):
        world.kill()
        world.run(0.3)
        world.start(first=1)
        world.run(1.0)  # each is a subscriber again
        wanted = numbered(f"era {era}", 1000)
        one.publish(*wanted)
        world.settle(lambda wanted=wanted: set(wanted) <= other.ear.messages)
        assert other.ear.completes[-1] // SEQ_LIMIT == era
        assert max(other.ear.heard) // SEQ_LIMIT == era
    assert sorted(one.ear.numbers) == list(range(1, 4001))
    later = world.station(position=other.ear.completes[-1])
    connected(world, later)
    one.publish(*numbered("later", 5))
    world.settle(lambda: set(numbered("later", 5)) <= later.ear.messages)
    assert min(later.ear.heard) // SEQ_LIMIT == 3


def test_who_is_late_after_a_crash_waits_for_no_survey() -> None:
    """Others were sent more meanwhile than is asked for at once on either side of a long gap."""
    world = World(delay=(0.002, 0.0))
    one, late = world.station(position=1), world.station(position=1)
    connected(world, one, late)
    one.publish(b"before")
    world.settle(lambda: late.ear.messages == {b"before"})
    world.kill()
    world.start()
    world.cut.add(late.address)
    wanted = numbered("one", 1500)
    one.publish(*wanted)
    world.settle(lambda: len(one.ear.numbers) == 1501)
    world.cut.clear()
    world.run(1.0)  # it has a place again
    one.publish(b"the last")
    world.settle(lambda: {*wanted, b"the last"} <= late.ear.messages, seconds=4.0)
