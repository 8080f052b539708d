"""From the tables to the few rows of the page: ``database`` aggregates, and a named limit bounds what leaves it.

Rules
- A missing or empty table gives no rows and no error: two hosts without heartbeats get a page, too.
- Percentiles of hours cannot be merged exactly. For a longer time they are weighted by the messages of the hours.
- The matrix is never collected: with 1000 hosts it has a million pairs. Chosen rows and columns are, and a thumbnail.
"""

# ruff: noqa: S608 - queries of constants

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from bccnd.pipeline.layout import MARGIN_NS, OF_ONE_HOST, PAIRS_DRAWN
from bccnd.pipeline.report.evidence import Evidence, moment
from bccnd.pipeline.report.findings import BAD_LOSS
from bccnd.pipeline.report.rows import (
    Bin,
    Block,
    Channel,
    Copies,
    Episode,
    Gap,
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
)
from bccnd.wire.verdict import HARMLESS

# The slowest pairs, a strip each.
LATENCY_PAIRS = 16
# Channels, sources, rejected traffic: as much of a list as people read.
TABLE_ROWS = 20
# Silent sources, or recorders, a lane each.
TIMELINE_ROWS = 30
# Pauses of one recorder; more cannot be distinguished in its lane.
GAPS = 20
# The findings name the worst few of them.
EPISODES = 50
# An episode that cost this share of a pair's messages is a finding even if a cause at a host explains it.
NEARLY_ALL = 0.5
# Nothing is missed in a shorter gap between two files of a recorder.
GAP_MICROSECONDS = MARGIN_NS // 1000
# Rows and columns of a matrix drawn whole: 1600 fields, each still 15 pixels wide on a laptop.
MATRIX_HOSTS = 40
# Rows and columns drawn large of a larger matrix.
WORST_HOSTS = 24
# Rows and columns of the thumbnail; with more hosts a field stands for a block of them.
THUMBNAIL = 200

# In microseconds.
MINUTE, HOUR = 60_000_000, 3_600_000_000
# The order that people expect: host2 comes before host10.
NATURAL = "stem(host), tail(host), host"


class Summaries(Evidence):
    """The questions of the page to the tables below a local directory. Close it."""

    def period(self) -> tuple[datetime, datetime] | None:
        """The time that the recorders cover, or, without their marks, that of the minutes or hours."""
        (row,) = self._rows(
            "select min(from_ns) / 1000 as first, max(until_ns) / 1000 as last from {coverage}"
        )
        if row.first is not None:
            return moment(row.first), moment(row.last)
        span = self._tables.extent(("minutes", "minute", MINUTE)) or self._tables.extent(
            ("delivery", "hour", HOUR), ("sources", "hour", HOUR)
        )
        return (moment(span[0]), moment(span[1])) if span else None

    def totals(self) -> Totals:
        (row,) = self._rows(
            """select (select count(*) from (select sender from pairs union select receiver from pairs)) as hosts,
                      count(*) as pairs, count(*) filter (where lost > 0) as lossy_pairs,
                      coalesce(sum(sent), 0) as sent, coalesce(sum(lost), 0) as lost,
                      count(*) filter (where method is not null and p50 is not null) as measured,
                      count(*) filter (where sent > 0 and lost = sent) as dead, coalesce(sum(late), 0) as late,
                      coalesce(sum(repaired), 0) as repaired
               from pairs""",
        )
        return Totals(*row)

    def worst_pairs(self) -> list[Pair]:
        """The worst, but only a few of any one receiver or sender: a single bad host must not fill the list."""
        rows = self._rows(
            """select * from (
                 select *, row_number() over (partition by receiver order by lost desc, sender) as of_receiver,
                        row_number() over (partition by sender order by lost desc, receiver) as of_sender
                 from pairs where lost > 0)
               where of_receiver <= :few and of_sender <= :few order by lost desc, sender limit :limit""",
            few=OF_ONE_HOST, limit=PAIRS_DRAWN,
        )  # fmt: skip
        return [_pair(row) for row in rows]

    def slowest_pairs(self) -> list[Pair]:
        rows = self._rows(
            "select * from pairs where method is not null and p50 is not null order by p99 desc limit :limit",
            limit=LATENCY_PAIRS,
        )
        return [_pair(row) for row in rows]

    def repaired_pairs(self) -> tuple[list[Pair], int, Pair]:
        """The pairs of which most was lost on the way, how many have repaired anything, and the sums of all of those.

        Of latencies the sums are means, weighted by the messages.
        """
        rows, count = self._tables.first(
            "select * from pairs where repaired > 0", TABLE_ROWS, "lost + repaired desc, sender, receiver"
        )
        means = ", ".join(
            f"sum({name} * {weight}) / nullif(sum({weight} * ({name} is not null)), 0) as {name}"
            for weight in ("(sent - lost - repaired)", "repaired")
            for name in (
                f"{'repaired' if weight == 'repaired' else 'direct'}_{rank}" for rank in ("p50", "p99")
            )
        )
        (row,) = self._rows(
            f"""select coalesce(sum(sent), 0) as sent, coalesce(sum(lost), 0) as lost,
                       coalesce(sum(repaired), 0) as repaired, {means} from pairs where repaired > 0"""
        )
        return [_pair(each) for each in rows], count, NO_PAIR._replace(**row._asdict())

    def mended(self, explained: Sequence[HostLoss], apart: Sequence[str]) -> tuple[list[Pair], int]:
        """The pairs that lost so much on the way that it would be a problem, had not most of it been repaired; the
        worst, and how many. Without those of ``explained`` hosts and of hosts ``apart``.
        """
        rows, count = self._tables.first(
            """select * from pairs
               where repaired > lost and lost + repaired >= :bad * sent
                 and not (receiver in (select value from json_each(:receivers))
                          or sender in (select value from json_each(:senders)))""",
            EPISODES, "lost + repaired desc, sender, receiver", bad=BAD_LOSS,
            receivers=json.dumps([*apart, *(host.host for host in explained if host.role == "receiver")]),
            senders=json.dumps([*apart, *(host.host for host in explained if host.role == "sender")]),
        )  # fmt: skip
        return [_pair(row) for row in rows], count

    def links(self) -> tuple[list[Link], int]:
        """The links between segments, those of which most was lost or missed first, and how many they are."""
        rows, count = self._tables.first(
            """with timed as (select *, case when latency_p50_us is null then 0
                                             else max(coalesce(messages, 1), 1) end as weight from {links})
               select near, far, exporter, importer, coalesce(sum(sent), 0) as sent,
                      coalesce(sum(missed), 0) as missed, coalesce(sum(lost), 0) as lost,
                      coalesce(sum(messages), 0) as messages, sum(exported) as exported,
                      coalesce(sum(withheld), 0) as withheld, coalesce(min(latency_method), '') as method,
                      sum(latency_p50_us * weight) / nullif(sum(weight), 0) as p50,
                      sum(latency_p99_us * weight) / nullif(sum(weight), 0) as p99
               from timed group by near, far, exporter, importer""",
            TABLE_ROWS, "lost desc, missed desc, near, far, importer",
        )  # fmt: skip
        return [Link(*row) for row in rows], count

    def matrix_hosts(self, hosts: int, by: str = "lost") -> tuple[list[str], list[str]]:
        """The senders and receivers of the matrix drawn large: all if they are few, else the worst ``by`` a number of
        each pair.
        """
        return self._chosen("sender", hosts, by), self._chosen("receiver", hosts, by)

    def _chosen(self, role: str, hosts: int, by: str) -> list[str]:
        limit = MATRIX_HOSTS if hosts <= MATRIX_HOSTS else WORST_HOSTS
        rows = self._rows(
            f"""select * from (select {role} as host from pairs group by {role}
                               order by sum({by}) desc, {role} limit :limit)
                order by {NATURAL}""",
            limit=limit,
        )
        return [row.host for row in rows]

    def matrix(self, senders: Sequence[str], receivers: Sequence[str]) -> list[Pair]:
        rows = self._rows(
            """select * from pairs where sender in (select value from json_each(:senders))
                 and receiver in (select value from json_each(:receivers))""",
            senders=json.dumps(senders), receivers=json.dumps(receivers),
        )  # fmt: skip
        return [_pair(row) for row in rows]

    def thumbnail(self, hosts: int) -> list[Block]:
        """The blocks with loss of the whole matrix, with hosts in natural order."""
        rows = self._rows(
            f"""with numbered as (
                  select host, (row_number() over (order by {NATURAL}) - 1) / :block as place from
                    (select sender as host from pairs union select receiver from pairs))
                select s.place, r.place, max(1.0 * lost / max(sent, 1)) as loss from pairs
                  join numbered s on sender = s.host join numbered r on receiver = r.host
                where lost > 0 group by s.place, r.place""",
            block=block_hosts(hosts),
        )
        return [Block(*row) for row in rows]

    def episodes(self, explained: Sequence[HostLoss], apart: Sequence[str] = ()) -> tuple[list[Episode], int]:
        """The worst, and how many there are; without those of ``explained`` hosts, unless most messages were lost,
        and without the total losses of hosts ``apart``, of which a finding of their own tells.
        """
        rows, count = self._tables.first(
            """select sender, receiver, `from` as start, until as finish, sent, lost, coalesce(burst_p50, 0) as burst,
                      coalesce(outages, 0) as outages, coalesce(outage_s, 0) as outage,
                      coalesce(starts, '[]') as starts
               from {episodes}
               where not (lost = sent and (receiver in (select value from json_each(:apart))
                                           or sender in (select value from json_each(:apart))))
                 and (lost >= :most * sent or not (receiver in (select value from json_each(:receivers))
                                                   or sender in (select value from json_each(:senders))))""",
            EPISODES, "lost desc, start", most=NEARLY_ALL, apart=json.dumps(apart),
            receivers=json.dumps([host.host for host in explained if host.role == "receiver"]),
            senders=json.dumps([host.host for host in explained if host.role == "sender"]),
        )  # fmt: skip
        found = [
            Episode(*row)._replace(
                start=moment(row.start),
                end=moment(row.finish),
                starts=tuple(map(moment, json.loads(row.starts))),
            )
            for row in rows
        ]
        return found, count

    def step_seconds(self) -> int | None:
        """The length of the steps shorter than a minute; None if the record is too long for them."""
        (row,) = self._rows("select max(seconds) as seconds from {steps}")
        return row.seconds or None

    def bins(self, seconds: int, pairs: Sequence[Pair]) -> list[Bin]:
        """Loss in bins of so many seconds, of all pairs together and of each of ``pairs``; ``steps`` are of less than
        a minute.
        """
        if seconds < 60:
            rows = self._rows(
                "select sender, receiver, `from` as start, sent, lost from {steps} order by start"
            )
            return [Bin(*row)._replace(start=moment(row.start)) for row in rows]
        chosen = [(pair.sender, pair.receiver) for pair in pairs]
        found = self._tables.bins("minutes", "minute", seconds * 1_000_000, chosen)
        return [
            Bin(sender, receiver, moment(start), sent, lost) for sender, receiver, start, sent, lost in found
        ]

    def channels(self) -> tuple[list[Channel], int, int, int]:
        """The busiest; and the number, the messages and the bytes of all channels."""
        (total,) = self._rows(
            """select count(distinct channel) as n, coalesce(sum(messages), 0) as messages,
                      coalesce(sum(bytes), 0) as size
               from {channels}"""
        )
        rows = self._rows(
            """select channel, sum(messages) as messages, sum(bytes) as size, max(rate_peak) as rate_peak,
                      1.0 * sum(payload_p50 * messages) / sum(messages * (payload_p50 is not null)) as payload_p50,
                      1.0 * sum(payload_p95 * messages) / sum(messages * (payload_p95 is not null)) as payload_p95,
                      max(payload_max) as payload_max
               from {channels} group by channel order by sum(messages) desc, channel limit :limit""",
            limit=TABLE_ROWS,
        )
        return [Channel(*row) for row in rows], total.n, total.messages, total.size

    def silences(self) -> tuple[list[Silence], int]:
        """Silences of a source that observers noticed at overlapping times count as one. Lasting ones come first."""
        rows, count = self._tables.first(
            """with ends as (select host, max(until_ns) / 1000 as finish from {coverage}
                             where coalesce(counted, true) group by host),
                    heard as (
                      select src, observer, coalesce(expected_s, 0) as expected, `from` as start,
                             coalesce(until, finish, `from`) as finish,
                             until is null or until >= finish - :margin as lasting
                      from {silences} left join ends on observer = host),
                    marked as (
                      select *, max(finish) over (partition by src order by start, finish, observer
                                                  rows between unbounded preceding and 1 preceding) as before
                      from heard),
                    numbered as (
                      select *, count(*) filter (where before is null or start > before) over
                                  (partition by src order by start, finish, observer) as island from marked)
               select src, min(start) as start, max(finish) as finish, max(expected) as expected,
                      json_group_array(distinct observer) as observers, max_by(lasting, finish) as ongoing
               from numbered group by src, island""",
            TIMELINE_ROWS, "ongoing desc, finish - start desc", margin=GAP_MICROSECONDS,
        )  # fmt: skip
        found = [
            Silence(
                row.src, moment(row.start), moment(row.finish), row.expected,
                tuple(sorted(json.loads(row.observers))), bool(row.ongoing),
            )
            for row in rows
        ]  # fmt: skip
        return found, count

    def reasons(self) -> list[Reason]:
        """Why datagrams were rejected, by verdict."""
        rows = self._rows(
            """select verdict, max(datagrams) as datagrams, max(peers) as peers, count(*) as hosts
               from (select verdict, host, sum(datagrams) as datagrams, count(distinct peer) as peers
                     from {rejected} group by verdict, host)
               group by verdict order by datagrams desc, verdict limit :limit""",
            limit=TABLE_ROWS,
        )
        return [Reason(*row) for row in rows]

    def rejections(self, keys: Sequence[str] = ()) -> tuple[list[Rejection], int]:
        """Rejected datagrams by verdict and peer, without the harmless ones, and without those that hosts rejected of
        each other because one of them, of ``keys``, has another key.
        """
        rows, count = self._tables.first(
            """with harmful as (
                 select * from {rejected} where verdict not in (select value from json_each(:harmless))
                   and (verdict not in ('hmac', 'unauthenticated') or peer_host is null
                        or not (host in (select value from json_each(:keys))
                                or peer_host in (select value from json_each(:keys))))),
               seen as (select verdict, coalesce(peer, 'this host') as peer, host, sum(datagrams) as datagrams,
                               min(first) as first, max(last) as last, max(example_channel) as channel,
                               max(peer_host) as peer_host
                        from harmful group by 1, 2, 3)
               select verdict, peer, max(datagrams) as datagrams, count(*) as hosts, max_by(host, datagrams) as host,
                      min(first) as first, max(last) as last,
                      coalesce(max(channel), '') as channel, coalesce(max(peer_host), '') as peer_host
               from seen group by verdict, peer""",
            TABLE_ROWS, "datagrams desc, verdict, peer",
            harmless=json.dumps(sorted(map(str, HARMLESS))), keys=json.dumps(keys),
        )  # fmt: skip
        found = [
            Rejection(*row)._replace(
                first=row.first and moment(row.first), last=row.last and moment(row.last)
            )
            for row in rows
        ]
        return found, count

    def recorders(self) -> tuple[list[Recorder], int]:
        """Those that missed most messages first, then those that were off longest; and how many there are."""
        rows, count = self._tables.first(
            """with marked as (
                 select host, from_ns / 1000 as start, until_ns / 1000 as finish,
                        coalesce(unrecorded, 0) as unrecorded, coalesce(capture, false) as capture,
                        max(until_ns / 1000) over (partition by host order by from_ns, until_ns
                                                   rows between unbounded preceding and 1 preceding) as before
                 from {coverage} where coalesce(counted, true))
               select host, min(start) as start, max(finish) as finish, sum(unrecorded) as unrecorded,
                      coalesce(sum(start - before) filter (where start > before + :margin), 0) as missing,
                      count(*) filter (where start > before + :margin) as pauses, max(capture) as capture,
                      json_group_array(json_array(before - start, before, start))
                        filter (where start > before + :margin) as gaps
               from marked group by host""",
            TIMELINE_ROWS, f"unrecorded desc, missing desc, {NATURAL}", margin=GAP_MICROSECONDS,
        )  # fmt: skip
        found = []
        for row in rows:
            longest = sorted(json.loads(row.gaps))[:GAPS]
            found.append(Recorder(
                row.host, moment(row.start), moment(row.finish), row.missing / 1e6, row.unrecorded, row.pauses,
                tuple(sorted(Gap(moment(before), moment(start)) for _, before, start in longest)), bool(row.capture),
            ))  # fmt: skip
        return found, count

    def captured(self) -> tuple[list[str], list[str]]:
        """The hosts recorded by captures; and those of which a capture was left out, because they have a recorder."""
        rows = self._rows(
            f"""select host, min(coalesce(counted, true)) as counted from {{coverage}} where capture
                group by host order by {NATURAL}"""
        )
        return [row.host for row in rows if row.counted], [row.host for row in rows if not row.counted]

    def set_aside(self) -> tuple[list[SetAside], int]:
        """The files that ``ingest`` could not take over, and how many they are."""
        rows, count = self._tables.first("select path, reason from {rejected_files}", TABLE_ROWS, "path")
        return [SetAside(*row) for row in rows], count

    def hosts_without_recorder(self) -> tuple[list[str], int]:
        rows, count = self._tables.first(
            "select distinct sender as host from pairs where basis = 'gaps'", TABLE_ROWS, NATURAL
        )
        return [row.host for row in rows], count

    def sources(self) -> tuple[list[Source], int]:
        rows, count = self._tables.first(
            """with counted as (
                 select src, count(*) as receivers, sum(received) as received, sum(lost) as gaps,
                        sum(duplicates) as duplicates, sum(late) as late, max(restarts) as restarts,
                        sum(repaired) as repaired, sum(resent) as resent
                 from {sources} group by src),
               missed as (select src, sum(sent) as sent, sum(lost) as lost, sum(repaired) as mended
                          from {losses} where sender <> receiver group by src),
               named as (select src from counted union select src from missed)
               select src, coalesce(receivers, 0) as receivers, coalesce(received, 0) as received,
                      coalesce(lost, gaps, 0) as lost, coalesce(duplicates, 0) as duplicates,
                      coalesce(late, 0) as late, coalesce(restarts, 0) as restarts,
                      coalesce(sent, received + gaps, 0) as sent,
                      coalesce(mended, repaired, 0) as repaired, coalesce(resent, 0) as resent
               from named left join counted using (src) left join missed using (src)""",
            TABLE_ROWS, "restarts + lost + repaired + late + duplicates desc, received desc, src",
        )  # fmt: skip
        return [Source(*row) for row in rows], count

    def reorderings(self) -> tuple[list[Reordering], int]:
        rows, count = self._tables.first(
            """select r.receiver, r.src, coalesce(received, 0) as received, reordered, p50, top from
                 (select receiver, src, sum(reordered) as reordered, max_by(distance_p50, reordered) as p50,
                         max(distance_max) as top
                  from {reordering} group by receiver, src having sum(reordered) > 0) r
                 left join {sources} s on r.receiver = s.receiver and r.src = s.src""",
            TABLE_ROWS, "reordered desc, src, receiver",
        )  # fmt: skip
        return [Reordering(*row) for row in rows], count

    def copies(self) -> tuple[list[Copies], Copies, int]:
        """The pairs for which most was saved, the sum of all pairs, and how many there are."""
        whole = """with whole as (
            select sender, receiver, max(copies) as copies, sum(sent) as sent, sum(lost) as lost,
                   sum(lost_single) as lost_single, sum(saved) as saved
            from {copies} where copies > 1 and sender <> receiver group by sender, receiver)"""
        (row,) = self._rows(
            f"""{whole} select '' as sender, '' as receiver, coalesce(max(copies), 0) as copies,
                      coalesce(sum(sent), 0) as sent,
                      coalesce(sum(lost), 0) as lost, coalesce(sum(lost_single), 0) as lost_single,
                      coalesce(sum(saved), 0) as saved, count(*) as pairs from whole"""
        )
        rows = self._rows(
            f"{whole} select * from whole order by saved desc, sender, receiver limit :limit",
            limit=PAIRS_DRAWN,
        )
        return [Copies(*each) for each in rows], Copies(*row[:7]), row.pairs


def block_hosts(hosts: int) -> int:
    """How many hosts a row of the thumbnail stands for."""
    return max(1, -(-hosts // THUMBNAIL))


def _pair(row: Any) -> Pair:
    """Where a column is null, the pair has its default."""
    given = row._asdict()
    return NO_PAIR._replace(**{name: given[name] for name in Pair._fields if given[name] is not None})


NO_PAIR = Pair("", "", 0, 0)
