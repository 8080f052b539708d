"""Packets that are left when a turn is over: they survive, as they were, while others use the memory."""

import sys
import time
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.daemon import turns as turns_module
from bccnd.daemon.turns import (
    GATHERING_NS,
    LATELY_NS,
    LITTLE,
    LONG_NS,
    LONG_STEPS,
    PAUSE_NS,
    ROUND_NS,
    WINDOW,
    Leftover,
    Turns,
)
from bccnd.net.mmsg import BATCH, Arena, ReceiveTable
from bccnd.relay.client_input import Left
from bccnd.relay.identity import Peer
from bccnd.relay.rights import Rights
from bccnd.relay.session import Session
from bccnd.wire import sbus
from bccnd.wire.native import unpack

SIZE = 500


class Read(NamedTuple):
    """What one read brought: packets in the slots of an arena."""

    arena: Arena
    region: int
    left: Left


def read_of(packets: list[bytes], at: int = 0) -> Read:
    arena = Arena.holding((1, 64), ReceiveTable.needs(SIZE))
    arena.slots(1, 64)
    slots = arena.slots(*ReceiveTable.needs(SIZE))
    ends = []
    for slot, packet in zip(slots, packets, strict=False):
        arena.memory[slot : slot + len(packet)] = packet
        ends.append(slot + len(packet))
    return Read(arena, slots[0], ((slots[: len(packets)], ends), at, 0))


def unpacked(read: Read, at: int) -> Read:
    """The same with every PACK taken apart."""
    starts: list[int] = []
    ends: list[int] = []
    for span in zip(*read.left[0], strict=True):
        inside = unpack(read.arena.memory, *span)
        assert inside
        starts += inside[0]
        ends += inside[1]
    return read._replace(left=((starts, ends), min(at, len(starts)), len(starts)))


def spans_of(left: Left) -> list[tuple[int, int]]:
    (starts, ends), at, _ = left
    return list(zip(starts[at:], ends[at:], strict=True))


def contents(read: Read, left: Left) -> list[bytes]:
    return [read.arena.memory[start:end] for start, end in spans_of(left)]


def put_aside_and_back(read: Read) -> Left:
    leftover = Leftover.of(read.arena.memory, read.left)
    size = len(read.arena.memory) - read.region
    read.arena.memory[read.region :] = bytes(size)
    return leftover.lay_out(read.arena.memory, read.region)


@given(st.lists(st.binary(max_size=SIZE), max_size=64), st.integers(0, 64))
def test_packets_come_back_as_they_were(packets: list[bytes], at: int) -> None:
    read = read_of(packets, min(at, len(packets)))
    assert contents(read, put_aside_and_back(read)) == packets[at:]


@given(st.lists(st.lists(st.binary(max_size=40), max_size=9), min_size=1, max_size=64), st.integers(0, 600))
def test_packets_of_a_pack_stay_side_by_side(inside: list[list[bytes]], at: int) -> None:
    read = unpacked(read_of([sbus.pack(packets) for packets in inside]), at)
    expected, gaps = contents(read, read.left), gaps_of(read.left)
    back = put_aside_and_back(read)
    assert contents(read, back) == expected
    assert back[2] == len(expected)
    assert gaps_of(back) == gaps
    for (start, _), packet in zip(spans_of(back), expected, strict=True):
        length = read.arena.memory[start - sbus.LENGTH.size : start]
        assert sbus.LENGTH.unpack(length) == (len(packet),), "the length of each stands before it"


def gaps_of(left: Left) -> list[int]:
    """Bytes between each two packets, up to what tells that they are not of one PACK."""
    spans = spans_of(left)
    return [min(start - end, 64) for (_, end), (start, _) in pairwise(spans)]


def client(number: int, uid: int = 0) -> Session:
    return Session(number, number, Peer(1, uid, 0, b"prog"), rights=Rights(), now=0.0)


@pytest.fixture(autouse=True)
def unread(monkeypatch: pytest.MonkeyPatch) -> defaultdict[int, int]:
    """By the port of a session."""
    sent: defaultdict[int, int] = defaultdict(int)
    monkeypatch.setattr(turns_module, "unread_bytes", sent.__getitem__)
    return sent


def clients(count: int, uid: int = 0, first: int = 0) -> list[Session]:
    return [client(number, uid) for number in range(first, first + count)]


def test_clients_have_their_turns_in_line() -> None:
    read = read_of([b"MSG a\0", b"MSG b\0"])
    turns = Turns(read.arena.memory, read.region)
    sessions = clients(3)
    for session in sessions:
        turns.put_aside(session, read.left)
        turns.line_up(session)
    assert turns.left.keys() == set(sessions)
    turns.forget(sessions[0])
    assert [turns.next(), turns.next(), turns.next()] == [*sessions[1:], None]
    assert contents(read, turns.take(sessions[1])) == [b"MSG a\0", b"MSG b\0"]
    assert sessions[1] not in turns.left


def test_batches_shrink_to_one_packet_and_grow_again() -> None:
    turns = Turns(Arena(64).memory, 0)
    first, second = clients(2)
    sizes = []
    for change in [turns.read_less] * 7 + [turns.read_more] * 7:
        change(first)
        sizes.append(turns.batch_of(first))
    assert sizes == [32, 16, 8, 4, 2, 1, 1, 2, 4, 8, 16, 32, BATCH, BATCH]
    assert turns.batch_of(second) == BATCH
    turns.read_less(first)
    turns.forget(first)
    assert turns.batch_of(first) == BATCH


def busy(turns: Turns, *sessions: Session) -> None:
    now = time.time_ns()
    for session in sessions:
        turns.took(session, now - LONG_NS - 1, now, LONG_STEPS)
    turns.begin_round()


def test_a_user_with_many_clients_has_the_turns_of_one() -> None:
    read = read_of([])
    turns = Turns(read.arena.memory, read.region)
    many, other = clients(1900, uid=1), client(2000, uid=2)
    busy(turns, *many, other)
    for session in many:
        turns.line_up(session)
    given = []
    for _ in range(20):
        turns.line_up(other)
        given += [turns.next(), turns.next()]
    assert given.count(other) == 20
    assert [session for session in given if session is not other] == many[:20]
    assert len(turns) == 1880


def test_who_asks_for_little_does_not_wait_for_the_busy() -> None:
    read = read_of([])
    turns = Turns(read.arena.memory, read.region)
    many, modest = clients(100), client(100)
    busy(turns, *many)
    for session in many:
        turns.line_up(session)
    assert not turns.must_wait(modest)
    now = time.time_ns()
    assert turns.took(many[0], now - ROUND_NS - 1, now, LONG_STEPS)
    assert turns.must_wait(modest), "the round is spent"
    turns.line_up(modest)
    assert [turns.next_modest(), turns.next_modest()] == [modest, None]
    turns.begin_round()
    assert not turns.must_wait(modest)


def test_many_short_turns_spend_a_round() -> None:
    read = read_of([])
    turns = Turns(read.arena.memory, read.region)
    now, given, short = time.time_ns(), 0, ROUND_NS // 10
    for session in clients(100):
        if turns.must_wait(session):
            turns.line_up(session)
        else:
            now += short
            given += 1
            assert turns.took(session, now - short, now, 1) == (given > 10)
    assert (given, len(turns)) == (11, 89)
    turns.begin_round()
    assert not turns.must_wait(client(100))


@pytest.mark.parametrize(("steps", "gathers"), [(LONG_STEPS - 1, False), (LONG_STEPS, True)])
def test_others_gather_packets_while_a_turn_works(steps: int, gathers: bool) -> None:
    """But not while the machine does something else."""
    read = read_of([])
    turns = Turns(read.arena.memory, read.region)
    now = time.time_ns()
    turns.took(client(1), now - GATHERING_NS - 1, now, steps)
    assert turns.gathered_ns == (now if gathers else 0)


def test_a_pause_of_the_loop_begins_a_round() -> None:
    read = read_of([])
    turns = Turns(read.arena.memory, read.region)
    now, session = time.time_ns(), client(1)
    for _ in range(100):
        assert not turns.took(session, now, now + ROUND_NS // 2, 1)
        now += ROUND_NS // 2 + PAUSE_NS + 1


def test_who_has_sent_much_is_busy_before_it_is_read(unread: defaultdict[int, int]) -> None:
    read = read_of([])
    turns = Turns(read.arena.memory, read.region)
    many, modest = clients(1900), client(1900)
    unread.update((session.port, LITTLE + 1) for session in many)
    now = time.time_ns()
    turns.took(many[0], now - ROUND_NS - 1, now, LONG_STEPS)
    for session in (*many, modest):
        assert turns.must_wait(session)
        turns.line_up(session)
    assert [turns.next_modest(), turns.next_modest()] == [modest, None]


def test_who_did_little_in_a_long_time_is_not_busy() -> None:
    """Something else had the processor."""
    read = read_of([])
    turns = Turns(read.arena.memory, read.region)
    session, other = clients(2)
    now = time.time_ns()
    assert turns.took(session, now - 100 * LONG_NS, now, LONG_STEPS - 1)
    turns.begin_round()
    busy(turns, other)
    turns.line_up(other)
    assert not turns.must_wait(session)


def test_a_user_with_much_left_has_no_more_read(
    monkeypatch: pytest.MonkeyPatch, unread: defaultdict[int, int]
) -> None:
    monkeypatch.setattr(turns_module, "MUCH_OF_A_USER", 100)
    unread.update(dict.fromkeys(range(7), LITTLE + 1) | {7: LITTLE})
    read = read_of([b"MSG a\0" + bytes(90)])
    turns = Turns(read.arena.memory, read.region)
    first, *others = clients(8)
    turns.put_aside(first, read.left)
    turns.line_up(first)
    assert turns.have_many(others[0])
    waiting = [session for session in others if turns.must_wait(session)]
    assert waiting == others[:6], "the last has sent little"
    for session in waiting:
        turns.line_up(session)
    for _ in range(5):
        assert turns.next() is first
        turns.line_up(first)
    turns.take(first)
    assert [turns.next(), turns.next()] == [others[0], first]
    assert turns.next() is others[1]
    assert not turns.have_many(others[0])


def test_what_is_left_of_other_users_is_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "MUCH_OF_A_USER", 10)
    read = read_of([b"MSG a\0" + bytes(90)])
    turns = Turns(read.arena.memory, read.region)
    first, other = client(1, uid=1), client(2, uid=2)
    turns.put_aside(first, read.left)
    turns.line_up(first)
    assert not turns.must_wait(other)
    assert not turns.have_many(other)


def test_packets_left_are_copied_once() -> None:
    """A turn lays out the next of them, and the others stay where they are."""
    arena = Arena.holding((1, 1 << 20))
    pack = sbus.pack([b"x"] * 16000)
    arena.memory[: len(pack)] = pack
    inside = unpack(arena.memory, 0, len(pack))
    assert inside
    turns = Turns(arena.memory, len(pack))
    session = client(1)
    turns.put_aside(session, (inside, 0, 16000))
    (leftover,) = turns.left[session]
    copies, seen = {id(leftover.copy)}, 0
    while session in turns.left:
        (starts, ends), _, flat = turns.take(session)
        assert len(starts) <= WINDOW
        assert flat == len(starts)
        assert {arena.memory[start:end] for start, end in zip(starts, ends, strict=True)} == {b"x"}
        seen += min(500, len(starts))
        if starts[500:]:
            turns.put_aside(session, ((starts, ends), 500, flat))
        if session in turns.left:
            copies.add(id(turns.left[session][0].copy))
            assert turns.size_of(session) <= len(leftover) + WINDOW * 20
            assert len(turns.left[session]) <= 2
    assert seen == 16000
    assert turns.size_of(session) == 0


def test_who_had_a_long_turn_waits_while_others_are_busy() -> None:
    read = read_of([])
    turns = Turns(read.arena.memory, read.region)
    long, other, modest = clients(3)
    now = time.time_ns()
    assert not turns.took(modest, now - LONG_NS, now, LONG_STEPS)
    turns.begin_round()
    assert not turns.took(long, now - LONG_NS - 1, now, LONG_STEPS)
    assert not turns.must_wait(long), "nobody else wants one"
    busy(turns, other)
    turns.line_up(other)
    turns.line_up(other)
    assert turns.must_wait(long), "others come first"
    assert not turns.must_wait(modest)
    assert [turns.next(), turns.next()] == [other, None]
    turns.took(long, now - 2 * LATELY_NS, now - LATELY_NS, LONG_STEPS)
    turns.begin_round()
    turns.line_up(other)
    assert not turns.must_wait(long), "that is long ago"


def test_what_is_left_goes_to_a_successor() -> None:
    read = read_of([b"MSG a\0", b"MSG b\0"], at=1)
    session, waiting = clients(2)
    waiting.waits_for.add(session)
    before, after = (Turns(read.arena.memory, read.region) for _ in range(2))
    for each in (session, waiting):
        before.put_aside(each, read.left)
    after.restore(before.state(), {0: session, 1: waiting})
    assert [after.next(), after.next()] == [session, None], "the other waits for something else"
    assert all(contents(read, after.take(each)) == [b"MSG b\0"] for each in (session, waiting))


def test_much_that_is_left_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "MUCH", 10)
    read = read_of([b"MSG a\0", b"MSG b\0"])
    session = client(1)
    turns = Turns(read.arena.memory, read.region)
    turns.put_aside(session, read.left)
    assert turns.have_many(session)
    turns.take(session)
    assert not turns.have_many(session)


def test_packets_without_bytes_count_and_take_a_few_bytes_each():
    count = 100
    read = unpacked(read_of([sbus.pack([b""] * count)]), 0)
    left = Leftover.of(read.arena.memory, read.left)
    assert sys.getsizeof(left.starts) + sys.getsizeof(left.ends) <= 2 * sys.getsizeof(b"") + 12 * count + 100
    assert len(left) >= 8 * count + len(left.copy)
