"""Packets that are left when a turn is over: they survive, as they were, while others use the memory."""

import sys
import time
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.daemon import turns as turns_module
from bccnd.daemon.turns import LATELY_NS, LONG_NS, Leftover, Turns
from bccnd.net.mmsg import Arena, ReceiveTable
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


def test_clients_have_their_turns_in_line() -> None:
    read = read_of([b"MSG a\0", b"MSG b\0"])
    turns = Turns(read.arena.memory, read.region)
    sessions = [Session(n, n, Peer(1, 0, 0, b"prog"), rights=Rights(), now=0.0) for n in range(3)]
    for session in sessions:
        turns.put_aside(session, read.left)
        turns.line_up(session)
    assert all(session in turns for session in sessions)
    turns.forget(sessions[0])
    assert [turns.next(), turns.next(), turns.next()] == [*sessions[1:], None]
    assert contents(read, turns.take(sessions[1])) == [b"MSG a\0", b"MSG b\0"]
    assert sessions[1] not in turns


def test_who_had_a_long_turn_waits_while_others_are_busy() -> None:
    read = read_of([])
    turns = Turns(read.arena.memory, read.region)
    busy, other, modest = (Session(n, n, Peer(1, 0, 0, b"prog"), rights=Rights(), now=0.0) for n in range(3))
    now = time.time_ns()
    assert not turns.took(modest, now - LONG_NS, now)
    assert turns.took(busy, now - LONG_NS - 1, now)
    assert turns.must_wait(busy), "the round has had its long turn"
    assert not turns.must_wait(modest)
    turns.begin_round()
    assert not turns.must_wait(busy), "nobody else wants one"
    turns.line_up(other)
    turns.line_up(other)
    assert turns.must_wait(busy), "others come first"
    assert [turns.next(), turns.next()] == [other, None]
    assert turns.took(busy, now - 2 * LATELY_NS, now - LATELY_NS)
    assert not turns.must_wait(busy), "that is long ago"


def test_what_is_left_goes_to_a_successor() -> None:
    read = read_of([b"MSG a\0", b"MSG b\0"], at=1)
    session, waiting = (Session(n, n, Peer(1, 0, 0, b"prog"), rights=Rights(), now=0.0) for n in range(2))
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
    session = Session(1, 1, Peer(1, 0, 0, b"prog"), rights=Rights(), now=0.0)
    turns = Turns(read.arena.memory, read.region)
    turns.put_aside(session, read.left)
    assert turns.are_many
    turns.take(session)
    assert not turns.are_many


def test_packets_without_bytes_count_and_take_a_few_bytes_each():
    count = 100
    read = unpacked(read_of([sbus.pack([b""] * count)]), 0)
    left = Leftover.of(read.arena.memory, read.left)
    assert sys.getsizeof(left.starts) + sys.getsizeof(left.ends) <= 2 * sys.getsizeof(b"") + 12 * count + 100
    assert len(left) >= 8 * count + len(left.pieces[0])
