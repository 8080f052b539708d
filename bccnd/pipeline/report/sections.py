"""The sections of the page: each function takes rows and returns what a template shows, or None for nothing.

A list or chart that shows only some says how many there are.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from bccnd.pipeline.layout import OF_ONE_HOST
from bccnd.pipeline.report import charts
from bccnd.pipeline.report.charts import NARROW, THUMBNAIL_SIZE, WIDE
from bccnd.pipeline.report.findings import BAD_LOSS, peer
from bccnd.pipeline.report.rows import (
    Bin,
    Block,
    Channel,
    Copies,
    Pair,
    Reason,
    Recorder,
    Rejection,
    Reordering,
    SetAside,
    Silence,
    Source,
    Totals,
    share,
)
from bccnd.pipeline.report.wording import (
    Clock,
    anchor,
    arrow,
    compact,
    counted,
    duration,
    latency,
    listed,
    percent,
    shown,
    size,
)
from bccnd.wire.verdict import HARMLESS, verdict_of

# Characters of the path of a file, and of what was wrong with it.
PATH, REASON = 200, 300
METHODS = {"both-ways": "both directions", "above-fastest": "above the fastest"}
BASES = {"record": "sender's record", "gaps": "gaps in numbers", "both": "both"}
Period = tuple[datetime, datetime]
Values = dict[str, Any]


class Column(NamedTuple):
    """``kind`` is ``text``, ``n`` for numbers, or ``bar`` for a length in percent."""

    title: str
    kind: str = "text"


class Table(NamedTuple):
    """``ids`` are the anchors of the rows, if findings link to them."""

    caption: str
    columns: list[Column]
    rows: list[list[object]]
    ids: Sequence[str] = ()


class Figure(NamedTuple):
    """One of the large numbers at the top; ``level`` is a class of style.css, or empty."""

    name: str
    value: str
    detail: str
    level: str = ""


def figures(
    totals: Totals,
    recorders: int,
    channels: tuple[int, int, int],
    silences: Sequence[Silence],
    reasons: Iterable[Reason],
) -> list[Figure]:
    count, messages, volume = channels
    bad = [row for row in reasons if row.verdict not in HARMLESS]
    dropped, silent = sum(row.datagrams for row in bad), sum(row.ongoing for row in silences)
    loss = percent(totals.loss, " %") if totals.sent else "?"
    level = "problem" if totals.loss >= BAD_LOSS else "warning" if totals.lost else "good"
    return [
        Figure("Hosts", f"{max(totals.hosts, recorders):,}", f"{counted(recorders, 'recorder')}"),
        Figure("Messages", compact(messages), f"{size(volume)} on {counted(count, 'channel')}"),
        Figure(
            "Lost", loss, f"{totals.lost:,} of {compact(totals.sent)}, counted once per receiver",
            level if totals.sent else "unknown",
        ),
        *_mended(totals),
        Figure(
            "Pairs with loss", f"{totals.lossy_pairs:,}", f"of {counted(totals.pairs, 'pair')} of hosts",
            "warning" if totals.lossy_pairs else "",
        ),
        Figure(
            "Silent at the end", f"{silent:,}", "of the sources that send heartbeats",
            "problem" if silent else "",
        ),
        Figure("Rejected", compact(dropped), "datagrams at any one host, at most", "problem" if dropped else ""),
    ]  # fmt: skip


def _mended(totals: Totals) -> list[Figure]:
    """What was lost on the way, if any of it came again."""
    if not totals.repaired:
        return []
    missed = share(totals.missed, totals.sent)
    detail = f"{totals.repaired:,} of {totals.missed:,} came again"
    return [Figure("Lost on the way", percent(missed, " %"), detail, "warning" if missed >= BAD_LOSS else "")]


def matrix(
    pairs: Sequence[Pair],
    hosts: tuple[list[str], list[str]],
    totals: Totals,
    blocks: list[Block] | None,
    block: int,
) -> Values | None:
    """``blocks`` are those of the thumbnail, None if all hosts are drawn large; ``block`` is how many hosts a row of
    it stands for."""
    senders, receivers = hosts
    if not pairs:
        return None
    lead = "Each field shows how much of the sender's messages (row) the receiver (column) lost"
    lead += " in the end." if totals.repaired else "."
    if any(map(charts.at_least, pairs)):
        lead += " ≥: at least that much, since without the sender's whole record only gaps show loss."
    if any(pair.basis == "link" for pair in pairs):
        lead += " A link between segments stands as a sender to the host of the uplink that hears it."
    if blocks is not None:
        lead += (
            f" Large: the {len(senders)} senders and the {len(receivers)} receivers with the most loss. "
            f"Small: all {totals.hosts:,} hosts."
        )
    side = -(-totals.hosts // block)
    found = {(pair.sender, pair.receiver): pair for pair in pairs}
    rows: list[list[object]] = []
    for sender in senders:
        losses = [found.get((sender, receiver)) for receiver in receivers]
        shares = [percent(pair.loss, " %") if pair and pair.sent else "-" for pair in losses]
        rows.append([shown(sender), *shares])
    lossy = sorted((pair for pair in pairs if pair.lost), key=lambda pair: -pair.loss)
    worst = lossy[: max(5, 2 * len(senders))]
    each = "host" if block == 1 else f"block of {block} hosts, coloured by the worst pair in it"
    return {
        "lead": lead,
        "title": f"Heat map of loss, {counted(len(senders), 'sender')} by {counted(len(receivers), 'receiver')}",
        "map": charts.heat_map(pairs, senders, receivers),
        "thumbnail": charts.thumbnail(blocks, side) if blocks is not None else None,
        "thumbnail_size": THUMBNAIL_SIZE,
        "thumbnail_caption": f"All {totals.hosts:,} hosts by name: a row and a column for each {each}",
        "worst": _worst_pairs(worst) if worst and charts.has_room(len(receivers)) else None,
        "table": Table(
            "Share lost, by sender (rows) and receiver (columns)",
            [Column("Sender"), *(Column(shown(name), "n") for name in receivers)],
            rows,
        ),
    }


def _worst_pairs(pairs: Sequence[Pair]) -> Table:
    """The table beside a matrix that leaves room for it."""
    rows: list[list[object]] = [
        [
            arrow(pair.sender, pair.receiver, 24), charts.bar(pair.loss, pairs[0].loss),
            percent(pair.loss, " %"), f"{pair.lost:,}", f"{pair.sent:,}",
        ]
        for pair in pairs
    ]  # fmt: skip
    numbers = [Column(title, "n") for title in ("Loss", "Lost", "Sent")]
    return Table("Pairs with loss, the worst first", [Column("Pair"), Column("", "bar"), *numbers], rows)


def loss(
    bins: Sequence[Bin], seconds: int, period: Period | None, worst: Sequence[Pair], totals: Totals
) -> Values | None:
    """``bins`` are those of all pairs together and of the ``worst``, so many ``seconds`` wide."""
    whole = [one for one in bins if not one.sender]
    if period is None or not whole:
        return None
    by_pair: dict[tuple[str, str], list[Bin]] = {}
    for one in bins:
        by_pair.setdefault((one.sender, one.receiver), []).append(one)
    multiples = [
        {
            "name": arrow(pair.sender, pair.receiver),
            "detail": f"{percent(pair.loss, ' %')} lost, peak {percent(_peak(own), ' %')}",
            "curve": charts.curve(own, period, seconds, NARROW, 130),
        }
        for pair in worst
        if (own := by_pair.get((pair.sender, pair.receiver)))
    ]
    heading = "Each pair with loss"
    if totals.lossy_pairs > len(multiples):
        all_pairs = counted(totals.lossy_pairs, "pair")
        heading = f"The {len(multiples)} worst of {all_pairs} with loss, at most {OF_ONE_HOST} of one host"
    rows: list[list[object]] = [
        [
            arrow(pair.sender, pair.receiver), f"{pair.sent:,}", f"{pair.lost:,}", f"{pair.late:,}",
            percent(pair.loss, " %"), f"{pair.bursts:,}", f"{pair.burst_p50:,.0f}", f"{pair.burst_max:,}",
            BASES.get(pair.basis, pair.basis),
        ]
        for pair in worst
    ]  # fmt: skip
    return {
        "step": {1: "a second", 60: "a minute"}.get(seconds) or duration(seconds),
        "wide": charts.curve(whole, period, seconds, WIDE, 220),
        "narrow": charts.curve(whole, period, seconds, NARROW, 180),
        "peak": percent(_peak(whole)),
        "heading": heading,
        "multiples": multiples,
        "table": Table(
            heading,
            [
                Column("Pair"), Column("Sent", "n"), Column("Lost", "n"), Column("of it late", "n"),
                Column("Loss", "n"), Column("Bursts", "n"),
                Column("Median burst", "n"), Column("Longest", "n"), Column("Known from"),
            ],
            rows,
            [anchor("loss", pair.sender, pair.receiver) for pair in worst],
        ),
    }  # fmt: skip


def _peak(bins: Iterable[Bin]) -> float:
    return max((one.lost / one.sent for one in bins if one.sent), default=0.0)


def latencies(pairs: Sequence[Pair], total: int) -> Values | None:
    if not pairs:
        return None
    methods = {pair.method for pair in pairs}
    lead = "The time of a message from the sender's recorder to the receiver's."
    if "both-ways" in methods:
        lead += (
            " Where messages go in both directions, the clocks are compared: the fastest message of each is taken to "
            "need the same time."
        )
    if "above-fastest" in methods:
        lead += " Where they go in one direction only, it is the time above that of the fastest message."
    if total > len(pairs):
        lead += f" Of {total:,} pairs, the {len(pairs)} with the highest 99 %."
    rows: list[list[object]] = [
        [
            arrow(pair.sender, pair.receiver), latency(pair.p50), latency(pair.p90), latency(pair.p99),
            latency(pair.top), METHODS.get(pair.method, pair.method),
        ]
        for pair in pairs
    ]  # fmt: skip
    numbers = [Column(title, "n") for title in ("Median", "90 %", "99 %", "Largest")]
    return {
        "lead": lead,
        "wide": charts.latency_strips(pairs, WIDE),
        "narrow": charts.latency_strips(pairs, NARROW),
        "table": Table(
            "Latency by pair",
            [Column("Pair"), *numbers, Column("Method")],
            rows,
            [anchor("latency", pair.sender, pair.receiver) for pair in pairs],
        ),
    }


def busiest(rows: Sequence[Channel], total: int, messages: int) -> Values | None:
    if not rows:
        return None
    most = max(row.messages for row in rows)
    cells: list[list[object]] = [
        [
            shown(row.channel), charts.bar(row.messages, most), f"{row.messages:,}",
            percent(row.messages / messages, " %") if messages else "", size(row.size), f"{row.rate_peak:,}",
            *map(_bytes, (row.payload_p50, row.payload_p95, row.payload_max)),
        ]
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("Channel"), Column("", "bar"), Column("Messages", "n"), Column("Share", "n"), Column("Volume", "n"),
        Column("Peak/s", "n"), Column("Payload, median", "n"), Column("95 %", "n"), Column("Largest", "n"),
    ]  # fmt: skip
    caption = (
        f"The {len(rows)} busiest of {counted(total, 'channel')}" if total > len(rows) else "All channels"
    )
    return {
        "lead": "A message counts once. Peak/s: messages in the busiest second. Payload in bytes.",
        "table": Table(caption, columns, cells, [anchor("channels", row.channel) for row in rows]),
    }


def _bytes(count: float | None) -> str:
    """A dash where payloads were not recorded."""
    return "-" if count is None else f"{count:,.0f}"


def silent(rows: Sequence[Silence], total: int, period: Period | None, clock: Clock) -> Values | None:
    if not rows or period is None:
        return None
    lead = "When sources that send heartbeats sent none for more than three intervals."
    if total > len(rows):
        lead += f" Of {counted(total, 'silence')}, the {len(rows)} longest."
    cells: list[list[object]] = [
        [
            shown(row.src), clock.at(row.start), "still silent" if row.ongoing else clock.at(row.end),
            duration((row.end - row.start).total_seconds()), f"{row.expected:g} s",
            listed([shown(name) for name in row.observers]),
        ]
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("Source"), Column("Silent from", "n"), Column("Until", "n"), Column("For", "n"),
        Column("Heartbeat every", "n"), Column("Noticed by"),
    ]  # fmt: skip
    return {
        "lead": lead,
        "wide": charts.silences(rows, period, clock, WIDE),
        "narrow": charts.silences(rows, period, clock, NARROW),
        "table": Table("Silences", columns, cells, first_only([anchor("silences", row.src) for row in rows])),
    }


def first_only(ids: Sequence[str]) -> list[str]:
    """An id only where it comes first: a page has each once."""
    return ["" if one in ids[:place] else one for place, one in enumerate(ids)]


def set_aside(files: Sequence[SetAside], total: int) -> Table | None:
    if not files:
        return None
    caption = (
        f"The first {len(files)} of {total:,} files set aside" if total > len(files) else "Files set aside"
    )
    rows: list[list[object]] = [[shown(row.path, PATH), shown(row.reason, REASON)] for row in files]
    return Table(caption, [Column("File"), Column("Why")], rows)


def rejected(
    reasons: Sequence[Reason], peers: Sequence[Rejection], total: int, clock: Clock
) -> Values | None:
    if not reasons:
        return None
    most = max(row.datagrams for row in reasons)
    by_reason: list[list[object]] = [
        [
            shown(row.verdict), charts.bar(row.datagrams, most), f"{row.datagrams:,}", f"{row.peers:,}",
            f"{row.hosts:,}", _meaning(row.verdict),
        ]
        for row in reasons
    ]  # fmt: skip
    most = max((row.datagrams for row in peers), default=0)
    by_peer: list[list[object]] = [
        [
            peer(row), shown(row.verdict), charts.bar(row.datagrams, most), f"{row.datagrams:,}",
            f"{row.hosts:,}", clock.at(row.first) if row.first else "-", clock.at(row.last) if row.last else "-",
            shown(row.channel, 40) or "-",
        ]
        for row in peers
    ]  # fmt: skip
    amounts = [Column("", "bar"), Column("Datagrams", "n")]
    return {
        "reasons": Table(
            "By verdict",
            [Column("Verdict"), *amounts, Column("Peers", "n"), Column("Hosts", "n"), Column("Meaning")],
            by_reason,
        ),
        "peers": Table(
            f"The {len(peers)} largest of {total:,}" if total > len(peers) else "Without the harmless ones",
            [
                Column("Peer"), Column("Verdict"), *amounts, Column("Hosts", "n"), Column("First", "n"),
                Column("Last", "n"), Column("Example channel"),
            ],
            by_peer,
            [anchor("rejected", row.verdict, row.peer) for row in peers],
        )
        if peers
        else None,
    }  # fmt: skip


def _meaning(word: str) -> str:
    verdict = verdict_of(word)
    if verdict is None:
        return "not known to this version"
    return f"datagrams {verdict.meaning}{'; harmless' * verdict.harmless}"


def reordered(rows: Sequence[Reordering], total: int) -> Table | None:
    if not rows:
        return None
    most = max(row.reordered for row in rows)
    cells: list[list[object]] = [
        [
            shown(row.src), shown(row.receiver), charts.bar(row.reordered, most), f"{row.reordered:,}",
            percent(row.reordered / row.received, " %") if row.received else "-", f"{row.distance_p50:,.0f}",
            f"{row.distance_max:,}",
        ]
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("Source"), Column("Receiver"), Column("", "bar"), Column("Reordered", "n"), Column("Share", "n"),
        Column("Median distance", "n"), Column("Largest", "n"),
    ]  # fmt: skip
    caption = (
        f"Of {total:,} pairs of source and receiver, the {len(rows)} with most reordering"
        if total > len(rows)
        else "All sources with reordering, by receiver"
    )
    return Table(caption, columns, cells, [anchor("reordering", row.src, row.receiver) for row in rows])


def second_copies(rows: Sequence[Copies], whole: Copies, total: int) -> Values | None:
    """``whole`` is the sum of all pairs."""
    if not rows:
        return None
    most = max(row.lost_single for row in rows)
    cells: list[list[object]] = [
        [
            arrow(row.sender, row.receiver), charts.bar(row.lost_single, most),
            f"{row.lost_single:,.0f}", charts.bar(row.lost, most), f"{row.lost:,}", f"{row.saved:,.0f}",
            percent(min(1.0, max(0.0, row.saved / row.lost_single)), " %") if row.lost_single > 0 else "-",
        ]
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("Pair"), Column("", "bar"), Column("Single copies would have lost", "n"), Column("", "bar"),
        Column("Lost", "n"), Column("Saved", "n"), Column("Share", "n"),
    ]  # fmt: skip
    caption = (
        f"The {len(rows)} of {counted(total, 'pair')} for which most was saved"
        if total > len(rows)
        else "All pairs with extra copies"
    )
    lead = (
        f"{whole.sent:,} messages were sent in {whole.copies} copies each, counted once per receiver. Judging by the "
        f"copies that arrived, single copies would have lost {whole.lost_single:,.0f}; {whole.lost:,} were lost."
    )
    return {"lead": lead, "table": Table(caption, columns, cells)}


def coverage(rows: Sequence[Recorder], total: int, period: Period | None, clock: Clock) -> Values | None:
    if not rows or period is None:
        return None
    lead = "When each recorder was running. What a host lost while its recorder was off is unknown."
    if total > len(rows):
        lead += f" Of {counted(total, 'recorder')}, the {len(rows)} that missed most."
    cells: list[list[object]] = [
        [
            shown(row.host) + (" (capture)" if row.capture else ""), clock.at(row.start), clock.at(row.end),
            f"{row.pauses:,}",
            duration(row.missing) if row.missing else "-", f"{row.unrecorded:,}",
        ]
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("Host"), Column("From", "n"), Column("Until", "n"), Column("Pauses", "n"), Column("Paused for", "n"),
        Column("Messages missed", "n"),
    ]  # fmt: skip
    return {
        "lead": lead,
        "wide": charts.coverage(rows, period, clock, WIDE),
        "narrow": charts.coverage(rows, period, clock, NARROW),
        "table": Table("Recorders", columns, cells, [anchor("coverage", row.host) for row in rows]),
    }


def source_table(rows: Sequence[Source], total: int) -> Values | None:
    if not rows:
        return None
    cells: list[list[object]] = [
        [
            shown(row.src), f"{row.receivers:,}", f"{row.received:,}", f"{row.lost:,}",
            percent(row.loss, " %"), f"{row.repaired:,}", f"{row.duplicates:,}", f"{row.resent:,}",
            f"{row.late:,}", f"{row.restarts:,}",
        ]
        for row in rows
    ]  # fmt: skip
    titles = (
        "Receivers", "Received", "Lost", "Loss", "Repaired", "Duplicates", "Sent again", "Late", "Restarts",
    )  # fmt: skip
    caption = (
        f"The {len(rows)} of {counted(total, 'source')} with most irregularities"
        if total > len(rows)
        else "All sources"
    )
    return {
        "lead": "Sums over all receivers. Lost: by the record of the sender, or gaps in the sequence numbers. "
        "Repaired: lost on the way, then sent again. Sent again: duplicates, since another receiver lost the first. "
        "Restarts: how often the source restarted its sequence numbers.",
        "table": Table(
            caption,
            [Column("Source"), *(Column(title, "n") for title in titles)],
            cells,
            [anchor("sources", row.src) for row in rows],
        ),
    }
