"""``bccn doctor``: what is wrong with the bus of this host, and what to do."""

import argparse
import json
import os
import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence

from bccnd.commands.arguments import name
from bccnd.commands.facts import gather
from bccnd.commands.outcome import DONE
from bccnd.doctor.finding import Finding, Level, as_json
from bccnd.doctor.findings import examine
from bccnd.process.standard_streams import counted, printable, say

# What it looks at is on this host.
TAKES_DOOR = False
# The exit code.
PROBLEMS = 1
# Characters. Longer lines are hard to read.
WIDTH_LIMIT = 110

EPILOG = """\
Looks at the settings, the key file, the socket, the daemon with its interfaces,
buffers, clients and sources, and the clock; and asks uplinks and gateways of
this host how they are. As root it sees more. It publishes one message to itself
and one on doctor/<pid>, which goes to the segment, and asks for each right; the
daemon logs those it refuses.

exit codes:
  0 no problem, though there may be warnings   1 problems   2 wrong usage

examples:
  bccn doctor
  bccn doctor --config new.toml
  bccn doctor --json | jq -r '.findings[] | select(.level != "ok") | .finding'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Find out what is wrong with the bus of this host, and say what to do."
    parser.epilog = EPILOG
    parser.add_argument(
        "--config", metavar="FILE", type=name, help="the settings file (default: the one bccnd reads)"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    findings = examine(gather(arguments.socket, arguments.config, os.environ))
    counts = Counter(finding.level for finding in findings)
    if arguments.json:
        text = json.dumps(as_json(findings), indent=2)
    else:
        width = min(shutil.get_terminal_size((WIDTH_LIMIT, 0)).columns, WIDTH_LIMIT)
        text = "\n".join([*lines(findings, width), "", _sum(counts)])
    say(text)
    return PROBLEMS if counts[Level.PROBLEM] else DONE


def lines(findings: Sequence[Finding], width: int) -> list[str]:
    """Level, subject and finding in columns, the remedy below; long lines are wrapped."""
    margin = max(len(finding.what) for finding in findings) + 1
    found = []
    for finding in findings:
        head = f"{finding.level:<9}{finding.what + ':':<{margin}} "
        found += _wrapped(printable(finding.finding), head, width)
        if finding.remedy:
            found += _wrapped(printable(finding.remedy), " " * (len(head) - 3) + "-> ", width)
    return found


def _wrapped(text: str, head: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, len(head) + 20),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _sum(counts: Counter[Level]) -> str:
    levels = (Level.PROBLEM, Level.WARNING)
    return ", ".join(counted(counts[level], level) for level in levels if counts[level]) or "nothing wrong"
