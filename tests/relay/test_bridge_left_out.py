"""What a bridge left out: who says so once nothing of the source is kept, and what nobody says of the rest."""

from collections.abc import Callable

import pytest

from bccnd.relay.sent import SILENT_SECONDS
from bccnd.wire.repair import CHANNEL, Gone, Resend
from tests.relay.fakes import CLOCK, ELSEWHERE, FakeClient, datagram
from tests.relay.segment import Segment, bridge_of, bring
from tests.relay.test_bridge import KEYED, SRC, got, numbered, row, world

LEFT_OUT = Gone(((SRC, (range(CLOCK + 1, CLOCK + 5),)),))


def another_speaks(segment: Segment, bridge: FakeClient) -> None:
    """The source is silent for longer than it is kept."""
    segment.wait(SILENT_SECONDS + 1.0, 0.5)
    bring(bridge, numbered(0, src=b"cam07/door/10", chan=b"b"))
    segment.wait(1.0, 0.05)


def exchange_keys(segment: Segment, _bridge: FakeClient) -> None:
    """What was sealed before is of no use to anybody."""
    segment.wait(1.0, 0.05)
    for bus in segment.buses.values():
        bus.relay.state.sent.clear()


@pytest.mark.parametrize("forget", [another_speaks, exchange_keys])
@pytest.mark.parametrize("hears_gone", [True, False])
def test_what_is_forgotten_makes_no_hole_a_loss(
    forget: Callable[[Segment, FakeClient], None], *, hears_gone: bool
):
    """Nor does anybody wait for it who is not told at once, and asks."""
    said: list[bytes] = []

    def loses(_host: bytes, one: bytes, _times: int) -> bool:
        said.extend([one] if b"|gone" in one else [])
        return said == [one] and not hears_gone

    segment, bridge, reader = world(loses=loses)
    bring(bridge, numbered(0))
    forget(segment, bridge)
    assert segment[b"gate"].relay.state.sent.get(SRC) is None
    got(reader), segment.repair(Gone)
    bring(bridge, numbered(5))
    segment.wait(0.0 if hears_gone else 0.03)
    segment.settle()
    assert got(reader) == [5]
    assert LEFT_OUT in segment.repair(Gone)
    found = row(segment[b"here"])
    assert (found["lost"], found["given_up"], found["left_out"]) == (0, 0, 4)


def test_a_successor_knows_what_was_left_out():
    segment, bridge, reader = world()
    bring(bridge, numbered(0))
    exchange_keys(segment, bridge)
    sources = segment[b"gate"].relay.state.sources
    sources.restore(sources.state())
    got(reader), segment.repair(Gone)
    bring(bridge, numbered(5))
    segment.settle()
    assert (got(reader), segment.repair(Gone)) == ([5], [LEFT_OUT])


def test_a_source_that_begins_anew_has_no_hole_before_it():
    segment, bridge, reader = world()
    for first, then in ((5000, 5002), (1, 3)):
        bring(bridge, [datagram(SRC, each, b"a", b"%d" % each) for each in (first, then)])
        segment.settle()
        assert got(reader) == [first, then]
        assert segment.repair(Gone) == [Gone(((SRC, (range(first + 1, then),)),))]


def test_who_was_never_first_knows_what_was_left_out():
    """What it brings as the second counts all the same."""
    segment, bridge, reader = world(b"other")
    second = bridge_of(segment[b"other"])
    for each in (bridge, second):
        bring(each, numbered(0))
        segment.settle()
    exchange_keys(segment, bridge)
    got(reader), segment.repair(Gone)
    bring(second, numbered(5))
    segment.settle()
    assert (got(reader), segment.repair(Gone)) == ([5], [LEFT_OUT])


@pytest.mark.parametrize("then", [(6,), (5,), (2, 4, 6)])
def test_what_the_other_brought_meanwhile_is_not_gone(then: tuple[int, ...]):
    """The first was cut off, and skips some of what came then. Somebody has lost that, and gets it."""
    lost = datagram(SRC, CLOCK + 3, b"a", b"3", KEYED)
    segment, bridge, reader = world(
        b"other", loses=lambda host, one, times: host == b"here" and one == lost and times < 1
    )
    second = bridge_of(segment[b"other"])
    for each in (bridge, second):
        bring(each, numbered(0))
        segment.settle()
    bring(second, numbered(1, 2, 3, 4))
    segment.settle()
    bring(bridge, numbered(*then))
    segment.wait(0.05)
    assert got(reader) == [0, 1, 2, 3, 4, then[-1]]
    gone = [Gone(((SRC, (range(CLOCK + 5, CLOCK + 6),)),))] if then[-1] == 6 else []
    assert segment.repair(Gone) == gone


def test_a_successor_says_no_gone_of_what_the_other_brought():
    """The bridge was cut off meanwhile, and its new daemon is asked for what only the other has."""
    segment, bridge, _ = world(b"other")
    gate, second = segment[b"gate"], bridge_of(segment[b"other"])
    for each in (bridge, second):
        bring(each, numbered(0))
        segment.settle()
    bring(second, numbered(1, 2, 3, 4))
    segment.settle()
    bring(bridge, numbered(6))
    segment.settle()
    segment.repair(Gone)
    state = gate.relay.repair.state()
    gate.relay.state.sent.clear()
    gate.relay.repair.restore(state)
    del segment.buses[b"other"]
    asked = datagram(b"late/bccnd/5/repair", 1, CHANNEL, b"resend\n%b %d 0-4" % (SRC, CLOCK + 1), KEYED)
    gate.hear(asked, peer=ELSEWHERE)
    segment.wait(0.01)
    assert segment.repair(Gone) == [Gone(((SRC, (range(CLOCK + 5, CLOCK + 6),)),))]


def test_what_its_host_itself_misses_is_not_gone():
    """The other announces a number that nobody has heard."""
    lost = datagram(SRC, CLOCK + 1, b"a", b"1", KEYED)
    segment, bridge, reader = world(b"other", loses=lambda _, one, times: one == lost and times < 1)
    second = bridge_of(segment[b"other"])
    segment[b"gate"].connect(b"SUB a")
    for each in (bridge, second):
        bring(each, numbered(0))
        segment.settle()
    segment.wait(0.1)
    bring(second, numbered(1))
    for _ in range(100):
        segment.wait(0.001)
        if segment[b"gate"].relay.state.sources.get(SRC).gap is not None:
            break
    bring(bridge, numbered(2))
    segment.wait(0.05)
    assert (got(reader), segment.repair(Gone)) == ([0, 1, 2], [])


def test_what_no_bridge_brought_is_gone_whoever_is_asked():
    """The second lags behind, and knows that the first has brought none of it either."""
    segment, bridge, _ = world(b"other")
    second = bridge_of(segment[b"other"])
    for numbers in ((-2, -1, 0), (3, 4, 5), (6, 7)):
        for each in (bridge, second):
            bring(each, numbered(*numbers))
            segment.settle()
    segment.wait(0.1)
    segment.repair(Gone)
    del segment.buses[b"gate"]
    asked = datagram(b"late/bccnd/5/repair", 1, CHANNEL, b"resend\n%b %d 0-1" % (SRC, CLOCK + 1), KEYED)
    segment[b"other"].hear(asked, peer=ELSEWHERE)
    segment.wait(0.01)
    assert segment.repair(Gone) == [Gone(((SRC, (range(CLOCK + 1, CLOCK + 3),)),))]


def test_a_bridge_says_nothing_of_what_is_before_its_first():
    """The other has brought it, and nobody has heard it."""
    lost = datagram(SRC, CLOCK + 4, b"a", b"4", KEYED)
    segment, bridge, reader = world(b"other", loses=lambda _, one, times: one == lost and times < 1)
    second = bridge_of(segment[b"other"])
    bring(bridge, numbered(0))
    segment.settle()
    bring(bridge, numbered(4))
    segment.settle()
    segment.said.clear()
    bring(second, numbered(5))
    segment.wait(0.05)
    said = segment.said.copy()
    assert got(reader) == [0, 4, 5]
    assert len(segment.repair(Resend)) == 1
    assert sum(b"|gone" in one for one in said) == 1, "of the others, by the one that brought the fourth"
    assert row(segment[b"here"])["lost"] == 0
