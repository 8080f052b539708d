"""What one backbone carries, from what a message costs: the figures of ``bccnd/backbone/README.md`` that follow.

    .venv/bin/python -m tests.bench.model     prints them, from those that stand there as measured

S segments publish messages of 100 bytes, each in a datagram of its own. The backbone takes each once, and copies it to
the uplinks of all S. Every uplink receives all of them and drops what it does not import. So in all, a second:

    a processor of the backbone    (1 - 2 S keepalive) / (taken + S copy)     two KEEPALIVEs a second of each uplink
    its line                       bits / (S bytes)
    a processor of an uplink       1 / unwanted, if it imports next to nothing; 1 / into, if it imports all

Where subscribers get only what they want, as those of NATS do, a message to a share w of S costs all of them together
w S (copy + into) there, and S copy + S unwanted + w S (into - unwanted) here. Both are equal at ``break_even``.
"""

import sys
from dataclasses import dataclass

from tests.documents import rows, section

DOCUMENT, MEASURED, MODEL = (
    "bccnd/backbone/README.md",
    "What a message costs",
    "One backbone, a thousand segments",
)
SEGMENTS = (2, 10, 100, 1000)
LINE_BITS = 1e9
KEEPALIVES = 2  # of an uplink in a second


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
    """What it costs to take a message, and to send each copy, from the costs with two numbers of subscribers."""
    copy = (costs[1] - costs[0]) / (subscribers[1] - subscribers[0])
    return costs[0] - subscribers[0] * copy, copy


def measured() -> tuple[Carrier, Carrier]:
    """The backbone and NATS, as the document has them."""
    table = [row[1:] for row in rows(section(DOCUMENT, MEASURED))]
    ours, nats = ([float(cell) for cell in column if cell] for column in zip(*table, strict=True))
    return Carrier(*ours), Carrier(*nats)


def derived() -> list[list[str]]:
    """The rows of the document's table."""
    here, there = measured()
    return [
        [
            str(segments),
            *map(rounded, (here.of_processor(segments), here.of_line(segments), here.of_uplink())),
            rounded(here.ceiling(segments) / segments),
            rounded(there.of_processor(segments)),
        ]
        for segments in SEGMENTS
    ]


def rounded(value: float) -> str:
    """Two digits, and as many zeros as it takes."""
    return f"{float(f'{value:.2g}'):,.10g}"


def main() -> None:
    for row in derived():
        sys.stdout.write(f"| {' | '.join(row)} |\n")
    sys.stdout.write(f"break even at {100 * break_even(*measured()):.0f} %\n")


if __name__ == "__main__":
    main()
