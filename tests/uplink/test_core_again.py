"""A daemon that was restarted gives an uplink again what the one before it gave."""

from bccnd.uplink.core import ECHO_SECONDS
from tests.uplink.segment import datagram
from tests.uplink.test_core import World, taken


def test_what_a_restarted_daemon_gives_again_is_not_carried() -> None:
    """A sibling was late with it, and the new daemon does not know it."""
    world = World()
    berlin, paris = world.uplink(), world.uplink(b"paris")
    for seq in (1, 2, 4):
        berlin.offer(datagram(seq))
    berlin.joined()
    for seq in (1, 2, 3, 4, 5, 4):
        berlin.offer(datagram(seq))
    world.pass_on()
    assert berlin.outbound.sent.messages == 5, "3 is new, however late"
    assert berlin.counts["again"] == 4
    assert taken(paris)[-1] == datagram(5)


def test_what_was_kept_back_and_is_given_again_is_carried_once() -> None:
    """A message of a host beyond the carrier, which comes another way, waits while the daemon is restarted."""
    world = World()
    berlin, paris, rome = world.uplink(), world.uplink(b"paris"), world.uplink(b"rome")
    berlin.offer(datagram(1))
    world.pass_on()
    assert taken(paris) == taken(rome) == [datagram(1)]
    paris.offer(datagram(2))
    paris.joined()
    paris.offer(datagram(2))
    for _ in range(3):
        world.pass_on(ECHO_SECONDS)
    assert paris.outbound.sent.messages == 1
    assert taken(rome) == [datagram(2)]


def test_a_source_that_begins_anew_after_its_daemon_is_carried() -> None:
    world = World()
    berlin = world.uplink()
    for seq in (1, 2, 3, 5000):
        berlin.offer(datagram(seq))
    berlin.joined()
    for seq in (1, 2, 3):
        berlin.offer(datagram(seq))
    berlin.flush()
    assert berlin.outbound.sent.messages == 7


def test_last_values_go_out_on_each_connection() -> None:
    world = World()
    berlin = world.uplink()
    for _ in range(2):
        berlin.joined()
        berlin.offer(datagram(1), retained=True)
    berlin.flush()
    assert berlin.outbound.sent.messages == 2
