"""What happens per second, from two samples of the counters of a daemon.

Rules
- A rate is the difference of a counter between two samples over the time between them, never an average since the
  start. Without an earlier sample it is None: the first time, and for a row that was cut off before.
- A client or source that is not in the earlier sample began at 0.
- A counter that went back belongs to another daemon, client or source of the same name, and began at 0 as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bccnd.doctor.loss import loss_of
from bccnd.wire.verdict import HARMLESS

Row = dict[str, Any]

_STATUS_RATES = ("published", "received", "accepted", "sent", "unsent", "delivered", "dropped")


@dataclass(frozen=True, slots=True)
class Sample:
    """The answers to ``status``, ``clients`` and ``sources`` at one time; ``at``: monotonic seconds.

    ``cut``: which of ``clients`` and ``sources`` have more rows than were read.
    """

    at: float
    status: Row
    clients: list[Row] = field(default_factory=list)
    sources: list[Row] = field(default_factory=list)
    cut: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Figures:
    """A sample, with the rates since the one ``seconds`` earlier; 0.0 if there is none.

    ``rates``: per second, of the whole daemon. Besides what the daemon reports, rows of clients have ``in`` and
    ``out``, and rows of sources ``rate``, and ``missed`` and ``loss``: the percentages of what the source sent that
    were lost before repair, and after.
    """

    seconds: float
    status: Row
    rates: dict[str, float | None]
    clients: list[Row]
    sources: list[Row]
    cut: frozenset[str]


def compare(before: Sample | None, now: Sample) -> Figures:
    """``before``: None the first time, and when the daemon has been away."""
    if before is not None and before.status["pid"] != now.status["pid"]:
        before = None
    seconds = now.at - before.at if before else 0.0
    old_clients = {(row["name"], row["pid"]): row for row in before.clients} if before else {}
    old_sources = {row["src"]: row for row in before.sources} if before else {}
    clients, sources = [], []
    for row in now.clients:
        old = old_clients.get((row["name"], row["pid"]))
        if old is None and row["seconds"] < seconds:
            old = {}
        clients.append(
            row
            | {
                "in": _rate(old, row, "published", seconds),
                "out": _rate(old, row, "delivered", seconds),
            }
        )
    for row in now.sources:
        if not row["peer"]:
            continue  # a client of this host that has left
        old = old_sources.get(row["src"])
        if old is None and before and "sources" not in before.cut:
            old = {}
        loss = loss_of(row)
        rate = _rate(old, row, "received", seconds)
        sources.append(row | {"rate": rate, "missed": loss.before, "loss": loss.after})
    return Figures(seconds, now.status, _totals(before, now, seconds), clients, sources, now.cut)


def _totals(before: Sample | None, now: Sample, seconds: float) -> dict[str, float | None]:
    old, new = _counters(before.status) if before else None, _counters(now.status)
    return {name: _rate(old, new, name, seconds) for name in new}


def _counters(status: Mapping[str, Any]) -> dict[str, int]:
    return {
        **{name: status["counters"][name] for name in _STATUS_RATES},
        "rejected": rejected(status),
        "kernel": status.get("kernel", {}).get("dropped", 0),
    }


def rejected(status: Mapping[str, Any]) -> int:
    """Datagrams that were dropped for a fault of somebody, here or elsewhere."""
    return sum(count for word, count in status["rejected"].items() if word not in HARMLESS)


def _rate(
    before: Mapping[str, int] | None, now: Mapping[str, int], name: str, seconds: float
) -> float | None:
    if before is None or seconds <= 0:
        return None
    grown = now[name] - before.get(name, 0)
    return (grown if grown >= 0 else now[name]) / seconds
