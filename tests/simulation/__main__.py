"""Runs histories of whole segments in virtual time, and tells those that break a rule.

    python -m tests.simulation --seed 17 --story        one history, told in words
    python -m tests.simulation --seed 17 --shrink       the smallest history that breaks the same rule
    python -m tests.simulation --histories 100000 --from 500 --processes 2
    python -m tests.simulation --histories 5000 --links            segments that uplinks connect
    python -m tests.simulation --histories 500 --rings             three of them in a ring, all uplinks twice
    python -m tests.simulation --measure                what repair delivers, and how late, over loss

Exit code 0: every rule held; 1: one was broken, and the history is told.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain

from tests.simulation.drawing import Kind, draw
from tests.simulation.invariants import Broken
from tests.simulation.measure import shared_losses, table
from tests.simulation.scenario import Scenario
from tests.simulation.shrink import shrink
from tests.simulation.story import Story, plan_in_words
from tests.simulation.world import World

# Histories that a process runs before it reports.
PART = 50
# Seconds between two lines about how far it is.
EVERY = 60.0


def fails(scenario: Scenario) -> Broken | None:
    """What a rule is broken by in the history of this scenario; None when all hold."""
    try:
        World(scenario).run()
    except Broken as broken:
        return broken
    return None


def tell(scenario: Scenario) -> Iterator[str]:
    """The history in words."""
    story = Story()
    with suppress(Broken):  # which is the last line of the story
        World(scenario, story).run()
    for plan in (scenario.network, *scenario.hosts, *scenario.strangers, *scenario.liars):
        yield plan_in_words(plan)
    for plan in (scenario.lines, *scenario.uplinks) if scenario.uplinks else ():
        yield plan_in_words(plan)
    yield "with a key" if scenario.key else "without a key"
    yield from story.lines


def told_short(seed: int, kind: Kind = "segment") -> str:
    """The smallest history that breaks what that of the seed breaks, and how to see it again."""
    smallest = shrink(draw(seed, kind), fails)
    flag = "" if kind == "segment" else f" --{kind}"
    again = f"again     python -m tests.simulation --seed {seed} --shrink{flag}"
    return "\n".join([f"seed {seed}: {fails(smallest)}", again, *tell(smallest)])


def broken_seeds(seeds: Iterable[int], kind: Kind = "segment") -> list[tuple[int, str]]:
    return [(seed, str(broken)) for seed in seeds if (broken := fails(draw(seed, kind)))]


def _run_many(first: int, histories: int, processes: int, kind: Kind) -> int:
    """Run so many, and say which break a rule as soon as it is known."""
    seeds = range(first, first + histories)
    parts = [seeds[at : at + PART] for at in range(0, histories, PART)]
    done = bad = 0
    begun = said = time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        for part, found in zip(parts, pool.map(partial(broken_seeds, kind=kind), parts), strict=True):
            done += len(part)
            bad += len(found)
            for seed, text in found:
                _say(f"seed {seed}: {text}")
            if time.monotonic() > said + EVERY:
                said = time.monotonic()
                _say(f"{done} of {histories} histories, {bad} broken, {said - begun:.0f} s")
    _say(f"{done} histories from {first} on, {bad} broken, {time.monotonic() - begun:.0f} s")
    return 1 if bad else 0


def _run_one(seed: int, kind: Kind, *, story: bool, smallest: bool) -> int:
    scenario = draw(seed, kind)
    broken = fails(scenario)
    if smallest and broken:
        _say(told_short(seed, kind))
    elif story:
        for line in tell(scenario):
            _say(line)
    _say(f"seed {seed}: {broken or 'every rule held'}")
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument("--seed", type=int, help="run the history of this seed")
    parser.add_argument("--story", action="store_true", help="tell it in words")
    parser.add_argument(
        "--shrink", action="store_true", help="make it small if it breaks a rule, and tell that"
    )
    parser.add_argument("--histories", type=int, default=500, help="run so many (default: %(default)d)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of their seeds")
    kinds = parser.add_mutually_exclusive_group()
    kinds.set_defaults(kind="segment")
    for kind, about in (
        ("links", "of two or three segments with their uplinks"),
        ("rings", "of three segments in a ring, with two uplinks of each to each backbone"),
    ):
        kinds.add_argument(f"--{kind}", action="store_const", const=kind, dest="kind", help=about)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--measure", action="store_true", help="print delivered shares and delays over loss")
    options = parser.parse_args()
    if options.measure:
        for line in chain(shared_losses(), table()):
            _say(line)
        return 0
    if options.seed is not None:
        return _run_one(options.seed, options.kind, story=options.story, smallest=options.shrink)
    return _run_many(options.first, options.histories, options.processes, options.kind)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
