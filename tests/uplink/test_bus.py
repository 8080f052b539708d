"""The uplink's side to the daemon, with a real one; its segment is the loopback's."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

import bccn
from bccnd.errors import RefusedError
from bccnd.uplink import bus as bus_module
from bccnd.uplink.account import FACTS_CHANNEL
from bccnd.uplink.bus import HOSTS_LIMIT, Bus
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import PATIENCE, PacketClient
from tests.plain_bccn import datagram
from tests.replaceable_daemon import ReplaceableDaemon
from tests.waiting import until

UNREPAIRED = {"BCCND_REPAIR__ON": "false"}


class Heard(list[bytes]):
    """What a bus heard: channels and payloads; ``joined``: how often it began to; ``last``: how many last values."""

    joined = last = 0

    def join(self) -> None:
        self.joined += 1

    def __call__(self, heard: bytes, retained: bool) -> None:
        self.last += retained
        self.append(heard.partition(b"]")[2].split(b":", 2)[2])


@asynccontextmanager
async def running(bus: Bus, *patterns: str, bridges: bool = True) -> AsyncIterator[Bus]:
    await bus.begin(patterns, bridges=bridges)
    task = asyncio.create_task(bus.run())
    try:
        yield bus
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await bus.close()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def flags(loopback_port: int) -> tuple[str, ...]:
    return "--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)


def make(daemon: DaemonProcess, heard: Heard) -> Bus:
    return Bus(str(daemon.socket), heard, "bccnd/links", lambda: [b'{"a":1}', b'{"b":2}'], joined=heard.join)


async def test_it_hears_a_message_once_and_not_its_own(daemon: DaemonProcess, heard: Heard) -> None:
    with PacketClient(daemon.socket) as client:
        client.subscribe("a/>")
        async with running(make(daemon, heard), "a/>", "a/b", ">") as bus:
            assert bus.reason == ""
            assert bus.name.startswith("here/")
            client.publish("a/b", b"1")
            await until(lambda: len(heard) >= 1, "a message")
            far = [datagram("far/bccnd/1", number, "a/b", b"%d" % number) for number in range(2, 100)]
            await bus.send(far)
            assert [client.message()[1] for _ in range(99)] == [b"%d" % number for number in range(1, 100)]
            client.publish("a/b", b"last")
            await until(lambda: b"a/b|last" in heard, "the last")
            assert heard == [b"a/b|1", b"a/b|last"]
            assert (bus.counts["sent"], bus.counts["refused"]) == (98, 0)
            assert await bus.hosts() == ["here"]


async def test_refusals_of_duplicates_are_counted(daemon: DaemonProcess, heard: Heard) -> None:
    async with running(make(daemon, heard)) as bus:
        again = [datagram("far/x/1", number, "a", b"x") for number in range(1, 6)]
        with structlog.testing.capture_logs() as logged:
            await bus.send(again)
            await bus.send(again)
            await bus.send([b"BCCN1[3]a:b"])
            assert (bus.counts["sent"], bus.counts["refused"]) == (11, 1)
            assert bus.counts["duplicate"] >= 1  # how many more there were, a later answer says
        assert logged == []


async def test_it_answers_requests_with_each_reply(daemon: DaemonProcess, heard: Heard) -> None:
    async with running(make(daemon, heard), bridges=False), bccn.AsyncClient(daemon.socket) as client:
        replies = client.request_many("bccnd/links", b"", PATIENCE, 2)
        assert [reply.payload async for reply in replies] == [b'{"a":1}', b'{"b":2}']
    assert heard == []


async def test_what_it_says_of_itself_taps_alone_see(daemon: DaemonProcess, heard: Heard) -> None:
    with PacketClient(daemon.socket) as tap, PacketClient(daemon.socket) as other:
        tap.request("tap", "on")
        other.subscribe(">")
        async with running(make(daemon, heard), ">", "!>") as bus:
            await bus.say(FACTS_CHANNEL, [b"{1}", b"{2}"])
            await bus.say("a", [b"3"])
            assert await asyncio.to_thread(other.message) == ("a", b"3")
            seen: list[bytes] = []
            while len(seen) < 2:
                packet = await asyncio.to_thread(tap.receive)
                _, found, said = packet.partition(f":{FACTS_CHANNEL}|".encode())
                seen += [said] * bool(found and packet.startswith(b"RECV local "))
        assert seen == [b"{1}", b"{2}"]
        assert bus.counts["refused"] == 0
    await bus.say(FACTS_CHANNEL, [b"to nobody, as there is no daemon"])


async def test_a_daemon_that_goes_while_it_is_answered_is_no_fault(
    tmp_path: Path, flags: tuple[str, ...], heard: Heard
) -> None:
    faults: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    with DaemonProcess(tmp_path, *flags) as daemon:

        def answer() -> list[bytes]:
            daemon.kill()
            return [b"too late"]

        bus = Bus(str(daemon.socket), heard, "bccnd/links", answer)
        async with running(bus, bridges=False):
            with PacketClient(daemon.socket) as client:
                client.publish("bccnd/links", b"token\n")
            await until(lambda: bool(bus.reason), "its end")
    assert faults == []


async def test_a_last_value_is_told_from_a_message(
    tmp_path: Path, flags: tuple[str, ...], heard: Heard
) -> None:
    file = tmp_path / "bccnd.toml"
    file.write_text('[retain]\npatterns = ["a"]\n')
    with (
        DaemonProcess(tmp_path, *flags, "--config", str(file)) as daemon,
        PacketClient(daemon.socket) as client,
    ):
        client.publish("a", b"1")
        client.drain()
        bus = make(daemon, heard)
        bus.retained = True
        async with running(bus, "a"):
            client.publish("a", b"2")
            await until(lambda: heard == [b"a|1", b"a|2"], "both")
    assert heard.last == 1


async def test_new_patterns_come_before_old_ones_go(daemon: DaemonProcess, heard: Heard) -> None:
    with PacketClient(daemon.socket) as client:
        async with running(make(daemon, heard), "a") as bus:
            await bus.want(["a", "b/*"], bridges=True)
            client.publish("b/c", b"1")
            await until(lambda: heard == [b"b/c|1"], "a message of the new pattern")
            await bus.want(["b/*"], bridges=True)
            client.publish("a", b"2")
            client.publish("b/c", b"3")
            await until(lambda: b"b/c|3" in heard, "the last message")
            assert heard == [b"b/c|1", b"b/c|3"]


async def test_a_limit_of_the_daemon_is_said_with_its_remedy(
    tmp_path: Path, flags: tuple[str, ...], heard: Heard
) -> None:
    settings = tmp_path / "limits.toml"
    settings.write_text("[limits]\nsubscriptions = 2\n")  # where it answers
    with DaemonProcess(tmp_path, *flags, "--config", str(settings)) as daemon:
        bus = make(daemon, heard)
        with pytest.raises(RefusedError, match=r"at most 2 patterns .* raise limits\.subscriptions"):
            await bus.begin(["a"], bridges=False)
        await bus.close()


async def test_a_pattern_that_is_refused_changes_nothing(daemon: DaemonProcess, heard: Heard) -> None:
    with PacketClient(daemon.socket) as client:
        async with running(make(daemon, heard), "a") as bus:
            with pytest.raises(RefusedError, match="older than this uplink"):
                await bus.want(["b", "a*b"], bridges=True)
            client.publish("b", b"1")
            client.publish("a", b"2")
            await until(lambda: b"a|2" in heard, "the message of the old pattern")
            assert heard == [b"a|2"]


async def test_a_daemon_that_goes_while_it_refuses_ends_nothing(
    daemon: DaemonProcess, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(make(daemon, heard), "a") as bus:
        settle, errors = (
            bus._settle,
            [RefusedError("no right"), bccn.UnavailableError("the daemon went away")],
        )

        async def fail(client: bccn.AsyncClient) -> None:
            if errors:
                raise errors.pop(0)
            await settle(client)

        monkeypatch.setattr(bus, "_settle", fail)
        with pytest.raises(RefusedError, match="no right"):
            await bus.want(["b"], bridges=True)
        await until(lambda: not bus.reason, "the daemon")


async def test_without_the_right_to_bridge_it_does_not_begin(
    tmp_path: Path, flags: tuple[str, ...], heard: Heard
) -> None:
    file = tmp_path / "bccnd.toml"
    file.write_text('[[rights]]\npublish = [">"]\nsubscribe = [">"]\n')
    with DaemonProcess(tmp_path, *flags, "--config", str(file)) as daemon:
        bus = make(daemon, heard)
        with pytest.raises(RefusedError, match=r"no right to bridge.*\[\[rights\]\]"):
            await bus.begin(["a"], bridges=True)
        await bus.close()
        async with running(make(daemon, heard), "a", bridges=False) as bus:
            assert bus.reason == ""


async def test_a_right_that_goes_and_comes_back_loses_nothing(
    tmp_path: Path, flags: tuple[str, ...], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "REFUSED_SECONDS", 0.02)
    file = tmp_path / "bccnd.toml"

    def allow(right: str) -> None:
        file.write_text(f'[[rights]]\npublish = [">"]\nsubscribe = [">"]\n{right}')

    allow("bridge = true")
    with (
        DaemonProcess(tmp_path, *flags, "--config", str(file)) as daemon,
        PacketClient(daemon.socket) as client,
    ):
        client.subscribe("b")
        async with running(make(daemon, heard), "a") as bus:
            for right in "", "bridge = true":
                allow(right)
                reloads = len(daemon.logged("reloaded"))
                daemon.process.send_signal(signal.SIGHUP)
                await until(lambda reloads=reloads: len(daemon.logged("reloaded")) > reloads, "the reload")
                if not right:
                    sending = asyncio.create_task(bus.send([datagram("far/x/1", 1, "b", b"x")]))
                    await until(lambda: "no right to bridge" in bus.reason, "the refusal")
            await sending
            assert client.message() == ("b", b"x")
            assert bus.reason == ""


async def test_a_revoked_pattern_is_heard_again_once_it_may_be(
    tmp_path: Path, flags: tuple[str, ...], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "REFUSED_SECONDS", 0.02)
    file = tmp_path / "bccnd.toml"

    def allow(patterns: str) -> None:
        file.write_text(f'[[rights]]\npublish = [">"]\nsubscribe = ["bccnd/links", {patterns}]\n')

    allow('"a", "b"')
    with (
        DaemonProcess(tmp_path, *flags, "--config", str(file)) as daemon,
        PacketClient(daemon.socket) as client,
    ):
        async with running(make(daemon, heard), "a", "b", bridges=False) as bus:
            allow('"a"')
            daemon.process.send_signal(signal.SIGHUP)
            await until(lambda: "[[rights]]" in bus.reason, "the refusal")
            allow('"a", "b"')
            daemon.process.send_signal(signal.SIGHUP)
            await until(lambda: not bus.reason, "the right")
            client.publish("b", b"1")
            await until(lambda: heard == [b"b|1"], "a message")


async def test_it_finds_a_daemon_that_comes_back(
    tmp_path: Path, flags: tuple[str, ...], heard: Heard
) -> None:
    """What is sent meanwhile waits for it."""
    daemon = DaemonProcess(tmp_path, *flags, environ=UNREPAIRED)
    async with running(make(daemon, heard), "a/>") as bus:
        assert "no daemon" in bus.reason
        with daemon:
            sending = asyncio.create_task(bus.send([datagram("far/x/1", 1, "b", b"x")]))
            await until(lambda: not bus.reason, "the daemon")
            await sending
            daemon.kill()
            await until(lambda: bool(bus.reason), "its end")
            sending = asyncio.create_task(bus.send([datagram("far/x/1", 2, "b", b"x")]))
            await asyncio.to_thread(daemon.start)
            await sending
            with PacketClient(daemon.socket) as client:
                client.publish("a/b", b"1")
                await until(lambda: heard == [b"a/b|1"], "a message of the new daemon")
            assert heard.joined >= 2, "what was said meanwhile was not heard"
            assert bus.counts["sent"] == 2


async def test_a_replaced_daemon_is_not_noticed(tmp_path: Path, flags: tuple[str, ...], heard: Heard) -> None:
    with ReplaceableDaemon(tmp_path, *flags) as daemon, PacketClient(daemon.socket) as client:
        client.subscribe("b")
        async with running(make(daemon, heard), "a") as bus:
            await asyncio.to_thread(daemon.replace)
            client.publish("a", b"1")
            await until(lambda: heard == [b"a|1"], "a message")
            await bus.send([datagram("far/x/1", 1, "b", b"x")])
            assert client.message() == ("b", b"x")
            assert bus.reason == ""


async def test_a_host_that_is_silent_or_relayed_is_not_here(heard: Heard) -> None:
    rows = {
        "a": {"state": "alive"},
        "b": {"state": "silent"},
        "c": {"state": "left"},
        "d": {"relayed": {"host": "x"}},
    }

    async def sources() -> list[dict[str, Any]]:
        return [{"src": f"{host}/bccnd/7", **row} for host, row in rows.items()]

    bus = Bus("@nobody", heard, "bccnd/links", list)
    bus._client = SimpleNamespace(name="here/bccnd-uplink/7", sources=sources)  # type: ignore[assignment]
    assert await bus.hosts() == ["here", "a"]


async def test_its_own_host_is_there_however_many_others_are(heard: Heard) -> None:
    async def sources() -> list[dict[str, Any]]:
        return [{"src": f"a{number}/bccnd/7"} for number in range(2 * HOSTS_LIMIT)]

    bus = Bus("@nobody", heard, "bccnd/links", list)
    bus._client = SimpleNamespace(name="here/bccnd-uplink/7", sources=sources)  # type: ignore[assignment]
    hosts = await bus.hosts()
    assert len(hosts) == HOSTS_LIMIT
    assert "here" in hosts
