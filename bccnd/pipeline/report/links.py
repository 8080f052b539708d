"""Links between segments, by what uplinks say of them (``bccnd/wire/LINK.md``): findings, and a section of the page.

    exported ---> withheld: given up before the carrier had it
              \\-> sent ---> missed on the way ---> came after all
                                          \\--> lost in the end

Rules
- What a link loses is the link's: no host of the segments on either side is named for it, and none of its messages
  counts as lost there.
- A link counts datagrams of several messages. So its numbers are not added to those of hosts.
- As between hosts, much that was missed is worth a warning even if all of it came.
- What uplinks did not say is unknown. Nothing stands for it then, not zero.
"""

from collections.abc import Sequence

from bccnd.pipeline.report.findings import BAD_LOSS, Finding, Level, all_of, loss_level, worst
from bccnd.pipeline.report.rows import Link, Pair, share
from bccnd.pipeline.report.sections import METHODS, Column, Table, Values
from bccnd.pipeline.report.wording import anchor, latency, percent, shown

# Links drawn in the matrix.
DRAWN = 8
LEAD = (
    "An uplink exports messages from its segment to others, several in a datagram. Missed datagrams had not come "
    "when a later one came, so uplinks asked for them or repeated them. Lost datagrams did not come even then. "
    "Messages that a filter leaves out are not lost. Exported and Came count messages. Across is their time from the "
    "sender in one segment until the uplink of the other sent them on."
)
NUMBERS = ("Exported", "Sent", "Missed", "Lost", "Came", "Across, median", "99 %")


def name(link: Link) -> str:
    """``link north → south``; by its host where the name of a segment is unknown."""
    return f"link {shown(link.near, 32) or '?'} → {shown(link.far or link.importer, 32)}"


def findings(links: Sequence[Link], total: int) -> list[Finding]:
    """Of the worst links of ``total``."""
    found = [
        finding for link in links for finding in (_withheld(link), _loss(link), _missed(link)) if finding
    ]
    noted = [_crossed(link) for link in links if link.sent and not link.lost]
    more = [] if len(links) == total else [f"{total - len(links):,} more links"]
    return [*worst(found, "finding about links", "findings about links"), *worst(noted, "link", total=0)] + [
        Finding(Level.NOTE, f"There are {text}.", "links") for text in more
    ]


def _loss(link: Link) -> Finding | None:
    if not link.lost:
        return None
    loss = share(link.lost, link.sent)
    text = (
        f"{_begin(link)} lost {percent(loss)} of its datagrams for good ({link.lost:,} of {link.sent:,}): nobody kept"
        f" them until they were asked for. Give {_exporter(link)} more journal_bytes (NATS: nats_bytes), and look at "
        "the path to the carrier."
    )
    return Finding(loss_level(loss), text, _anchor(link), _about(link))


def _missed(link: Link) -> Finding | None:
    missed = share(link.missed, link.sent)
    if missed < BAD_LOSS or link.lost >= link.missed:
        return None
    left = f"all but {link.lost:,} came after all" if link.lost else "all of them came after all"
    text = (
        f"{_begin(link)} missed {percent(missed)} of its datagrams on the way ({link.missed:,} of {link.sent:,}); "
        f"{left}. But repair costs traffic and delay: look at the path between {_exporter(link)} and host "
        f"{shown(link.importer)}, and at the carrier."
    )
    return Finding(Level.WARNING, text, _anchor(link), _about(link))


def _withheld(link: Link) -> Finding | None:
    if not link.withheld:
        return None
    text = (
        f"{_capital(_exporter(link))} gave up {link.withheld:,} of its messages for {name(link)} before the "
        "carrier took them: bccn links on that host says why, and what to do."
    )
    return Finding(Level.PROBLEM, text, _anchor(link), _about(link))


def _crossed(link: Link) -> Finding:
    text = f"{_begin(link)} brought {all_of(link.messages, 'message')}"
    if link.p50 is not None and link.p99 is not None:
        beyond = " longer than the fastest" if link.method == "above-fastest" else ""
        half, most = latency(link.p50), latency(link.p99)
        text += f"; half of them took at most {half}{beyond}, 99 of 100 at most {most}{beyond}"
    return Finding(Level.NOTE, f"{text}.", _anchor(link), _about(link))


def _begin(link: Link) -> str:
    return _capital(name(link))


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _exporter(link: Link) -> str:
    """The uplink from which it comes."""
    if link.exporter:
        return f"the uplink on host {shown(link.exporter)}"
    return f"the uplink of segment {shown(link.near)}" if link.near else "the other uplink"


def _anchor(link: Link) -> str:
    return anchor("links", link.near, link.far, link.exporter, link.importer)


def _about(link: Link) -> dict[str, str]:
    return {"link": f"{link.near} -> {link.far}", "receiver": link.importer}


def pairs(links: Sequence[Link]) -> list[Pair]:
    """Links as they stand in the matrix of hosts: as senders, to the hosts of the uplinks that hear them."""
    found: dict[tuple[str, str], Pair] = {}
    for link in links[:DRAWN]:
        pair = found.get((name(link), link.importer), Pair(name(link), link.importer, 0, 0, basis="link"))
        repaired = pair.repaired + max(0, link.missed - link.lost)
        found[pair.sender, pair.receiver] = pair._replace(
            sent=pair.sent + link.sent, lost=pair.lost + link.lost, repaired=repaired
        )
    return [pair for pair in found.values() if pair.sent]


def section(links: Sequence[Link], total: int) -> Values | None:
    if not links:
        return None
    caption = f"The {len(links)} of {total:,} links with most loss" if total > len(links) else "All links"
    numbers = [Column(title, "n") for title in NUMBERS]
    return {
        "lead": LEAD,
        "table": Table(
            caption,
            [Column("Link"), Column("Between"), *numbers, Column("Method")],
            [_row(link) for link in links],
            [_anchor(link) for link in links],
        ),
    }  # fmt: skip


def _row(link: Link) -> list[object]:
    known = bool(link.sent)
    times = ["-" if time is None else latency(time) for time in (link.p50, link.p99)]
    return [
        name(link), f"{shown(link.exporter) or '?'} → {shown(link.importer)}",
        "-" if link.exported is None else f"{link.exported:,}",
        f"{link.sent:,}" if known else "-",
        f"{link.missed:,} ({percent(share(link.missed, link.sent), ' %')})" if known else "-",
        f"{link.lost:,} ({percent(share(link.lost, link.sent), ' %')})" if known else "-",
        f"{link.messages:,}" if known else "-", *times, METHODS.get(link.method, "-"),
    ]  # fmt: skip
