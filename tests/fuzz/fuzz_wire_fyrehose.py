"""Packets of a backbone: ``parse`` against a reference in plain slices, the way back, and a PUSH numbered in place.

The first byte says what the rest is: a packet, or the rest of one of a kind behind a right LENGTH.
"""

from collections.abc import Iterable

from bccnd.errors import FyrehoseError
from bccnd.wire import fyrehose, native
from bccnd.wire.fyrehose import (
    PACKET_LIMIT,
    Ack,
    Deliver,
    Forward,
    Keepalive,
    Packet,
    Push,
    Request,
    parse,
)
from tests.fuzz.fuzzer import Script
from tests.golden import entries


def one_input(data: bytes) -> None:
    script = Script(data)
    choice = script.number(4)
    rest = script.rest()
    if choice in (1, 2):
        rest = bytes([choice]) + (len(rest) - 6).to_bytes(2, "big") + rest if len(rest) >= 6 else rest
    got = outcome(rest)
    assert got == reference(rest)
    if isinstance(got, str):
        return
    again = got.serialize()
    assert parse(again) == got
    assert len(again) == len(rest)
    if isinstance(got, Push):
        for number in (fyrehose.number, native.number):
            memory = bytearray(rest)
            assert number(memory, [0], [len(memory)], 7) == 1
            assert memory == Deliver(7, got.data).serialize()


def outcome(packet: bytes) -> Packet | str:
    try:
        return parse(packet)
    except FyrehoseError as error:
        return error.rule


def reference(packet: bytes) -> Packet | str:
    if not packet or packet[0] not in (1, 2, 4, 8, 16, 32):
        return "kind"
    number = [int.from_bytes(packet[at : at + 6], "big") for at in (3, 7, 13)]
    where = packet[1:5], int.from_bytes(packet[5:7], "big")
    match packet[0]:
        case 1 | 2:
            if not 9 <= len(packet) <= PACKET_LIMIT:
                return "size"
            if int.from_bytes(packet[1:3], "big") not in (len(packet), len(packet) - 9):
                return "length"
            return Deliver(number[0], packet[9:]) if packet[0] == 1 else Push(packet[9:])
        case 4 | 8 as kind:
            if len(packet) != 19:
                return "size"
            if number[1] > number[2]:
                return "range"
            return (Request if kind == 4 else Forward)(where, number[1], number[2])
        case 16:
            return Keepalive(where, number[1], packet[13:]) if len(packet) == 29 else "size"
    return Ack(packet[1:]) if len(packet) == 17 else "size"


def seeds() -> Iterable[bytes]:
    for entry in [*entries("fyrehose", "valid"), *entries("fyrehose", "invalid")]:
        packet = bytes.fromhex(entry["packet"])
        yield b"\x00" + packet
        if packet[:1] in (b"\x01", b"\x02"):
            yield packet[:1] + packet[3:]
