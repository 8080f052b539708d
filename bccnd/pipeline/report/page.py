"""The page: puts what ``queries`` collected into sentences, charts and tables, and these into the templates.

Rules
- The page is one file that loads nothing and runs no script. Names are hostile input; the templates escape them.
- Every section is always there; one without rows says so.
- The file is replaced once the page is whole.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from jinja2 import Environment, FunctionLoader, StrictUndefined

import bccnd
from bccnd.pipeline.report import faults, findings, links, repair, sections
from bccnd.pipeline.report.findings import Finding
from bccnd.pipeline.report.queries import MATRIX_HOSTS, Summaries, block_hosts
from bccnd.pipeline.report.rows import (
    Channel,
    Copies,
    HostLoss,
    Link,
    Pair,
    Reason,
    Recorder,
    Rejection,
    Reordering,
    SetAside,
    Silence,
    Source,
    Totals,
)  # fmt: skip
from bccnd.pipeline.report.said import LEVELS, Said
from bccnd.pipeline.report.scales import LOSS_LABELS, bin_minutes
from bccnd.pipeline.report.sections import Period, Table, Values
from bccnd.pipeline.report.wording import Clock
from bccnd.wire.verdict import Verdict

TITLE = "Network report"
# The verdicts on datagrams of a host with another key. Without any, keys are not compared.
KEYS = {Verdict.HMAC, Verdict.UNAUTHENTICATED}
# Steps of time in a chart, of four pixels on a screen.
BINS = 240
SECTIONS = {
    "findings": "Findings", "matrix": "Delivery matrix", "loss": "Loss over time", "repair": "Repair",
    "links": "Links", "latency": "Latency", "channels": "Channels", "silences": "Silences", "rejected": "Rejected",
    "reordering": "Reordering", "copies": "Copies", "coverage": "Coverage", "sources": "Sources",
}  # fmt: skip


def write(
    tables_dir: str | os.PathLike[str],
    output_html: Path | str,
    title: str = TITLE,
    rejected_files: str | None = None,
) -> Said:
    """Make the page ``output_html`` from the tables below ``tables_dir``, both on this machine.

    ``rejected_files`` is the directory that says which files were set aside.

    Returns what it says, for programs. Raises OSError if the file cannot be written.
    """
    with closing(Summaries(os.fspath(tables_dir), rejected_files)) as summaries:
        values = context(summaries, title)
    replace_file(Path(output_html), render(values))
    return Said(os.fspath(output_html), values["span"], values["totals"], values["findings"])


def replace_file(target: Path, whole: str) -> None:
    """Write the file; an old one stays until the new one is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # As a report of an earlier bccnd-pipeline that was killed left it, with its pid.
    for left in target.parent.glob(f".{target.name}.[0-9]*"):
        left.unlink(missing_ok=True)
    aside = target.with_name(f".{target.name}.new")
    with _alone(aside) as file:
        try:
            file.truncate()
            file.write(whole)
            file.flush()
            aside.replace(target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


@contextmanager
def _alone(path: Path) -> Iterator[IO[str]]:
    """The file, which nobody else writes meanwhile: a new one, or what a process that was killed left."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except PermissionError:  # that of another user, in a directory of ours
            path.unlink()
            continue
        with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123 - by its descriptor
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever had it has perhaps made it the page, or removed it.
            if _is(path, file.fileno()):
                yield file
                return


def _is(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def render(values: dict[str, Any]) -> str:
    templates = resources.files(__package__) / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (templates / name).read_text(encoding="utf-8")),
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.j2").render(values)


class _Asked(NamedTuple):
    """What findings and sections are both made of. With the rows of a table goes how many there are in all."""

    period: Period | None
    clock: Clock
    totals: Totals
    recorders: tuple[list[Recorder], int]
    slowest: list[Pair]
    silences: tuple[list[Silence], int]
    reasons: list[Reason]
    rejections: tuple[list[Rejection], int]
    channels: tuple[list[Channel], int, int, int]
    sources: tuple[list[Source], int]
    reorderings: tuple[list[Reordering], int]
    copies: tuple[list[Copies], Copies, int]
    set_aside: tuple[list[SetAside], int]
    repaired: tuple[list[Pair], int, Pair]
    links: tuple[list[Link], int]

    @classmethod
    def of(cls, ask: Summaries) -> Self:
        period = ask.period()
        return cls(
            period, Clock(*period) if period else Clock(None, None), ask.totals(), ask.recorders(),
            ask.slowest_pairs(), ask.silences(), ask.reasons(), ask.rejections(), ask.channels(), ask.sources(),
            ask.reorderings(), ask.copies(), ask.set_aside(), ask.repaired_pairs(), ask.links(),
        )  # fmt: skip


def context(ask: Summaries, title: str) -> dict[str, Any]:
    """Everything that the templates use."""
    asked = _Asked.of(ask)
    values: dict[str, Any] = {
        "title": title,
        "period": f"{asked.clock.period()}, all times in UTC" if asked.period else "Nothing was recorded",
        "version": bccnd.__version__, "sections": list(SECTIONS.items()),
        "levels": LEVELS, "loss_labels": LOSS_LABELS,
        **_sections(ask, asked),
        "sections_by_id": SECTIONS, "span": asked.period, "totals": asked.totals,
    }  # fmt: skip
    ids = _ids(values)
    values["findings"] = [
        replace(finding, link=finding.link if finding.link in ids else finding.link.partition("-")[0])
        for finding in findings.by_importance(
            replace(finding, kind=kind) for kind, found in _findings(ask, asked).items() for finding in found
        )
    ]
    return values


def _findings(ask: Summaries, asked: _Asked) -> dict[str, Sequence[Finding]]:
    """By kind, which is for programs: bccnd/pipeline/README.md, "Monitoring"."""
    clock, totals = asked.clock, asked.totals
    keys = ask.other_keys() if any(row.verdict in KEYS for row in asked.reasons) else []
    odd = [row.host for row in faults.odd_keys(keys, totals.hosts)[0]]
    cut_off, unheard = ask.cut_off() if totals.dead else ([], [])
    apart = sorted({*odd, *(row.host for row in cut_off), *(pair.receiver for pair in unheard)})
    unexplained, unexplained_count = ask.rejections(odd) if odd else asked.rejections
    misses = _mended(ask, apart) if totals.repaired else []
    drops = ask.drops()
    causes = [row for row in faults.one_by_one(ask.host_losses, ask.left) if row.host not in apart]
    lasting = [row for row in causes if not repair.explains(row, misses)]
    (silences, silence_count), (recorders, recorder_count) = asked.silences, asked.recorders
    return {
        "key": faults.keys(keys, totals.hosts),
        "cut-off": faults.cut_off(cut_off, unheard, odd),
        "placeless": faults.placeless(ask.placeless()),
        "overall": findings.overall(totals, bool(recorders)),
        "loss-at-host": faults.widespread(lasting, clock),
        "loss": findings.episodes(*ask.episodes([*causes, *misses], apart), clock),
        "dropped": faults.drops(drops),
        "repair": repair.findings(asked.repaired[2], misses, *ask.mended(misses, apart), drops),
        "link": links.findings(*asked.links),
        "loss-of-source": faults.culprits(ask.culprits() if totals.lost else []),
        "late": faults.late(ask.late() if totals.late else []),
        "clock": faults.clocks(ask.clocks(), totals.hosts),
        "silence": findings.silences(silences, recorder_count, clock, silence_count),
        "rejected": findings.rejections(unexplained, clock, unexplained_count),
        "recorder": findings.coverage(recorders, clock),
        "capture": findings.captured(*ask.captured()),
        "set-aside": findings.set_aside(*asked.set_aside),
        "no-recorder": findings.without_recorder(*ask.hosts_without_recorder()),
        "copies": findings.copies([asked.copies[1]]),
        "latency": findings.latencies(asked.slowest),
        "reordering": findings.reorderings(asked.reorderings[0]),
        "restart": findings.restarts(asked.sources[0]),
        "channel": findings.busiest(asked.channels[0], asked.channels[2]),
    }


def _sections(ask: Summaries, asked: _Asked) -> dict[str, Any]:
    """By the names that the templates have for them."""
    clock, totals, period = asked.clock, asked.totals, asked.period
    (silences, silence_count), (recorders, recorder_count) = asked.silences, asked.recorders
    channels, channel_count, messages, volume = asked.channels
    counts = channel_count, messages, volume
    return {
        "figures": sections.figures(totals, recorder_count, counts, silences, asked.reasons),
        "matrix": _matrix(ask, totals, asked.links[0]),
        "loss": _loss(ask, period, ask.worst_pairs(), totals),
        "repair": _repair(ask, *asked.repaired, totals),
        "links": links.section(*asked.links),
        "latency": sections.latencies(asked.slowest, totals.measured),
        "channels": sections.busiest(channels, channel_count, messages),
        "silences": sections.silent(silences, silence_count, period, clock),
        "rejected": sections.rejected(asked.reasons, *asked.rejections, clock),
        "reordering": sections.reordered(*asked.reorderings),
        "copies": sections.second_copies(*asked.copies),
        "coverage": sections.coverage(recorders, recorder_count, period, clock),
        "sources": sections.source_table(*asked.sources),
        "set_aside": sections.set_aside(*asked.set_aside),
    }


def _mended(ask: Summaries, apart: Sequence[str]) -> list[HostLoss]:
    def left(explained: Sequence[HostLoss]) -> Totals:
        totals = ask.left(explained)
        return totals._replace(lost=totals.missed)

    return [row for row in repair.mended(faults.one_by_one(ask.host_misses, left)) if row.host not in apart]


def _ids(values: Any) -> set[str]:
    """The anchors of all rows on the page."""
    if isinstance(values, Table):
        return {*values.ids}
    return set().union(*map(_ids, values.values())) if isinstance(values, dict) else set()


def _matrix(ask: Summaries, totals: Totals, across: Sequence[Link]) -> Values | None:
    senders, receivers = ask.matrix_hosts(totals.hosts)
    blocks = ask.thumbnail(totals.hosts) if totals.hosts > MATRIX_HOSTS else None
    found, of_links = ask.matrix(senders, receivers), links.pairs(across)
    hosts = (
        [*dict.fromkeys([*senders, *(pair.sender for pair in of_links)])],
        [*dict.fromkeys([*receivers, *(pair.receiver for pair in of_links)])],
    )
    return sections.matrix([*found, *of_links], hosts, totals, blocks, block_hosts(totals.hosts))


def _repair(ask: Summaries, rows: list[Pair], count: int, whole: Pair, totals: Totals) -> Values | None:
    if not rows:
        return None
    hosts = ask.matrix_hosts(totals.hosts, "lost + repaired")
    return repair.section(rows, count, whole, ask.matrix(*hosts), hosts, totals.hosts)


def _loss(ask: Summaries, period: Period | None, worst: list[Pair], totals: Totals) -> Values | None:
    if period is None:
        return None
    seconds = ask.step_seconds() or 60 * bin_minutes(*period, BINS)
    return sections.loss(ask.bins(seconds, worst), seconds, period, worst, totals)
