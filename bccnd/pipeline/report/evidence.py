"""What the tables show of who is at fault; and how they are asked.

Rules
- A fault is shown by what third hosts saw, so these questions compare pairs with each other. ``faults`` judges.
- The sums of all pairs, ``pairs``, are kept between questions.
"""

# ruff: noqa: S608 - queries of constants

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bccnd.pipeline.layout import OF_ONE_HOST
from bccnd.pipeline.report.database import Tables
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
)

# Hosts examined for a cause at the host.
HOST_LOSSES = 20
# Clocks further apart are a finding. Coverage bears twice as much.
CLOCK_OFF_US = 1e6
# Hosts whose keys are compared.
KEYS = 1000
# A source carries the loss of its host with so many messages, this share of all lost and at most that of all sent.
CULPRIT_LOST, CULPRIT_SHARE, CULPRIT_SENT = 10, 0.8, 0.5
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# The pairs that no host of ``_roles`` explains.
_UNEXPLAINED = """not (receiver in (select value from json_each(:receivers))
    or sender in (select value from json_each(:senders)))"""


def _roles(hosts: Sequence[HostLoss]) -> dict[str, str]:
    return {
        f"{role}s": json.dumps([row.host for row in hosts if row.role == role])
        for role in ("sender", "receiver")
    }


def moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


class Evidence:
    """The tables below a local directory, and what they show of faults. Close it."""

    def __init__(self, directory: str, rejected_files: str | None = None) -> None:
        self._tables = Tables(directory, rejected_files)
        self._tables.keep(
            "pairs",
            """with timed as (select *, case when latency_p50_us is null then 0 else max(received, 1) end as weight
                              from {delivery} where sender <> receiver)
               select sender, receiver, sum(sent) as sent, sum(lost) as lost, sum(coalesce(late, 0)) as late,
                      case when min(basis) = max(basis) then min(basis) else 'both' end as basis,
                      sum(bursts) as bursts, max_by(burst_p50, lost) as burst_p50,
                      max(burst_max) as burst_max, min(latency_method) as method,
                      sum(latency_p50_us * weight) / nullif(sum(weight), 0) as p50,
                      sum(latency_p90_us * weight) / nullif(sum(weight), 0) as p90,
                      sum(latency_p99_us * weight) / nullif(sum(weight), 0) as p99,
                      max(latency_max_us) as top, sum(coalesce(repaired, 0)) as repaired,
                      sum(direct_p50_us * weight) / nullif(sum(weight * (direct_p50_us is not null)), 0)
                        as direct_p50,
                      sum(direct_p99_us * weight) / nullif(sum(weight * (direct_p99_us is not null)), 0)
                        as direct_p99,
                      sum(repaired_p50_us * repaired) / nullif(sum(repaired * (repaired_p50_us is not null)), 0)
                        as repaired_p50,
                      sum(repaired_p99_us * repaired) / nullif(sum(repaired * (repaired_p99_us is not null)), 0)
                        as repaired_p99
               from timed group by sender, receiver""",
        )

    def close(self) -> None:
        self._tables.close()

    def _rows(self, query: str, **values: object) -> list[Any]:
        return self._tables.rows(query, **values)

    def host_losses(self, explained: Sequence[HostLoss] = ()) -> list[HostLoss]:
        """What was lost at hosts in the end, but for the pairs that ``explained`` hosts explain in their roles."""
        return self._host_losses("lost as lost, 0 as repaired", "lost", explained)

    def host_misses(self, explained: Sequence[HostLoss] = ()) -> list[HostLoss]:
        """The same of what was lost on the way."""
        return self._host_losses("lost + repaired as lost, repaired", "missed", explained)

    def left(self, explained: Sequence[HostLoss] = ()) -> Totals:
        """What was sent, lost and repaired between the pairs that ``explained`` hosts do not explain."""
        (row,) = self._rows(
            f"""select coalesce(sum(sent), 0) as sent, coalesce(sum(lost), 0) as lost,
                       coalesce(sum(repaired), 0) as repaired from pairs where {_UNEXPLAINED}""",
            **_roles(explained),
        )
        return Totals(sent=row.sent, lost=row.lost, repaired=row.repaired)

    def _host_losses(self, what: str, counted: str, explained: Sequence[HostLoss]) -> list[HostLoss]:
        """``counted`` is how table ``senders`` calls ``what`` was lost."""
        rows = self._rows(
            f"""with pairs_lost as (select sender, receiver, sent, {what} from pairs where {_UNEXPLAINED}),
               by_host as (
                 select receiver as host, 'receiver' as role, count(*) as partners,
                        count(*) filter (where lost > 0) as lossy, sum(sent) as sent, sum(lost) as lost,
                        sum(repaired) as repaired, max(lost) as worst_lost, sent as worst_sent
                 from pairs_lost group by receiver
                 union all
                 select sender, 'sender', count(*), count(*) filter (where lost > 0), sum(sent), sum(lost),
                        sum(repaired), max(lost), sent
                   from pairs_lost group by sender),
               worst as (select * from by_host where lost > 0 order by lost desc, host, role limit :limit),
               within as (
                 select receiver as host, 'receiver' as role, min(`from`) as start, max(until) as finish
                   from {{episodes}} group by receiver
                 union all
                 select sender, 'sender', min(`from`), max(until) from {{episodes}} group by sender),
               everywhere as (
                 select sender, 1.0 * {counted}_everywhere / {counted} as common from {{senders}}
                 where {counted} > 0),
               evidence as (
                 select sender as host, 'sender' as role, common from everywhere
                 union all
                 select receiver, 'receiver', sum(lost * common) / nullif(sum(lost), 0)
                   from pairs_lost join everywhere using (sender) where lost > 0 group by receiver)
               select worst.*, start, finish, common
               from worst left join within using (host, role) left join evidence using (host, role)
               order by lost desc, host, role""",
            limit=HOST_LOSSES, **_roles(explained),
        )  # fmt: skip
        return [
            HostLoss(
                row.host, row.role, row.partners, row.lossy, row.sent, row.lost,
                row.start and moment(row.start), row.finish and moment(row.finish), row.common, row.repaired,
                row.worst_sent, row.worst_lost,
            )
            for row in rows
        ]  # fmt: skip

    def clocks(self) -> list[OffClock]:
        """The hosts whose clocks are off those of more than half of their partners."""
        rows = self._rows(
            """with offsets as (select sender, receiver, percentile(clock_offset_us, 0.5) as ahead from {delivery}
                                where clock_offset_us is not null and sender <> receiver group by sender, receiver)
               select * from (select receiver as host,
                                     percentile(ahead, 0.5) filter (where abs(ahead) >= :far) as ahead,
                                     count(*) filter (where abs(ahead) >= :far) as apart, count(*) as partners
                              from offsets group by receiver)
               where 2 * apart > partners order by abs(ahead) desc, host limit :limit""",
            far=CLOCK_OFF_US, limit=HOST_LOSSES,
        )  # fmt: skip
        return [OffClock(*row) for row in rows]

    def culprits(self) -> list[Culprit]:
        """The sources that carry what was lost of their hosts, though others of these sent as much."""
        rows = self._rows(
            """with by_source as (
                 select sender, src, sum(sent) as sent, sum(lost) as lost, count(*) filter (where lost > 0) as lossy,
                        json_group_array(json_array(-lost, receiver)) filter (where lost > 0) as receivers
                 from {losses} where sender <> receiver group by sender, src),
               by_host as (select sender, sum(sent) as host_sent, sum(lost) as host_lost from by_source
                           group by sender)
               select src, sender, sent, lost, host_sent, host_lost, receivers, lossy
               from by_source join by_host using (sender)
               where lost >= :least and lost >= :most * host_lost and sent <= :few * host_sent
               order by lost desc, src limit :limit""",
            least=CULPRIT_LOST, most=CULPRIT_SHARE, few=CULPRIT_SENT, limit=HOST_LOSSES,
        )  # fmt: skip
        return [
            Culprit(*row)._replace(
                receivers=tuple(name for _, name in sorted(json.loads(row.receivers))[:OF_ONE_HOST])
            )
            for row in rows
        ]

    def cut_off(self) -> tuple[list[CutOff], list[Unheard]]:
        """The hosts that heard nobody or that nobody heard; and the pairs of which nobody knows whose fault it is."""
        silent = """with silent as (
                      select * from (select *, min(lost = sent) over (partition by receiver) as deaf,
                                            min(lost = sent) over (partition by sender) as mute
                                     from pairs where sent > 0)
                      where lost = sent and (deaf or mute)),
                    blamed as (
                      select receiver as host, 'deaf' as role, count(*) as partners, sum(sent) as sent
                      from silent where deaf and not mute group by receiver
                      union all
                      select sender, 'mute', count(*), sum(sent) from silent where mute and not deaf
                      group by sender)"""
        rows = self._rows(
            f"{silent} select * from blamed order by sent desc, host, role limit :limit", limit=HOST_LOSSES
        )
        told = self._rows(
            f"""{silent} select sender, receiver, sent from silent where deaf and mute
                  and sender not in (select host from blamed) and receiver not in (select host from blamed)
                order by sent desc, sender, receiver limit :limit""",
            limit=HOST_LOSSES,
        )
        return [CutOff(*row) for row in rows], [Unheard(*row) for row in told]

    def drops(self) -> list[Dropped]:
        """What was lost inside hosts, the most first."""
        rows = self._rows(
            """select host, client, sum(messages) as messages from {drops} group by host, client
               order by messages desc, host, client limit :limit""",
            limit=HOST_LOSSES,
        )
        return [Dropped(*row) for row in rows]

    def placeless(self) -> list[str]:
        """The recorded hosts that are in no pair, though others are: no segment is known to be theirs."""
        rows = self._rows(
            """select distinct host from {coverage}
               where host not in (select sender from pairs union select receiver from pairs)
                 and exists (select * from pairs) order by host limit :limit""",
            limit=HOST_LOSSES,
        )  # fmt: skip
        return [row.host for row in rows]

    def other_keys(self) -> list[OtherKey]:
        """The hosts that reject each other's datagrams for their keys, those with most such others first."""
        rows = self._rows(
            """with refused as (
                 select host, peer_host, sum(datagrams) as datagrams from {rejected}
                 where verdict in ('hmac', 'unauthenticated') and peer_host <> host group by host, peer_host),
               lasting as (
                 select r.* from refused r left join pairs p on p.sender = peer_host and p.receiver = host
                 where coalesce(p.sent = p.lost, true)),
               sides as (
                 select host, peer_host as other, 0 as theirs, datagrams as own from lasting
                 union all select peer_host, host, datagrams, 0 from lasting)
               select * from (select host, count(distinct other) as partners, max(theirs) as theirs, sum(own) as own
                              from sides group by host)
               order by partners desc, theirs + own desc, host limit :limit""",
            limit=KEYS,
        )  # fmt: skip
        return [OtherKey(*row) for row in rows]

    def late(self) -> list[Late]:
        """The hosts whose daemons dropped most messages as late."""
        rows = self._rows(
            """with by_host as (
                 select receiver, max_by(sender, late) as sender, count(*) filter (where late > 0) as senders,
                        sum(sent) filter (where late > 0) as sent, sum(late) as late,
                        sum(repaired) filter (where late > 0) as repaired
                 from pairs group by receiver having sum(late) > 0),
               known as (select receiver, sum(late) as known from {sources} group by receiver),
               behind as (select receiver, max(distance_max) as behind from {reordering} group by receiver)
               select by_host.receiver, by_host.sender, senders, sent, late, coalesce(behind, 1) as behind,
                      late > coalesce(known, 0) as further, repaired
               from by_host left join known using (receiver) left join behind using (receiver)
               order by late desc, receiver limit :limit""",
            limit=HOST_LOSSES,
        )  # fmt: skip
        return [Late(*row)._replace(further=bool(row.further)) for row in rows]
