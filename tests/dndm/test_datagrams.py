"""UDP: peers at one socket, each known by its address."""

import asyncio
import socket

import pytest

from bccnd.dndm.datagrams import DATAGRAM_BYTES, whole
from bccnd.wire.dndm.peers import parse
from tests.dndm.in_process import Owner
from tests.plain_bccn import free_port
from tests.waiting import until
from tests.wire.dndm import plain_dndm
from tests.wire.dndm.plain_dndm import written


def frame(kind: str, fields: plain_dndm.Fields) -> bytes:
    return plain_dndm.frame(written([(3, plain_dndm.TYPES[kind])]), written(fields))


HELLO = frame("HANDSHAKE", [(1, b"udp:///"), (3, 1)])
PING = frame("PING", [(3, bytes(16))])


async def test_a_peer_comes_with_a_handshake_alone() -> None:
    url = f"udp://127.0.0.1:{free_port()}"
    owner = Owner(asyncio.get_running_loop())
    owner.carriers.open([url])
    (datagrams,) = owner.carriers._listeners
    where = ("127.0.0.1", int(url.rpartition(":")[2]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.setblocking(False)
        for said in (PING, HELLO[:-1], HELLO + b"x", b"", HELLO, HELLO + PING, PING[:-1]):
            peer.sendto(said, where)
        await until(lambda: datagrams.dropped["frame"] == 4)
        assert datagrams.dropped["stranger"] == 1
        assert owner.of("opened") == [[1, "udp", None]]
        assert owner.data(1) == HELLO + HELLO + PING
        owner.carriers.send(1, PING)
        assert await asyncio.get_running_loop().sock_recv(peer, 1000) == PING
        owner.carriers.send(1, bytes(DATAGRAM_BYTES + 1))
        assert datagrams.dropped["too large"] == 1
        owner.carriers.hold(1)
        peer.sendto(PING, where)
        await until(lambda: datagrams.dropped["held"] == 1)
        owner.carriers.close(1)
        peer.sendto(HELLO, where)
        await until(lambda: len(owner.of("opened")) == 2)
    owner.carriers.end()


async def test_who_is_dialled_and_not_there_has_ended() -> None:
    owner = Owner(asyncio.get_running_loop())
    peer = parse(f"udp://127.0.0.1:{free_port()}/arm")
    await owner.carriers.dial(peer)
    assert owner.of("opened") == [[1, "udp", peer]]
    owner.carriers.send(1, HELLO)
    await until(lambda: owner.of("ended"))
    assert owner.of("ended") == [[1, "Connection refused"]]
    owner.carriers.end()


async def test_two_that_dial_each_other_talk() -> None:
    owner = Owner(asyncio.get_running_loop())
    url = f"udp://127.0.0.1:{free_port()}"
    owner.carriers.open([url])
    await owner.carriers.dial(parse(url))
    owner.carriers.send(1, HELLO)
    await until(lambda: owner.data(2) == HELLO)
    owner.carriers.send(2, HELLO)
    await until(lambda: owner.data(1) == HELLO)
    owner.carriers.end()


def hello(bus: str) -> bytes:
    return frame("HANDSHAKE", [(1, f"udp://127.0.0.1:9/?bccn={bus}".encode()), (3, 1)])


def message(route: str) -> bytes:
    return plain_dndm.frame(written([(3, plain_dndm.TYPES["MESSAGE"]), (6, route.encode())]), b"body")


async def test_all_who_hear_a_broadcast_address_are_one_link() -> None:
    url = f"udp://127.255.255.255:{free_port()}"
    owners = [Owner(asyncio.get_running_loop()) for _ in range(3)]
    for owner in owners:
        await owner.carriers.dial(parse(url))
        assert owner.of("opened") == [[1, "udp", parse(url), "broadcast"]]
    one, other, third = owners
    other.interests.add("T@a")
    for said in (message("T@a"), hello("one"), message("T@b"), message("T@a"), hello("one")[:-1]):
        one.carriers.send(1, said)
    await until(lambda: other.data(1) == hello("one") + message("T@a"))
    await until(lambda: third.data(1) == hello("one"))
    dropped = other.carriers._carriers[1].dropped
    await until(lambda: dropped["frame"] == 1)
    assert dropped == {"stranger": 1, "nobody is interested": 1, "frame": 1}
    assert one.data(1) == b""
    one.carriers.send(1, bytes(DATAGRAM_BYTES + 1))
    for owner in owners:
        owner.carriers.end()


async def test_gateways_of_one_bus_do_not_hear_each_other() -> None:
    url = f"udp://127.255.255.255:{free_port()}"
    loop = asyncio.get_running_loop()
    same, other = Owner(loop, bus="one"), Owner(loop, bus="two")
    speaker = Owner(loop)
    for owner in same, other, speaker:
        owner.interests.add("T@a")
        await owner.carriers.dial(parse(url))
    for said in hello("one"), message("T@a"):
        speaker.carriers.send(1, said)
    await until(lambda: other.data(1) == hello("one") + message("T@a"))
    await until(lambda: same.carriers._carriers[1].dropped["bus"] == 2)
    assert same.data(1) == b""
    for owner in same, other, speaker:
        owner.carriers.end()


@pytest.mark.parametrize("data", [b"", b"x", HELLO[:-1], HELLO + b"\xfa"])
def test_what_is_no_whole_frame_is_none(data: bytes) -> None:
    assert whole(data) == []
    assert len(whole(HELLO + PING)) == 2
