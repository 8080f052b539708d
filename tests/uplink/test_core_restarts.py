"""Whatever the carrier does, and whoever is killed: each message once, in order, and none lost that was published."""

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bccnd.uplink.journal import RESTART_JUMP
from bccnd.wire.link import Numbered, Seal, messages, source
from tests.uplink.medium import Faults, Medium
from tests.uplink.segment import IN_MEMORY, Clock, Segment, datagram
from tests.uplink.test_core import World

CHANCES = st.sampled_from([0.0, 0.1, 0.5])
WITHOUT_KILLS = [
    st.tuples(st.just("say"), st.integers(1, 20)),
    st.tuples(st.just("turn"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["take", "take once", "commit"]), st.just(0)),
    st.tuples(st.sampled_from(["cut off sender", "cut off hearer", "connect"]), st.just(0)),
]
KILLS = [
    st.tuples(st.sampled_from(["kill sender", "kill hearer", "stop sender", "stop hearer"]), st.just(0)),
    st.tuples(st.just("die with what was taken"), st.just(0)),
]


class Story:
    """``berlin`` says, and ``paris`` hears, over a medium with these faults."""

    def __init__(self, seed: int, faults: Faults, folder: str | None, batch_bytes: int) -> None:
        self.medium, self.clock, self.faults = Medium(Random(seed)), Clock(), faults
        paths = [Path(folder, name) if folder else None for name in ("berlin", "paris")]
        self.berlin = Segment(b"berlin", self.medium, self.clock, paths[0], batch_bytes)
        self.paris = Segment(b"paris", self.medium, self.clock, paths[1], batch_bytes)
        # The first message says where the link begins; from then on nothing is forgotten.
        self.berlin.say()
        self.settle()
        assert self.paris.heard == {self.berlin.src: [1]}

    def settle(self) -> None:
        """All is connected and without faults, until nothing is under way."""
        for each in (self.berlin, self.paris):
            each.carrier.connected = True
        self.medium.faults = Faults()
        for _ in range(12):
            for each in (self.berlin, self.paris):
                each.wait(0.5)
                self.medium.turn()
                each.take()
        self.medium.faults = self.faults

    def step(self, word: str, number: int) -> None:
        berlin, paris = self.berlin, self.paris
        match word:
            case "say":
                berlin.say(number)
            case "turn":
                for _ in range(number):
                    self.medium.turn()
            case "take":
                paris.take()
            case "take once":
                paris.take_once()
            case "commit":
                berlin.wait(0.03)
                paris.wait(0.03)
            case "cut off sender":
                berlin.carrier.connected = False
            case "cut off hearer":
                paris.carrier.connected = False
            case "connect":
                berlin.carrier.connected = paris.carrier.connected = True
            case "die with what was taken":
                paris.take_once(lambda _: False)
                paris.kill()
                paris.start()
            case _:
                end, _, who = word.partition(" ")
                segment = berlin if who == "sender" else paris
                segment.kill() if end == "kill" else segment.stop()
                segment.start()

    def close(self) -> None:
        self.berlin.journal.close()
        self.paris.journal.close()

    def published(self) -> set[int]:
        """The sequence numbers of all messages that have a position."""
        found = set()
        for carried in self.medium.order[1:]:
            header = Seal().open(carried)
            if isinstance(header, Numbered):
                found |= {message[2] for message in messages(carried, header.at)}
        return found


# The same examples each time; the more there are, the longer by hand.
@settings(max_examples=40, derandomize=True)
@example([("say", 3), ("turn", 1), ("kill sender", 0), ("say", 3)], Faults(), 1, 0)
@example([("say", 3), ("turn", 1), ("die with what was taken", 0)], Faults(), 1, 0)
@given(
    st.lists(st.one_of(*WITHOUT_KILLS, *KILLS), min_size=10, max_size=60),
    st.builds(Faults, lost=CHANCES, doubled=CHANCES, late=CHANCES),
    st.integers(0, 999),
    st.sampled_from([0, 200]),
)
def test_nothing_published_is_lost_whoever_is_killed(
    steps: list[tuple[str, int]], faults: Faults, seed: int, batch_bytes: int
) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        story = Story(seed, faults, folder, batch_bytes)
        for step in steps:
            story.step(*step)
        story.settle()
        heard = story.paris.heard[story.berlin.src]
        assert heard == sorted(story.published()), "each once and in order"
        assert story.paris.uplink.inbound.received.lost <= story.berlin.said - len(heard)
        if not any(word == "kill sender" for word, _ in steps):
            assert heard == list(range(1, story.berlin.said + 1)), "not even what waited"
        story.close()


@settings(max_examples=60, derandomize=True)
@given(
    st.lists(st.one_of(WITHOUT_KILLS), min_size=10, max_size=60),
    st.builds(Faults, lost=CHANCES, doubled=CHANCES, late=CHANCES, gone=CHANCES),
    st.integers(0, 999),
)
def test_all_is_delivered_once_or_counted_lost_once(
    steps: list[tuple[str, int]], faults: Faults, seed: int
) -> None:
    story = Story(seed, faults, None, 0)
    for step in steps:
        story.step(*step)
    story.settle()
    inbound = story.paris.uplink.inbound
    heard = story.paris.heard[story.berlin.src]
    assert heard == sorted(set(heard)), "once, and in order"
    assert len(heard) + inbound.received.lost == story.berlin.said
    assert story.paris.repeated == 0
    assert inbound._held_bytes == 0
    assert not inbound._holding
    story.close()


@pytest.mark.parametrize("said", [0, 2])
def test_a_new_uplink_that_is_killed_begins_where_it_heard_first(tmp_path: Path, said: int) -> None:
    """Also while its daemon is away, and takes nothing."""
    medium, clock = Medium(Random(1)), Clock()
    berlin, paris = Segment(b"berlin", medium, clock, None), Segment(b"paris", medium, clock, tmp_path / "p")
    berlin.say(said)
    berlin.due()
    medium.turn()
    paris.wait(0.03)
    paris.kill()
    berlin.say(3)
    medium.turn()
    paris.start()
    medium.turn()
    paris.take()
    assert paris.heard == {berlin.src: list(range(1, said + 4))}
    berlin.journal.close()
    paris.journal.close()


def test_where_a_link_begins_is_known_after_a_kill(tmp_path: Path) -> None:
    """What was sent meanwhile may come behind a floor above it."""
    medium, clock = Medium(Random(1)), Clock()
    oslo, paris = Segment(b"oslo", medium, clock, None), Segment(b"paris", medium, clock, tmp_path / "p")
    oslo.due()
    medium.turn()
    paris.wait(0.1)
    paris.wait(0.03)
    berlin = Segment(b"berlin", medium, clock, None)
    berlin.due()
    medium.turn()
    paris.wait(0.03)
    paris.kill()
    berlin.say(3)
    medium.turn()
    paris.start()
    paris.uplink.came(99, Seal().status(berlin.uplink.src, 1, 4, 4, []))
    medium.turn()
    paris.take()
    assert paris.heard == {berlin.src: [1, 2, 3]}
    for each in (oslo, berlin, paris):
        each.journal.close()


def test_what_a_restart_leaves_out_is_not_to_come() -> None:
    world = World()
    paris = world.uplink(b"paris")
    far = world.uplink(b"far").carrier
    src = source(b"far", b"f" * 16)
    far.say(Seal().numbered(src, 1, 1, datagram(1)))
    far.say(Seal().status(src, 1, 1, RESTART_JUMP + 5, []))
    world.pass_on()
    assert [link["behind"] for link in paris.facts()["links"] if link["messages"]] == [3]
