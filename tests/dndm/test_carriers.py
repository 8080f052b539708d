"""The connections of a gateway, whatever carries them."""

import asyncio
import socket
from ipaddress import ip_network

import pytest

from bccnd.dndm import carriers as carriers_module
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.messages import encode
from bccnd.wire.dndm.peers import parse
from tests.dndm.in_process import Owner
from tests.dndm.pseudo_serial import PseudoSerial
from tests.plain_bccn import free_address
from tests.waiting import until


async def test_who_comes_and_who_is_dialled_are_links() -> None:
    where = f"tcp://{free_address()}"
    owner = Owner(asyncio.get_running_loop())
    owner.carriers.open([where])
    await owner.carriers.dial(parse(where))
    await until(lambda: len(owner.of("opened")) == 2)
    numbers = {dialled: number for number, _, dialled in owner.of("opened")}
    here, there = numbers[parse(where)], numbers[None]
    owner.carriers.send(here, b"hello")
    await until(lambda: owner.data(there) == b"hello")
    assert owner.carriers.waiting(here) == 0
    owner.carriers.hold(there)
    owner.carriers.send(here, b"held")
    owner.carriers.read_on(there)
    await until(lambda: owner.data(there) == b"helloheld")
    owner.carriers.close(here)
    await until(lambda: owner.of("ended"))
    assert [number for number, _ in owner.of("ended")] == [there]
    for number in 1, 2, 3:  # gone, and never there
        owner.carriers.send(number, b"x")
        owner.carriers.hold(number)
        owner.carriers.read_on(number)
        assert owner.carriers.waiting(number) == 0
    owner.carriers.end()
    other = Owner(asyncio.get_running_loop())
    await other.carriers.dial(parse(where))
    assert [reason for _, reason, _ in other.of("not reached")] == ["Connection refused"]


async def test_nothing_is_opened_or_read_once_stopped() -> None:
    """A line that is opened again restarts many boards."""
    where = f"tcp://{free_address()}"
    owner, other = (Owner(asyncio.get_running_loop()) for _ in range(2))
    other.carriers.open([where])
    with PseudoSerial() as line:
        url = f"serial://{line.device}/arm?baud=9600"
        owner.carriers.open([url])
        dialling = asyncio.create_task(owner.carriers.dial(parse(where)))
        await asyncio.sleep(0)
        owner.carriers.stop()
        await dialling
        for each in url, where:
            await owner.carriers.dial(parse(each))
        assert owner.of("opened") == [[1, "serial", None]]
        owner.carriers.read_on(1)
        assert not owner.carriers._carriers[1]._reads  # type: ignore[attr-defined]
        assert not owner.carriers.part(lambda _: True)
        assert owner.carriers.part(lambda _: False)
        assert not owner.carriers._again
    for each in owner, other:
        each.carriers.end()


async def test_who_comes_from_elsewhere_is_turned_away() -> None:
    where = f"tcp://{free_address()}"
    owner = Owner(asyncio.get_running_loop(), [ip_network("192.0.2.0/24")])
    owner.carriers.open([where])
    host, _, port = where.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port))) as refused:
        refused.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(refused, 1) == b""
    assert (owner.said, owner.carriers.refused) == ([], 1)
    owner.carriers.end()


def test_an_address_in_both_forms_is_one() -> None:
    with asyncio.Runner() as runner:
        owner = Owner(runner.get_loop(), [ip_network("10.0.0.0/8"), ip_network("fe80::/10")])
    admits = owner.carriers.admits
    assert [admits(each) for each in ("10.1.1.1", "::ffff:10.1.1.1", "fe80::1%eth0")] == [True] * 3
    assert [admits(each) for each in ("11.1.1.1", "::1")] == [False] * 2


@pytest.mark.parametrize("dials", [True, False])
async def test_a_device_that_goes_and_comes_back(monkeypatch: pytest.MonkeyPatch, dials: bool) -> None:
    """The one that is waited at is opened again here; the one that is dialled is the core's to dial."""
    monkeypatch.setattr(carriers_module, "LINE_SECONDS", 0.01)
    owner = Owner(asyncio.get_running_loop())
    with PseudoSerial() as line:
        url = f"serial://{line.device}/arm?baud=9600"

        async def begin() -> None:
            if dials:
                await owner.carriers.dial(parse(url))
            elif not owner.said:
                owner.carriers.open([url])

        await begin()
        assert owner.of("opened") == [[1, "serial", parse(url) if dials else None]]
        line.write(b"boot")
        await until(lambda: owner.data(1) == b"boot")
        owner.carriers.send(1, b"hello")
        await until(lambda: line.read() == b"hello")
        line.unplug()
        await until(lambda: owner.of("ended"))
        await begin()
        await until(lambda: owner.of("not reached"))
        line.plug()
        await begin()
        await until(lambda: len(owner.of("opened")) == 2)
        line.write(b"again")
        await until(lambda: owner.data(2) == b"again")
    owner.carriers.end()


async def test_who_came_by_udp_can_be_told_the_end() -> None:
    where = free_address()
    owner = Owner(asyncio.get_running_loop())
    owner.carriers.open([f"udp://{where}"])
    host, port = where.rsplit(":", 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as peer:
        peer.connect((host, int(port)))
        peer.send(encode(pb.Handshake(me="udp://10.0.1.1:1/a", stage=pb.INITIAL), 1))
        await until(lambda: owner.of("opened"))
        owner.carriers.stop()
        owner.carriers.send(1, b"the end")
        peer.send(b"more")
        assert await asyncio.get_running_loop().sock_recv(peer, 100) == b"the end"
        owner.carriers.end()
