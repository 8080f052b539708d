"""What was lost on the way and came by repair (``bccnd/wire/REPAIR.md``): the findings, and the section of the page.

    sent ---> lost on the way ---> repaired
                              \\--> lost in the end, which all other findings and sections mean by lost

Rules
- A link that loses is worth a warning even if all of it came again: repair costs traffic and delay, and what a link
  loses today it may lose in larger bursts tomorrow. It weighs less than loss.
- Who is named is named by the evidence of ``faults``, of what was lost on the way.
- How long repair took is unknown without the sender's record. Nothing stands for it then, not zero.
"""

from collections.abc import Sequence

from bccnd.pipeline.report import charts, faults
from bccnd.pipeline.report.findings import BAD_LOSS, Finding, Level, all_of, worst
from bccnd.pipeline.report.rows import Dropped, HostLoss, Pair, share
from bccnd.pipeline.report.sections import Column, Table, Values
from bccnd.pipeline.report.wording import anchor, arrow, counted, latency, percent, shown

NUMBERS = (
    "Sent", "Lost on the way", "Repaired", "Lost in the end", "Median", "99 %", "Others, median", "99 %",
)  # fmt: skip
COST = "repair costs traffic and delay"
LEAD = (
    "Daemons ask for messages that were lost on the way, and others send them again. Messages that did not come even "
    "then are lost in the end. The other sections count only these as loss."
)


def mended(hosts: Sequence[HostLoss]) -> list[HostLoss]:
    """The hosts that lost so much on the way that it would be a problem if most of it had not been repaired."""
    return [row for row in hosts if row.loss >= BAD_LOSS and 2 * row.repaired > row.lost]


def explains(row: HostLoss, hosts: Sequence[HostLoss]) -> bool:
    """Whether a host lost little in the end, as the rest of what it lost on the way: it is one of ``hosts``."""
    return row.loss < BAD_LOSS and (row.host, row.role) in [(host.host, host.role) for host in hosts]


def findings(
    whole: Pair, hosts: Sequence[HostLoss], pairs: Sequence[Pair], total: int, drops: Sequence[Dropped]
) -> list[Finding]:
    """What repair did in all, of ``whole``; the ``mended`` hosts, and the ``pairs`` that they do not explain, the
    worst of ``total``.
    """
    if not whole.repaired:
        return []
    dropped = {row.host: row.messages for row in drops if row.client is None}
    found = [_of_host(row, dropped.get(row.host, 0)) for row in hosts]
    found += worst(
        [_of_pair(pair, dropped.get(pair.receiver, 0)) for pair in pairs],
        "pair of hosts with much loss that was repaired", "pairs of hosts with much loss that was repaired", total,
    )  # fmt: skip
    text = f"Between hosts that repair, {_brought(whole)} lost on the way came after all{_delays(whole)}."
    return [*found, Finding(Level.NOTE, text, "repair")]


def _brought(whole: Pair) -> str:
    if not whole.lost:
        return all_of(whole.repaired, "message")
    return f"{whole.repaired:,} of {counted(whole.missed, 'message')}"


def _delays(whole: Pair) -> str:
    if whole.repaired_p50 is None or whole.repaired_p99 is None:
        return ""
    half, most = latency(whole.repaired_p50), latency(whole.repaired_p99)
    text = f"; half of them took at most {half}, 99 of 100 at most {most}"
    if whole.direct_p50 is None or whole.direct_p99 is None:
        return text
    return f"{text}, the others {latency(whole.direct_p50)} and {latency(whole.direct_p99)}"


def _left(repaired: int, lost: int, sent: int) -> str:
    if not lost:
        return "repair brought it" if repaired == 1 else "repair brought all of them"
    return f"repair brought all but {percent(share(lost, sent))}"


def _of_host(row: HostLoss, dropped: int) -> Finding:
    name = shown(row.host)
    others = f"{row.lossy:,} of {row.partners:,} other hosts"
    if row.lossy == row.partners:
        others = "both other hosts" if row.partners == 2 else f"all {row.partners:,} other hosts"
    if row.role == "receiver":
        way, where = f"of {others} were lost on the way to host {name}", _receiver(name, row.lost, dropped)
    else:
        way = f"of host {name} were lost on the way to {others}"
        # Without the sender's record nobody knows whether all missed the same.
        where = "look at its link and theirs (ip -s link)"
        if row.common is not None and row.common >= faults.SAME:
            way += ", the same ones to all of them"
            where = f"look at the link of host {name} (ip -s link)"
        elif row.common is not None:
            way += ", different ones to each of them"
            where = f"look at the links of these (ip -s link), not at host {name}"
    left = _left(row.repaired, row.lost - row.repaired, row.sent)
    text = f"{percent(row.loss).capitalize()} of the messages {way}; {left}. But {COST}: {where}."
    return Finding(Level.WARNING, text, "repair", {"host": row.host})


def _of_pair(pair: Pair, dropped: int) -> Finding:
    sender, receiver = shown(pair.sender), shown(pair.receiver)
    where = "look at the links of both (ip -s link)"
    if 2 * dropped >= pair.missed:
        where = _receiver(receiver, pair.missed, dropped)
    text = (
        f"{percent(share(pair.missed, pair.sent)).capitalize()} of host {sender}'s messages were lost on the way to "
        f"host {receiver}; {_left(pair.repaired, pair.lost, pair.sent)}. But {COST}: {where}."
    )
    about = {"sender": pair.sender, "receiver": pair.receiver}
    return Finding(Level.WARNING, text, anchor("repair", pair.sender, pair.receiver), about)


def _receiver(name: str, missed: int, dropped: int) -> str:
    """Where to look at a receiver, whose kernel ``dropped`` so many of what it ``missed``."""
    if 2 * dropped >= missed:
        return (
            f"look at the receive buffer of host {name}, whose kernel dropped {counted(dropped, 'datagram')}"
        )
    return f"look at the link of host {name} (ip -s link), and at its receive buffer"


def section(
    rows: Sequence[Pair], total: int, whole: Pair, matrix: Sequence[Pair], hosts: tuple[list[str], list[str]],
    hosts_in_all: int,
) -> Values | None:  # fmt: skip
    """``rows`` are the worst of ``total`` pairs, ``whole`` their sum; ``matrix`` has all pairs of ``hosts``."""
    if not whole.repaired:
        return None
    senders, receivers = hosts
    missed = [pair._replace(lost=pair.missed, repaired=0) for pair in matrix]
    cells = [_row(pair, arrow(pair.sender, pair.receiver)) for pair in rows]
    if total > 1:
        cells.append(_row(whole, f"All {total:,} pairs"))
    some = f" of the {len(senders)} senders and the {len(receivers)} receivers with the most of it"
    caption = (
        f"The {len(rows)} of {total:,} pairs with repair of which most was lost on the way"
        if total > len(rows)
        else "All pairs with repair"
    )
    return {
        "lead": LEAD,
        "caption": "Share lost on the way, before repair" + some * (hosts_in_all > min(len(senders), len(receivers))),
        "title": f"Heat map of loss on the way, {counted(len(senders), 'sender')} by "
        f"{counted(len(receivers), 'receiver')}",
        "map": charts.heat_map(missed, senders, receivers, " on the way"),
        "times": "Median and 99 % are the latency of repaired messages, until the receiver's daemon passed them on. "
        "The others came directly; those that waited behind a lost one are among them. A dash: unknown without the "
        "sender's record.",
        "table": Table(
            caption,
            [Column("Pair"), *(Column(title, "n") for title in NUMBERS)],
            cells,
            [*(anchor("repair", pair.sender, pair.receiver) for pair in rows), *([""] * (total > 1))],
        ),
    }  # fmt: skip


def _row(pair: Pair, name: str) -> list[object]:
    missed = share(pair.missed, pair.sent)
    times = (pair.repaired_p50, pair.repaired_p99, pair.direct_p50, pair.direct_p99)
    return [
        name, f"{pair.sent:,}", f"{pair.missed:,} ({percent(missed, ' %')})",
        f"{pair.repaired:,}", f"{pair.lost:,} ({percent(pair.loss, ' %')})",
        *("-" if time is None else latency(time) for time in times),
    ]  # fmt: skip
