"""Datagrams of links: ``Seal.open`` and ``messages`` against a reference in plain slices, and the way back.

The first byte says what the rest is: a datagram, or the payload of a link datagram or of a status.
"""

import re
from collections.abc import Iterable

from bccnd.errors import LinkError, WireError
from bccnd.wire.bccn1 import Envelope, Integrity, Message
from bccnd.wire.link import CHANNEL, STATUS_CHANNEL, Numbered, Seal, Status, inner, messages
from tests.fuzz.fuzzer import Script
from tests.golden import entries

SRC = b"berlin/uplink/6f1d2a90c4b7e358"


def one_input(data: bytes) -> None:
    script = Script(data)
    choice = script.number(4)
    rest = script.rest()
    if choice in (1, 2):
        channel = CHANNEL if choice == 1 else STATUS_CHANNEL
        rest = Integrity().seal(b"%b:77:%b|%b" % (SRC, channel, rest))
    elif choice == 3:
        taken = inner(rest)
        if taken is not None:
            assert messages(taken[4], 0) == [taken]
            message = Message.parse(rest, Envelope.parse(rest).body_at)
            assert taken[1:4] == (message.src, message.seq, message.chan)
        return
    header = outcome(rest)
    assert header == reference(rest)
    if isinstance(header, Numbered):
        inside = inside_of(rest, header.at)
        assert (inside is None) is (plain_inside(rest[header.at :]) is None)
        if inside is not None:
            assert b"".join(each[4] for each in inside) == rest[header.at :]
            again = Seal().numbered(header.src, header.number, header.floor, rest[header.at :])
            assert Seal().open(again)[:3] == header[:3]


def outcome(datagram: bytes) -> Numbered | Status | None:
    try:
        return Seal().open(datagram)
    except LinkError:
        return None


def inside_of(datagram: bytes, at: int) -> list[tuple[bytes, bytes, int, bytes, bytes]] | None:
    try:
        return messages(datagram, at)
    except LinkError:
        return None


def reference(datagram: bytes) -> Numbered | Status | None:
    found = re.fullmatch(rb"BCCN1\[([0-9]{1,5})(?::hmac=[0-9a-f]{1,16})?\](.*)", datagram, re.DOTALL)
    if not found or int(found[1]) != len(found[2]):
        return None
    try:
        message = Message.parse(found[2])
    except WireError:
        return None
    segment, _, instance = message.src.partition(b"/uplink/")
    if not re.fullmatch(rb"[^/!]{1,64}", segment) or not re.fullmatch(rb"[0-9a-f]{16}", instance):
        return None
    if message.chan == CHANNEL:
        floor, end, _ = message.payload.partition(b"\n")
        if not end or not re.fullmatch(rb"[0-9]{1,20}", floor) or not 0 < int(floor) <= message.seq:
            return None
        at = len(datagram) - len(message.payload) + len(floor) + 1
        return Numbered(message.src, message.seq, int(floor), at)
    return plain_status(message) if message.chan == STATUS_CHANNEL else None


def plain_status(message: Message) -> Status | None:
    lines = message.payload.split(b"\n")
    pairs = [line.split(b" ", 1) if b" " in line else [line, b""] for line in lines]
    numbers = [value for word, value in pairs if word in (b"floor", b"next")]
    hosts = tuple(value for word, value in pairs if word == b"host")
    if len(message.payload) > 1184 or len(lines) > 128 or len(numbers) != 2:
        return None
    if not all(re.fullmatch(rb"[0-9]{1,20}", each) for each in numbers):
        return None
    if not all(re.fullmatch(rb"[^\x00\t-\r |:/!\x80-\xff]{1,128}", host) for host in hosts):
        return None
    said = {word: int(value) for word, value in pairs if word in (b"floor", b"next")}
    if len(said) != 2 or not 0 < said[b"floor"] <= said[b"next"] <= 2**64:
        return None
    return Status(message.src, said[b"floor"], said[b"next"], hosts)


def plain_inside(data: bytes) -> list[Message] | None:
    found = []
    while data:
        head = re.match(rb"BCCN1\[([0-9]{1,5})\]", data)
        if head is None:
            return None
        end = head.end() + int(head[1])
        try:
            message = Message.parse(data[head.end() : end])
        except WireError:
            return None
        if end > min(len(data), 2048) or message.src == b"?":
            return None
        found.append(message)
        data = data[end:]
    return found


def seeds() -> Iterable[bytes]:
    for entry in [*entries("link", "valid"), *entries("link", "invalid")]:
        datagram = bytes.fromhex(entry["datagram"])
        payload = datagram.partition(b"|")[2]
        yield b"\x00" + datagram
        yield (b"\x02" if b":bccnd/link/status|" in datagram else b"\x01") + payload
        yield b"\x03" + payload.partition(b"\n")[2]
