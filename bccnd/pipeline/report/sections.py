"""The sections of the page: rows in, what the templates draw and list out; None where a section has nothing to show.

A list or a chart that does not show all says of how many it shows the worst.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from bccnd.pipeline.report import charts
from bccnd.pipeline.report.charts import NARROW, THUMBNAIL_SIZE, WIDE
from bccnd.pipeline.report.findings import BAD_LOSS, HARMLESS
from bccnd.pipeline.report.rows import (
    OF_ONE_HOST,
    Bin,
    Block,
    Channel,
    Copies,
    Reason,
    Recorder,
    Rejection,
    Reordering,
    Silence,
    Source,
    Totals,
    Way,
)
from bccnd.pipeline.report.wording import (
    Clock,
    compact,
    counted,
    duration,
    latency,
    listed,
    percent,
    shown,
    size,
)

Period = tuple[datetime, datetime]
Values = dict[str, Any]

REASONS = {
    "hmac": "forged, or sealed with another key",
    "crc32": "damaged on the way",
    "sum": "a checksum that is none",
    "unauthenticated": "less integrity than required here",
    "algorithm": "an integrity algorithm not known here",
    "magic": "something else than BCCN on the same port",
    "version": "another version of BCCN",
    "truncated": "larger than any message may be",
    "conflict": "another host uses a name of this one",
    "unknown-source": "from a source that has not named itself",
    "own": "our own, back from the network; harmless",
    "duplicate": "a further copy; harmless",
    "late": "after its copy or its turn; harmless",
}  # the rest is malformed


class Column(NamedTuple):
    """``kind``: text, n for numbers, bar for a length in percent."""

    title: str
    kind: str = "text"


class Table(NamedTuple):
    caption: str
    columns: list[Column]
    rows: list[list[object]]


class Figure(NamedTuple):
    """One of the large numbers at the top; ``level``: a class of style.css, empty for none."""

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
            "Lost", loss, f"{totals.lost:,} of {compact(totals.sent)} to receive",
            level if totals.sent else "unknown",
        ),
        Figure(
            "Ways with loss", f"{totals.lossy_ways:,}", f"of {counted(totals.ways, 'way')} between hosts",
            "warning" if totals.lossy_ways else "",
        ),
        Figure("Silent at the end", f"{silent:,}", "of the sources that beat", "problem" if silent else ""),
        Figure("Rejected", compact(dropped), "datagrams, on any one host", "problem" if dropped else ""),
    ]  # fmt: skip


def matrix(
    ways: Sequence[Way],
    hosts: tuple[list[str], list[str]],
    totals: Totals,
    blocks: list[Block] | None,
    block: int,
) -> Values | None:
    """``blocks``: of the thumbnail, None when all hosts are drawn large; ``block``: hosts in a row of it."""
    senders, receivers = hosts
    if not ways:
        return None
    lead = "Each field is the share of the sender's messages (row) that the receiver (column) lost."
    if blocks is not None:
        lead += (
            f" Of {totals.hosts:,} hosts the {len(senders)} senders and {len(receivers)} receivers with the most "
            "loss are drawn large, all of them small."
        )
    side = -(-totals.hosts // block)
    found = {(way.sender, way.receiver): way for way in ways}
    rows: list[list[object]] = []
    for sender in senders:
        losses = [found.get((sender, receiver)) for receiver in receivers]
        rows.append(
            [shown(sender), *(percent(way.loss, " %") if way and way.sent else "-" for way in losses)]
        )
    worst = sorted((way for way in ways if way.lost), key=lambda way: -way.loss)[: max(5, 2 * len(senders))]
    each = "host" if block == 1 else f"block of {block} hosts, the worst way in it"
    return {
        "lead": lead,
        "title": f"Heat map of loss, {counted(len(senders), 'sender')} by {counted(len(receivers), 'receiver')}",
        "map": charts.heat_map(ways, senders, receivers),
        "thumbnail": charts.thumbnail(blocks, side) if blocks is not None else None,
        "thumbnail_size": THUMBNAIL_SIZE,
        "thumbnail_caption": f"All {totals.hosts:,} hosts by name; a row and a column for each {each}",
        "worst": _worst_ways(worst) if worst and charts.has_room(len(receivers)) else None,
        "table": Table(
            "Share lost, by sender (rows) and receiver (columns)",
            [Column("Sender"), *(Column(shown(name), "n") for name in receivers)],
            rows,
        ),
    }


def _worst_ways(ways: Sequence[Way]) -> Table:
    """Beside a matrix that leaves room for it."""
    rows: list[list[object]] = [
        [
            f"{shown(way.sender, 24)} → {shown(way.receiver, 24)}", charts.share(way.loss, ways[0].loss),
            percent(way.loss, " %"), f"{way.lost:,}", f"{way.sent:,}",
        ]
        for way in ways
    ]  # fmt: skip
    numbers = [Column(title, "n") for title in ("Loss", "Lost", "Of")]
    return Table("Ways with loss, the worst first", [Column("Way"), Column("", "bar"), *numbers], rows)


def loss(
    bins: Sequence[Bin], minutes: int, period: Period | None, worst: Sequence[Way], totals: Totals
) -> Values | None:
    """``bins``: of all ways and of the worst, so many minutes wide."""
    whole = [one for one in bins if not one.sender]
    if period is None or not whole:
        return None
    by_way: dict[tuple[str, str], list[Bin]] = {}
    for one in bins:
        by_way.setdefault((one.sender, one.receiver), []).append(one)
    multiples = [
        {
            "name": f"{shown(way.sender)} → {shown(way.receiver)}",
            "detail": f"{percent(way.loss, ' %')} of all, peak {percent(_peak(own), ' %')}",
            "curve": charts.curve(own, period, minutes, NARROW, 130),
        }
        for way in worst
        if (own := by_way.get((way.sender, way.receiver)))
    ]
    shown_of = f"The {len(multiples)} worst of {counted(totals.lossy_ways, 'way')} with loss"
    if totals.lossy_ways > len(multiples):
        shown_of += f", at most {OF_ONE_HOST} of one host"
    rows: list[list[object]] = [
        [
            f"{shown(way.sender)} → {shown(way.receiver)}", f"{way.sent:,}", f"{way.lost:,}", percent(way.loss, " %"),
            f"{way.bursts:,}", f"{way.burst_p50:,.0f}", f"{way.burst_max:,}",
            "numbers' gaps" if way.basis == "gaps" else "sender's record",
        ]
        for way in worst
    ]  # fmt: skip
    return {
        "step": "a minute" if minutes == 1 else duration(minutes * 60),
        "wide": charts.curve(whole, period, minutes, WIDE, 220),
        "narrow": charts.curve(whole, period, minutes, NARROW, 180),
        "peak": percent(_peak(whole)),
        "heading": shown_of if totals.lossy_ways > len(multiples) else "Each way with loss",
        "multiples": multiples,
        "table": Table(
            shown_of,
            [
                Column("Way"), Column("Sent", "n"), Column("Lost", "n"), Column("Loss", "n"), Column("Bursts", "n"),
                Column("Median burst", "n"), Column("Longest", "n"), Column("Known from"),
            ],
            rows,
        ),
    }  # fmt: skip


def _peak(bins: Iterable[Bin]) -> float:
    return max((one.lost / one.sent for one in bins if one.sent), default=0.0)


def latencies(ways: Sequence[Way], total: int) -> Values | None:
    if not ways:
        return None
    methods = {way.method for way in ways}
    lead = "One way, from the sender's record of a message to the receiver's. "
    if "both-ways" in methods:
        lead += "The clocks' offset is taken out as half the difference of the fastest messages both ways. "
    if "above-fastest" in methods:
        lead += "Where messages go one way only, the time is that above the fastest one. "
    if total > len(ways):
        lead += f"The {len(ways)} slowest of {total:,} ways, by 99 percent."
    rows: list[list[object]] = [
        [
            f"{shown(way.sender)} → {shown(way.receiver)}", latency(way.p50), latency(way.p90), latency(way.p99),
            latency(way.top), way.method,
        ]
        for way in ways
    ]  # fmt: skip
    numbers = [Column(title, "n") for title in ("Median", "90 %", "99 %", "Largest")]
    return {
        "lead": lead,
        "wide": charts.latency_strips(ways, WIDE),
        "narrow": charts.latency_strips(ways, NARROW),
        "table": Table("Latency by way", [Column("Way"), *numbers, Column("Method")], rows),
    }


def busiest(rows: Sequence[Channel], total: int, messages: int) -> Values | None:
    if not rows:
        return None
    most = max(row.messages for row in rows)
    cells: list[list[object]] = [
        [
            shown(row.channel), charts.share(row.messages, most), f"{row.messages:,}",
            percent(row.messages / messages, " %") if messages else "", size(row.size), f"{row.rate_peak:,}",
            f"{row.payload_p50:,.0f}", f"{row.payload_p95:,.0f}", f"{row.payload_max:,}",
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
        "lead": "Counted where they were sent. Peak: messages in the busiest second. Payload in bytes.",
        "table": Table(caption, columns, cells),
    }


def silent(rows: Sequence[Silence], total: int, period: Period | None, clock: Clock) -> Values | None:
    if not rows or period is None:
        return None
    lead = "Of the sources that publish heartbeats: when none of them came for longer than it should have."
    if total > len(rows):
        lead += f" The {len(rows)} longest of {counted(total, 'silence')}."
    cells: list[list[object]] = [
        [
            shown(row.src), clock.at(row.start), "not back" if row.ongoing else clock.at(row.end),
            duration((row.end - row.start).total_seconds()), f"{row.expected:g} s",
            listed([shown(name) for name in row.observers]),
        ]
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("Source"), Column("Silent from", "n"), Column("Until", "n"), Column("For", "n"),
        Column("Expected every", "n"), Column("Noticed by"),
    ]  # fmt: skip
    return {
        "lead": lead,
        "wide": charts.silences(rows, period, clock, WIDE),
        "narrow": charts.silences(rows, period, clock, NARROW),
        "table": Table("Silences", columns, cells),
    }


def rejected(
    reasons: Sequence[Reason], peers: Sequence[Rejection], total: int, clock: Clock
) -> Values | None:
    if not reasons:
        return None
    most = max(row.datagrams for row in reasons)
    by_reason: list[list[object]] = [
        [
            row.verdict, charts.share(row.datagrams, most), f"{row.datagrams:,}", f"{row.peers:,}", f"{row.hosts:,}",
            REASONS.get(row.verdict, "malformed"),
        ]
        for row in reasons
    ]  # fmt: skip
    most = max((row.datagrams for row in peers), default=0)
    by_peer: list[list[object]] = [
        [
            shown(row.peer), row.verdict, charts.share(row.datagrams, most), f"{row.datagrams:,}", f"{row.hosts:,}",
            clock.at(row.first) if row.first else "-", clock.at(row.last) if row.last else "-",
            shown(row.channel, 40) or "-",
        ]
        for row in peers
    ]  # fmt: skip
    amounts = [Column("", "bar"), Column("Datagrams", "n")]
    return {
        "reasons": Table(
            "By reason",
            [Column("Reason"), *amounts, Column("Peers", "n"), Column("Hosts", "n"), Column("Meaning")],
            by_reason,
        ),
        "peers": Table(
            f"The {len(peers)} largest of {total:,}" if total > len(peers) else "Without what is harmless",
            [
                Column("Peer"), Column("Reason"), *amounts, Column("Hosts", "n"), Column("First", "n"),
                Column("Last", "n"), Column("A channel"),
            ],
            by_peer,
        )
        if peers
        else None,
    }  # fmt: skip


def reordered(rows: Sequence[Reordering], total: int) -> Table | None:
    if not rows:
        return None
    most = max(row.reordered for row in rows)
    cells: list[list[object]] = [
        [
            shown(row.src), shown(row.receiver), charts.share(row.reordered, most), f"{row.reordered:,}",
            percent(row.reordered / row.received, " %") if row.received else "-", f"{row.distance_p50:,.0f}",
            f"{row.distance_max:,}",
        ]
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("Source"), Column("Receiver"), Column("", "bar"), Column("Reordered", "n"), Column("Share", "n"),
        Column("Median distance", "n"), Column("Largest", "n"),
    ]  # fmt: skip
    caption = f"The {len(rows)} most reordered of {total:,}" if total > len(rows) else "All that were"
    return Table(caption, columns, cells)


def second_copies(rows: Sequence[Copies], whole: Copies, total: int) -> Values | None:
    """``whole``: the sum of all ways."""
    if not rows:
        return None
    most = max(row.lost_single for row in rows)
    cells: list[list[object]] = [
        [
            f"{shown(row.sender)} → {shown(row.receiver)}", charts.share(row.lost_single, most),
            f"{row.lost_single:,.0f}", charts.share(row.lost, most), f"{row.lost:,}", f"{row.saved:,.0f}",
            percent(min(1.0, max(0.0, row.saved / row.lost_single)), " %") if row.lost_single > 0 else "-",
        ]
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("Way"), Column("", "bar"), Column("One copy would have lost", "n"), Column("", "bar"),
        Column("Lost", "n"), Column("Saved", "n"), Column("Share", "n"),
    ]  # fmt: skip
    caption = (
        f"The {len(rows)} ways with most saved, of {total:,}" if total > len(rows) else "All ways with copies"
    )
    lead = (
        f"{whole.sent:,} messages went out in {whole.copies} copies. From how many copies arrived follows how many "
        f"messages a single one would have lost: {whole.lost_single:,.0f}; {whole.lost:,} were lost."
    )
    return {"lead": lead, "table": Table(caption, columns, cells)}


def coverage(rows: Sequence[Recorder], total: int, period: Period | None, clock: Clock) -> Values | None:
    if not rows or period is None:
        return None
    lead = "When each recorder was on; nothing is said of what a host missed while its own was off."
    if total > len(rows):
        lead += f" Of {total:,} recorders the {len(rows)} that missed most."
    cells: list[list[object]] = [
        [
            shown(row.host), clock.at(row.start), clock.at(row.end), f"{row.pauses:,}",
            duration(row.missing) if row.missing else "-", f"{row.unrecorded:,}",
        ]
        for row in rows
    ]  # fmt: skip
    columns = [
        Column("Host"), Column("From", "n"), Column("Until", "n"), Column("Pauses", "n"), Column("In all", "n"),
        Column("Messages it lost itself", "n"),
    ]  # fmt: skip
    return {
        "lead": lead,
        "wide": charts.coverage(rows, period, clock, WIDE),
        "narrow": charts.coverage(rows, period, clock, NARROW),
        "table": Table("Recorders", columns, cells),
    }


def source_table(rows: Sequence[Source], total: int) -> Values | None:
    if not rows:
        return None
    cells: list[list[object]] = [
        [
            shown(row.src), f"{row.receivers:,}", f"{row.received:,}", f"{row.lost:,}", f"{row.duplicates:,}",
            f"{row.late:,}", f"{row.restarts:,}",
        ]
        for row in rows
    ]  # fmt: skip
    titles = ("Receivers", "Received", "Lost", "Duplicates", "Late", "Restarts")
    caption = (
        f"The {len(rows)} most conspicuous of {counted(total, 'source')}"
        if total > len(rows)
        else "All sources"
    )
    return {
        "lead": "Added up over the receivers; lost: gaps in the source's numbers. Restarts: numbers that began anew.",
        "table": Table(caption, [Column("Source"), *(Column(title, "n") for title in titles)], cells),
    }
