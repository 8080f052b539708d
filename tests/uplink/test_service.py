"""Two segments of the loopback, each a daemon with a port of its own, joined by uplinks and a real backbone."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bccnd.beside.program import UNLIMITED, Start
from bccnd.errors import RefusedError
from bccnd.process.log_limit import LogLimit
from bccnd.uplink.core import Uplink
from bccnd.uplink.service import AWAY_SECONDS, LOOK_SECONDS, REPORT_SECONDS, Service
from bccnd.uplink.settings import UplinkSettings
from tests.backbone.process import BackboneProcess
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient, wait_until
from tests.uplink.nats_server import NatsServer
from tests.uplink.process import UplinkProcess, links, segment

CARRIED = '["a/>", "b/>", "!>"]'
# An uplink then notices sooner that it is cut off.
QUICK = ("--keepalive", "0.2")


@dataclass
class Sites:
    """Two segments with an uplink each."""

    backbone: BackboneProcess
    north: DaemonProcess
    south: DaemonProcess
    northern: UplinkProcess
    southern: UplinkProcess

    @property
    def uplinks(self) -> tuple[UplinkProcess, UplinkProcess]:
        return self.northern, self.southern

    def wait_until_joined(self) -> None:
        """Until each uplink has heard the other: what is published from then on is carried."""
        wait_until(self._are_joined, "the uplinks to hear each other")

    def _are_joined(self) -> bool:
        heard = [links(daemon)[0] for daemon in (self.north, self.south)]
        return all(each["state"] == "up" and each["links"] for each in heard)


def configure(uplink: UplinkProcess, channels: str = CARRIED, key: str = "a key that both share") -> None:
    """Write its settings and its key."""
    keys = uplink.config.with_name("keys")
    keys.touch(0o600)
    keys.write_text(f"{key}\n")
    uplink.config.write_text(f"[uplink]\nexport = {channels}\nimport = {channels}\nkey_file = '{keys}'\n")


def reload(uplink: UplinkProcess) -> None:
    before = len(uplink.logged("reloaded"))
    os.kill(uplink.process.pid, signal.SIGHUP)
    wait_until(lambda: len(uplink.logged("reloaded")) > before, "the reload")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """One for all tests. Each leaves it as it was: whole, with the settings that ``configure`` writes."""
    folder = tmp_path_factory.mktemp("sites")
    with ExitStack() as running:
        (folder / "backbone").mkdir()
        backbone = running.enter_context(BackboneProcess(folder / "backbone"))
        url = "fyrehose://{}:{}".format(*backbone.address)
        north, south = (running.enter_context(segment(folder, name)) for name in ("north", "south"))
        uplinks = [UplinkProcess(folder / f"{name}-uplink", daemon, url, *QUICK, name=name)
                   for name, daemon in (("north", north), ("south", south))]  # fmt: skip
        for uplink in uplinks:
            configure(uplink)
            uplink.launch()
            running.push(uplink)
        for uplink in uplinks:
            uplink.wait_until_ready()
        made = Sites(backbone, north, south, *uplinks)
        made.wait_until_joined()
        yield made


def publish(client: PacketClient, chan: str, numbers: range) -> None:
    for number in numbers:
        client.publish(chan, b"%d" % number)


def received(client: PacketClient, count: int) -> list[tuple[str, int]]:
    return [(chan, int(payload)) for chan, payload in (client.message() for _ in range(count))]


def give(sites: Sites, client: PacketClient, numbers: range) -> None:
    """Publish them on ``a/x`` in the north. Returns once the uplink there has them."""
    before = links(sites.north)[0]["exported"]
    publish(client, "a/x", numbers)
    wait_until(lambda: links(sites.north)[0]["exported"] == before + len(numbers), "the uplink to have them")


def test_messages_cross_both_ways_once_and_in_order(sites: Sites) -> None:
    with PacketClient(sites.north.socket) as one, PacketClient(sites.south.socket) as other:
        one.subscribe("b/>")
        other.subscribe("a/>")
        publish(one, "a/x", range(1000))
        publish(other, "b/x", range(1000))
        publish(one, "a/end", range(1))
        publish(other, "b/end", range(1))
        assert received(other, 1001) == [("a/x", number) for number in range(1000)] + [("a/end", 0)]
        assert received(one, 1001) == [("b/x", number) for number in range(1000)] + [("b/end", 0)]
        assert one.messages() == other.messages() == []


def test_a_message_keeps_its_source_and_number(sites: Sites) -> None:
    with PacketClient(sites.north.socket) as one, PacketClient(sites.south.socket) as other:
        name = one.request("whoami").encode()
        for client in one, other:
            client.request("format", "full")
            client.subscribe("a/>")
        one.publish("a/full", b"x")
        here, there = one.receive().partition(b"\0")[2], other.receive().partition(b"\0")[2]
        assert here == there
        assert here.partition(b"]")[2].startswith(name + b":")


def test_only_what_is_named_is_carried(sites: Sites) -> None:
    with PacketClient(sites.north.socket) as one, PacketClient(sites.south.socket) as other:
        other.subscribe(">", "c/>", "local/>")
        for chan in "c/x", "local/x", "heartbeat/x", "bccnd/x", "a", "a/last":
            one.publish(chan, b"x")
        messages = []
        while not messages or messages[-1][0] != "a/last":
            messages.append(other.message())
        assert [chan for chan, _ in messages if not chan.startswith("heartbeat/south/")] == ["a/last"]


def test_bccn_links_shows_what_an_uplink_hears(sites: Sites) -> None:
    (uplink,) = links(sites.north)
    assert (uplink["segment"], uplink["state"], uplink["reason"]) == ("north", "up", "")
    assert uplink["round_trip"] > 0
    (link,) = uplink["links"]
    assert (link["segment"], link["hosts"], link["lost"]) == ("south", ["south"], 0)


def test_a_reload_changes_what_is_carried_without_a_gap(sites: Sites) -> None:
    """While messages are published on a channel that both the old and the new settings name."""
    for uplink in sites.uplinks:
        configure(uplink, '["a/>", "old"]')
        reload(uplink)
    with PacketClient(sites.north.socket) as one, PacketClient(sites.south.socket) as other:
        other.subscribe("a/>", "old", "new")
        publish(one, "a/x", range(300))
        publish(one, "old", range(1))
        got = received(other, 301)  # what is still under way to who takes it no more would be dropped there
        before = {uplink: len(uplink.logged("reloaded")) for uplink in sites.uplinks}
        for uplink in reversed(sites.uplinks):
            configure(uplink, '["a/>", "new"]')
            os.kill(uplink.process.pid, signal.SIGHUP)
        publish(one, "a/x", range(300, 600))
        for uplink, reloads in before.items():
            wait_until(
                lambda uplink=uplink, reloads=reloads: len(uplink.logged("reloaded")) > reloads, "the reload"
            )
        publish(one, "a/x", range(600, 900))
        for chan in "old", "new":
            publish(one, chan, range(1, 2))
        got += received(other, 601)
        assert [number for chan, number in got if chan == "a/x"] == list(range(900))
        assert [message for message in got if message[0] != "a/x"] == [("old", 0), ("new", 1)]
        assert other.messages() == []
    for uplink in sites.uplinks:
        configure(uplink)
        reload(uplink)


def test_a_reload_with_a_mistake_changes_nothing(sites: Sites) -> None:
    sites.northern.config.write_text('[uplink]\nexport = ["local/x"]\n')
    os.kill(sites.northern.process.pid, signal.SIGHUP)
    wait_until(lambda: sites.northern.logged("not reloaded, the old settings stay"), "the refusal")
    configure(sites.northern)
    with PacketClient(sites.north.socket) as one, PacketClient(sites.south.socket) as other:
        other.subscribe("a/>")
        publish(one, "a/still", range(1))
        assert received(other, 1) == [("a/still", 0)]


def test_a_wrong_key_is_said_and_carries_nothing(sites: Sites) -> None:
    with PacketClient(sites.north.socket) as one, PacketClient(sites.south.socket) as other:
        other.subscribe("a/>")
        configure(sites.southern, key="a key of another link")
        reload(sites.southern)
        give(sites, one, range(1))
        wait_until(
            lambda: any("unsound" in line for line in sites.southern.logged("lost")),
            "a line about it",
            PATIENCE + REPORT_SECONDS,  # after one about another loss, such as of a busy machine
        )
        line = next(line for line in sites.southern.logged("lost") if "unsound" in line)
        assert "the same key_file" in line["remedy"]
        wait_until(lambda: links(sites.north)[0]["waiting"] == 0, "the backbone to have it")
        configure(sites.southern)
        reload(sites.southern)
        publish(one, "a/x", range(1, 2))
        assert received(other, 1) == [("a/x", 1)]


def test_a_request_is_answered_from_the_other_segment(sites: Sites) -> None:
    with PacketClient(sites.north.socket) as asker, PacketClient(sites.south.socket) as worker:
        asker.subscribe("nothing")
        worker.request("format", "full")
        worker.subscribe("a/square")
        asker.publish("a/square", b"token\n12")
        src = worker.receive().partition(b"]")[2].partition(b":")[0].decode()
        worker.publish(f"!{src}", b"token\n144")
        assert asker.message() == (f"!{src}", b"token\n144")


def test_what_is_killed_goes_on_and_loses_nothing(sites: Sites) -> None:
    """With kill -9 the uplink that receives, and the backbone; in an orderly way the uplink that sends."""
    with PacketClient(sites.north.socket) as one, PacketClient(sites.south.socket) as other:
        other.subscribe("a/>")
        publish(one, "a/x", range(100))
        assert received(other, 100) == [("a/x", number) for number in range(100)]
        sites.southern.kill()
        give(sites, one, range(100, 200))
        wait_until(lambda: links(sites.north)[0]["waiting"] == 0, "the backbone to have all")
        sites.backbone.kill()
        wait_until(lambda: links(sites.north)[0]["state"] == "cut off", "the uplink to notice")
        give(sites, one, range(200, 300))
        assert links(sites.north)[0]["waiting"] > 0
        assert sites.northern.terminate() == 0
        sites.backbone.start()
        for uplink in sites.uplinks:
            uplink.launch()
        for uplink in sites.uplinks:
            uplink.wait_until_ready()
        assert received(other, 200) == [("a/x", number) for number in range(100, 300)]
        publish(one, "a/x", range(300, 301))
        assert received(other, 1) == [("a/x", 300)]
        assert other.messages() == []


def made(daemon: DaemonProcess, **others: Any) -> Service:
    """A service that does not serve."""
    settings = UplinkSettings(
        carrier="fyrehose://127.0.0.1:1", name="north", socket=str(daemon.socket), **others
    )
    changed = settings.model_copy(update={"metrics": f"{settings.metrics}-new"})
    return Service(Start(settings, lambda: changed, LogLimit(UNLIMITED)))


async def test_with_each_connection_the_core_begins_to_hear(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[Uplink] = []
    monkeypatch.setattr(Uplink, "joined", lambda core: joined.append(core))
    service = made(daemon)
    joined.clear()
    for _ in range(2):
        await service.bus.begin([], bridges=False)
        await service.bus.close()
    assert joined == [service.core] * 2
    service._journal.close()


async def test_hosts_are_looked_for_sooner_while_there_is_no_daemon(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, pauses, looked = made(daemon), list[float](), asyncio.Event()
    found: list[list[str]] = [[], [], ["here"]]

    async def hosts() -> list[str]:
        return found.pop(0)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if not found:
            looked.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(service.bus, "hosts", hosts)
    monkeypatch.setattr("bccnd.uplink.service.asyncio.sleep", sleep)
    looking = asyncio.create_task(service._tell())
    await asyncio.wait_for(looked.wait(), PATIENCE)
    looking.cancel()
    assert pauses == [AWAY_SECONDS, AWAY_SECONDS, LOOK_SECONDS]
    assert service.core._hosts == [b"here"]
    service._journal.close()


@pytest.mark.parametrize(("fault", "where"), [("", "in the journal"), ("disk is full", "in memory")])
async def test_the_log_says_where_messages_wait_while_cut_off(
    daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, where: str
) -> None:
    said: list[dict[str, Any]] = []
    monkeypatch.setattr("bccnd.uplink.service.log.warning", lambda _event, **more: said.append(more))
    service = made(daemon, journal=tmp_path / "journal")
    said.clear()
    service._journal.fault = fault
    monkeypatch.setattr(service.carrier, "facts", lambda: SimpleNamespace(reason="no answer"))
    service._look_at_carrier()
    assert [each["waits"] for each in said] == [where]
    service._journal.close()


async def test_a_reload_that_is_refused_leaves_the_metrics_alone(
    daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = made(daemon, metrics=str(tmp_path / "metrics"))
    service._health.open(service._settings.metrics)

    async def refuse(*_patterns: object, bridges: bool) -> None:
        raise RefusedError(f"no right to bridge: {bridges}")

    monkeypatch.setattr(service.bus, "want", refuse)
    await service._reload()
    assert (tmp_path / "metrics").exists()
    assert not (tmp_path / "metrics-new").exists()
    service._health.close()
    service._journal.close()


@pytest.mark.needs("nats-server")
def test_nats_carries_the_same_and_keeps_what_is_missed(sites: Sites, tmp_path: Path) -> None:
    """The server is killed, and the uplink that receives as well, while messages wait."""
    with NatsServer(tmp_path / "nats") as server, ExitStack() as running:
        uplinks = [
            UplinkProcess(tmp_path / name, daemon, server.url, "--export", "n/>", "--import", "n/>")
            for name, daemon in (("north", sites.north), ("south", sites.south))
        ]
        for uplink in uplinks:
            running.enter_context(uplink)
        one, other = (running.enter_context(PacketClient(uplink.daemon.socket)) for uplink in uplinks)
        other.subscribe("n/>")
        wait_until(
            lambda: all(map(_hears_by_nats, (sites.north, sites.south))), "the uplinks to hear each other"
        )
        publish(one, "n/x", range(300))
        assert received(other, 300) == [("n/x", number) for number in range(300)]
        server.kill()
        uplinks[1].kill()
        publish(one, "n/x", range(300, 400))
        one.drain()
        server.start()
        uplinks[1].start()
        assert received(other, 100) == [("n/x", number) for number in range(300, 400)]
        assert other.messages() == []


def _hears_by_nats(daemon: DaemonProcess) -> bool:
    return any(row["carrier"].startswith("nats:") and row["links"] for row in links(daemon, 2))


def test_it_tells_its_manager_and_prometheus_how_it_is(sites: Sites, tmp_path: Path) -> None:
    where = tmp_path / "metrics"
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.settimeout(PATIENCE)
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000000"}
    uplink = UplinkProcess(
        tmp_path / "third", sites.north, "fyrehose://127.0.0.1:1", "--metrics", str(where), environ=environ
    )
    with manager:
        with uplink:
            assert manager.recv(1000).startswith(b"READY=1\nSTATUS=")
            assert any(manager.recv(1000) == b"WATCHDOG=1" for _ in range(10))
            assert uplink.logged("nothing is carried")
            assert asyncio.run(get(where, "/healthz")).endswith("alive\n")
            assert "bccnd_uplink_carrier_connected 0.0" in asyncio.run(get(where, "/metrics"))
            unready = asyncio.run(get(where, "/readyz"))
            assert unready.startswith("HTTP/1.1 503")
            assert "cut off: " in unready
            uplink.config.write_text('[uplink]\n[[uplink.rate]]\npattern = "a"\nper_second = 1\n')
            reload(uplink)
            assert uplink.logged("reloaded")[0]["changed"] == ["rate"]
        assert any(manager.recv(1000).startswith(b"STOPPING=1") for _ in range(100))


async def get(where: Path, path: str) -> str:
    reader, writer = await asyncio.open_unix_connection(where)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = (await asyncio.wait_for(reader.read(), PATIENCE)).decode()
    writer.close()
    await writer.wait_closed()
    return answer
