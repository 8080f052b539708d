"""The findings of the report: each kind is a function from rows to sentences, and nothing more.

Rules
- A sentence says who, how much and when, and needs no other. Names go through ``shown``.
- What was not recorded counts as no loss; that a recorder was off or missed messages is a finding of its own.
- A kind of finding gives its worst few (SENTENCES) and says how many more there are. The sections hold the rest.
- A new kind takes rows in ``rows``, a query, a function here, and a call in ``page.context``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from bccnd.pipeline.report.rows import (
    Channel,
    Copies,
    Episode,
    Pair,
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
    counted,
    duration,
    latency,
    listed,
    percent,
    shown,
    verdict,
)
from bccnd.wire.verdict import ATTACKS, HARMLESS

# Of one kind: people read a screen of findings, not three.
SENTENCES = 5
# Observers named for one silence.
WITNESSES = 3
# Peers named for one verdict.
PEERS = 3
# From this share on, loss is a problem and not a blemish.
BAD_LOSS = 0.01
# Seconds of an outage, from which on it is told in time and not in messages.
LONG_OUTAGE = 0.1
# The share of what was received.
NOTABLE_REORDERING = 0.001
# The program that beats for its host: sources are <host>/<program>/<pid>.
DAEMON = "bccnd"


class Level(StrEnum):
    """The order is that in which people should read them."""

    PROBLEM = "problem"
    WARNING = "warning"
    GOOD = "good"
    UNKNOWN = "unknown"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """``link`` is where the page shows more: a section, or an ``anchor`` of a row in one.

    For programs, ``kind`` is what it says (``page.context`` names them), and ``about`` of whom: names by their role.
    Both stay the same as long as the same is wrong, whatever the numbers in the sentence are.
    """

    level: Level
    sentence: str
    link: str = field(default="", compare=False)
    about: dict[str, str] = field(default_factory=dict, compare=False)
    kind: str = field(default="", compare=False)


def overall(totals: Totals, recorded: bool) -> list[Finding]:
    """How much was lost in all, or why that is unknown."""
    if not totals.sent:
        text = (
            "Loss is unknown: no host was recording while another one of its segment sent."
            if recorded
            else "Loss is unknown: there is no recording."
        )
        return [Finding(Level.UNKNOWN, text)]
    if not totals.lost:
        again = f", {totals.repaired:,} of them by repair" if totals.repaired else ""
        text = (
            f"Nothing was lost{' in the end' if again else ''}: {all_of(totals.sent, 'message')} between "
            f"{counted(totals.hosts, 'host')} arrived{again}."
        )
        return [Finding(Level.GOOD, text)]
    pairs = f", between {totals.lossy_pairs:,} of {totals.pairs:,} pairs of hosts" if totals.pairs > 1 else ""
    text = (
        f"{percent(totals.loss).capitalize()} of all messages between hosts were lost"
        f"{' in the end' if totals.repaired else ''}: {totals.lost:,} of {totals.sent:,}{pairs}."
    )
    return [Finding(loss_level(totals.loss), text)]


def episodes(rows: Sequence[Episode], total: int, clock: Clock) -> list[Finding]:
    """Which host lost how much of which host's messages, when, and in what bursts; ``total`` counts all episodes."""
    worst = sorted(rows, key=lambda row: -row.lost)[:SENTENCES]
    found = [_episode(row, clock) for row in worst]
    if found and (rest := total - len(found)) > 0:
        more = counted(rest, "more episode")
        found.append(
            Finding(Level.NOTE, f"There {_are(rest)} {more} of loss, in which fewer messages were lost.")
        )
    return found


def _episode(row: Episode, clock: Clock) -> Finding:
    loss = share(row.lost, row.sent)
    receiver, sender = f"Host {shown(row.receiver)}", f"host {shown(row.sender)}"
    when = clock.between(row.start, row.end)
    if loss >= 1:
        text = f"{receiver} lost {all_of(row.sent, 'message')} of {sender} {when}."
        return Finding(Level.PROBLEM, text, anchor("loss", row.sender, row.receiver), _of_pair(row))
    burst = round(row.burst_p50)
    how = ""
    # As many as were sent in that time, if they were sent evenly.
    meanwhile = row.sent * row.outage / max(1.0, (row.end - row.start).total_seconds())
    if burst > 1 and row.outage >= LONG_OUTAGE and row.outages and burst >= meanwhile / 2:
        about = "" if row.outages == 1 else "about "
        named = [clock.exact(start) for start in row.starts]
        at = listed(named + [""] * (row.outages - len(named)), len(named))
        how = f", in {counted(row.outages, 'outage')} of {about}{latency(row.outage * 1e6)}, at {at}"
    elif burst > 1:
        how = f", in bursts of about {burst:,}"
    elif burst == 1 and row.lost > 1:
        how = ", one at a time"
    text = (
        f"{receiver} lost {percent(loss)} of {sender}'s messages {when}{how} ({row.lost:,} of {row.sent:,})."
    )
    return Finding(loss_level(loss), text, anchor("loss", row.sender, row.receiver), _of_pair(row))


def _of_pair(row: Episode | Pair) -> dict[str, str]:
    return {"sender": row.sender, "receiver": row.receiver}


def silences(rows: Sequence[Silence], observers: int, clock: Clock, total: int = 0) -> list[Finding]:
    """Sources that are still silent, then those that were, the longest first; ``observers`` counts the recorders."""
    lasting = [row for row in rows if row.ongoing]
    ended = [row for row in rows if not row.ongoing]
    found = [
        Finding(
            Level.PROBLEM,
            f"{_source(row.src)} has been silent since {clock.at(row.start)}; a heartbeat was due "
            f"{_every(row.expected)}{_witnesses(row, observers)}.",
            anchor("silences", row.src),
            {"source": row.src},
        )
        for row in sorted(lasting, key=lambda row: row.start)
    ]
    found += [
        Finding(
            Level.WARNING,
            f"{_source(row.src)} was silent for {duration((row.end - row.start).total_seconds())}, "
            f"{clock.between(row.start, row.end)}{_witnesses(row, observers)}.",
            anchor("silences", row.src),
            {"source": row.src},
        )
        for row in sorted(ended, key=lambda row: row.start - row.end)
    ]
    return worst(found, "silence", total=total)


def rejections(rows: Iterable[Rejection], clock: Clock, total: int = 0) -> list[Finding]:
    """Rejected datagrams by verdict and peer, without the harmless ones.

    ``total`` counts all verdicts and peers, of which ``rows`` are the largest.
    """
    by_word: dict[str, list[Rejection]] = {}
    for row in sorted(rows, key=lambda row: -row.datagrams):
        if row.verdict not in HARMLESS and row.datagrams:
            by_word.setdefault(row.verdict, []).append(row)
    found = []
    for word in sorted(by_word, key=lambda word: (word not in ATTACKS, -by_word[word][0].datagrams)):
        level = Level.PROBLEM if word in ATTACKS else Level.WARNING
        peers = by_word[word]
        named = peers if len(peers) <= PEERS else peers[: PEERS - 1]
        found += [
            Finding(
                level,
                _rejection(row, clock),
                anchor("rejected", row.verdict, row.peer),
                {
                    "verdict": row.verdict,
                    "peer": row.peer,
                    **({"host": row.peer_host} if row.peer_host else {}),
                },
            )
            for row in named
        ]
        if rest := peers[len(named) :]:
            count = sum(row.datagrams for row in rest)
            found.append(
                Finding(level, f"{counted(len(rest), 'other peer')} sent {count:,} more ({shown(word)}).")
            )
    if (left := total - sum(map(len, by_word.values()))) > 0:
        text = (
            f"There {_are(left)} {counted(left, 'more pair')} of a verdict and a peer, with fewer datagrams."
        )
        found.append(Finding(Level.NOTE, text))
    return found


def _rejection(row: Rejection, clock: Clock) -> str:
    when = ""
    if row.first and row.last:
        near = row.last - row.first < timedelta(seconds=1)
        when = f" at {clock.at(row.first)}" if near else f" {clock.between(row.first, row.last)}"
    what = (
        f"Host {shown(row.host)} rejected {counted(row.datagrams, 'datagram')}"
        if row.hosts == 1
        else f"{row.hosts:,} hosts rejected up to {counted(row.datagrams, 'datagram')} each"
    )
    return f"{what} from {peer(row)}{when} ({verdict(row.verdict)})."


def peer(row: Rejection) -> str:
    """``10.0.0.9``, or ``host gamma (10.0.0.9)`` if a record ties the address to a host."""
    return f"host {shown(row.peer_host)} ({shown(row.peer)})" if row.peer_host else shown(row.peer)


def coverage(recorders: Sequence[Recorder], clock: Clock) -> list[Finding]:
    """What is unknown because a recorder was off or missed messages."""
    found = []
    for row in sorted(recorders, key=lambda row: -row.unrecorded):
        if row.unrecorded:
            text = f"Host {shown(row.host)}'s recorder missed {counted(row.unrecorded, 'message')}: loss at the host "
            found.append(
                Finding(
                    Level.UNKNOWN,
                    text + "is not counted around those times.",
                    anchor("coverage", row.host),
                    {"host": row.host},
                )
            )
    found = worst(found, "recorder that missed messages", "recorders that missed messages")
    off = []
    for row in sorted(recorders, key=lambda row: -row.missing):
        for gap in sorted(row.gaps, key=lambda gap: gap.start - gap.end):
            when = clock.between(gap.start, gap.end)
            text = (
                f"Host {shown(row.host)} recorded nothing {when}: what it lost then is unknown, and what others lost "
                "of it is counted from gaps in its sequence numbers."
            )
            off.append(Finding(Level.UNKNOWN, text, anchor("coverage", row.host), {"host": row.host}))
    return found + worst(
        off, "pause of a recorder", "pauses of recorders", sum(row.pauses for row in recorders)
    )


def captured(hosts: Sequence[str], twice: Sequence[str]) -> list[Finding]:
    """What captures cannot show, and which ones were left out."""
    found = []
    if twice:
        names = listed([f"host {shown(host)}" for host in twice], SENTENCES)
        text = f"There is a capture beside the recorder of {names}: only the recorder is counted. Remove the capture."
        found.append(Finding(Level.WARNING, text))
    if hosts:
        names = listed([f"host {shown(host)}" for host in hosts], SENTENCES)
        text = (
            f"There is only a capture of {names}. It also shows what the firewall and the socket buffer drop later: "
            "a message that counts as received may have reached no program, and late messages count as delivered."
        )
        found.append(Finding(Level.UNKNOWN, text))
    return found


def set_aside(files: Sequence[SetAside], total: int) -> list[Finding]:
    """What is missing because files could not be read."""
    if not files:
        return []
    text = (
        f"{counted(total, 'file')} could not be read and {'was' if total == 1 else 'were'} set aside: what "
        f"{'it holds' if total == 1 else 'they hold'} is not in this report."
    )
    return [Finding(Level.UNKNOWN, text, "coverage")]


def without_recorder(hosts: Sequence[str], total: int) -> list[Finding]:
    """Senders whose losses are known only from gaps in their numbers."""
    if not total:
        return []
    named = [shown(host) for host in hosts[:SENTENCES]]
    names = listed(named + [""] * (total - len(named)), SENTENCES)
    text = (
        f"{'Host' if total == 1 else 'Hosts'} {names} had no recorder: loss of {'its' if total == 1 else 'their'} "
        "messages is counted from gaps in the sequence numbers, which leaves out those before the first and after "
        "the last message received."
    )
    return [Finding(Level.UNKNOWN, text)]


def latencies(pairs: Iterable[Pair]) -> list[Finding]:
    """The slowest pair, and how it was measured."""
    measured = [pair for pair in pairs if pair.method]
    if not measured:
        return []
    slowest = max(measured, key=lambda pair: pair.p99)
    beyond = " longer than the fastest" if slowest.method == "above-fastest" else ""
    text = (
        f"Messages from host {shown(slowest.sender)} to host {shown(slowest.receiver)} took longest: half of them at "
        f"most {latency(slowest.p50)}{beyond}, 99 of 100 at most {latency(slowest.p99)}{beyond}."
    )
    return [Finding(Level.NOTE, text, anchor("latency", slowest.sender, slowest.receiver), _of_pair(slowest))]


def reorderings(rows: Iterable[Reordering]) -> list[Finding]:
    worst = max(rows, key=lambda row: row.reordered, default=None)
    if worst is None or worst.reordered < max(1, NOTABLE_REORDERING * worst.received):
        return []
    part = f" ({percent(worst.reordered / worst.received)})" if worst.received else ""
    text = (
        f"{counted(worst.reordered, 'message')} of source {shown(worst.src)} reached host {shown(worst.receiver)} "
        f"out of order{part}, up to {counted(worst.distance_max, 'number')} late."
    )
    return [
        Finding(
            Level.NOTE,
            text,
            anchor("reordering", worst.src, worst.receiver),
            {"source": worst.src, "receiver": worst.receiver},
        )
    ]


def copies(rows: Iterable[Copies]) -> list[Finding]:
    """What extra copies saved, of all pairs together."""
    doubled = [row for row in rows if row.copies > 1]
    single = round(sum(row.lost_single for row in doubled))
    if not doubled:
        return []
    if single <= 0:
        return [Finding(Level.NOTE, "Extra copies saved nothing: no copy was lost.")]
    saved = min(single, max(0, round(sum(row.saved for row in doubled))))
    text = (
        f"Extra copies saved {saved:,} of the {single:,} messages that single copies would have lost "
        f"({percent(saved / single)})."
    )
    return [Finding(Level.NOTE, text)]


def restarts(rows: Iterable[Source]) -> list[Finding]:
    worst = max(rows, key=lambda row: row.restarts, default=None)
    if worst is None or not worst.restarts:
        return []
    times = {1: "once", 2: "twice"}.get(worst.restarts, f"{worst.restarts:,} times")
    return [
        Finding(
            Level.NOTE,
            f"Source {shown(worst.src)} restarted its sequence numbers {times}.",
            anchor("sources", worst.src),
            {"source": worst.src},
        )
    ]


def busiest(rows: Sequence[Channel], messages: int) -> list[Finding]:
    """The busiest channel; ``messages`` is the sum over all channels."""
    if not rows or not messages:
        return []
    top = max(rows, key=lambda row: row.messages)
    text = (
        f"The busiest channel is {shown(top.channel)} with {percent(top.messages / messages)} of all messages, "
        f"and {counted(top.rate_peak, 'message')} in its busiest second."
    )
    return [Finding(Level.NOTE, text, anchor("channels", top.channel), {"channel": top.channel})]


def by_importance(found: Iterable[Finding]) -> list[Finding]:
    """Problems first; within a level the order stays."""
    order = list(Level)
    return sorted(found, key=lambda finding: order.index(finding.level))


def worst(found: list[Finding], noun: str, plural: str = "", total: int = 0) -> list[Finding]:
    """The first few, and how many more there are; ``total`` counts them if ``found`` has only some."""
    rest = max(total, len(found)) - SENTENCES
    if rest <= 0:
        return found
    more = counted(rest, f"more {noun}", plural and f"more {plural}")
    return [*found[:SENTENCES], Finding(found[-1].level, f"There {_are(rest)} {more}.")]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def all_of(count: int, noun: str) -> str:
    return f"the only {noun}" if count == 1 else f"all {count:,} {noun}s"


def loss_level(loss: float) -> Level:
    return Level.PROBLEM if loss >= BAD_LOSS else Level.WARNING


def _source(src: str) -> str:
    """``Source <src>``, or the host if the source is its daemon."""
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
