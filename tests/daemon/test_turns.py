"""Packets that are left when a turn is over: they survive, as they were, while others use the memory."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from bccnd.daemon.turns import Leftover, Turns
from bccnd.net.mmsg import Arena, ReceiveTable
from bccnd.relay.client_input import Packets
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
    packets: Packets


def read_of(packets: list[bytes], at: int = 0) -> Read:
    arena = Arena.holding((1, 64), ReceiveTable.needs(SIZE))
    arena.slots(1, 64)
    slots = arena.slots(*ReceiveTable.needs(SIZE))
    ends = []
    for slot, packet in zip(slots, packets, strict=False):
        arena.memory[slot : slot + len(packet)] = packet
        ends.append(slot + len(packet))
    read = Packets(slots[: len(packets)], ends)
    read.at = at
    return Read(arena, slots[0], read)


def contents(read: Read, packets: Packets) -> list[bytes]:
    spans = zip(packets.starts[packets.at :], packets.ends[packets.at :], strict=True)
    return [read.arena.memory[start:end] for start, end in spans]


def put_aside_and_back(read: Read) -> Packets:
    leftover = Leftover(read.arena.memory, read.packets)
    size = len(read.arena.memory) - read.region
    read.arena.memory[read.region :] = bytes(size)
    return leftover.lay_out(read.arena.memory, read.region)


@given(st.lists(st.binary(max_size=SIZE), max_size=64), st.integers(0, 64))
def test_packets_come_back_as_they_were(packets: list[bytes], at: int) -> None:
    read = read_of(packets, min(at, len(packets)))
    assert contents(read, put_aside_and_back(read)) == packets[at:]


@given(st.lists(st.lists(st.binary(max_size=40), max_size=9), min_size=1, max_size=64), st.integers(0, 600))
def test_packets_of_a_pack_stay_side_by_side(inside: list[list[bytes]], at: int) -> None:
    read = read_of([sbus.pack(packets) for packets in inside])
    read.packets.unpack(read.arena.memory)
    read.packets.at = min(at, len(read.packets.starts))
    expected = contents(read, read.packets)
    gaps = _gaps(read.packets)
    back = put_aside_and_back(read)
    assert contents(read, back) == expected
    assert back.unpacked
    assert [min(64, gap) for gap in _gaps(back)] == [min(64, gap) for gap in gaps]
    for start, packet in zip(back.starts, expected, strict=True):
        length = read.arena.memory[start - sbus.LENGTH.size : start]
        assert sbus.LENGTH.unpack(length) == (len(packet),), "the length of each stands before it"


def _gaps(packets: Packets) -> list[int]:
    """Bytes between each two packets that are left."""
    starts, ends = packets.starts[packets.at :], packets.ends[packets.at :]
    return [start - end for start, end in zip(starts[1:], ends, strict=False)]


def test_a_broken_pack_is_still_broken() -> None:
    read = read_of([sbus.pack([b"one"]), sbus.PACK + b"\xff\xff\xff\xff"])
    assert unpack(read.arena.memory, *_span(read.packets, 1)) is None
    read.packets.unpack(read.arena.memory)
    back = put_aside_and_back(read)
    assert (contents(read, back), back.broken) == ([b"one"], True)


def _span(packets: Packets, index: int) -> tuple[int, int]:
    return packets.starts[index], packets.ends[index]


def test_clients_have_their_turns_in_line() -> None:
    read = read_of([b"MSG a\0", b"MSG b\0"])
    turns = Turns(read.arena.memory, read.region)
    sessions = [Session(n, n, Peer(1, 0, 0, b"prog"), rights=Rights(), now=0.0) for n in range(3)]
    for session in sessions:
        turns.put_aside(session, read.packets)
        turns.line_up(session)
    assert all(session in turns for session in sessions)
    turns.forget(sessions[0])
    assert [turns.next(), turns.next(), turns.next()] == [*sessions[1:], None]
    assert contents(read, turns.take(sessions[1])) == [b"MSG a\0", b"MSG b\0"]
    assert sessions[1] not in turns
