"""From the segment to local subscribers: signed datagrams over a veth pair, against a bare receiver in C.

The sender is the same and waits for nobody. It sends as fast as it can, a receiver's figure is what it passes on
meanwhile, and the kernel counts the loss. The rate without loss is a figure of its own (RFC 2544, 26.1), as networks
are not made for floods.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from tests.bench.charts import Bars
from tests.bench.loads import PAYLOAD
from tests.bench.machine import cpu_seconds, udp_drops
from tests.bench.peers import bccnd
from tests.bench.programs import LoadProcess, MeasurementError, Tally, words
from tests.bench.results import Figure, Report, Series
from tests.bench.rounds import Bench
from tests.bench.segment import (
    BROADCAST,
    CHANNEL,
    END,
    MARKERS,
    PORT,
    RECEIVE_BYTES,
    joined,
    key_file,
    write_datagrams,
)
from tests.hosts.segment import Host

PER_SECOND = 250_000  # about what one sender gives; only sets how much is sent
SEARCH_STEPS = 6
UNWANTED = "bench/nobody"
SOURCES = 100  # in turn, so that no two datagrams in a row have anything in common


@dataclass(frozen=True)
class Intake:
    """`rate`: datagrams a second that were taken and given out; `sent`: a second, by the sender; `each`: seconds of
    processor time for one, in the daemon.
    """

    rate: float
    sent: float
    dropped_by_kernel: int
    dropped_by_queue: int
    each: float = 0.0


@dataclass(frozen=True)
class Place:
    bench: Bench
    near: Host
    far: Host
    datagrams: Path
    channel: str = CHANNEL
    said: int = 0  # datagrams that are for the daemon alone

    def send(self, rate: int) -> Tally:
        command = words(
            "datagrams-send", file=self.datagrams, to=BROADCAST, port=PORT, markers=MARKERS, rate=rate
        )
        with LoadProcess(self.far.command([str(self.bench.programs.load), *command])) as sending:
            return sending.tally()


def run(bench: Bench) -> Report:
    report = Report("From the segment, hmac verified, datagrams a second")
    count = max(2000, int(PER_SECOND * bench.seconds))
    with joined() as (near, far), bench.folder() as folder:
        place = Place(bench, near, far, folder / "datagrams")
        write_datagrams(place.datagrams, count, PAYLOAD)
        mixed = replace(place, datagrams=folder / "mixed", channel=f"{CHANNEL}/>")
        write_datagrams(mixed.datagrams, count, PAYLOAD, sources=SOURCES)
        runs = {
            "1 subscriber": partial(through_daemon, place, 1, packed=True),
            "bare receiver": partial(_bare, place),
            "1 subscriber, unpacked": partial(through_daemon, place, 1, packed=False),
            f"1 subscriber, {SOURCES} sources": partial(through_daemon, mixed, 1, packed=True),
            "8 subscribers": partial(through_daemon, place, 8, packed=True),
            "nobody interested": partial(through_daemon, place, 1, packed=True, wanted=False),
        }
        intakes = bench.alternate(runs, report.faults)
        measured = {name: [intake.rate for intake in each] for name, each in intakes.items()}
        for name in runs:
            if name != "bare receiver":
                key = f"segment_in/{name.replace(', ', '-').replace(' ', '-')}"
                report.compare(
                    key, name, "/s", measured, name, "bare receiver", _losses(intakes.get(name, []))
                )
        for name in ("1 subscriber", "bare receiver"):
            if name in intakes:
                drops = [float(intake.dropped_by_kernel) for intake in intakes[name]]
                title = f"{name}: dropped by the kernel of {count}"
                key = f"segment_in/drops/{name.replace(' ', '-')}"
                report.figures.append(Figure(key, title, "datagrams", Series(name, drops)))
        if not bench.quick:  # so few datagrams fit into the buffer
            _without_loss(bench, report, runs, intakes)
    report.charts = [
        Bars("segment-in", "Taken from the segment while it is flooded", "datagrams a second", {"": measured})
    ]
    return report


def _losses(intakes: list[Intake]) -> str:
    if not intakes:
        return ""
    kernel = max(intake.dropped_by_kernel for intake in intakes)
    queue = max(intake.dropped_by_queue for intake in intakes)
    sent = median(intake.sent for intake in intakes)
    return (
        f"sent {sent / 1000:.0f} k/s; at most {kernel} dropped by the kernel and {queue} by queues, in a run"
    )


def _without_loss(
    bench: Bench, report: Report, runs: dict[str, partial[Intake]], intakes: dict[str, list[Intake]]
) -> None:
    """The highest rate that loses nothing, of one subscriber and of the bare receiver, in turn."""
    names = [name for name in ("1 subscriber", "bare receiver") if name in intakes]
    searches: dict[str, Callable[[], float]] = {
        name: partial(_lossless_rate, runs[name], intakes[name]) for name in names
    }
    found = bench.alternate(searches, report.faults)
    report.compare(
        "segment_in/lossless",
        "1 subscriber: highest rate without loss",
        "/s",
        found,
        "1 subscriber",
        "bare receiver",
    )


def _lossless_rate(run: partial[Intake], intakes: list[Intake]) -> float:
    low, high = 0.0, median(intake.sent for intake in intakes)
    rate = high
    for _ in range(SEARCH_STEPS):
        intake = run(rate=int(rate))
        if intake.dropped_by_kernel or intake.dropped_by_queue:
            high = min(high, intake.sent)
        else:
            low = max(low, min(intake.sent, high))
        if low >= high * 0.97:
            break
        rate = (low + high) / 2
    return low


def _bare(place: Place, rate: int = 0) -> Intake:
    receive = words("datagrams-receive", port=PORT, bytes=RECEIVE_BYTES, end=END)
    with LoadProcess(place.near.command([str(place.bench.programs.load), *receive])) as receiving:
        receiving.await_ready()
        sent, taken = place.send(rate), receiving.tally()
        drops = udp_drops(receiving.process.pid, PORT)
    _account_for(sent, taken.count, drops)
    return Intake(taken.count / (taken.last - sent.first), _rate(sent), drops, 0)


def through_daemon(
    place: Place, subscribers: int, *, packed: bool, wanted: bool = True, rate: int = 0
) -> Intake:
    """With nobody interested, the time is that of the end of the load, which one client waits for."""
    load = place.bench.programs.load
    with place.bench.folder() as folder, ExitStack() as running:
        start = bccnd(
            "--key-file",
            str(key_file(folder)),
            prefix=place.near.command([]),
            segment=BROADCAST,
            port=PORT,
            tree=place.bench.tree,
            settings=place.bench.settings,
        )
        relay = running.enter_context(start(folder))
        channel = place.channel if wanted else UNWANTED
        taking = words(
            "packets-subscribe",
            address=relay.address,
            channel=channel,
            end=END,
            copies=subscribers,
            packed=packed,
        )
        receiving = running.enter_context(LoadProcess([load, *taking]))
        receiving.await_ready()
        used = cpu_seconds(relay.pid)
        sent, taken = place.send(rate), receiving.tally()
        used = cpu_seconds(relay.pid) - used
        drops = udp_drops(relay.pid, PORT)
        unwanted = int(relay.status()["counters"]["unwanted"])
    each = taken.count / subscribers if wanted else unwanted
    _account_for(sent, place.said + round(each + taken.dropped / subscribers), drops)
    return Intake(each / (taken.last - sent.first), _rate(sent), drops, taken.dropped, used / max(each, 1))


def _rate(sent: Tally) -> float:
    return sent.count / (sent.last - sent.first)


def _account_for(sent: Tally, taken: int, drops: int) -> None:
    """Every datagram was taken or is known to be lost; among the lost may be some of the MARKERS."""
    if not sent.count <= taken + drops <= sent.count + MARKERS:
        raise MeasurementError(f"{sent.count} sent, {taken} taken, {drops} dropped: some are unaccounted for")
