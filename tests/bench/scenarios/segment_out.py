"""From a local publisher to the segment: hmac on, over a veth pair, against a bare sender in C.

The same bare receiver at the other end counts both, from the first publish to the last datagram.
"""

from contextlib import ExitStack
from functools import partial

from tests.bench.charts import Bars
from tests.bench.loads import PAYLOAD
from tests.bench.machine import udp_drops
from tests.bench.peers import bccnd
from tests.bench.programs import LoadProcess, MeasurementError, Tally, words
from tests.bench.results import Report
from tests.bench.rounds import STEP, Bench, Flow, rates
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

PER_SECOND = 250_000  # about what the bare sender gives; only sets how many datagrams are made beforehand


def run(bench: Bench) -> Report:
    report = Report("To the segment, hmac on, datagrams a second")
    with joined() as hosts:
        prepared = max(STEP * 4, int(PER_SECOND * bench.seconds))
        runs = {
            "packed publisher": partial(through_daemon, bench, *hosts, True),
            "unpacked publisher": partial(through_daemon, bench, *hosts, False),
        }
        sized = {name: partial(run, prepared // 4 // STEP * STEP) for name, run in runs.items()}
        flows = bench.alternate(
            {**sized, "bare sender": partial(_bare, bench, *hosts, prepared)}, report.faults
        )
    measured = rates(flows)
    for name in runs:
        report.compare(f"segment_out/{name.split()[0]}", name, "/s", measured, name, "bare sender")
    report.charts = [Bars("segment-out", "Given to the segment", "datagrams a second", {"": measured})]
    return report


def _bare(bench: Bench, near: Host, far: Host, count: int) -> Flow:
    with bench.folder() as folder, ExitStack() as running:
        datagrams = folder / "datagrams"
        write_datagrams(datagrams, count, PAYLOAD)
        receiving = running.enter_context(_receiver(bench, far))
        command = words("datagrams-send", file=datagrams, to=BROADCAST, port=PORT, markers=MARKERS)
        with LoadProcess(near.command([str(bench.programs.load), *command])) as sending:
            return _flow(sending.tally(), receiving)


def through_daemon(bench: Bench, near: Host, far: Host, packed: bool, count: int) -> Flow:
    with bench.folder() as folder, ExitStack() as running:
        start = bccnd(
            "--key-file",
            str(key_file(folder)),
            prefix=near.command([]),
            segment=BROADCAST,
            port=PORT,
            tree=bench.tree,
            settings=bench.settings,
        )
        relay = running.enter_context(start(folder))
        receiving = running.enter_context(_receiver(bench, far))
        command = words(
            "packets-publish",
            address=relay.address,
            channel=CHANNEL,
            end=END,
            count=count,
            size=PAYLOAD,
            packed=packed,
        )
        with LoadProcess([bench.programs.load, *command]) as sending:
            flow = _flow(sending.tally(), receiving)
        if unsent := relay.status()["counters"]["unsent"]:
            raise MeasurementError(f"{unsent} of {count} datagrams were not sent")
    return flow


def _receiver(bench: Bench, host: Host) -> LoadProcess:
    command = words("datagrams-receive", port=PORT, bytes=RECEIVE_BYTES, end=END)
    receiving = LoadProcess(host.command([str(bench.programs.load), *command]))
    receiving.await_ready()
    return receiving


def _flow(sent: Tally, receiving: LoadProcess) -> Flow:
    received = receiving.tally()
    drops = udp_drops(receiving.process.pid, PORT)
    if not sent.count <= received.count + drops <= sent.count + MARKERS:
        raise MeasurementError(
            f"{sent.count} published, {received.count} arrived, {drops} dropped on arrival"
        )
    seconds = received.last - sent.first
    return Flow((received.count + drops) / seconds, seconds)
