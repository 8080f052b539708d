"""The order of runs: A B C, A B C, ..., each long enough. A round that others disturbed is repeated.

A contender that fails once is left out from then on, with the reason, and has no figures.

A run is a function from a number of messages to a ``Flow``. ``Bench.flows`` finds for each contender the number of
messages that makes a run of the wanted length, and discards these first runs.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from tests.bench.machine import NOISY, Disturbance, Others, cpu_seconds
from tests.bench.peers import BROKERS, Contender, bccnd, limit
from tests.bench.programs import MeasurementError, Programs

T = TypeVar("T")

STEP = 512  # messages; a multiple of every batch
MOST_DELIVERIES = 12_000_000  # in one run: a relay that holds them all takes some 2 GB of memory


@dataclass(frozen=True)
class Flow:
    """``rate`` in deliveries a second; ``busy``: the share of a core that the relay itself used."""

    rate: float
    seconds: float
    busy: float = 0.0


@dataclass(frozen=True)
class Bench:
    """What all scenarios share. ``seconds``: how long a run at full speed should be; ``tree``: the checkout
    whose daemon is ``ours``, None for this one; ``settings``: of that daemon, by their names in the environment;
    ``before``: the checkout to compare with.
    """

    programs: Programs
    work: Path
    runs: int
    seconds: float
    quick: bool
    soak_seconds: float
    brokers: tuple[Contender, ...]
    tree: Path | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    before: Path | None = None
    disturbance: Disturbance = field(default_factory=Disturbance)

    @property
    def ours(self) -> Contender:
        return Contender("bccnd", bccnd(tree=self.tree, settings=self.settings))

    @property
    def ours_packed(self) -> Contender:
        return Contender("bccnd packed", bccnd(tree=self.tree, settings=self.settings), packed=True)

    @property
    def limit(self) -> Contender:
        return Contender("limit", limit(self.programs))

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder for one run."""
        path = Path(tempfile.mkdtemp(dir=self.work))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def flows(
        self, runs: Mapping[str, Callable[[int], Flow]], deliveries: int, faults: list[str]
    ) -> dict[str, list[Flow]]:
        """Every contender's flows; ``deliveries``: of one message."""
        most = max(STEP, MOST_DELIVERIES // deliveries // STEP * STEP)
        sized: dict[str, Callable[[], Flow]] = {}
        for name, run in runs.items():
            try:
                count = self._count(run, most)
            except (MeasurementError, AssertionError) as error:
                faults.append(f"{name}: {error}")
            else:
                sized[name] = lambda run=run, count=count: run(count)  # type: ignore[misc]
        return self.alternate(sized, faults)

    def alternate(
        self, runs: Mapping[str, Callable[[], T]], faults: list[str], standing: Sequence[int] = ()
    ) -> dict[str, list[T]]:
        """``runs`` one after the other, and again, as often as was asked for. ``standing``: processes that are no
        others, though they live longer than a round.

        A round during which others used the machine is repeated, whatever it gave, but not more rounds than were
        asked for; after that they are taken as they come.
        """
        results: dict[str, list[T]] = {name: [] for name in runs}
        spare = 0 if self.quick else self.runs
        done = 0
        while results and done < self.runs:
            with Others() as others:
                used = sum(map(cpu_seconds, standing))
                given = self._round({name: runs[name] for name in results}, faults)
                others.ours += sum(map(cpu_seconds, standing)) - used
            if others.share > NOISY and spare and len(given) == len(results):
                spare -= 1
                self.disturbance.repeated += 1
                continue
            done += 1
            self.disturbance.shares.append(others.share)
            results = {name: [*results[name], value] for name, value in given.items()}
        return results

    def _round(self, runs: Mapping[str, Callable[[], T]], faults: list[str]) -> dict[str, T]:
        given: dict[str, T] = {}
        for name, run in runs.items():
            try:
                given[name] = run()
            except (
                MeasurementError,
                AssertionError,
            ) as error:  # DaemonProcess asserts that it starts and ends
                faults.append(f"{name}: {error}")
        return given

    def _count(self, run: Callable[[int], Flow], most: int) -> int:
        """How many messages last long enough."""
        count = STEP
        while not self.quick:
            seconds = run(count).seconds
            wanted = count * self.seconds / max(seconds, 1e-6)
            if seconds > self.seconds / 4 or count >= most:
                return min(most, max(STEP, int(wanted) // STEP * STEP))
            count = min(most, max(count * 2, int(min(wanted / 2, count * 16)) // STEP * STEP))
        return count


def rates(flows: Mapping[str, list[Flow]]) -> dict[str, list[float]]:
    return {name: [flow.rate for flow in each] for name, each in flows.items()}


def available(brokers: tuple[Contender, ...] = BROKERS) -> tuple[list[Contender], list[str]]:
    """The brokers that are installed, and the programs that are not."""
    return [each for each in brokers if each.path()], [each.program for each in brokers if not each.path()]
