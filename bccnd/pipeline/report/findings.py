"""What the tables say, in sentences: each finding is a function from rows to sentences, and nothing more.

Rules
- A sentence names who, how much and when, and stands for itself; names go through ``shown``.
- Nobody is blamed for what was merely not recorded: where a recorder was off or dropped, that is a finding, too.
- A kind of finding says its worst few (SENTENCES) and how many more there are; the sections below have the rest.
- To add one: rows in ``rows``, a query, a function here, its call in ``all_findings``.
"""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from bccnd.pipeline.report.rows import (
    Channel,
    Copies,
    Episode,
    HostLoss,
    Recorder,
    Rejection,
    Reordering,
    Silence,
    Source,
    Totals,
    Way,
)
from bccnd.pipeline.report.wording import Clock, counted, duration, latency, listed, percent, shown

SENTENCES = 5  # of one kind: a screen of findings is read, three are not
WITNESSES = 3  # named for one silence
PEERS = 3  # named for one reason of rejection
BAD_LOSS = 0.01  # from where on loss is a problem and not a blemish
WIDESPREAD = 0.6  # of a host's ways that lose: then it is the host, not the way
EXCESS = 2.0  # times the loss of all the others, for the same conclusion
NOTABLE_REORDERING = 0.001  # of what was received
DAEMON = "bccnd"  # the program that beats for its host: sources are <host>/<program>/<pid>

REJECTED = {
    "hmac": "forged datagram",
    "crc32": "damaged datagram",
    "sum": "datagram with a broken checksum",
    "unauthenticated": "unauthenticated datagram",
    "magic": "datagram of something else than BCCN",
    "version": "datagram of another version of BCCN",
    "conflict": "datagram under a name in use here",
    "unknown-source": "datagram of an unknown source",
}  # the rest is malformed
HARMLESS = frozenset({"ok", "own", "duplicate", "late"})  # dropped, but nothing is wrong with them
ATTACKS = frozenset({"hmac", "unauthenticated", "conflict"})


class Level(StrEnum):
    """In the order in which a person should read them."""

    PROBLEM = "problem"
    WARNING = "warning"
    GOOD = "good"
    UNKNOWN = "unknown"
    NOTE = "note"


class Finding(NamedTuple):
    level: Level
    sentence: str


def overall(totals: Totals, recorded: bool) -> list[Finding]:
    """How much was lost of all; or why that cannot be said."""
    if not totals.sent:
        text = (
            "What was lost between hosts cannot be said: no message of one host fell into the record of another."
            if recorded
            else "What was lost cannot be said: no recorder's record is there."
        )
        return [Finding(Level.UNKNOWN, text)]
    if not totals.lost:
        text = f"Nothing was lost: {_all(totals.sent, 'message')} between {counted(totals.hosts, 'host')} arrived."
        return [Finding(Level.GOOD, text)]
    return [
        Finding(
            Level.PROBLEM if totals.loss >= BAD_LOSS else Level.WARNING,
            f"{percent(totals.loss).capitalize()} of all messages between hosts "
            f"{_were(totals.lost)} lost: {totals.lost:,} of {totals.sent:,}, "
            f"on {totals.lossy_ways:,} of {counted(totals.ways, 'way')} from a sender to a receiver.",
        )
    ]


def causes(hosts: Iterable[HostLoss], totals: Totals) -> list[HostLoss]:
    """Hosts that lose on most of their ways, and far more than the rest: there the cause is the host's."""
    found = []
    for host in sorted(hosts, key=lambda host: -host.lost):
        rest_sent, rest_lost = totals.sent - host.sent, totals.lost - host.lost
        rest = rest_lost / rest_sent if rest_sent > 0 else 0.0
        if (
            host.partners >= 2
            and host.lossy >= max(2, WIDESPREAD * host.partners)
            and host.loss >= EXCESS * rest
        ):
            found.append(host)
    return found[:SENTENCES]


def widespread(hosts: Iterable[HostLoss], clock: Clock) -> list[Finding]:
    """What to think of the ``causes``."""
    found = []
    for host in hosts:
        name = shown(host.host)
        all_or_some = "all" if host.lossy == host.partners else f"{host.lossy:,} of"
        others = f"{all_or_some} {host.partners:,} other hosts"
        when = f" {clock.between(host.start, host.end)}" if host.start and host.end else ""
        text = (
            f"Host {name} lost messages of {others}{when}, {percent(host.loss)} in all: look for the cause at host "
            f"{name} or on its link."
            if host.role == "receiver"
            else f"Messages of host {name} were lost at {others}{when}, {percent(host.loss)} in all: look for the "
            f"cause where host {name} sends."
        )
        found.append(Finding(_loss_level(host.loss), text))
    return found


def episodes(rows: Sequence[Episode], total: int, clock: Clock) -> list[Finding]:
    """Who lost how much of whose messages, when, and in what bursts; without what ``widespread`` has said.

    ``total``: of the episodes there are.
    """
    worst = sorted(rows, key=lambda row: -row.lost)[:SENTENCES]
    found = [_episode(row, clock) for row in worst]
    if found and total > len(found):
        rest = counted(total - len(found), "shorter or lighter episode")
        found.append(
            Finding(Level.NOTE, f"There {_are(total - len(found))} {rest} of loss; the worst are said above.")
        )
    return found


def _episode(row: Episode, clock: Clock) -> Finding:
    loss = row.lost / row.sent if row.sent else 0.0
    who, whose = f"Host {shown(row.receiver)}", f"host {shown(row.sender)}"
    when = clock.between(row.start, row.end)
    if loss >= 1:
        what = "the one message" if row.sent == 1 else f"all {row.sent:,} messages"
        return Finding(Level.PROBLEM, f"{who} lost {what} of {whose} {when}.")
    burst = round(row.burst_p50)
    how = (
        f", in bursts of about {burst:,}"
        if burst > 1
        else ", one at a time"
        if burst == 1 and row.lost > 1
        else ""
    )
    amount = f"{percent(loss)} of {whose}'s messages"
    return Finding(_loss_level(loss), f"{who} lost {amount} {when}{how} ({row.lost:,} of {row.sent:,}).")


def silences(rows: Sequence[Silence], observers: int, clock: Clock, total: int = 0) -> list[Finding]:
    """Who is silent still, then who was, the longest first. ``observers``: how many hosts have a recorder."""
    lasting = [row for row in rows if row.ongoing]
    ended = [row for row in rows if not row.ongoing]
    found = [
        Finding(
            Level.PROBLEM,
            f"{_source(row.src)} has been silent since {clock.at(row.start)}; a heartbeat was due "
            f"{_every(row.expected)}{_witnesses(row, observers)}.",
        )
        for row in sorted(lasting, key=lambda row: row.start)
    ]
    found += [
        Finding(
            Level.WARNING,
            f"{_source(row.src)} was silent for {duration((row.end - row.start).total_seconds())}, "
            f"{clock.between(row.start, row.end)}{_witnesses(row, observers)}.",
        )
        for row in sorted(ended, key=lambda row: row.start - row.end)
    ]
    return _worst(found, "silence", total=total)


def rejections(rows: Iterable[Rejection], clock: Clock, total: int = 0) -> list[Finding]:
    """Forged, damaged and foreign datagrams by reason and peer; nothing about what is dropped every day.

    ``total``: of reasons and peers, where ``rows`` are the largest of them.
    """
    by_verdict: dict[str, list[Rejection]] = {}
    for row in sorted(rows, key=lambda row: -row.datagrams):
        if row.verdict not in HARMLESS and row.datagrams:
            by_verdict.setdefault(row.verdict, []).append(row)
    found = []
    for verdict in sorted(
        by_verdict, key=lambda verdict: (verdict not in ATTACKS, -by_verdict[verdict][0].datagrams)
    ):
        level = Level.PROBLEM if verdict in ATTACKS else Level.WARNING
        peers = by_verdict[verdict]
        named = peers if len(peers) <= PEERS else peers[: PEERS - 1]
        found += [Finding(level, _rejection(row, clock)) for row in named]
        if rest := peers[len(named) :]:
            count = sum(row.datagrams for row in rest)
            others = (
                f"{count:,} more from {counted(len(rest), 'other peer')} {_were(count)} rejected ({verdict})."
            )
            found.append(Finding(level, others))
    if (left := total - sum(map(len, by_verdict.values()))) > 0:
        text = f"Besides, {counted(left, 'pair')} of a reason and a peer had fewer datagrams rejected."
        found.append(Finding(Level.NOTE, text))
    return found


def _rejection(row: Rejection, clock: Clock) -> str:
    noun = REJECTED.get(row.verdict, "malformed datagram")
    many = noun if row.datagrams == 1 else noun.replace("datagram", "datagrams", 1)
    where = f"on host {shown(row.host)}" if row.hosts == 1 else f"on {row.hosts:,} hosts"
    when = ""
    if row.first and row.last:
        near = row.last - row.first < timedelta(seconds=1)
        when = f", at {clock.at(row.first)}" if near else f", {clock.between(row.first, row.last)}"
    what = f"{row.datagrams:,} {many} from {shown(row.peer)} {_were(row.datagrams)} rejected"
    return f"{what} {where} ({row.verdict}){when}."


def coverage(recorders: Sequence[Recorder], clock: Clock) -> list[Finding]:
    """What cannot be said because a recorder was off, started late, ended early or lost messages itself."""
    found = []
    for row in sorted(recorders, key=lambda row: -row.unrecorded):
        if row.unrecorded:
            text = f"Host {shown(row.host)}'s recorder itself lost {counted(row.unrecorded, 'message')}: "
            found.append(Finding(Level.UNKNOWN, text + "around there its losses are not counted."))
    found = _worst(found, "recorder that lost messages", "recorders that lost messages")
    off = []
    for row in sorted(recorders, key=lambda row: -row.missing):
        for gap in sorted(row.gaps, key=lambda gap: gap.start - gap.end):
            when = clock.between(gap.start, gap.end)
            text = f"Host {shown(row.host)} recorded nothing {when}: what it missed then cannot be said."
            off.append(Finding(Level.UNKNOWN, text))
    return found + _worst(
        off, "pause of a recorder", "pauses of recorders", sum(row.pauses for row in recorders)
    )


def without_recorder(hosts: Sequence[str], total: int) -> list[Finding]:
    """Senders whose losses are known from gaps in their numbers only."""
    if not total:
        return []
    names = listed(
        [shown(host) for host in hosts[:SENTENCES]] + [""] * (total - len(hosts[:SENTENCES])), SENTENCES
    )
    text = (
        f"{'Host' if total == 1 else 'Hosts'} {names} had no recorder: what was lost of "
        f"{'its' if total == 1 else 'their'} messages is counted from gaps in the numbers, which miss the first and "
        "the last ones."
    )
    return [Finding(Level.UNKNOWN, text)]


def latencies(ways: Iterable[Way]) -> list[Finding]:
    """The slowest way, and how it was measured."""
    measured = [way for way in ways if way.method]
    if not measured:
        return []
    slowest = max(measured, key=lambda way: way.p99)
    beyond = " beyond the fastest" if slowest.method == "above-fastest" else ""
    text = (
        f"The slowest way is from host {shown(slowest.sender)} to host {shown(slowest.receiver)}: half of the "
        f"messages took at most {latency(slowest.p50)}{beyond}, 99 of 100 at most {latency(slowest.p99)}."
    )
    return [Finding(Level.NOTE, text)]


def reorderings(rows: Iterable[Reordering]) -> list[Finding]:
    worst = max(rows, key=lambda row: row.reordered, default=None)
    if worst is None or worst.reordered < max(1, NOTABLE_REORDERING * worst.received):
        return []
    share = f" ({percent(worst.reordered / worst.received)})" if worst.received else ""
    text = (
        f"{counted(worst.reordered, 'message')} of {shown(worst.src)} reached host {shown(worst.receiver)} out of "
        f"order{share}, by up to {counted(worst.distance_max, 'place')}."
    )
    return [Finding(Level.NOTE, text)]


def copies(rows: Iterable[Copies]) -> list[Finding]:
    """What sending everything more than once saved, all ways together."""
    doubled = [row for row in rows if row.copies > 1]
    single = round(sum(row.lost_single for row in doubled))
    if not doubled:
        return []
    if single <= 0:
        return [Finding(Level.NOTE, "Sending messages more than once saved nothing: no copy was lost.")]
    saved = min(single, max(0, round(sum(row.saved for row in doubled))))
    text = (
        f"Sending messages more than once saved {saved:,} of the {single:,} that a single copy would have lost "
        f"({percent(saved / single)})."
    )
    return [Finding(Level.NOTE, text)]


def restarts(rows: Iterable[Source]) -> list[Finding]:
    worst = max(rows, key=lambda row: row.restarts, default=None)
    if worst is None or not worst.restarts:
        return []
    times = {1: "once", 2: "twice"}.get(worst.restarts, f"{worst.restarts:,} times")
    return [Finding(Level.NOTE, f"Source {shown(worst.src)} began its numbers anew {times}.")]


def busiest(rows: Sequence[Channel], messages: int) -> list[Finding]:
    """``messages``: of all channels."""
    if not rows or not messages:
        return []
    top = max(rows, key=lambda row: row.messages)
    text = (
        f"The busiest channel is {shown(top.channel)} with {percent(top.messages / messages)} of all messages, "
        f"{top.rate_peak:,} in its busiest second."
    )
    return [Finding(Level.NOTE, text)]


def by_importance(found: Iterable[Finding]) -> list[Finding]:
    """Problems first; within a level the order in which they came."""
    order = list(Level)
    return sorted(found, key=lambda finding: order.index(finding.level))


def _worst(found: list[Finding], noun: str, plural: str = "", total: int = 0) -> list[Finding]:
    """The first few and how many more; ``total`` where ``found`` is not all there is."""
    rest = max(total, len(found)) - SENTENCES
    if rest <= 0:
        return found
    more = counted(rest, f"more {noun}", plural and f"more {plural}")
    return [*found[:SENTENCES], Finding(found[-1].level, f"There {_are(rest)} {more}.")]


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _all(count: int, noun: str) -> str:
    return f"the one {noun}" if count == 1 else f"all {count:,} {noun}s"


def _loss_level(loss: float) -> Level:
    return Level.PROBLEM if loss >= BAD_LOSS else Level.WARNING


def _source(src: str) -> str:
    """The daemon's own source speaks for its host."""
    parts = src.split("/")
    return f"Host {shown(parts[0])}" if len(parts) > 1 and parts[1] == DAEMON else f"Source {shown(src)}"


def _every(seconds: float) -> str:
    return "every second" if round(seconds) == 1 else f"every {duration(seconds).removeprefix('1 ')}"


def _witnesses(row: Silence, observers: int) -> str:
    if observers < 2:
        return ""
    if len(row.observers) > WITNESSES and len(row.observers) < observers:
        return f" (noticed by {len(row.observers):,} of {observers:,} recorders)"
    if len(row.observers) >= observers:
        return f" (noticed by {'both' if observers == 2 else f'all {observers:,}'} recorders)"
    return f" (noticed by host{'s' * (len(row.observers) > 1)} {listed([shown(name) for name in row.observers])})"
