"""Uplinks between two segments: what a message costs each of the processes, and what repair gives over loss.

Cost: two daemons on segments of their own on the loopback, real uplinks, and a steady rate that all take. What
a process is able to carry is a second divided by its processor time for a message. The peer is NATS as its users join
two sites: a server at each, one a leaf of the other.

Loss: two hosts, and a router with the backbone or the server of NATS. Both lines lose a share of the packets each way
(nftables). A line divides what the kernel would hand over as one packet, as wires do (``gso_max_segs``).
"""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from select import select
from statistics import median

from bccnd.wire.fyrehose import Push
from bccnd.wire.link import Seal, source
from tests.backbone.process import BackboneProcess
from tests.bench.charts import Lines
from tests.bench.loads import PAYLOAD
from tests.bench.machine import cpu_seconds
from tests.bench.peers import START_SECONDS, Contender
from tests.bench.programs import LoadProcess, MeasurementError, words
from tests.bench.results import Figure, Report, Series
from tests.bench.rounds import Bench
from tests.bench.scenarios.repair import Delivered, both, nats_server
from tests.daemon_process import DaemonProcess
from tests.hosts.flow import PERCENTILES, Nats, Publisher, Subscriber
from tests.hosts.lossy import Lossy
from tests.hosts.routed import LINK, LINKS, Routed
from tests.hosts.segment import BROADCAST, Host, ip
from tests.packet_client import wait_until
from tests.plain_bccn import datagram, free_port
from tests.uplink.nats_server import NatsServer
from tests.uplink.process import UplinkProcess, links, segment

CHANNEL, END = "bench/load", "bench/end"
CARRIED = "bench/>"
STEADY = 5000  # messages a second that every process takes
SECONDS = 2.0
OUT, IN, UNWANTED = "out", "in", "in, not imported"
LEAF = "two servers of NATS"
PROBES, PROBE_SECONDS = 100, 0.1

LOSSES = 0.0, 0.01, 0.05, 0.1, 0.2
QUICK_LOSSES = (0.05,)
LOSS_RATE, LOSS_COUNT = 1000, 2000
RUNS, PATIENCE = 3, 5
PORT = 5400
HEADERS = 14 + 20 + 8  # of Ethernet, IPv4 and UDP
UPLINKS, NATS = "uplinks", "nats over tcp"


def run(bench: Bench) -> Report:
    report = Report("Uplinks: messages a second of a processor, and what repair gives over loss")
    bench = replace(bench, runs=min(bench.runs, RUNS))
    nats = next((each for each in bench.brokers if each.name == "nats"), None)
    _cost(bench, report, with_nats=nats is not None)
    _loss(bench, report, nats)
    return report


# -- what a message costs


@dataclass(frozen=True)
class Way:
    """Between two sites. ``publish``, ``subscribe``: words of the load programs for so many messages; ``pids``: of
    each process on the way, by its part; ``arrives``: whether the other site takes what is published;
    ``prepare``: is called when the subscriber is ready.
    """

    publish: Callable[[int], list[str]]
    subscribe: Callable[[int], list[str]]
    pids: Mapping[str, int]
    arrives: bool = True
    prepare: Callable[[], None] = lambda: None


Start = Callable[[Path], AbstractContextManager[Way]]
# Seconds of processor time of each part for a message.
Costs = Mapping[str, float]


def _cost(bench: Bench, report: Report, *, with_nats: bool) -> None:
    count = max(200, int(STEADY * (SECONDS if not bench.quick else bench.seconds)))
    starts: dict[str, Start] = {"fyrehose": partial(_uplinks, _backbone)}
    if not bench.quick:
        starts["fyrehose, not imported"] = partial(_uplinks, _backbone, import_=END)
    if with_nats:
        starts["nats"] = partial(_uplinks, _jetstream)
        starts["nats, not imported"] = partial(_uplinks, _jetstream, import_=END)
        starts[LEAF] = _leaf
    costs = bench.alternate(
        {name: partial(_carried, bench, start, count) for name, start in starts.items()}, report.faults
    )
    for carrier in ("fyrehose", "nats"):
        for way, name, part in (
            (OUT, carrier, "uplink out"),
            (IN, carrier, "uplink in"),
            (UNWANTED, f"{carrier}, not imported", "uplink in"),
        ):
            if runs := costs.get(name):
                title = f"{carrier}: an uplink, {way}"
                per_second = Series(carrier, [1.0 / each[part] for each in runs])
                key = f"links/{carrier}/{way.replace(', ', '-').replace(' ', '-')}"
                note = f"microseconds of a message: {_microseconds(runs)}"
                report.figures.append(Figure(key, title, "/s", per_second, note=note))
    whole = {name: [1.0 / sum(each.values()) for each in runs] for name, runs in costs.items()}
    for carrier in ("fyrehose", "nats"):
        title = f"{carrier}: from daemon to daemon, all five processes"
        note = f"microseconds of a message: {LEAF}: {_microseconds(costs.get(LEAF, []))}"
        report.compare(f"links/whole/{carrier}/nats", title, "/s", whole, carrier, LEAF, note)


def _microseconds(runs: Sequence[Costs]) -> str:
    return ", ".join(
        f"{part} {1e6 * median(each[part] for each in runs):.3g}" for part in (runs[0] if runs else ())
    )


def _carried(bench: Bench, start: Start, count: int) -> Costs:
    """What a message costs each part, at a steady rate. Each message is counted where it arrives."""
    load = bench.programs.load
    with bench.folder() as folder, start(folder) as way, ExitStack() as running:
        receiving = running.enter_context(LoadProcess([load, *way.subscribe(count)]))
        receiving.await_ready()
        way.prepare()
        before = {part: cpu_seconds(pid) for part, pid in way.pids.items()}
        running.enter_context(LoadProcess([load, *way.publish(count)]))
        received = receiving.tally()
        after = {part: cpu_seconds(pid) for part, pid in way.pids.items()}
    if received.count != (count if way.arrives else 0):
        raise MeasurementError(f"{received.count} messages of {count}")
    return {part: (after[part] - before[part]) / count for part in way.pids}


@contextmanager
def _uplinks(
    carrier: Callable[[Path], AbstractContextManager[tuple[str, int]]],
    folder: Path,
    *,
    import_: str = CARRIED,
) -> Iterator[Way]:
    """``carrier``: its address and its process; ``import_``: what the other site takes."""
    with ExitStack() as running:
        url, pid = running.enter_context(carrier(folder))
        here, there = (running.enter_context(segment(folder, name)) for name in ("north", "south"))
        out = UplinkProcess(folder / "north-uplink", here, url, "--export", CARRIED, name="north")
        taken = UplinkProcess(folder / "south-uplink", there, url, "--import", import_, name="south")
        for uplink in (out, taken):
            uplink.launch()
            running.push(uplink)
        for uplink in (out, taken):
            uplink.wait_until_ready()
        wait_until(lambda: _hear(there, "north"), "the uplinks to hear each other")
        common = {"size": PAYLOAD, "end": END}
        yield Way(
            lambda count: words(
                "packets-publish",
                address=f"bus:{here.socket}",
                channel=CHANNEL,
                count=count,
                rate=STEADY,
                **common,
            ),
            lambda _count: words(
                "packets-subscribe",
                address=f"bus:{there.socket}",
                channel=CHANNEL,
                copies=1,
                block=True,
                **common,
            ),
            {
                "daemon out": here.process.pid,
                "uplink out": out.process.pid,
                "carrier": pid,
                "uplink in": taken.process.pid,
                "daemon in": there.process.pid,
            },
            arrives=import_ == CARRIED,
        )


def _hear(daemon: DaemonProcess, name: str) -> bool:
    (uplink,) = links(daemon)
    return uplink["state"] == "up" and name in [link["segment"] for link in uplink["links"]]


@contextmanager
def _backbone(folder: Path) -> Iterator[tuple[str, int]]:
    with BackboneProcess(folder) as backbone:
        yield "fyrehose://{}:{}".format(*backbone.address), backbone.pid


@contextmanager
def _jetstream(folder: Path) -> Iterator[tuple[str, int]]:
    with NatsServer(folder / "nats") as server:
        yield server.url, server.process.pid


@contextmanager
def _leaf(folder: Path) -> Iterator[Way]:
    """Two servers, of which the second is a leaf of the first; messages go from the leaf to the other."""
    port = free_port(socket.SOCK_STREAM)
    with (
        NatsServer(folder / "hub", f'leafnodes {{ listen: "127.0.0.1:{port}" }}', jetstream=False) as hub,
        NatsServer(
            folder / "leaf",
            f'leafnodes {{ remotes: [{{ url: "nats-leaf://127.0.0.1:{port}" }}] }}',
            jetstream=False,
        ) as leaf,
    ):
        common = {"protocol": "nats", "channel": CHANNEL, "size": PAYLOAD}
        yield Way(
            lambda count: words(
                "stream-publish", address=f"tcp:{leaf.port}", count=count, rate=STEADY, **common
            ),
            lambda count: words(
                "stream-subscribe", address=f"tcp:{hub.port}", count=count, copies=1, **common
            ),
            {"leaf": leaf.process.pid, "hub": hub.process.pid},
            prepare=lambda: _await_interest(leaf.port, hub.port),
        )


def _await_interest(leaf: int, hub: int) -> None:
    """Until the leaf knows what is wanted at the hub: it learns of subscriptions in their order."""
    with (
        Nats(f"127.0.0.1:{hub}", START_SECONDS) as reader,
        Nats(f"127.0.0.1:{leaf}", START_SECONDS) as writer,
    ):
        reader.subscribe("probe")
        for _ in range(PROBES):
            writer.publish(b"probe", b"x")
            if select([reader], [], [], PROBE_SECONDS)[0]:
                return
    raise MeasurementError("the leaf does not hear of what is wanted at the hub")


# -- what repair gives


@dataclass(frozen=True)
class Crossed:
    """``datagrams``, ``bytes``: of a message, over all lines, with everything that goes along."""

    delivered: Delivered
    datagrams: float
    bytes: float


def _loss(bench: Bench, report: Report, nats: Contender | None) -> None:
    found: dict[str, dict[float, list[Crossed]]] = {UPLINKS: {}} | ({NATS: {}} if nats else {})
    with bench.folder() as folder, Routed(("n1",), ("s1",)) as routed, ExitStack() as running:
        hosts = [routed.hosts[name] for name in ("n1", "s1")]
        _have_lines_divide(routed, hosts)
        sockets, standing = _sites(running, folder, routed, hosts)
        ends = {UPLINKS: sockets}
        if nats:
            server = nats_server(nats, routed.router, "127.0.0.1", folder)
            address, pid = running.enter_context(server)
            standing.append(pid)
            ends[NATS] = [f"nats:{routed.gateway(host)}:{address.rpartition(':')[2]}" for host in hosts]
        for loss in QUICK_LOSSES if bench.quick else LOSSES:
            runs = {name: partial(_crossed, bench, routed, hosts, each, loss) for name, each in ends.items()}
            for name, some in bench.alternate(runs, report.faults, standing).items():
                found[name][loss] = some
    _show(report, found)


def _have_lines_divide(routed: Routed, hosts: Sequence[Host]) -> None:
    for number, host in enumerate(hosts, start=1):
        for namespace, device in (host.namespace, LINK), (routed.router.namespace, f"{LINK}{number}"):
            ip("-n", namespace, "link", "set", device, "gso_max_segs", "1")


def _sites(
    running: ExitStack, folder: Path, routed: Routed, hosts: Sequence[Host]
) -> tuple[list[str], list[int]]:
    """A daemon and an uplink on each host, a backbone on the router: the sockets of the daemons, all processes."""
    prefix = routed.router.command([])
    backbone = BackboneProcess(folder, host="0.0.0.0", prefix=prefix)  # noqa: S104
    running.enter_context(backbone)
    daemons, standing = [], [backbone.process.pid]
    for host in hosts:
        (folder / host.name).mkdir()
        flags = ("--host", host.name, "--broadcast", BROADCAST, "--port", str(PORT), "--interface", "eth0")
        daemons.append(DaemonProcess(folder / host.name, *flags, prefix=host.command([])))
        running.enter_context(daemons[-1])
    for host, daemon in zip(hosts, daemons, strict=True):
        carrier = f"fyrehose://{routed.gateway(host)}:{backbone.address[1]}"
        where = folder / f"{host.name}-uplink"
        flags = ("--export", "flow/>", "--import", "flow/>")
        uplink = UplinkProcess(where, daemon, carrier, *flags, name=host.name, prefix=host.command([]))
        running.enter_context(uplink)
        standing += [daemon.process.pid, uplink.process.pid]
    for host, daemon in zip(reversed(hosts), daemons, strict=True):
        wait_until(partial(_hear, daemon, host.name), "the uplinks to hear each other")
    return [f"bus:{daemon.socket}" for daemon in daemons], standing


def _crossed(
    bench: Bench, routed: Routed, hosts: Sequence[Host], ends: Sequence[str], loss: float
) -> Crossed:
    count = LOSS_COUNT if not bench.quick else 50
    sender, receiver = ends
    seconds = PATIENCE * (count / LOSS_RATE) + 2.0
    with ExitStack() as running:
        prefixes = [host.command([]) for host in hosts]
        subscriber = running.enter_context(
            Subscriber(receiver, count=count, seconds=seconds, prefix=prefixes[1])
        )
        for host in hosts:
            running.enter_context(Lossy(host, loss, interface=LINK))
        running.enter_context(Lossy(routed.router, loss, interface=LINKS))
        before = _carried_by_lines(routed.router)
        publisher = running.enter_context(Publisher(sender, rate=LOSS_RATE, count=count, prefix=prefixes[0]))
        publisher.wait()
        result = subscriber.result()
        datagrams, size = (
            (now - then) / count for now, then in zip(_carried_by_lines(routed.router), before, strict=True)
        )
    if result.doubled:
        raise MeasurementError("a message came twice")
    return Crossed(both([result]), datagrams, size)


def _carried_by_lines(router: Host) -> tuple[int, int]:
    """Packets and bytes so far, to and from the router."""
    rows = [line.split() for line in router.run(["cat", "/proc/net/dev"]).stdout.splitlines()]
    lines = [[int(word) for word in row[1:]] for row in rows if row[0].startswith(LINK)]
    return sum(row[1] + row[9] for row in lines), sum(row[0] + row[8] for row in lines)


def _packet_bytes() -> int:
    """What Ethernet carries for one message in a datagram of its own, with the key of a link."""
    inner = datagram("relay01/program/1234", 1_700_000_000_000_000, CHANNEL, bytes(PAYLOAD))
    seal = Seal((b"a key of the link",))
    link = seal.numbered(source(b"north", b"0123456789abcdef"), 1_000_000, 999_999, inner)
    return len(Push(link).serialize()) + HEADERS


def _show(report: Report, found: Mapping[str, Mapping[float, list[Crossed]]]) -> None:
    for name, losses in found.items():
        for loss, runs in losses.items():
            delays = [median(each) for each in zip(*[each.delivered.delays for each in runs], strict=True)]
            late = ", ".join(
                f"p{percentile:g} {delay:.3g} ms"
                for percentile, delay in zip(PERCENTILES, delays, strict=False)
            )
            packets, size = median(each.datagrams for each in runs), median(each.bytes for each in runs)
            note = f"{late}; {packets:.2f} packets and {size:.0f} bytes of a message, on all lines"
            shares = Series(name, [100 * each.delivered.share for each in runs])
            title = f"{name}: delivered at {loss:.0%} loss"
            report.figures.append(Figure(f"links/delivered/{loss:.0%}/{name}", title, "%", shares, note=note))
    size = Series("fyrehose", [_packet_bytes()])
    report.figures.append(Figure("links/packet-bytes", "fyrehose: a packet on the line", "bytes", size))
    x = "percent of the packets lost, on each line, each way"
    ours_last = {name: found[name] for name in reversed(found)}
    for at, percentile in enumerate(PERCENTILES):
        report.charts.append(
            Lines(
                f"links-delay-p{percentile:g}",
                f"Delay between two segments, p{percentile:g}",
                x,
                "milliseconds",
                {
                    name: {
                        100 * loss: [each.delivered.delays[at] for each in runs]
                        for loss, runs in some.items()
                    }
                    for name, some in ours_last.items()
                },
                logarithmic=False,
                magnitudes=True,
            )
        )
    report.charts.append(
        Lines(
            "links-packets",
            "Packets that a message takes, on all lines",
            x,
            "packets",
            {
                name: {100 * loss: [each.datagrams for each in runs] for loss, runs in some.items()}
                for name, some in ours_last.items()
            },
            logarithmic=False,
        )
    )
