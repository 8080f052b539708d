"""One connection of a gateway: what is read in a turn, and what waits to be written."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from bccnd.dndm.stream import ENDED, READ_BYTES, Stream
from tests.waiting import until


class Owner:
    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.reasons: list[str] = []
        self.writes = 0

    def heard(self, number: int, data: bytes) -> None:
        assert number == 7
        self.got.append(data)

    def wrote(self, number: int) -> None:
        assert number == 7
        self.writes += 1

    def ended(self, number: int, reason: str) -> None:
        assert number == 7
        self.reasons.append(reason)


@pytest.fixture
def other() -> Iterator[socket.socket]:
    """The other end; ``made`` has this one."""
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        Made.descriptor = os.dup(here.fileno())
        yield there


class Made:
    descriptor = -1


def made(owner: Owner) -> Stream:
    shut = lambda: os.close(Made.descriptor)  # noqa: E731
    return Stream(asyncio.get_running_loop(), 7, Made.descriptor, shut, owner)


async def test_a_bounded_part_is_read_in_a_turn(other: socket.socket) -> None:
    owner = Owner()
    stream = made(owner)
    other.send(bytes(2 * READ_BYTES))
    await until(lambda: sum(map(len, owner.got)) == 2 * READ_BYTES)
    assert max(map(len, owner.got)) <= READ_BYTES
    stream.close()
    stream.close()
    assert owner.reasons == []


async def test_what_is_held_is_not_read(other: socket.socket) -> None:
    owner = Owner()
    stream = made(owner)
    stream.hold()
    other.send(b"x")
    for _ in range(5):
        await asyncio.sleep(0)
    assert owner.got == []
    stream.read_on()
    await until(lambda: owner.got == [b"x"])
    stream.close()


async def test_what_has_no_room_waits_and_goes_on(other: socket.socket) -> None:
    owner = Owner()
    stream = made(owner)
    frames = [bytes([number]) * 100_000 for number in range(20)]
    for frame in frames:
        stream.send(frame)
    assert 0 < stream.waiting < 2_000_000
    got = bytearray()

    def read() -> bool:
        with suppress(BlockingIOError):
            got.extend(other.recv(1 << 20))
        return len(got) == 2_000_000

    await until(read)
    assert bytes(got) == b"".join(frames)
    await until(lambda: not stream.waiting)
    assert owner.writes
    stream.close()


async def test_the_end_is_said_once_and_never_within_a_call(other: socket.socket) -> None:
    owner = Owner()
    stream = made(owner)
    other.close()
    stream.send(b"x")
    stream.send(b"x")
    assert owner.reasons == []
    await until(lambda: owner.reasons)
    stream.send(b"x")
    stream.read_on()
    stream.close()
    await asyncio.sleep(0.01)
    assert len(owner.reasons) == 1
    assert owner.reasons[0] in (ENDED, "Broken pipe")
