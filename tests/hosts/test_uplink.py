"""Messages between segments that a router divides: every one arrives, once and in order, whatever is lost or killed.

Of a share p of the packets between the router and the hosts, each repetition of a link datagram fails with less than
3p. The uplinks repeat for ten seconds, some twenty times: at 5 % one in 10^16 is lost for good.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.backbone.process import BackboneProcess
from tests.daemon_process import DaemonProcess
from tests.hosts.conftest import KEY, starting
from tests.hosts.flow import END, Publisher, Subscriber
from tests.hosts.lossy import Lossy
from tests.hosts.recorded import Network, recording, wait_beyond
from tests.hosts.routed import LINK, LINKS, Routed
from tests.packet_client import PacketClient, wait_until
from tests.uplink.process import UplinkProcess, links

CARRIED = "flow/>,ask/>,!>"
# An uplink then notices sooner that it is cut off.
FLAGS = ("--export", CARRIED, "--import", CARRIED, "--keepalive", "0.2")
LOSS = 0.05
# Messages of each source, and those of a second.
COUNT, RATE = 800, 500.0
# The same where each message is to be a link datagram.
RECORDED_RATE = 160.0
SEGMENT_OF = {"n": "north", "s": "south", "w": "west"}


class Sites:
    """Daemons of all hosts; backbones on the router and uplinks are started as a test wants them."""

    def __init__(self, routed: Routed, daemons: dict[str, DaemonProcess], folder: Path) -> None:
        self.routed, self.daemons, self.folder = routed, daemons, folder

    def backbone(self, running: ExitStack, name: str = "backbone") -> BackboneProcess:
        (self.folder / name).mkdir()
        prefix = self.routed.router.command([])
        return running.enter_context(BackboneProcess(self.folder / name, host="0.0.0.0", prefix=prefix))  # noqa: S104

    def uplinks(self, running: ExitStack, *places: tuple[str, BackboneProcess]) -> list[UplinkProcess]:
        """One on each of these hosts, by these backbones. They start side by side."""
        made = []
        for host, backbone in places:
            where = self.routed.hosts[host]
            carrier = f"fyrehose://{self.routed.gateway(where)}:{backbone.address[1]}"
            folder = self.folder / f"{host}-{backbone.address[1]}"
            name, prefix = SEGMENT_OF[host[0]], where.command([])
            made.append(UplinkProcess(folder, self.daemons[host], carrier, *FLAGS, name=name, prefix=prefix))
            made[-1].launch()
            running.push(made[-1])
        for uplink in made:
            uplink.wait_until_ready()
        return made


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Routed, dict[str, DaemonProcess]]]:
    """Three segments with a daemon on each host, and keys of their own."""
    with (
        Routed(("n1", "n2"), ("s1", "s2"), ("w1",)) as routed,
        starting(tmp_path_factory.mktemp("daemons")) as start,
    ):
        flags = ("--interface", "eth0")
        daemons = {
            name: start(host, *flags, key=name[:1].encode() + KEY, ready=False)
            for name, host in routed.hosts.items()
        }
        for daemon in daemons.values():
            daemon.wait_until_ready()
        yield routed, daemons


@pytest.fixture
def sites(hosts: tuple[Routed, dict[str, DaemonProcess]], tmp_path: Path) -> Sites:
    return Sites(*hosts, tmp_path)


@contextmanager
def flow(
    sites: Sites, sender: str, receivers: Sequence[str], *, sources: int = 2, count: int = COUNT
) -> Iterator[None]:
    """A flow that goes on within the block. Each of it arrives everywhere, once and in order."""
    sizes = {"sources": sources, "count": count}
    with ExitStack() as running:
        subscribers = [
            running.enter_context(Subscriber(f"bus:{sites.daemons[name].socket}", **sizes))
            for name in receivers
        ]
        address = f"bus:{sites.daemons[sender].socket}"
        publisher = running.enter_context(Publisher(address, rate=RATE, **sizes))
        yield
        publisher.wait()
        counted = [each.result() for each in subscribers]
    assert [(each.received, each.wrong) for each in counted] == [(each.expected, 0) for each in counted], (
        counted
    )


def wait_until_heard(sites: Sites, host: str, segments: set[str], uplinks: int = 1) -> None:
    """Until each uplink of a segment is up, and together they hear the others."""

    def are_heard() -> bool:
        rows = links(sites.daemons[host], uplinks)
        heard = {link["segment"] for row in rows for link in row["links"]}
        return all(row["state"] == "up" for row in rows) and segments <= heard

    wait_until(are_heard, f"{segments} at {host}")


def wait_until_half(sites: Sites, host: str) -> None:
    """Until about half of a flow has arrived there."""
    with PacketClient(sites.daemons[host].socket) as client:
        client.subscribe("flow/0")
        number = b"0"
        while number != END and int(number) < COUNT // 2:
            number = client.message()[1].split()[0]


def test_each_message_arrives_once_amid_loss(sites: Sites) -> None:
    with ExitStack() as running:
        backbone = sites.backbone(running)
        sites.uplinks(running, ("n1", backbone), ("s1", backbone))
        wait_until_heard(sites, "n1", {"south"})
        wait_until_heard(sites, "s1", {"north"})
        ends = [(sites.routed.router, LINKS), *((sites.routed.hosts[name], LINK) for name in ("n1", "s1"))]
        losing = [running.enter_context(Lossy(host, LOSS, interface=interface)) for host, interface in ends]
        with flow(sites, "n2", ["s1", "s2"]):
            pass
        assert all(each.counts[1] for each in losing)
        assert links(sites.daemons["s1"])[0]["lost"] == 0


def publish_both_ways(daemons: Sequence[DaemonProcess]) -> None:
    """Each publishes by turns what is carried and what is not."""
    begun = time.monotonic()
    with ExitStack() as running:
        clients = [running.enter_context(PacketClient(daemon.socket)) for daemon in daemons]
        for number in range(COUNT):
            wait_until(lambda due=begun + number / RECORDED_RATE: time.monotonic() >= due, "its time")
            for client in clients:
                client.publish("flow/recorded" if number % 2 else "kept/recorded", b"%d" % number)
        for client in clients:
            client.drain()


@pytest.mark.spark
def test_the_pipeline_reports_the_link_and_accuses_no_host(sites: Sites) -> None:
    """Half of each source is not carried, and the way to the backbone and back loses 5 % each."""
    daemons = [sites.daemons[name] for name in ("n1", "n2", "s1", "s2")]
    with ExitStack() as running, recording(daemons, sites.folder):
        backbone = sites.backbone(running)
        uplinks = sites.uplinks(running, ("n1", backbone), ("s1", backbone))
        wait_until_heard(sites, "n1", {"south"})
        wait_until_heard(sites, "s1", {"north"})
        wait_beyond()
        for host, interface in (sites.routed.router, LINKS), (sites.routed.hosts["s1"], LINK):
            running.enter_context(Lossy(host, LOSS, interface=interface))
        publish_both_ways([sites.daemons["n2"], sites.daemons["s2"]])
        for place in "s1", "n1":
            wait_until(lambda place=place: arrived(sites.daemons[place]) >= COUNT // 2, "all to arrive")
        wait_beyond()
        for uplink in uplinks:
            uplink.terminate()
    network = Network(sites.folder)

    assert [row for row in network.delivery() if row["lost"]] == []
    senders = {(row["sender"], row["receiver"]) for row in network.delivery() if row["sent"] > COUNT // 4}
    assert {("n2", "n1"), ("n1", "n2"), ("s2", "s1"), ("s1", "s2")} <= senders
    assert not senders & {(a, b) for a in ("n1", "n2") for b in ("s1", "s2")}
    rows = [row for row in network.table("links") if row["far"] == "south"]
    assert {(row["near"], row["exporter"], row["importer"]) for row in rows} == {("north", "n1", "s1")}
    assert sum(row["exported"] for row in rows) >= COUNT // 2
    sent, missed, lost = (sum(row[name] for row in rows) for name in ("sent", "missed", "lost"))
    assert 0.03 < missed / sent < 0.2
    assert lost == 0
    assert any(row["latency_method"] == "both-ways" and row["latency_p50_us"] > 0 for row in rows)
    assert "Problem" not in network.said
    assert "Link north → south missed" in network.page()


def arrived(daemon: DaemonProcess) -> int:
    (uplink,) = links(daemon)
    return sum(link["messages"] for link in uplink["links"])


def test_either_of_two_uplinks_may_die(sites: Sites) -> None:
    """First one that sends, then one that receives."""
    with ExitStack() as running:
        backbone = sites.backbone(running)
        sending, _, receiving, _ = sites.uplinks(
            running, *((host, backbone) for host in ("n1", "n2", "s1", "s2"))
        )
        wait_until_heard(sites, "n1", {"south"}, 2)
        wait_until_heard(sites, "s1", {"north"}, 2)
        with flow(sites, "n2", ["s1", "s2"]):
            sending.kill()
            wait_until_half(sites, "s2")
            receiving.kill()


def test_what_is_alone_and_is_killed_loses_nothing(sites: Sites) -> None:
    """The backbone, then the uplink that receives: it asks for what it missed, and nothing comes twice."""
    with ExitStack() as running:
        backbone = sites.backbone(running)
        _, receiving = sites.uplinks(running, ("n1", backbone), ("s1", backbone))
        wait_until_heard(sites, "n1", {"south"})
        wait_until_heard(sites, "s1", {"north"})
        with flow(sites, "n2", ["s2"]):
            for each in backbone, receiving:
                each.kill()
                each.start()


def test_a_ring_carries_each_message_once_either_way(sites: Sites) -> None:
    """A backbone for each two segments, so that a message could go round. Then one of the three is gone."""
    pairs = ("n1", "s1"), ("s1", "w1"), ("w1", "n1")
    with ExitStack() as running:
        backbones = [sites.backbone(running, f"backbone{number}") for number in range(3)]
        sites.uplinks(
            running, *((host, at) for ends, at in zip(pairs, backbones, strict=True) for host in ends)
        )
        for host, others in ("n1", {"south", "west"}), ("s1", {"north", "west"}), ("w1", {"north", "south"}):
            wait_until_heard(sites, host, others, 2)
        with flow(sites, "n2", ["s2", "w1"]):
            wait_until_half(sites, "w1")
            backbones[0].kill()


def test_a_request_is_answered_from_another_segment(sites: Sites) -> None:
    with ExitStack() as running:
        backbone = sites.backbone(running)
        sites.uplinks(running, ("n1", backbone), ("s1", backbone))
        wait_until_heard(sites, "n1", {"south"})
        wait_until_heard(sites, "s1", {"north"})
        asker, worker = (
            running.enter_context(PacketClient(sites.daemons[name].socket)) for name in ("n2", "s2")
        )
        asker.subscribe("nothing")
        worker.request("format", "full")
        worker.subscribe("ask/square")
        asker.publish("ask/square", b"token\n12")
        src = worker.receive().partition(b"]")[2].partition(b":")[0].decode()
        worker.publish(f"!{src}", b"token\n144")
        assert asker.message() == (f"!{src}", b"token\n144")
