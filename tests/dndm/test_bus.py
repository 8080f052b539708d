"""The gateway's side to the daemon, with a real one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from structlog.testing import capture_logs

from bccnd.dndm.bus import COST, NOT_AGAIN, Bus
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PacketClient
from tests.plain_bccn import free_port
from tests.waiting import until


class Hearer:
    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.told: list[tuple[str, bool]] = []
        self.taken = 0
        self.crowds: list[tuple[str, str]] = []
        self.rooms = 0

    def came(self, channel: str, payload: bytes) -> None:
        self.heard.append((channel, payload))

    def listened(self, channel: str, somebody: bool) -> None:
        self.told.append((channel, somebody))

    def published(self) -> None:
        self.taken += 1

    def crowded(self, kind: str, channel: str) -> None:
        self.crowds.append((kind, channel))

    def roomy(self) -> None:
        self.rooms += 1


@asynccontextmanager
async def running(socket: Path) -> AsyncIterator[tuple[Bus, Hearer]]:
    hearer = Hearer()
    bus = Bus(str(socket), hearer)
    await bus.begin()
    task = asyncio.create_task(bus.run())
    try:
        yield bus, hearer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()


async def asked(client: PacketClient, channel: str, listeners: int) -> None:
    await until(lambda: client.request("listeners", channel) == str(listeners), f"listeners on {channel}")


async def test_what_is_wanted_is_held_until_it_is_left(shared_daemon: DaemonProcess) -> None:
    async with running(shared_daemon.socket) as (bus, hearer):
        with PacketClient(shared_daemon.socket) as program:
            for number in range(200):
                bus.want("subscribe", f"dndm/a/{number}")
            await asked(program, "dndm/a/199", 1)
            program.publish("dndm/a/7", b"x")
            program.publish("!", b"for all")
            program.publish("dndm/a/8", b"y")
            await until(lambda: len(hearer.heard) == 2)
            assert hearer.heard == [("dndm/a/7", b"x"), ("dndm/a/8", b"y")]
            bus.publish("dndm/a/7", b"own")
            bus.leave("subscribe", "dndm/a/7")
            await asked(program, "dndm/a/7", 0)
            assert bus.counts["heard"] == 2


async def test_what_is_watched_is_told_and_told_again(shared_daemon: DaemonProcess) -> None:
    channel = "local/dndm/w/T"
    async with running(shared_daemon.socket) as (bus, hearer):
        with PacketClient(shared_daemon.socket) as program:
            bus.want("watch", channel)
            await until(lambda: hearer.told == [(channel, False)])
            program.subscribe(channel)
            await until(lambda: hearer.told[-1] == (channel, True))
            # Left and wanted again, before anything was said to the daemon.
            bus.leave("watch", channel)
            bus.want("watch", channel)
            await until(lambda: len(hearer.told) == 3)
            assert hearer.told[-1] == (channel, True)
            bus.leave("watch", channel)
            bus.want("subscribe", "dndm/w/last")
            await asked(program, "dndm/w/last", 1)
            program.send(f"UNSUB {channel}".encode())
            program.drain()
            bus.want("watch", channel)
            await until(lambda: hearer.told[-1] == (channel, False))


async def test_messages_are_published_in_order_and_counted(shared_daemon: DaemonProcess) -> None:
    async with running(shared_daemon.socket) as (bus, hearer):
        with PacketClient(shared_daemon.socket) as program:
            program.subscribe("dndm/o/>", "local/dndm/o/>")
            for number in range(500):
                bus.publish("dndm/o/T", b"%d" % number)
            assert bus.waiting > 500 * COST
            assert not bus.full
            bus.publish("local/dndm/o/T", bytes(65_536))
            await until(lambda: not bus.waiting)
            heard = [program.message() for _ in range(501)]
            assert [payload for _, payload in heard[:500]] == [b"%d" % number for number in range(500)]
            assert len(heard[500][1]) == 65_536
            assert bus.counts["published"] == 501
            assert hearer.taken


async def test_what_is_refused_is_counted_and_others_go_on(tmp_path: Path) -> None:
    file = tmp_path / "bccnd.toml"
    file.write_text(
        '[[rights]]\npublish = ["dndm/may/>"]\nsubscribe = ["dndm/may/>"]\n[limits]\nsubscriptions = 3\n'
    )
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()), "--config", str(file))
    with DaemonProcess(tmp_path, *flags) as daemon:
        async with running(daemon.socket) as (bus, hearer):
            for channel in ("dndm/no/T", "dndm/may/T"):
                bus.want("watch", channel)
                bus.want("subscribe", channel)
            await until(lambda: len(hearer.told) == 2)
            assert sorted(hearer.told) == [("dndm/may/T", False), ("dndm/no/T", False)]
            for number in range(3):
                bus.want("subscribe", f"dndm/may/{number}")
            bus.publish("dndm/no/T", b"x")
            await until(lambda: bus.counts["refused"] == 4)
            assert hearer.crowds == [("subscribe", "dndm/may/2")]
            bus.leave("subscribe", "dndm/may/0")
            bus.want("subscribe", "dndm/may/2")
            await until(lambda: ("subscribe", "dndm/may/2") in bus._held)
            bus.leave("subscribe", "dndm/no/T")
            bus.leave("watch", "dndm/no/T")
            assert not bus._refused
            bus.publish("dndm/may/T", b"x")
            await until(lambda: bus.counts["published"] == 2)


async def test_a_watch_without_room_is_told_and_may_be_wanted_again(tmp_path: Path) -> None:
    file = tmp_path / "bccnd.toml"
    file.write_text("[limits]\nsubscriptions = 2\n")
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()), "--config", str(file))
    with DaemonProcess(tmp_path, *flags) as daemon:
        async with running(daemon.socket) as (bus, hearer):
            for number in range(3):
                bus.want("watch", f"dndm/{number}")
            await until(lambda: len(hearer.told) + len(hearer.crowds) == 3)
            assert hearer.crowds == [("watch", "dndm/2")]
            bus.leave("watch", "dndm/2")
            bus.leave("watch", "dndm/0")
            bus.want("watch", "dndm/2")
            await until(lambda: hearer.told[2:] == [("dndm/2", False)])


async def test_a_lower_limit_after_a_restart_is_said_with_its_remedy(tmp_path: Path) -> None:
    file = tmp_path / "bccnd.toml"
    flags = ("--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()), "--config", str(file))
    file.write_text("[limits]\nsubscriptions = 2\n")
    with capture_logs() as said, DaemonProcess(tmp_path, *flags) as daemon:
        async with running(daemon.socket) as (bus, _):
            for number in range(2):
                bus.want("subscribe", f"dndm/{number}")
            await until(lambda: all(bus._held.get(("subscribe", f"dndm/{number}")) for number in range(2)))
            await asyncio.to_thread(daemon.terminate)
            file.write_text("[limits]\nsubscriptions = 1\n")
            await asyncio.to_thread(daemon.start)
            await until(lambda: bus.counts["refused"] == 1)
    (line,) = (line for line in said if line["event"] == "refused by the daemon")
    assert (line["remedy"], "at most 1 patterns" in line["reason"]) == (NOT_AGAIN, True)


async def test_without_a_daemon_nothing_waits(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path, "--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    async with running(daemon.socket) as (bus, hearer):
        bus.want("subscribe", "dndm/a/T")
        bus.publish("dndm/a/T", b"x")
        assert (bus.waiting, bus.counts["away"]) == (0, 1)
        assert "no daemon" in bus.reason
        await asyncio.to_thread(daemon.start)
        try:
            with PacketClient(daemon.socket) as program:
                await asked(program, "dndm/a/T", 1)
                assert bus.reason == ""
                program.publish("dndm/a/T", b"y")
                await until(lambda: hearer.heard == [("dndm/a/T", b"y")])
        finally:
            await asyncio.to_thread(daemon.terminate)
        await until(lambda: bus.reason)
