"""What repair costs where nothing is lost, and what it gives where something is.

Cost: the same daemon with ``[repair] on`` and off, by turns. Worth: one source on one of three hosts, subscribers on
the other two, and each host loses a share of all packets that come over the network (nftables), so that TCP loses in
both directions. A run goes on until all has come, or for PATIENCE times as long as it should take; what has not come
then counts as not delivered. Delays are of what was delivered, from when it was due, at the worse of both hosts.
"""

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tests.bench.charts import Lines
from tests.bench.loads import PAYLOAD, fan_out
from tests.bench.peers import START_SECONDS, Contender
from tests.bench.programs import MeasurementError
from tests.bench.results import Figure, Report, Series
from tests.bench.rounds import STEP, Bench, rates
from tests.bench.scenarios import segment_in, segment_out
from tests.bench.segment import joined, write_datagrams
from tests.daemon_process import DaemonProcess, die_with_parent
from tests.hosts.flow import PERCENTILES, Counted, Publisher, Subscriber, connect
from tests.hosts.lossy import Lossy
from tests.hosts.segment import BROADCAST, Host, Segment
from tests.packet_client import PacketClient

ON, OFF = "on", "off"
SETTINGS = {ON: {"BCCND_REPAIR__ON": "true"}, OFF: {"BCCND_REPAIR__ON": "false"}}
# Datagrams a second that every daemon takes without loss, for what one costs it.
STEADY = 20_000

RATE = 1000  # messages a second over a lossy network
LOSSES = 0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3
QUICK_LOSSES = (0.05,)
RUN_SECONDS, RUNS = 6.0, 3
PATIENCE = 5
PORT, NATS_PORT = 5400, 4222
NATS = "nats over tcp"
SECONDS = "BCCND_HEARTBEAT__SECONDS"
HEARTBEATS = {SECONDS: "1"}
# A copy that comes when later messages have come still counts.
COPIES = {"BCCND_COPIES": "2", "BCCND_DEDUP__REORDER": "64"}
DAEMONS: dict[str, dict[str, str]] = {
    "repair": HEARTBEATS | SETTINGS[ON],
    "copies = 2": HEARTBEATS | SETTINGS[OFF] | COPIES,
    "nothing": HEARTBEATS | SETTINGS[OFF],
}


def run(bench: Bench) -> Report:
    report = Report("Repair: what it costs without loss, and what it gives")
    _cost(bench, report)
    _worth(bench, report)
    return report


# -- what it costs


def _cost(bench: Bench, report: Report) -> None:
    benches = {name: replace(bench, settings=settings) for name, settings in SETTINGS.items()}
    for title in ("unpacked", "packed"):
        flows = {
            name: partial(fan_out, each, each.ours_packed if title == "packed" else each.ours)
            for name, each in benches.items()
        }
        measured = rates(bench.flows(flows, 1, report.faults))
        report.compare(f"repair/local/{title}", f"local, {title}", "/s", measured, ON, OFF)
    with joined() as hosts, bench.folder() as folder:
        count = max(STEP, int(segment_out.PER_SECOND * bench.seconds) // 4 // STEP * STEP)
        for title in ("unpacked", "packed"):
            runs = {
                name: partial(segment_out.through_daemon, each, *hosts, title == "packed", count)
                for name, each in benches.items()
            }
            measured = rates(bench.alternate(runs, report.faults))
            report.compare(f"repair/out/{title}", f"to the segment, {title}", "/s", measured, ON, OFF)
        datagrams = folder / "datagrams"
        write_datagrams(datagrams, max(2000, int(STEADY * bench.seconds)), PAYLOAD, kept=True)
        intakes = {
            name: partial(
                segment_in.through_daemon,
                segment_in.Place(each, *hosts, datagrams, said=1),
                1,
                packed=True,
                rate=STEADY,
            )
            for name, each in benches.items()
        }
        taken = bench.alternate(intakes, report.faults)
        each = {name: [1.0 / max(intake.each, 1e-9) for intake in some] for name, some in taken.items()}
        title = f"from the segment at {STEADY // 1000} k/s, of a second of processor time"
        report.compare("repair/in/packed", title, "/s", each, ON, OFF)


# -- what it gives


@dataclass(frozen=True)
class Delivered:
    """``share``: of 1; ``disordered``: messages out of order; ``delays``: in milliseconds, for each of PERCENTILES,
    and the longest.
    """

    share: float
    disordered: int
    delays: list[float]


def _worth(bench: Bench, report: Report) -> None:
    bench = replace(bench, runs=min(bench.runs, RUNS))
    count = int(RATE * (RUN_SECONDS if not bench.quick else 0.2))
    starts: dict[str, Callable[[Sequence[Host], Path], Iterator[list[str]]]] = {
        name: partial(_daemons, settings | ({SECONDS: "0"} if bench.quick else {}))
        for name, settings in DAEMONS.items()
    }
    nats = next((each for each in bench.brokers if each.name == "nats"), None)
    if nats:
        starts[NATS] = partial(_nats, nats)
    found: dict[str, dict[float, list[Delivered]]] = {name: {} for name in starts}
    with Segment(("alpha", "beta", "gamma")) as segment:
        for loss in QUICK_LOSSES if bench.quick else LOSSES:
            runs = {
                name: partial(_delivered, bench, segment.hosts, start, loss, count)
                for name, start in starts.items()
            }
            for name, some in bench.alternate(runs, report.faults).items():
                found[name][loss] = some
    _show(report, found, with_peer=nats is not None)


def _delivered(
    bench: Bench,
    hosts: Sequence[Host],
    start: Callable[[Sequence[Host], Path], Iterator[list[str]]],
    loss: float,
    count: int,
) -> Delivered:
    with bench.folder() as folder, ExitStack() as running:
        sender, *receivers = running.enter_context(contextmanager(start)(hosts, folder))
        seconds = PATIENCE * (count / RATE) + 2.0
        subscribers = [
            running.enter_context(Subscriber(address, count=count, seconds=seconds, prefix=host.command([])))
            for host, address in zip(hosts[1:], receivers, strict=True)
        ]
        for host in hosts:
            running.enter_context(Lossy(host, loss))
        prefix = hosts[0].command([])
        publisher = running.enter_context(Publisher(sender, rate=RATE, count=count, prefix=prefix))
        publisher.wait()
        results = [each.result() for each in subscribers]
    if any(each.doubled for each in results):
        raise MeasurementError("a message came twice")
    return both(results)


def both(results: Sequence[Counted]) -> Delivered:
    """What all of these subscribers got, with the delays of the worst."""
    expected, received = (
        sum(each.expected for each in results),
        sum(each.received for each in results),
    )
    worse = map(max, zip(*[each.delays for each in results], strict=True))
    disordered = sum(each.disordered for each in results)
    return Delivered(received / expected, disordered, [1000 * seconds for seconds in worse])


def _daemons(settings: Mapping[str, str], hosts: Sequence[Host], folder: Path) -> Iterator[list[str]]:
    """A daemon on each host, of which the others have heard."""
    with ExitStack() as running:
        daemons = []
        for host in hosts:
            (own := folder / host.name).mkdir()
            flags = ("--host", host.name, "--broadcast", BROADCAST, "--port", str(PORT))
            daemon = DaemonProcess(own, *flags, prefix=host.command([]), environ=settings)
            daemons.append(running.enter_context(daemon))
        for daemon in daemons if settings[SECONDS] != "0" else ():
            _wait_for_heartbeats(daemon, len(hosts))
        yield [f"bus:{daemon.socket}" for daemon in daemons]


def _wait_for_heartbeats(daemon: DaemonProcess, count: int) -> None:
    heard = set[str]()
    with PacketClient(daemon.socket) as client:
        client.subscribe("heartbeat/>")
        while len(heard) < count:
            heard.add(client.message()[0])


def _nats(nats: Contender, hosts: Sequence[Host], folder: Path) -> Iterator[list[str]]:
    """On the host of the publisher."""
    with nats_server(nats, hosts[0], hosts[0].address, folder) as (address, _):
        yield [address] * len(hosts)


@contextmanager
def nats_server(nats: Contender, host: Host, address: str, folder: Path) -> Iterator[tuple[str, int]]:
    """It runs on this host, at this address of it; nobody is cut off who is behind. What clients are told, and its
    process.
    """
    address = f"{address}:{NATS_PORT}"
    configuration = folder / "nats.conf"
    configuration.write_text(
        f'listen: "0.0.0.0:{NATS_PORT}"\nwrite_deadline: "300s"\nmax_pending: 4294967296\n'
    )
    log = (folder / "nats.log").open("wb")
    command = host.command([str(nats.path()), "-c", str(configuration)])
    with log, subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent) as server:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _answers(host, f"nats:{address}"):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise MeasurementError("nats-server does not start")
                time.sleep(0.02)
            yield f"nats:{address}", server.pid
        finally:
            server.kill()


def _answers(host: Host, address: str) -> bool:
    try:
        host.make(lambda: connect(address, 1.0))
    except OSError:
        return False
    return True


def _show(report: Report, found: dict[str, dict[float, list[Delivered]]], *, with_peer: bool) -> None:
    for name, losses in found.items():
        for loss, runs in losses.items():
            delays = list(zip(*[each.delays for each in runs], strict=True))
            middle = [sorted(each)[len(each) // 2] for each in delays]
            note = ", ".join(
                f"p{percentile:g} {delay:.3g} ms"
                for percentile, delay in zip(PERCENTILES, middle, strict=False)
            )
            if disordered := sum(each.disordered for each in runs):
                note += f"; {disordered} out of order"
            title = f"{name}: delivered at {loss:.0%} loss"
            shares = Series(name, [100 * each.share for each in runs])
            report.figures.append(
                Figure(f"repair/delivered/{loss:.0%}/{name}", title, "%", shares, note=note)
            )
    if not with_peer:
        title = "NATS over TCP was not measured: nats-server is not installed, or left out"
        report.title += f". {title}"
    elif not report.faults:
        for loss in found[NATS]:
            p99 = {name: [each.delays[1] for each in found[name][loss]] for name in ("repair", NATS)}
            title = f"p99 of the delay at {loss:.0%} loss"
            report.compare(f"repair/p99/{loss:.0%}/nats", title, "ms", p99, "repair", NATS)
    # Ours last, above the others.
    percent = {name: {100 * loss: runs for loss, runs in found[name].items()} for name in reversed(found)}
    lost = {
        name: {loss: [100 * each.share for each in runs] for loss, runs in losses.items()}
        for name, losses in percent.items()
    }
    x = "percent of the packets lost, at each host"
    report.charts.append(
        Lines("repair-delivered", "Delivered", x, "percent", lost, logarithmic=False, lowest=50.0)
    )
    for at, percentile in enumerate(PERCENTILES):
        delays_of = {
            name: {loss: [each.delays[at] for each in runs] for loss, runs in losses.items()}
            for name, losses in percent.items()
        }
        report.charts.append(
            Lines(
                f"repair-delay-p{percentile:g}",
                f"Delay of what was delivered, p{percentile:g}",
                x,
                "milliseconds",
                delays_of,
                logarithmic=False,
                magnitudes=True,
            )
        )
