"""What one backbone carries, from what a message costs: the figures of ``bccnd/backbone/README.md`` that follow.

    .venv/bin/python -m tests.bench.model                   prints them, from those that stand there as measured
    .venv/bin/python -m tests.bench.model results.json      prints what a run of "backbone" and "links" has measured,
                                                            as the rows of all tables in both documents

S segments publish messages of 100 bytes, each in a datagram of its own. The backbone takes each once, and copies it
to the uplinks of all S. Every uplink receives all of them and drops what it does not import. So in all, a second:

    a processor of the backbone    (1 - 2 S keepalive) / (taken + S copy)     two KEEPALIVEs a second of each uplink
    its line                       bits / (S bytes)
    a processor of an uplink       1 / unwanted, if it imports next to nothing; 1 / into, if it imports all

Where subscribers get only what they want, as those of NATS do, a message to a share w of S costs all of them together
w S (copy + into) there, and S copy + S unwanted + w S (into - unwanted) here. Both are equal at ``break_even``.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.documents import rows, section

DOCUMENT, MEASURED, MODEL = (
    "bccnd/backbone/README.md",
    "What a message costs",
    "One backbone, a thousand segments",
)
SEGMENTS = (2, 10, 100, 1000)
LINE_BITS = 1e9
KEEPALIVES = 2  # of an uplink in a second

# Rows of the documents.
PEERS = {
    "bare": "a loop in C that numbers and sends each, and decides nothing",
    "divided": "the same loop, which has the kernel divide a batch as well",
    "nats": "NATS 2.9, which puts many messages into one segment of TCP",
}
SPENT = {
    "taken": "a message that is taken",
    "copy": "a copy of it to one subscriber",
    "out": "out of a segment, by its uplink",
    "in": "into a segment",
    "in-not-imported": "into a segment that does not import it",
    "keepalive": "a KEEPALIVE with its ACK",
    "bytes": "bytes of a packet on the line",
}


@dataclass(frozen=True)
class Carrier:
    """Microseconds of a processor for a message: to be taken, and each copy; in the uplink out of a segment, into it,
    and into one that does not import it; for a KEEPALIVE. ``size``: bytes of a packet on the line.
    """

    taken: float
    copy: float
    out: float
    into: float
    unwanted: float
    keepalive: float = 0.0
    size: float = 0.0

    def of_processor(self, segments: int) -> float:
        """Messages a second, in all, that one processor of the carrier takes."""
        free = 1e6 - KEEPALIVES * segments * self.keepalive
        return max(0.0, free) / (self.taken + segments * self.copy)

    def of_line(self, segments: int) -> float:
        return LINE_BITS / (8 * self.size * segments)

    def of_uplink(self) -> float:
        return 1e6 / self.unwanted

    def ceiling(self, segments: int) -> float:
        return min(self.of_processor(segments), self.of_line(segments), self.of_uplink())


def break_even(here: Carrier, there: Carrier) -> float:
    """The share of all messages that a segment wants, below which a carrier that sends it no others costs less."""
    return (here.copy + here.unwanted) / (there.copy + there.into - here.into + here.unwanted)


def fit(subscribers: tuple[int, int], costs: tuple[float, float]) -> tuple[float, float]:
    """What it costs to take a message, and to send each copy, from the costs with two numbers of subscribers.

    Where a copy costs less with few of them, taking one may seem to cost less than nothing. It is nothing then.
    """
    copy = (costs[1] - costs[0]) / (subscribers[1] - subscribers[0])
    return max(0.0, costs[0] - subscribers[0] * copy), copy


def measured(table: Sequence[Sequence[str]]) -> tuple[Carrier, Carrier]:
    """The backbone and NATS, from the rows of the document."""
    ours, nats = ([float(row[column]) for row in table if row[column]] for column in (1, 2))
    return Carrier(*ours), Carrier(*nats)


def derived(here: Carrier, there: Carrier) -> list[list[str]]:
    """The rows of the document's second table."""
    return [
        [
            str(segments),
            *map(rounded, (here.of_processor(segments), here.of_line(segments), here.of_uplink())),
            rounded(here.ceiling(segments) / segments),
            rounded(there.of_processor(segments)),
        ]
        for segments in SEGMENTS
    ]


def documented() -> list[list[str]]:
    return rows(section(DOCUMENT, MEASURED))


def rounded(value: float) -> str:
    """Two digits, and as many zeros as it takes; from 1000 on in groups of three."""
    return f"{float(f'{value:.2g}'):,.10g}"


# -- what a run has measured


class Results:
    """Of ``results.json``."""

    def __init__(self, scenarios: Mapping[str, Any]) -> None:
        self._figures = {
            figure["key"]: figure["value"] for each in scenarios.values() for figure in each["figures"]
        }
        self._charts = {chart["name"]: chart for each in scenarios.values() for chart in each["charts"]}

    def said(self, key: str, *, reciprocal: bool = False) -> str:
        """A figure, or how many microseconds each of so many a second takes; a dash for what was not measured."""
        value = self._figures.get(key)
        return "-" if value is None else rounded(1e6 / value if reciprocal else value)

    def fan_out(self) -> list[list[str]]:
        return [
            [title, *(self.said(f"backbone/{count}/{peer}") for count in (1, 8, 64))]
            for peer, title in PEERS.items()
        ]

    def costs(self) -> list[list[str]]:
        carriers = ("backbone", "nats"), ("fyrehose", "nats")
        spent = [
            [SPENT[part], *(self.said(f"backbone/cost/{name}/{part}") for name in carriers[0])]
            for part in ("taken", "copy")
        ]
        spent += [
            [SPENT[way], *(self.said(f"links/{name}/{way}", reciprocal=True) for name in carriers[1])]
            for way in ("out", "in", "in-not-imported")
        ]
        spent.append([SPENT["keepalive"], self.said("backbone/cost/keepalive"), ""])
        return [*spent, [SPENT["bytes"], self.said("links/packet-bytes"), ""]]

    def checked(self) -> list[str]:
        """What messages to other numbers of subscribers cost, as parts of what the model says; the last is NATS."""
        parts = [self.said(f"backbone/cost/backbone/{count}") for count in (8, 16, 32)]
        return [*parts, self.said("backbone/cost/nats/8")]

    def uplinks(self) -> list[list[str]]:
        """Messages a second of a processor, by carrier."""
        return [
            [
                name,
                *(self.said(f"links/{name}/{way}") for way in ("out", "in", "in-not-imported")),
                self.said(f"links/whole/{name}/nats"),
            ]
            for name in ("fyrehose", "nats")
        ]

    def losses(self) -> list[list[str]]:
        """Share delivered, delays and packets of a message, of uplinks and of NATS."""
        found = []
        for loss in self._charts["links-packets"]["series"]["uplinks"]:
            row = [f"{float(loss):g} %"]
            for name in ("uplinks", "nats over tcp"):
                row.append(f"{self.said(f'links/delivered/{float(loss):.0f}%/{name}')} %")
                row.append(
                    ", ".join(self._median(f"links-delay-p{at}", name, loss) for at in ("50", "99", "99.9"))
                )
                row.append(self._median("links-packets", name, loss))
            found.append(row)
        return found

    def _median(self, chart: str, name: str, at: str) -> str:
        runs = self._charts[chart]["series"].get(name, {}).get(at)
        return rounded(median(runs)) if runs else "-"


def main() -> None:
    tables = {MODEL: derived(*measured(documented()))}
    share = break_even(*measured(documented()))
    if len(sys.argv) > 1:
        found = Results(json.loads(Path(sys.argv[1]).read_text())["scenarios"])
        here, there = measured(found.costs())
        share = break_even(here, there)
        tables = {
            "backbone: How fast it is": found.fan_out(),
            MEASURED: found.costs(),
            "of what these two say, with 8, 16 and 32 subscribers, and NATS with 8": [found.checked()],
            MODEL: derived(here, there),
            "uplink: How fast it is": found.uplinks(),
            "uplink: over loss": found.losses(),
        }
    for title, table in tables.items():
        sys.stdout.write(f"\n{title}\n")
        sys.stdout.writelines(f"| {' | '.join(row)} |\n" for row in table)
    sys.stdout.write(f"\nless than {100 * share:.0f} % of what all export\n")


if __name__ == "__main__":
    main()
