"""The findings that name who is at fault: hosts that are cut off, have other keys or clocks, lose or drop much.

Rules
- Whoever is named is named by evidence that singles it out: what third hosts got, the same numbers missing at all
  receivers, more than half of the others disagreeing. Without it a finding says what happened and accuses nobody.
- What one fault explains is no finding of another.
"""

from collections.abc import Callable, Iterable, Sequence

from bccnd.pipeline.report.findings import SENTENCES, Finding, Level, all_of, loss_level, worst
from bccnd.pipeline.report.rows import (
    Culprit,
    CutOff,
    Dropped,
    HostLoss,
    Late,
    OffClock,
    OtherKey,
    Totals,
    Unheard,
    share,
)
from bccnd.pipeline.report.wording import Clock, anchor, counted, latency, listed, percent, shown

# If so many of a host's pairs lose, and EXCESS times as much as all others, the cause is at the host.
WIDESPREAD = 0.6
EXCESS = 2.0
# From this share of lost messages that no receiver got, the cause is at the sender.
SAME = 0.5
# Loss is counted right meanwhile, but times of day of different hosts cannot be compared.
CLOCK_REMEDY = (
    "let NTP set them (timedatectl set-ntp true). Until then, loss is counted with the estimated offset."
)
# The largest dedup.reorder.
MOST_REORDER = 1024
# What is further behind, the daemon calls a duplicate (``bccnd/relay/dedup.py``).
WINDOW = 64


def causes(hosts: Iterable[HostLoss], totals: Totals) -> list[HostLoss]:
    """The hosts that lose with most of their partners, and far more than the rest: the cause is at the host.

    This must hold without the partner with which it loses most. Otherwise two hosts that do not hear each other would
    be at fault where all others lose a little of everybody. A receiver is not at fault for messages that no receiver
    got.
    """
    found = []
    for host in sorted(hosts, key=lambda host: -host.lost):
        rest = share(totals.lost - host.lost, totals.sent - host.sent)
        if (
            host.partners >= 2
            and host.lossy >= max(2, WIDESPREAD * host.partners)
            and min(host.loss, share(host.lost - host.worst_lost, host.sent - host.worst_sent))
            >= EXCESS * rest
            and not (host.role == "receiver" and (host.common or 0) >= SAME)
        ):
            found.append(host)
    return found[:SENTENCES]


def one_by_one(
    ask: Callable[[Sequence[HostLoss]], list[HostLoss]], left: Callable[[Sequence[HostLoss]], Totals]
) -> list[HostLoss]:
    """The ``causes``, each judged without the pairs that earlier ones explain. Otherwise a receiver that loses much
    of every sender would make causes of these. ``ask`` and ``left`` return what such hosts do not explain.
    """
    found, partners = list[HostLoss](), dict[tuple[str, str], int]()
    while len(found) < SENTENCES:
        hosts = ask(found)
        partners = partners or {(row.host, row.role): row.partners for row in hosts}
        largest = causes(hosts, left(found))[:1]
        if not largest:
            break
        found += [row._replace(partners=partners.get((row.host, row.role), row.partners)) for row in largest]
    return found


def widespread(hosts: Iterable[HostLoss], clock: Clock) -> list[Finding]:
    """A sentence for each of the ``causes``."""
    found = []
    for host in hosts:
        name = shown(host.host)
        others = f"{host.lossy:,} of {host.partners:,} other hosts"
        if host.lossy == host.partners:
            others = "both other hosts" if host.partners == 2 else f"all {host.partners:,} other hosts"
        what = (
            f"Host {name} lost messages of {others}"
            if host.role == "receiver"
            else f"{others.capitalize()} lost messages of host {name}"
        )
        when = f" {clock.between(host.start, host.end)}" if host.start and host.end else ""
        where = f"look for the cause at host {name} or its link"
        if host.role == "sender" and host.common is not None:
            where = (
                f"the same ones at all of them, so {where}"
                if host.common >= SAME
                else "each of them different ones, so look for the cause at these and their links, "
                f"not at host {name}"
            )
        text = f"{what}{when}, {percent(host.loss)} in all: {where}."
        found.append(Finding(loss_level(host.loss), text, "matrix", {"host": host.host}))
    return found


def odd_keys(rows: Sequence[OtherKey], hosts: int) -> tuple[list[OtherKey], bool]:
    """Those that do not have the key that most of the ``hosts`` have; and whether that is known.

    Whoever disagrees with more than half of the others is in the minority. Where that is said of half of all hosts,
    the record shows only that they have different keys.
    """
    odd = [row for row in rows if 2 * row.partners > hosts - 1]
    return (odd, True) if 2 * len(odd) < hosts else (list(rows), False)


def keys(rows: Sequence[OtherKey], hosts: int) -> list[Finding]:
    """The hosts with another key than the rest, before everything that follows from it."""
    odd, sure = odd_keys(rows, hosts)
    if odd and not sure:
        names = listed([f"host {shown(row.host)}" for row in odd], SENTENCES)
        most = max(max(row.theirs, row.own) for row in odd)
        text = (
            f"{names[:1].upper()}{names[1:]} do not all have the same key, and reject each other's datagrams "
            f"({most:,} at one host): give all hosts of the segment the same key file."
        )
        return [Finding(Level.PROBLEM, text, "matrix")]
    found = []
    for row in odd:
        name, others = shown(row.host), counted(row.partners, "other host")
        text = (
            f"Host {name} has another key than {others}, or none: they rejected up to "
            f"{counted(row.theirs, 'datagram')} of it each, and it rejected {row.own:,} of theirs. Give host {name} "
            "the key file of the others."
        )
        found.append(Finding(Level.PROBLEM, text, "matrix", {"host": row.host}))
    return worst(found, "host with another key", "hosts with another key")


def cut_off(rows: Sequence[CutOff], told: Sequence[Unheard], explained: Sequence[str] = ()) -> list[Finding]:
    """The hosts that heard nobody or that nobody heard, without those that ``explained`` hosts' keys explain."""
    roles: dict[str, dict[str, CutOff]] = {}
    for row in rows:
        if row.host not in explained:
            roles.setdefault(row.host, {})[row.role] = row
    found = []
    for host, of in roles.items():
        name = shown(host)
        deaf, mute = of.get("deaf"), of.get("mute")
        if deaf and mute:
            what = f"heard no other host, and no other host heard it ({deaf.sent + mute.sent:,} messages were lost)"
            where = "its link, its address for broadcasts and its firewall"
        elif deaf:
            what = (
                f"heard nothing: none of {counted(deaf.sent, 'message')} of {counted(deaf.partners, 'other host')} "
                "reached it, though others heard them"
            )
            where = "its firewall, its port and its link"
        else:
            sent = counted(mute.sent if mute else 0, "message")
            what = f"was heard by nobody: none of its {sent} reached {_others(mute)}, though others were heard there"
            where = "its address for broadcasts, its firewall and its link"
        text = f"Host {name} {what}. Look at {where}."
        found.append(Finding(Level.PROBLEM, text, "matrix", {"host": host}))
    for pair in told:
        if not {pair.sender, pair.receiver} & {*explained}:
            text = (
                f"Host {shown(pair.receiver)} heard nothing of host {shown(pair.sender)}: "
                f"{all_of(pair.sent, 'message')} were lost, and no third host shows at which of them."
            )
            about = {"sender": pair.sender, "receiver": pair.receiver}
            found.append(Finding(Level.PROBLEM, text, "matrix", about))
    return worst(found, "host that is cut off", "hosts that are cut off")


def _others(row: CutOff | None) -> str:
    return counted(row.partners if row else 0, "other host")


def drops(rows: Sequence[Dropped]) -> list[Finding]:
    """What hosts lost themselves, with the remedy that ``doctor`` gives."""
    found = []
    for row in rows:
        host = shown(row.host)
        text = (
            f"The kernel of host {host} dropped {counted(row.messages, 'datagram')}: the buffer of its daemon was "
            "full. Raise net.core.rmem_max and buffers.receive_bytes."
        )
        if row.client is not None:
            text = (
                f"Client {shown(row.client)} of host {host} read too slowly and lost "
                f"{counted(row.messages, 'message')}: let it read faster, subscribe to less, or have a larger queue."
            )
        about = {"host": row.host, **({"client": row.client} if row.client is not None else {})}
        found.append(Finding(Level.PROBLEM, text, anchor("coverage", row.host), about))
    return worst(
        found, "place inside a host where messages were lost", "places inside hosts where messages were lost"
    )


def placeless(hosts: Sequence[str]) -> list[Finding]:
    """The hosts that heard nobody, and of which nothing says whom they should have heard."""
    found = []
    for host in hosts:
        text = (
            f"Host {shown(host)} heard no other host, and no other host heard it; nothing in its record says which "
            "hosts are on its segment. Look at its link and its address for broadcasts."
        )
        found.append(Finding(Level.PROBLEM, text, anchor("coverage", host), {"host": host}))
    return worst(found, "host without a segment", "hosts without a segment")


def culprits(rows: Sequence[Culprit]) -> list[Finding]:
    """The sources that carry the loss of their hosts."""
    found = []
    for row in rows:
        others = share(row.host_lost - row.lost, row.host_sent - row.sent)
        named = [f"host {shown(name)}" for name in row.receivers]
        names = listed(named + [""] * (row.lossy - len(named)), len(named))
        text = (
            f"Source {shown(row.src)} lost {percent(row.loss)} of its messages ({row.lost:,} of {row.sent:,}, "
            f"counted once per receiver) at {names}; the other sources of host {shown(row.sender)} lost "
            f"{percent(others)}: look at how fast it sends, and how large its messages are."
        )
        found.append(Finding(loss_level(row.loss), text, anchor("sources", row.src), {"source": row.src}))
    return worst(
        found, "source that carries the loss of its host", "sources that carry the loss of their hosts"
    )


def clocks(rows: Sequence[OffClock], hosts: int) -> list[Finding]:
    """Clocks that are off, with the remedy; half of all hosts or more only show that the clocks differ."""
    if rows and 2 * len(rows) >= hosts:
        names = listed([f"host {shown(row.host)}" for row in rows], SENTENCES)
        text = f"The clocks of {names} differ by {latency(abs(rows[0].ahead))}"
        return [Finding(Level.WARNING, f"{text}: {CLOCK_REMEDY}")]
    found = []
    for row in rows:
        side = "ahead of" if row.ahead > 0 else "behind"
        others = counted(row.apart, "other host")
        text = f"The clock of host {shown(row.host)} is {latency(abs(row.ahead))} {side} those of {others}"
        found.append(Finding(Level.WARNING, f"{text}: {CLOCK_REMEDY}", about={"host": row.host}))
    return worst(found, "clock that is off", "clocks that are off")


def late(rows: Sequence[Late]) -> list[Finding]:
    """Messages that came and were dropped, with the setting that delivers them."""
    found = []
    for row in rows:
        host, others = f"host {shown(row.receiver)}", counted(row.senders - 1, "other host")
        of = f"host {shown(row.sender)}" + (f" and {others}" if row.senders > 1 else "")
        remedy = "find out what reorders messages so much"
        if row.behind <= MOST_REORDER:
            remedy = f"dedup.reorder = {row.behind} at {host} delivers them"
        behind = f"up to {counted(row.behind, 'number')} behind later ones"
        if row.further:
            behind = f"some of them more than {WINDOW} numbers behind later ones"
            remedy = f"dedup.reorder = {MOST_REORDER} at {host} delivers those that come no later than that"
        if row.repaired:
            remedy = (
                "they had been lost, and came when it had given up waiting for them. Look at its link, or raise "
                f"repair.hold_seconds at {host}"
            )
        text = f"The daemon of {host} dropped {counted(row.late, 'message')} of {of} as late, {behind}: {remedy}."
        found.append(
            Finding(
                loss_level(share(row.late, row.sent)),
                text,
                anchor("loss", row.sender, row.receiver),
                {"sender": row.sender, "receiver": row.receiver},
            )
        )
    return worst(found, "host with late messages", "hosts with late messages")
