"""A recorder beside the daemon: what it costs the relay, and how much it keeps up with.

Every published message must be a row of the recorded files or be counted there as unrecorded: otherwise the run gives
no figure. The rate without loss is the highest at which nothing is unrecorded and neither daemon nor kernel drops
anything, found by bisection.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow.compute as pc
import pyarrow.parquet as pq

from tests.bench.charts import Bars
from tests.bench.loads import PAYLOAD
from tests.bench.machine import cpu_seconds, udp_drops
from tests.bench.peers import Relay, bccnd
from tests.bench.programs import LoadProcess, MeasurementError, words
from tests.bench.results import Figure, Report, Series
from tests.bench.rounds import STEP, Bench, Flow, rates
from tests.bench.segment import BROADCAST, MARKERS, PORT, joined, key_file, write_datagrams
from tests.daemon_process import die_with_parent
from tests.hosts.segment import Host
from tests.packet_client import wait_until

CHANNEL = "local/bench"
MOST = 1_000_000  # messages a second: what is tried first from a publisher of this host
MOST_FROM_SEGMENT = 300_000
SEARCH_STEPS = 5
SEGMENT, ALONE = "from the segment", "without a recorder"
NICE = 5  # as the unit has it


@dataclass(frozen=True)
class Kept:
    """What a run left in the files. ``busy``: the share of a core that the recorder used."""

    rows: int
    unrecorded: int
    busy: float


class Recorder:
    """One that runs beside ``relay``; ``end`` gives what it kept."""

    def __init__(self, folder: Path, relay: Relay, prefix: Sequence[str] = ()) -> None:
        self._output, self._log = folder / "recorded", folder / "recorder.log"
        flags = ["--socket", relay.address.removeprefix("bus:"), "--output", str(self._output)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*prefix, "nice", "-n", str(NICE), sys.executable, "-m", "bccnd.recorder", *flags],
                stderr=log,
                preexec_fn=die_with_parent,
            )
        wait_until(lambda: '"recording"' in self._log.read_text(), "a recorder that records")
        self._cpu, self._begun = cpu_seconds(self.process.pid), time.monotonic()

    def end(self) -> Kept:
        busy = (cpu_seconds(self.process.pid) - self._cpu) / (time.monotonic() - self._begun)
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(30) != 0:
            raise MeasurementError(f"the recorder: {self._log.read_text()}")
        rows = unrecorded = 0
        for path in self._output.glob("date=*/host=*/*.parquet"):
            table = pq.ParquetFile(path).read(["direction", "verdict", "size", "channel"], use_threads=False)
            bench = pc.match_substring(table["channel"], "bench")
            rows += pc.sum(pc.and_(pc.not_equal(table["direction"], "echo"), bench)).as_py() or 0
            lost = table.filter(pc.equal(table["verdict"], "unrecorded"))
            unrecorded += pc.sum(lost["size"]).as_py() or 0
        return Kept(rows, unrecorded, busy)


@contextmanager
def recorded(folder: Path, relay: Relay, prefix: Sequence[str] = ()) -> Iterator[Recorder]:
    recorder = Recorder(folder, relay, prefix)
    try:
        yield recorder
    finally:
        if recorder.process.poll() is None:
            recorder.process.kill()
            recorder.process.wait()


def run(bench: Bench) -> Report:
    report = Report("With a recorder, 100-byte messages a second")
    measured: dict[str, dict[str, list[float]]] = {}
    for kind, packed in (("packed", True), ("unpacked", False)):
        runs = {
            "with a recorder": partial(_relayed, bench, packed=packed, recording=True),
            "without": partial(_relayed, bench, packed=packed, recording=False),
        }
        given = rates(bench.flows(runs, 2, report.faults))
        title = f"{kind}, 1 subscriber, at full speed"
        report.compare(f"record/{kind}", title, "/s", given, "with a recorder", "without")
        measured[kind] = given
    _lossless(bench, report)
    report.charts = [Bars("record", "What a recorder costs the relay", "deliveries a second", measured)]
    return report


def _relayed(bench: Bench, messages: int, *, packed: bool, recording: bool) -> Flow:
    """One publisher to one subscriber that gets everything; the recorder gets what it can."""
    load = bench.programs.load
    with bench.folder() as folder, bccnd()(folder) as relay, ExitStack() as running:
        recorder = running.enter_context(recorded(folder, relay)) if recording else None
        common = {"address": relay.address, "size": PAYLOAD, "packed": packed, "channel": CHANNEL}
        taking = words("packets-subscribe", **common, count=messages, block=True, slot=PAYLOAD + 1024)
        receiving = running.enter_context(LoadProcess([load, *taking]))
        receiving.await_ready()
        with LoadProcess([load, *words("packets-publish", **common, count=messages)]) as sending:
            begun, received = sending.tally(), receiving.tally()
        if recorder:
            _account_for(recorder.end(), messages)
    seconds = received.last - begun.first
    return Flow(received.count / seconds, seconds)


def _account_for(kept: Kept, messages: int) -> None:
    if kept.rows + kept.unrecorded != messages:
        raise MeasurementError(f"{messages} published, {kept.rows} recorded, {kept.unrecorded} unrecorded")


# -- the rate without loss


def _lossless(bench: Bench, report: Report) -> None:
    searches: dict[str, Callable[[], float]] = {
        "packed": partial(_highest, partial(_kept_up, bench, packed=True), MOST, bench),
        "unpacked": partial(_highest, partial(_kept_up, bench, packed=False), MOST, bench),
    }
    with joined() as (near, far), bench.folder() as folder:
        count = max(2000, int(MOST_FROM_SEGMENT * bench.seconds))
        datagrams = folder / "datagrams"
        write_datagrams(datagrams, count, PAYLOAD)
        from_segment = partial(_kept_up_from_segment, bench, near, far, datagrams, count)
        for name, recording in ((SEGMENT, True), (ALONE, False)):
            keeps_up = partial(from_segment, recording=recording)
            searches[name] = partial(_highest, keeps_up, MOST_FROM_SEGMENT, bench)
        found = bench.alternate(searches, report.faults)
    title = "from the segment: highest rate without loss"
    report.compare("record/segment", title, "/s", found, SEGMENT, ALONE)
    found.pop(ALONE, None)
    for name, values in found.items():
        key = f"record/lossless/{name.replace(' ', '-')}"
        note = f"at least {median(values) / 1000:.0f} k/s in files while nothing is dropped anywhere"
        title = f"{name}: highest rate recorded without loss"
        report.figures.append(Figure(key, title, "/s", Series("bccnd", values), note=note))


def _highest(keeps_up: Callable[[int], float], most: int, bench: Bench) -> float:
    """``keeps_up(rate)`` gives the rate that was reached, 0 with any loss."""
    low, high = 0.0, float(most)
    rate = high
    for _ in range(1 if bench.quick else SEARCH_STEPS):
        reached = keeps_up(int(rate))
        low, high = (max(low, reached), high) if reached else (low, rate)
        # The publisher is at its end, not the recorder.
        if reached and (rate == most or reached < 0.97 * rate):
            break
        rate = (low + high) / 2
    return low


def _kept_up(bench: Bench, rate: int, *, packed: bool) -> float:
    messages = max(STEP, int(rate * bench.seconds) // STEP * STEP)
    with bench.folder() as folder, bccnd()(folder) as relay, recorded(folder, relay) as recorder:
        publish = words(
            "packets-publish", address=relay.address, channel=CHANNEL, count=messages, size=PAYLOAD, packed=packed,
            rate=rate,
        )  # fmt: skip
        with LoadProcess([bench.programs.load, *publish]) as sending:
            sent = sending.tally()
        wait_until(lambda: relay.status()["counters"]["published"] >= messages, "all to be published")
        kept = recorder.end()
    _account_for(kept, messages)
    return 0.0 if kept.unrecorded else messages / (sent.last - sent.first)


def _kept_up_from_segment(
    bench: Bench, near: Host, far: Host, datagrams: Path, count: int, rate: int, *, recording: bool
) -> float:
    with bench.folder() as folder, ExitStack() as running:
        start = bccnd(
            "--key-file", str(key_file(folder)), prefix=near.command([]), segment=BROADCAST, port=PORT
        )
        relay = running.enter_context(start(folder))
        recorder = running.enter_context(recorded(folder, relay)) if recording else None
        command = words("datagrams-send", file=datagrams, to=BROADCAST, port=PORT, markers=MARKERS, rate=rate)
        with LoadProcess(far.command([str(bench.programs.load), *command])) as sending:
            sent = sending.tally()
        drops = udp_drops(relay.pid, PORT)
        wait_until(
            lambda: relay.status()["counters"]["received"] + drops >= count + MARKERS, "all to be received"
        )
        kept = recorder.end() if recorder else None
    if kept:
        _account_for(kept, count + MARKERS - drops)
    lost = drops + (kept.unrecorded if kept else 0)
    return 0.0 if lost else sent.count / (sent.last - sent.first)
