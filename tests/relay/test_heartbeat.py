"""Heartbeats out: the daemon's own and those of clients that asked for them; in time, never in a burst, until they
leave.
"""

from hypothesis import given
from hypothesis import strategies as st

from bccnd.relay.heartbeat import Rhythm
from bccnd.relay.succession import restore, state_of
from tests.relay.fakes import CLOCK, Bus

OWN = b"heartbeat/here/bccnd/0|"


def beating(seconds: int = 10, offset: float = 0.0) -> Bus:
    bus = Bus(rhythm=Rhythm(seconds))
    bus.relay.begin(CLOCK, now=bus.now, offset=offset)
    return bus


def beats(bus: Bus, seconds: int) -> list[int]:
    """In which of the next seconds a heartbeat was sent."""
    found = []
    for second in range(1, seconds + 1):
        bus.sent.clear()
        bus.tick(1.0)
        found += [second] * sum(b":heartbeat/" in sent for sent in bus.sent)
    return found


def test_the_daemon_beats_in_its_rhythm_from_its_offset_on() -> None:
    assert beats(beating(), 31) == [1, 10, 20, 30]
    assert beats(beating(offset=0.35), 30) == [4, 14, 24]
    assert beats(beating(0), 30) == []


def test_what_it_says_reaches_subscribers_here_as_well() -> None:
    bus = beating()
    client = bus.connect(b"SUB heartbeat/>")
    bus.tick(1.0)
    assert client.heard() == [b"MSG heartbeat/here/bccnd/0\x001.2.3".replace(b"\x00", b"\0bccnd/")]
    assert [sent.partition(b":heartbeat")[2] for sent in bus.sent] == [b"/here/bccnd/0|bccnd/1.2.3"]


def test_nothing_is_made_up_for_after_a_pause() -> None:
    bus = beating()
    bus.tick(1000.0)
    assert len(bus.sent) == 1
    assert beats(bus, 20) == [10, 20]


def test_a_reload_changes_the_rhythm_and_one_that_does_not_leaves_it() -> None:
    bus = beating()
    bus.tick(1.0)
    change(bus, 10)
    assert beats(bus, 10) == [9]
    change(bus, 4)
    assert beats(bus, 9) == [1, 4, 8]
    change(bus, 0)
    assert beats(bus, 20) == []


def change(bus: Bus, seconds: int) -> None:
    relay = bus.relay
    relay.delivery.now = bus.now
    relay.reconfigure(
        integrity=relay.integrity,
        local=[],
        retain=[],
        limits=relay.limits,
        access=relay.access,
        rhythm=Rhythm(seconds),
    )


def test_an_orderly_end_is_announced_and_only_by_who_has_beaten() -> None:
    bus = beating()
    bus.relay.end(bus.now)
    assert [sent.rpartition(b":")[2] for sent in bus.relay.outgoing] == [OWN + b"leaving"]
    silent = beating(0)
    silent.relay.end(silent.now)
    assert silent.relay.outgoing == []


@given(st.integers(1, 9), st.lists(st.integers(1, 40), max_size=30))
def test_at_most_one_a_tick_and_on_time(seconds: int, steps: list[int]) -> None:
    bus = beating(seconds)
    due = bus.now
    for step in steps:
        bus.sent.clear()
        bus.tick(step / 4)
        assert len(bus.sent) == (due <= bus.now)
        if due <= bus.now:
            due = due + seconds if due + seconds > bus.now else bus.now + seconds


def test_the_rhythm_stays_over_a_replacement() -> None:
    bus = beating()
    bus.tick(1.0)
    successor = beating(offset=0.5)
    restore(successor.relay, state_of(bus.relay), [])
    assert beats(successor, 20) == [10, 20]
    otherwise = beating(4)
    restore(otherwise.relay, state_of(bus.relay), [])
    assert beats(otherwise, 8) == [1, 4, 8]
