"""The clients of every language: how fast they publish and receive, unpacked, beside a loop written by hand in C.

Each client runs in its conformance driver, which calls what users call. The daemon is the same for all and faster
than any of them. A publisher ends when the daemon has everything. Languages that cannot open the daemon's socket go
through a door, which is measured with them.
"""

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from tests.bench.charts import Bars
from tests.bench.loads import CHANNEL, PAYLOAD
from tests.bench.peers import Relay
from tests.bench.programs import LoadProcess, MeasurementError, words
from tests.bench.results import Report
from tests.bench.rounds import STEP, Bench
from tests.clients.drivers import LANGUAGES, Doorway, Driver, Language
from tests.packet_client import wait_until

PER_SECOND = 250_000  # what each language is meant to reach; only sets how much is sent
LOOP = "loop in C"


def run(bench: Bench) -> Report:
    report = Report("Clients, 100 bytes unpacked, messages a second")
    languages = []
    for language in LANGUAGES:
        if language.lacks & {"flood", "count"}:
            continue
        if missing := [command for command in language.toolchain if not shutil.which(command)]:
            report.faults.append(f"{language}: no {' '.join(missing)} here")
        else:
            languages.append(language)
    for direction, measured in measured_by(bench, languages, report.faults):
        for language in languages:
            name = str(language)
            report.compare(f"clients/{direction}/{name}", f"{name}: {direction}", "/s", measured, name, LOOP)
        report.charts.append(
            Bars(
                f"clients-{direction}",
                f"Clients that {direction}, unpacked",
                "messages a second",
                {"": measured},
            )
        )
    return report


def measured_by(
    bench: Bench, languages: Sequence[Language], faults: list[str]
) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """The rates of each direction, by language, and that of the LOOP."""
    count = STEP * 4 if bench.quick else int(PER_SECOND * bench.seconds) // STEP * STEP
    directions = {"publish": (_published, _published_by_loop), "receive": (_received, _received_by_loop)}
    for direction, (by_client, by_loop) in directions.items():
        runs: dict[str, Callable[[], float]] = {LOOP: partial(by_loop, bench, count)}
        runs |= {str(language): partial(by_client, bench, count, language) for language in languages}
        for each in runs.values():
            _warm(each, faults)
        yield direction, bench.alternate(runs, faults)


def _warm(run: Callable[[], float], faults: list[str]) -> None:
    """Build what has to be built, and fill the caches."""
    try:
        run()
    except (MeasurementError, AssertionError) as error:
        faults.append(str(error))


def _published(bench: Bench, count: int, language: Language) -> float:
    with bench.folder() as folder, bench.ours.start(folder) as relay:
        with _driver(language, folder) as driver:
            driver.open(_path(relay))
            begun = time.monotonic()
            driver("flood", CHANNEL, count, PAYLOAD)
            driver("barrier")
            seconds = time.monotonic() - begun
        _require(count, relay.status()["counters"]["published"])
    return count / seconds


def _published_by_loop(bench: Bench, count: int) -> float:
    with bench.folder() as folder, bench.ours.start(folder) as relay:
        command = words("packets-publish", address=relay.address, channel=CHANNEL, count=count, size=PAYLOAD)
        with LoadProcess([bench.programs.load, *command]) as sending:
            sent = sending.tally()
        # The loop ends when its last packet is in the socket, which the daemon may read later.
        wait_until(lambda: relay.status()["counters"]["published"] == count, f"{count} messages to be read")
    return count / (sent.last - sent.first)


def _received(bench: Bench, count: int, language: Language) -> float:
    with ExitStack() as running:
        folder = running.enter_context(bench.folder())
        relay = running.enter_context(bench.ours.start(folder))
        driver = running.enter_context(_driver(language, folder))
        driver("queue", "policy=block")
        driver.open(_path(relay))
        driver("sub", CHANNEL)
        driver.ask("count", count, 5)
        begun = _publish_packed(bench, relay, count)
        received, lost, _ = driver.ok()
        seconds = time.monotonic() - begun
    _require(count, int(received) + int(lost))
    return count / seconds


def _received_by_loop(bench: Bench, count: int) -> float:
    with bench.folder() as folder, bench.ours.start(folder) as relay:
        command = words(
            "packets-subscribe", address=relay.address, channel=CHANNEL, count=count, copies=1, block=True
        )
        with LoadProcess([bench.programs.load, *command, f"slot={PAYLOAD + 1024}"]) as receiving:
            receiving.await_ready()
            begun = _publish_packed(bench, relay, count)
            taken = receiving.tally()
    return count / (taken.last - begun)


def _publish_packed(bench: Bench, relay: Relay, count: int) -> float:
    """When the first message was published."""
    command = words(
        "packets-publish", address=relay.address, channel=CHANNEL, count=count, size=PAYLOAD, packed=True
    )
    with LoadProcess([bench.programs.load, *command]) as sending:
        return sending.tally().first


@contextmanager
def _driver(language: Language, folder: Path) -> Iterator[Driver]:
    with (
        closing(Doorway(folder)) as doorway,
        Driver(language, folder / "driver.log", doorway) as driver,
    ):
        yield driver


def _path(relay: Relay) -> str:
    return relay.address.partition(":")[2]


def _require(count: int, found: int) -> None:
    if found != count:
        raise MeasurementError(f"{found} of {count} messages")
