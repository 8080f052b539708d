"""The packets of a backbone: by the vectors, there and back, and in place."""

from collections.abc import Callable, Sequence
from ipaddress import IPv4Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.errors import FyrehoseError
from bccnd.wire import fyrehose, native
from bccnd.wire.fyrehose import (
    DATA_LIMIT,
    HEAD_BYTES,
    ITSELF,
    PACKET_LIMIT,
    SEQ_LIMIT,
    Ack,
    Address,
    Deliver,
    Forward,
    Keepalive,
    Packet,
    Push,
    Request,
    parse,
    proves,
    token_of,
)
from tests.golden import golden

Number = Callable[[bytearray, Sequence[int], Sequence[int], int], int]

KINDS = {
    "deliver": Deliver, "push": Push, "request": Request, "forward": Forward, "keepalive": Keepalive, "ack": Ack,
}  # fmt: skip

SEQS = st.integers(0, SEQ_LIMIT - 1)
DATA = st.binary(max_size=60)
ADDRESSES: st.SearchStrategy[Address] = st.tuples(st.binary(min_size=4, max_size=4), st.integers(0, 65_535))
RANGES = st.tuples(SEQS, SEQS).map(sorted)
TOKENS = st.binary(min_size=16, max_size=16)
PACKETS: st.SearchStrategy[Packet] = st.one_of(
    st.builds(Deliver, SEQS, DATA),
    st.builds(Push, DATA),
    st.builds(lambda address, ends: Request(address, *ends), ADDRESSES, RANGES),
    st.builds(lambda address, ends: Forward(address, *ends), ADDRESSES, RANGES),
    st.builds(Keepalive, ADDRESSES, SEQS, TOKENS),
    st.builds(Ack, TOKENS),
)


def fields(packet: Packet) -> dict[str, Any]:
    """As a vector has them."""
    match packet:
        case Deliver(seq, data):
            return {"seq": str(seq), "data": data.hex()}
        case Push(data):
            return {"data": data.hex()}
        case Keepalive((addr, port), flags, token):
            where = {"addr": str(IPv4Address(addr)), "port": port}
            return where | {"flags": str(flags), "token": token.hex()}
        case Request((addr, port), first, last) | Forward((addr, port), first, last):
            where = {"addr": str(IPv4Address(addr)), "port": port}
            return where | {"first": str(first), "last": str(last)}
        case Ack(token):
            return {"token": token.hex()}


@pytest.mark.parametrize("vector", golden("fyrehose", "valid"))
def test_what_is_valid_says_what_the_vector_says(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["packet"])
    packet = parse(data)
    assert type(packet) is KINDS[vector["kind"]]
    said = {
        name: value for name, value in vector.items() if name not in ("name", "packet", "kind", "canonical")
    }
    assert fields(packet) == said
    assert (packet.serialize() == data) is vector["canonical"]


@pytest.mark.parametrize("vector", golden("fyrehose", "invalid"))
def test_what_is_invalid_breaks_its_rule(vector: dict[str, Any]) -> None:
    with pytest.raises(FyrehoseError) as caught:
        parse(bytes.fromhex(vector["packet"]))
    assert caught.value.rule == vector["rule"]


@pytest.mark.parametrize("vector", golden("fyrehose", "tokens"))
def test_a_token_proves_its_key(vector: dict[str, Any]) -> None:
    key, token = bytes.fromhex(vector["key"]), bytes.fromhex(vector["token"])
    assert proves(token, [key]) is vector["proves"]
    assert (token_of(key, token[:8]) == token) is vector["proves"]


def test_any_of_several_keys_is_proved() -> None:
    token = token_of(b"new" * 6, bytes(8))
    assert proves(token, [b"old" * 6, b"new" * 6])
    assert not proves(token, [])


@given(PACKETS)
def test_there_and_back(packet: Packet) -> None:
    assert parse(packet.serialize()) == packet
    assert packet.serialize()[0] == packet.kind


TWINS = pytest.mark.parametrize("number", [fyrehose.number, native.number], ids=["python", "compiled"])
# Packets of a batch, most of them sound PUSHes, with a LENGTH that counts the data or all, or is wrong.
BATCHES = st.lists(
    st.tuples(st.sampled_from([2, 2, 2, 1, 16]), DATA, st.sampled_from([0, 0, 9, 1]), st.integers(0, 3))
)


@TWINS
@given(BATCHES, SEQS)
def test_pushes_become_delivers_in_place(
    number: Number, batch: list[tuple[int, bytes, int, int]], seq: int
) -> None:
    memory, expected, starts, ends, sound = bytearray(), bytearray(), [], [], True
    for index, (kind, data, more, apart) in enumerate(batch):
        packet = bytes([kind]) + (len(data) + more).to_bytes(2, "big") + bytes(6) + data
        starts.append(len(memory))
        memory += packet
        ends.append(len(memory))
        sound = sound and kind == 2 and more in (0, 9) and seq + index < SEQ_LIMIT
        expected += Deliver(seq + index, data).serialize() if sound else packet
        memory += bytes(apart)
        expected += bytes(apart)
    count = number(memory, starts, ends, seq)
    assert memory == expected
    assert all(memory[start] == 1 for start in starts[:count])
    assert count == len(batch) or not sound


@TWINS
@pytest.mark.parametrize(
    "packet", [b"", b"\2", bytes([2, 0, 0, 0, 0, 0, 0, 0]), b"\2\xff\xff" + bytes(65_535)]
)
def test_what_has_no_size_of_a_push_gets_no_number(number: Number, packet: bytes) -> None:
    memory = bytearray(packet + Push(b"x").serialize())
    before = bytes(memory)
    edges = [0, len(packet), len(memory)]
    assert number(memory, edges[:-1], edges[1:], 1) == 0
    assert memory == before


@TWINS
def test_the_last_number_has_six_bytes(number: Number) -> None:
    push = Push(b"x").serialize()
    memory = bytearray(push * 3)
    edges = range(0, 31, 10)
    assert number(memory, list(edges[:-1]), list(edges[1:]), SEQ_LIMIT - 2) == 2
    assert parse(bytes(memory[10:20])) == Deliver(SEQ_LIMIT - 1, b"x")
    assert memory[20:] == push


def test_a_forward_is_no_request() -> None:
    assert not isinstance(Forward(ITSELF, 1, 2), Request)
    assert Forward(ITSELF, 1, 2) != Request(ITSELF, 1, 2)


@pytest.mark.parametrize(
    ("packet", "rule"),
    [
        (Deliver(SEQ_LIMIT, b""), "number"),
        (Deliver(-1, b""), "number"),
        (Request(ITSELF, 1, SEQ_LIMIT), "number"),
        (Forward((bytes(3), 1), 1, 2), "address"),
        (Request((bytes(4), 65_536), 1, 2), "address"),
        (Keepalive((bytes(5), 1), 0, bytes(16)), "address"),
        (Keepalive(ITSELF, SEQ_LIMIT, bytes(16)), "number"),
        (Keepalive(ITSELF, 0, bytes(15)), "size"),
        (Ack(bytes(17)), "size"),
    ],
)
def test_what_no_packet_can_say_is_refused(packet: Packet, rule: str) -> None:
    with pytest.raises(FyrehoseError) as caught:
        packet.serialize()
    assert caught.value.rule == rule


def test_the_longest_message_fits_a_datagram() -> None:
    packet = Push(bytes(DATA_LIMIT)).serialize()
    assert len(packet) == PACKET_LIMIT == DATA_LIMIT + HEAD_BYTES
    assert parse(packet) == Push(bytes(DATA_LIMIT))
    with pytest.raises(FyrehoseError, match="size"):
        Push(bytes(DATA_LIMIT + 1)).serialize()
    with pytest.raises(FyrehoseError, match="size"):
        parse(b"\x01\xff\xee" + bytes(6) + bytes(65_518))


def test_no_two_lengths_are_right_for_one_packet() -> None:
    """Of a packet of n bytes, only n - 9 and n."""
    packet = bytearray(Push(b"x" * 20).serialize())
    right = []
    for length in range(64):
        packet[1:3] = length.to_bytes(2, "big")
        try:
            parse(bytes(packet))
        except FyrehoseError:
            continue
        right.append(length)
    assert right == [20, 20 + fyrehose.HEAD_BYTES]
