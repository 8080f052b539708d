"""Judges hostile behaviours and prints what each cost the bystander.

    python -m tests.hostile                     all of them
    python -m tests.hostile sources             those with the word in ``<group>: <name>``
    python -m tests.hostile --ratio sources     beside the same without the hostile one, and the ratio of both p99

Exit code 0: each behaves as ``known.py`` says; 1: one does not.
"""

import argparse
import sys

from tests.hostile.behaviour import behaviours
from tests.hostile.judge import SECONDS, compared, judge
from tests.hostile.known import KNOWN


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.hostile", description=str(__doc__).partition("\n")[0]
    )
    parser.add_argument("word", nargs="*", help="which; by default all")
    parser.add_argument("--ratio", action="store_true", help="also without the hostile one: the ratio of p99")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each (default: %(default)g)")
    options = parser.parse_args()
    surprises = 0
    for name, each in behaviours().items():
        if options.word and not any(word in name for word in options.word):
            continue
        if options.ratio:
            outcome, quiet = compared(each, options.seconds)
            ratio = f"p99 {outcome.p99 / max(quiet.p99, 0.001):.1f} times {quiet.p99:.2f} ms; "
        else:
            outcome, ratio = judge(each, options.seconds), ""
        expected = bool(outcome.faults) == (name in KNOWN)
        surprises += not expected
        _say(f"{'known ' if name in KNOWN else ''}{'fails' if outcome.faults else 'holds'}  {name}")
        late = f"; p99 above {each.p99:g} ms" if outcome.p99 > each.p99 else ""
        _say(f"        {ratio}{outcome}{late}")
    return 1 if surprises else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
