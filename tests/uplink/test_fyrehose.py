"""The client in a world of virtual time: loss, cuts, crashes of the backbone, and liars."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.uplink.fyrehose import SUSPECTS, Client, Options
from bccnd.uplink.fyrehose_answers import UNITS, UNITS_AT_ONCE
from bccnd.wire.fyrehose import (
    ACK,
    DELIVER,
    FORWARD,
    KEEPALIVE,
    PUSH,
    REQUEST,
    SEQ_LIMIT,
    Ack,
    Address,
    Deliver,
    Forward,
    Keepalive,
    Push,
    parse,
    proves,
)
from tests.uplink.fyrehose_world import BACKBONE, Ear, Shelf, Station, World, connected, numbered

# Nothing is given up.
STUBBORN = Options(tries=1 << 20, patience=1e9)
STRANGER: Address = bytes([10, 0, 9, 9]), 999


class Alone:
    """A client that talks to the test alone; its packets are read one by one."""

    def __init__(self, options: Options = Options(), position: int = 0) -> None:  # noqa: B008
        self.ear, self.shelf, self.now = Ear(), Shelf(), 100.0
        self.client = Client(options, self.ear, self.shelf, lambda: 0.5, b"sixteen or more bytes")
        self.client.begin(position)
        self.client.move(BACKBONE, (bytes([10, 0, 1, 1]), 1), self.now)

    def connect(self) -> None:
        (keepalive,) = self.sent(KEEPALIVE)
        self.hear(Ack(keepalive.token))  # type: ignore[union-attr]
        assert self.client.connected

    def hear(self, *packets: object, source: Address = BACKBONE) -> None:
        self.client.receive([(each.serialize(), source) for each in packets], self.now)  # type: ignore[attr-defined]

    def sent(self, kind: int) -> list[object]:
        return [found for packet, _ in self.client.take() if (found := parse(packet)).kind == kind]

    def wait(self, seconds: float) -> list[tuple[bytes, Address]]:
        """What it sends meanwhile, with its KEEPALIVEs acknowledged."""
        end, sent = self.now + seconds, self.client.take()
        while (due := self.client.next_deadline()) <= end:
            self.now = max(self.now, due)
            self.client.on_deadline(self.now)
            packets = self.client.take()
            for packet, _ in packets:
                if packet[0] == KEEPALIVE:
                    self.client.receive([(bytes([ACK]) + packet[-16:], BACKBONE)], self.now)
            sent += packets + self.client.take()
        self.now = end
        return sent


# --- what is promised ---


@settings(max_examples=12, derandomize=True)
@given(
    st.integers(0, 10_000),
    st.sampled_from([0.0, 0.05, 0.2]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.05]),
    st.lists(st.sampled_from(["kill", "cut", "wait"]), max_size=4),
)
def test_what_is_published_arrives(
    seed: int, loss: float, doubling: float, late: float, troubles: list[str]
) -> None:
    """Whatever is lost, doubled and reordered, while the backbone crashes and a client is cut off."""
    world = World(seed, loss, doubling, (0.005, late))
    one, other, third = (world.station(STUBBORN, position=1) for _ in range(3))
    for each in (one, other, third):
        each.say_each_second()
    wanted = numbered("one", 60)
    for at in range(0, 60, 10):
        one.publish(*wanted[at : at + 10])
        trouble = troubles.pop() if troubles else "wait"
        if trouble == "kill":
            world.kill()
            world.run(0.3)
            world.start()
        elif trouble == "cut":
            world.cut.add(other.address)
            world.run(6.0)
            world.cut.clear()
        world.run(0.05)
    world.settle(lambda: set(wanted) <= other.ear.messages & third.ear.messages)
    world.settle(lambda: len(one.ear.numbers) == 60)
    assert sorted(one.ear.numbers) == list(range(1, 61))


def test_without_loss_each_message_is_pushed_once() -> None:
    world = World()
    one, other = world.station(), world.station()
    connected(world, one, other)
    one.publish(*numbered("one", 500))
    world.settle(lambda: len(one.ear.numbers) == 500 == len(other.ear.heard))
    assert list(other.ear.heard.values()) == numbered("one", 500)
    assert one.ear.heard == {}  # what is its own it knows
    assert one.client.facts() == replace(one.client.facts(), repeated=0, asked=0, lost=0, behind=0, reason="")
    assert other.ear.completes[-1] == 501
    assert one.client.facts().round_trip == pytest.approx(0.02)


def test_what_was_said_is_heard_and_shows_what_is_missing() -> None:
    world = World()
    one, other = world.station(), world.station(position=1)
    connected(world, one, other)
    world.cut.add(other.address)
    one.publish(b"missed")
    world.run(0.1)
    world.cut.clear()
    one.client.say(b"status")
    one.went_on()
    world.settle(lambda: other.ear.messages == {b"missed", b"status"})
    assert (other.client.facts().asked, other.client.facts().repaired) == (1, 1)
    assert one.client.facts().answered == 1


def test_a_backbone_that_was_away_is_told_at_once_what_waits() -> None:
    alone = Alone(position=1)
    alone.connect()
    alone.client.publish(1, b"waits", alone.now)
    end = alone.now + 2.0
    while alone.now < end:  # nobody answers
        alone.now = max(alone.now, alone.client.next_deadline())
        alone.client.on_deadline(alone.now)
        sent = alone.client.take()
    alone.now += 0.01
    alone.client.on_deadline(alone.now)
    sent += alone.client.take()
    token = next(packet[-16:] for packet, _ in sent if packet[0] == KEEPALIVE)
    alone.hear(Ack(token))
    assert [found.data for found in alone.sent(PUSH)] == [b"waits"]  # type: ignore[attr-defined]


def test_who_is_not_answered_asks_again_soon() -> None:
    """A backbone that was started again knows nobody: each moment until it is asked would be missed."""
    alone = Alone()
    alone.connect()
    times: list[float] = []
    while len(times) < 4:
        alone.now = max(alone.now, alone.client.next_deadline())
        alone.client.on_deadline(alone.now)
        times += [alone.now] * len(alone.sent(KEEPALIVE))
    assert [round(after - before, 3) for before, after in pairwise([100.0, *times])] == [
        0.5,
        0.125,
        0.125,
        0.125,
    ]


def test_who_was_away_catches_up_without_a_flood() -> None:
    """What comes meanwhile does not fill memory, and is heard in the end."""
    world = World(delay=(0.005, 0.0))
    one, away = world.station(position=1), world.station(position=1)
    connected(world, one, away)
    one.publish(b"first")
    world.settle(lambda: away.ear.messages == {b"first"})
    world.cut.add(away.address)
    wanted = numbered("one", 15_000)
    one.publish(*wanted)
    world.settle(lambda: len(one.ear.numbers) == 15_001)
    world.cut.clear()
    connected(world, away)
    delivered, began = world.sent[DELIVER], world.now
    late = iter(numbered("late", 100_000))
    ahead = 0
    while len(away.ear.heard) < 15_001:
        one.publish(next(late))
        world.run(0.02)
        ahead = max(ahead, len([p for p in away.ear.heard if p > away.ear.completes[-1]]))
    seconds = world.now - began
    assert 2.0 < seconds < 60.0
    assert world.sent[DELIVER] - delivered < UNITS * seconds + UNITS_AT_ONCE + 200 * seconds
    assert ahead < 6000
    one.publish(b"the last")
    world.settle(lambda: b"the last" in away.ear.messages and not away.client.facts().behind)
    assert set(wanted) < away.ear.messages
    assert away.client.facts().lost == 0


def test_after_a_restart_what_it_keeps_is_not_asked_for() -> None:
    world = World()
    one, other = world.station(position=1), world.station(position=1)
    connected(world, one, other)
    one.publish(*numbered("one", 50))
    world.settle(lambda: len(other.ear.heard) == 50)
    again = Station(world, 9, Options(), 20, other.shelf)
    connected(world, again)
    one.publish(b"new")
    world.settle(lambda: len(again.ear.heard) == 32)
    assert min(again.ear.heard) == 20
    assert again.client.facts().asked == 0


def test_it_may_begin_again_from_further_below() -> None:
    """As it does after its user had no room for what came."""
    world = World()
    one, other = world.station(position=1), world.station(position=1)
    connected(world, one, other)
    one.publish(*numbered("one", 50))
    world.settle(lambda: len(other.ear.heard) == 50)
    other.client.leave()
    other.ear.heard.clear()
    other.ear.completes.clear()
    other.client.begin(11)
    other.client.move(BACKBONE, other.address, world.now)
    other.went_on()
    connected(world, other)
    one.publish(b"new")
    world.settle(lambda: other.ear.completes[-1:] == [52])
    assert sorted(other.ear.heard) == list(range(11, 52))
    assert other.client.facts().asked == 0


def test_what_nobody_keeps_is_lost_and_passed_over() -> None:
    world = World()
    one, other = world.station(position=1, limit=1), world.station(position=1)
    connected(world, one, other)
    world.cut.add(other.address)
    one.publish(*numbered("one", 10))
    world.run(0.5)
    world.cut.clear()
    one.publish(b"after")
    world.settle(lambda: bool(other.ear.completes) and other.ear.completes[-1] == 12)
    facts = other.client.facts()
    assert (facts.lost, facts.behind, other.ear.messages) == (10, 0, {b"after"})


def test_who_is_cut_off_has_no_room_and_says_so() -> None:
    world = World()
    one = world.station()
    assert one.client.facts().reason
    assert one.client.room == 0
    connected(world, one)
    assert one.ear.changes == 1
    assert one.client.room > 0
    world.kill()
    one.publish(b"under way")
    world.settle(lambda: not one.client.connected)
    assert one.ear.changes == 2
    assert one.client.room == 0
    assert one.client.facts("why").reason == "why"
    one.publish(b"waits")
    assert one.outbox
    world.start()
    world.settle(lambda: len(one.ear.numbers) == 2)
    assert one.client.facts("why").reason == ""


def test_who_finds_no_room_is_told_when_there_is_some() -> None:
    """Also when the window closed by a loss, and nobody published meanwhile."""
    alone = Alone(position=1)
    alone.connect()
    for number, message in enumerate(numbered("one", 40), 1):
        alone.client.publish(number, message, alone.now)
    assert alone.client.room == 24
    alone.wait(0.7)  # nothing comes back
    assert alone.client.room == 0
    assert alone.ear.changes == 1
    for number, message in enumerate(numbered("one", 40), 1):
        alone.hear(Deliver(number, message))
    assert alone.ear.numbers == list(range(1, 41))
    assert alone.client.room > 0
    assert alone.ear.changes == 2


def test_a_key_is_proved_with_the_time() -> None:
    alone = Alone(Options(key=b"a secret of sixteen"))
    tokens = {packet[-16:] for packet, _ in alone.wait(2.0) if packet[0] == KEEPALIVE}
    assert len(tokens) == 5
    assert all(proves(token, [b"a secret of sixteen"]) for token in tokens)


def test_the_interval_of_keepalives_is_a_setting() -> None:
    for interval, count in ((0.5, 21), (0.1, 101)):
        packets = Alone(Options(keepalive=interval)).wait(10.001)
        assert sum(packet[0] == KEEPALIVE for packet, _ in packets) == count
        assert parse(packets[0][0]) == Keepalive((bytes(4), 0), 0, packets[0][0][-16:])


# --- who lies ---


def test_an_acknowledgement_has_a_token_that_was_sent() -> None:
    alone = Alone()
    token = alone.client.take()[0][0][-16:]
    alone.hear(Ack(bytes(16)), Ack(token[:8] + bytes(8)))
    alone.hear(Ack(token), source=STRANGER)
    assert not alone.client.connected
    assert alone.client.strays == 3
    alone.hear(Ack(token))
    assert alone.client.connected
    alone.hear(Ack(token))  # once more
    assert alone.client.strays == 4


def test_a_stranger_delivers_only_what_was_asked_for() -> None:
    alone = Alone(position=1)
    alone.connect()
    alone.hear(Deliver(1, b"x"), Deliver(SEQ_LIMIT - 1, b"x"), source=STRANGER)
    assert alone.ear.heard == {}
    alone.hear(Deliver(3, b"three"))
    alone.hear(Deliver(1, b"x"), source=STRANGER)
    assert alone.ear.heard == {3: b"three"}
    requests = [packet for packet, _ in alone.wait(0.05) if packet[0] == REQUEST]
    assert [(parse(each).first, parse(each).last) for each in requests] == [(1, 2)]  # type: ignore[union-attr]
    alone.hear(Deliver(1, b"one"), Deliver(3, b"x"), Deliver(4, b"x"), source=STRANGER)
    assert alone.ear.heard == {3: b"three", 1: b"one"}
    alone.hear(Deliver(1, b"x"), source=STRANGER)
    assert alone.ear.completes[-1] == 2


def test_what_is_wrong_is_dropped() -> None:
    alone = Alone()
    alone.connect()
    before = alone.client.strays
    wrong = [
        b"",
        b"\x01",
        b"\x01\x00\x05\x00\x00",
        b"\xff" * 40,
        Push(b"x").serialize(),
        Deliver(0, b"x").serialize(),
    ]
    alone.client.receive([(packet, BACKBONE) for packet in wrong], alone.now)
    assert alone.client.strays == before + len(wrong)
    assert alone.ear.heard == {}


@pytest.mark.parametrize("far", [SEQ_LIMIT - 1, 10_000_000, 1])
def test_one_number_that_is_far_off_changes_nothing(far: int) -> None:
    alone = Alone()
    alone.connect()
    for seq in range(5000, 5010):
        alone.hear(Deliver(seq, b"m%d" % seq))
        alone.hear(Deliver(far, b"forged %d" % seq))
    assert list(alone.ear.heard) == list(range(5000, 5010))
    assert alone.ear.completes[-1] == 5010
    assert [packet for packet, _ in alone.wait(2.0) if packet[0] == REQUEST] == []


def test_after_forged_numbers_the_true_ones_go_on() -> None:
    """It costs requests, which are bounded, and no message."""
    alone = Alone()
    alone.connect()
    alone.hear(*(Deliver(seq, b"m%d" % seq) for seq in range(1, 10)))
    alone.hear(*(Deliver(SEQ_LIMIT - seq, b"forged %d" % seq) for seq in range(1, SUSPECTS + 1)))
    alone.hear(*(Deliver(seq, b"m%d" % seq) for seq in range(10, 30)))
    assert {b"m%d" % seq for seq in range(1, 30)} <= alone.ear.messages
    requests = [packet for packet, _ in alone.wait(60.0) if packet[0] == REQUEST]
    assert len(requests) < 3000
    assert alone.ear.completes[-1] == SEQ_LIMIT
    alone.hear(*(Deliver(seq, b"m%d" % seq) for seq in range(30, 40)))
    assert {b"m%d" % seq for seq in range(1, 40)} <= alone.ear.messages
    alone.wait(60.0)
    assert alone.ear.completes[-1] == SEQ_LIMIT + 40


def test_duplicates_of_long_ago_begin_nothing_anew() -> None:
    alone = Alone(position=1)
    alone.connect()
    for seq in range(1, 6001):
        alone.hear(Deliver(seq, b"m%d" % seq))
    alone.hear(*(Deliver(seq, b"m%d" % seq) for seq in range(1, 6001)))
    assert len(alone.ear.heard) == 6000
    assert alone.ear.completes[-1] == 6001


@pytest.mark.parametrize(
    "address",
    [
        (bytes([10, 0, 1, 1]), 1),  # itself
        BACKBONE,
        (bytes([10, 0, 0, 9]), 0),
        (bytes(4), 9),
        (bytes([127, 0, 0, 1]), 9),
        (bytes([224, 0, 0, 1]), 9),
        (bytes([255, 255, 255, 255]), 9),
    ],
)
def test_answers_do_not_go_where_nobody_asks_from(address: Address) -> None:
    alone = Alone()
    alone.connect()
    alone.hear(Deliver(1, b"one"))
    alone.hear(Forward(address, 1, 1))
    assert [packet for packet, _ in alone.wait(1.0) if packet[0] == DELIVER] == []


def test_only_the_backbone_forwards_and_a_victim_gets_a_rate() -> None:
    alone = Alone()
    alone.connect()
    alone.hear(*(Deliver(seq, b"message") for seq in range(1, 1001)))
    victim: Address = bytes([10, 0, 0, 66]), 66
    alone.hear(*[Forward(victim, 1, SEQ_LIMIT - 1)] * 100, source=STRANGER)
    assert [packet for packet, _ in alone.wait(1.0) if packet[0] == DELIVER] == []
    sent = 0
    for _ in range(20):
        alone.hear(*(Forward((victim[0], port), first, 1000) for port in range(1, 100) for first in (1, 400)))
        sent += sum(packet[0] == DELIVER for packet, _ in alone.wait(0.1))
    assert UNITS < sent <= 2 * UNITS + UNITS_AT_ONCE
    assert alone.client.facts().answered == sent


def test_answers_are_those_that_are_kept() -> None:
    alone = Alone()
    alone.connect()
    alone.hear(Deliver(7, b"seven"), Deliver(9, b"nine"))
    alone.hear(Forward(STRANGER, 5, 300))
    sent = [(parse(packet), to) for packet, to in alone.wait(0.2) if packet[0] == DELIVER]
    assert sent == [(Deliver(7, b"seven"), STRANGER), (Deliver(9, b"nine"), STRANGER)]
    assert FORWARD not in {packet[0] for packet, _ in alone.wait(1.0)}


SEQS = st.one_of(
    st.integers(1, 300), st.integers(0, SEQ_LIMIT - 1), st.sampled_from([1 << 20, (1 << 20) + 1])
)
ADDRESSES = st.tuples(st.binary(min_size=4, max_size=4), st.integers(0, 65_535))
PACKETS = st.one_of(
    st.builds(Deliver, SEQS, st.sampled_from([b"x", b"y", b"mine"])),
    st.builds(
        lambda first, size, to: Forward(to, first, min(first + size, SEQ_LIMIT - 1)), SEQS, SEQS, ADDRESSES
    ),
    st.builds(Ack, st.binary(min_size=16, max_size=16)),
)


@settings(max_examples=50, derandomize=True)
@given(st.lists(st.tuples(PACKETS, st.booleans(), st.integers(0, 300)), max_size=60), st.binary(max_size=40))
def test_no_packet_does_harm(packets: list[tuple[object, bool, int]], noise: bytes) -> None:
    """Whatever comes: positions rise, what is sent is bounded, and in the end nothing is waited for."""
    alone = Alone()
    alone.connect()
    alone.client.publish(1, b"mine", alone.now)
    sent = 0
    for packet, trusted, wait in packets:
        source = BACKBONE if trusted else STRANGER
        alone.hear(packet, source=source)
        alone.client.receive([(noise, source)], alone.now)
        sent += len(alone.wait(wait / 1000))
    seconds = sum(wait for *_, wait in packets) / 1000
    assert sent < 100 + seconds * (UNITS + 1000) + 600 * len(packets)
    alone.hear(Deliver(1, b"mine"))
    alone.wait(120.0)
    assert alone.ear.numbers == [1]
    assert not alone.client.facts().behind
