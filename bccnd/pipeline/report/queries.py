"""From the tables to the few rows of the page: Spark aggregates, and a named limit bounds what leaves it.

Rules
- A missing or empty table gives no rows and no error: two hosts without heartbeats get a page, too.
- Times leave Spark as whole microseconds, because collected timestamps would be in the driver's time zone.
- Percentiles of hours cannot be merged exactly. For a longer time they are weighted by the messages of the hours.
- The matrix is never collected: with 1000 hosts it has a million pairs. Chosen rows and columns are, and a thumbnail.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import storage
from bccnd.pipeline.coverage import MARGIN_NS
from bccnd.pipeline.layout import REJECTED_FILES
from bccnd.pipeline.report.evidence import Evidence, moment
from bccnd.pipeline.report.rows import (
    OF_ONE_HOST,
    Bin,
    Block,
    Channel,
    Copies,
    Episode,
    Gap,
    HostLoss,
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

# The worst pairs drawn over time: a screen holds four rows of three.
PAIRS = 12
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

# The order that people expect: host2 comes before host10.
NATURAL = (
    "regexp_replace(host, '[0-9]+$', '')",
    "try_cast(regexp_extract(host, '([0-9]+)$', 1) as bigint)",
    "host",
)


class Summaries(Evidence):
    """The questions of the page to the tables below a directory. Close it: the matrix is kept between questions."""

    def period(self) -> tuple[datetime, datetime] | None:
        """The time that the recorders cover, or, without their marks, that of the minutes or hours."""
        for query in (
            "select min(from_ns) div 1000 as start, max(until_ns) div 1000 as end from {coverage}",
            "select unix_micros(min(minute)) as start, unix_micros(max(minute)) + 60000000 as end from {minutes}",
            """select unix_micros(min(hour)) as start, unix_micros(max(hour)) + 3600000000 as end
               from (select hour from {delivery} union all select hour from {sources})""",
        ):
            (row,) = self._rows(query)
            if row.start is not None:
                return moment(row.start), moment(row.end)
        return None

    def totals(self) -> Totals:
        (row,) = self._rows(
            """select (select count(distinct host) from
                        (select sender as host from {pairs} union all select receiver from {pairs})) as hosts,
                      count(*) as pairs, count_if(lost > 0) as lossy_pairs, coalesce(sum(sent), 0) as sent,
                      coalesce(sum(lost), 0) as lost, count_if(method is not null and p50 is not null) as measured,
                      count_if(sent > 0 and lost = sent) as dead, coalesce(sum(late), 0) as late
               from {pairs}""",
            pairs=self._pairs,
        )
        return Totals(*row)

    def worst_pairs(self) -> list[Pair]:
        """The worst, but only a few of any one receiver or sender: a single bad host must not fill the list."""
        ranked = self._sql(
            """select *, row_number() over (partition by receiver order by lost desc, sender) as of_receiver,
                      row_number() over (partition by sender order by lost desc, receiver) as of_sender
               from {pairs} where lost > 0""",
            pairs=self._pairs,
        )
        few = ranked.where(f"of_receiver <= {OF_ONE_HOST} and of_sender <= {OF_ONE_HOST}")
        rows = _ordered(few.drop("of_receiver", "of_sender"), PAIRS, "lost desc", "sender")
        return [_pair(row) for row in rows]

    def slowest_pairs(self) -> list[Pair]:
        measured = self._pairs.where("method is not null and p50 is not null")
        return [_pair(row) for row in _ordered(measured, LATENCY_PAIRS, "p99 desc")]

    def matrix_hosts(self, hosts: int) -> tuple[list[str], list[str]]:
        """The senders and receivers of the matrix drawn large: all if they are few, else the worst."""
        return self._chosen("sender", hosts), self._chosen("receiver", hosts)

    def _chosen(self, role: str, hosts: int) -> list[str]:
        limit = MATRIX_HOSTS if hosts <= MATRIX_HOSTS else WORST_HOSTS
        worst = self._pairs.groupBy(self._pairs[role].alias("host")).agg({"lost": "sum"})
        worst = worst.orderBy("sum(lost)", "host", ascending=[False, True]).limit(limit)
        return [row.host for row in _ordered(worst, limit, *NATURAL)]

    def matrix(self, senders: Sequence[str], receivers: Sequence[str]) -> list[Pair]:
        chosen = self._pairs.where(self._pairs.sender.isin(*senders) & self._pairs.receiver.isin(*receivers))
        return [_pair(row) for row in chosen.collect()]

    def thumbnail(self, hosts: int) -> list[Block]:
        """The blocks with loss of the whole matrix, with hosts in natural order."""
        numbered = self._sql(
            f"""select host, (row_number() over (order by {", ".join(NATURAL)}) - 1) div {{block}} as place from
                  (select sender as host from {{pairs}} union select receiver from {{pairs}})""",  # noqa: S608
            pairs=self._pairs, block=block_hosts(hosts),
        )  # fmt: skip
        rows = self._rows(
            """select s.place as row, r.place as column, max(lost / greatest(sent, 1)) as loss from {pairs}
                 join {numbered} s on sender = s.host join {numbered} r on receiver = r.host
               where lost > 0 group by s.place, r.place""",
            pairs=self._pairs, numbered=numbered,
        )  # fmt: skip
        return [Block(*row) for row in rows]

    def episodes(self, explained: Sequence[HostLoss], apart: Sequence[str] = ()) -> tuple[list[Episode], int]:
        """The worst, and how many there are; without those of ``explained`` hosts, unless most messages were lost,
        and without the total losses of hosts ``apart``, of which a finding of their own tells.
        """
        receivers = [host.host for host in explained if host.role == "receiver"]
        senders = [host.host for host in explained if host.role == "sender"]
        table = self._tables["episodes"]
        all_lost = (table.lost == table.sent) & (table.receiver.isin(*apart) | table.sender.isin(*apart))
        left = table.where(~all_lost).where(
            (table.lost >= NEARLY_ALL * table.sent)
            | ~(table.receiver.isin(*receivers) | table.sender.isin(*senders))
        )
        whole = left.selectExpr(
            "sender", "receiver", "unix_micros(`from`) as start", "unix_micros(until) as end", "sent", "lost",
            "coalesce(burst_p50, 0) as burst", "coalesce(outages, 0) as outages", "coalesce(outage_s, 0) as outage",
            "coalesce(transform(starts, at -> unix_micros(at)), array()) as starts",
        )  # fmt: skip
        rows, count = _first(whole, EPISODES, "lost desc", "start")
        found = [
            Episode(*row)._replace(
                start=moment(row.start), end=moment(row.end), starts=tuple(map(moment, row.starts))
            )
            for row in rows
        ]
        return found, count

    def bins(self, minutes: int, pairs: Sequence[Pair]) -> list[Bin]:
        """Loss in bins of so many minutes, of all pairs together and of each of ``pairs``."""
        few = storage.of_strings(
            self._spark,
            {"sender": [pair.sender for pair in pairs], "receiver": [pair.receiver for pair in pairs]},
        )
        rows = self._rows(
            """with binned as (select sender, receiver, sent, lost, unix_micros(minute) div {width} * {width} as start
                               from {minutes} where sender <> receiver)
               select '' as sender, '' as receiver, start, sum(sent) as sent, sum(lost) as lost
                 from binned group by start
               union all
               select sender, receiver, start, sum(sent), sum(lost) from binned
                 join (select /*+ broadcast */ * from {few}) using (sender, receiver) group by sender, receiver, start
               order by start""",
            width=minutes * 60_000_000, few=few,
        )  # fmt: skip
        return [Bin(row.sender, row.receiver, moment(row.start), row.sent, row.lost) for row in rows]

    def channels(self) -> tuple[list[Channel], int, int, int]:
        """The busiest; and the number, the messages and the bytes of all channels."""
        whole = self._sql(
            """select channel, sum(messages) as messages, sum(bytes) as size, max(rate_peak) as rate_peak,
                      sum(payload_p50 * messages) / sum(case when payload_p50 is not null then messages end)
                        as payload_p50,
                      sum(payload_p95 * messages) / sum(case when payload_p95 is not null then messages end)
                        as payload_p95,
                      max(payload_max) as payload_max
               from {channels} group by channel"""
        )
        (total,) = self._rows(
            """select count(*) as n, coalesce(sum(messages), 0) as messages, coalesce(sum(size), 0) as size
               from {whole}""",
            whole=whole,
        )
        rows = _ordered(whole, TABLE_ROWS, "messages desc", "channel")
        return [Channel(*row) for row in rows], total.n, total.messages, total.size

    def silences(self) -> tuple[list[Silence], int]:
        """Silences of a source that observers noticed at overlapping times count as one. Lasting ones come first."""
        merged = self._sql(
            """with ends as (select host, max(until_ns) div 1000 as end from {coverage}
                             where coalesce(counted, true) group by host),
                    heard as (
                      select src, observer, coalesce(expected_s, 0) as expected, unix_micros(`from`) as start,
                             coalesce(unix_micros(until), end, unix_micros(`from`)) as end,
                             until is null or unix_micros(until) >= end - {margin} as lasting
                      from {silences} left join ends on observer = host),
                    marked as (
                      select *, max(end) over (partition by src order by start, end, observer
                                               rows between unbounded preceding and 1 preceding) as before
                      from heard),
                    numbered as (
                      select *, count_if(before is null or start > before) over
                                  (partition by src order by start, end, observer) as island from marked)
               select src, min(start) as start, max(end) as end, max(expected) as expected,
                      sort_array(collect_set(observer)) as observers, max_by(lasting, end) as ongoing
               from numbered group by src, island""",
            margin=GAP_MICROSECONDS,
        )
        rows, count = _first(merged, TIMELINE_ROWS, "ongoing desc", "end - start desc")
        found = [
            Silence(
                row.src, moment(row.start), moment(row.end), row.expected, tuple(row.observers), bool(row.ongoing)
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
               group by verdict order by datagrams desc, verdict limit {limit}""",
            limit=TABLE_ROWS,
        )
        return [Reason(*row) for row in rows]

    def rejections(self, keys: Sequence[str] = ()) -> tuple[list[Rejection], int]:
        """Rejected datagrams by verdict and peer, without the harmless ones, and without those that hosts rejected of
        each other because one of them, of ``keys``, has another key.
        """
        rejected = self._tables["rejected"]
        whole = self._sql(
            """with seen as (select verdict, coalesce(peer, 'this host') as peer, host, sum(datagrams) as datagrams,
                                    min(first) as first, max(last) as last, max(example_channel) as channel,
                                    max(peer_host) as peer_host
                             from {harmful} group by verdict, coalesce(peer, 'this host'), host)
               select verdict, peer, max(datagrams) as datagrams, count(*) as hosts, max_by(host, datagrams) as host,
                      unix_micros(min(first)) as first, unix_micros(max(last)) as last,
                      coalesce(max(channel), '') as channel, coalesce(max(peer_host), '') as peer_host
               from seen group by verdict, peer""",
            harmful=rejected.where(~rejected.verdict.isin(*HARMLESS)).where(
                ~rejected.verdict.isin("hmac", "unauthenticated")
                | F.isnull("peer_host")
                | ~(F.col("host").isin(*keys) | F.col("peer_host").isin(*keys))
            ),
        )  # fmt: skip
        rows, count = _first(whole, TABLE_ROWS, "datagrams desc", "verdict", "peer")
        found = [
            Rejection(*row)._replace(
                first=row.first and moment(row.first), last=row.last and moment(row.last)
            )
            for row in rows
        ]
        return found, count

    def recorders(self) -> tuple[list[Recorder], int]:
        """Those that missed most messages first, then those that were off longest; and how many there are."""
        marked = self._sql(
            """select host, from_ns div 1000 as start, until_ns div 1000 as end,
                      coalesce(unrecorded, 0) as unrecorded, coalesce(capture, false) as capture,
                      max(until_ns div 1000) over (partition by host order by from_ns, until_ns
                                                   rows between unbounded preceding and 1 preceding) as before
               from {coverage} where coalesce(counted, true)"""
        )
        whole = self._sql(
            """select host, min(start) as start, max(end) as end, sum(unrecorded) as unrecorded,
                      coalesce(sum(start - before) filter (where start > before + {margin}), 0) as missing,
                      count_if(start > before + {margin}) as pauses, bool_or(capture) as capture,
                      slice(array_sort(collect_list(struct(before - start as shortness, before, start))
                            filter (where start > before + {margin})), 1, {gaps}) as gaps
               from {marked} group by host""",
            marked=marked, margin=GAP_MICROSECONDS, gaps=GAPS,
        )  # fmt: skip
        rows, count = _first(whole, TIMELINE_ROWS, "unrecorded desc", "missing desc", *NATURAL)
        found = [
            Recorder(
                row.host, moment(row.start), moment(row.end), row.missing / 1e6, row.unrecorded, row.pauses,
                tuple(sorted(Gap(moment(gap.before), moment(gap.start)) for gap in row.gaps)), row.capture,
            )
            for row in rows
        ]  # fmt: skip
        return found, count

    def captured(self) -> tuple[list[str], list[str]]:
        """The hosts recorded by captures; and those of which a capture was left out, because they have a recorder."""
        rows = self._rows(
            f"""select host, bool_and(coalesce(counted, true)) as counted from {{coverage}} where capture
                group by host order by {", ".join(NATURAL)}"""  # noqa: S608
        )
        return [row.host for row in rows if row.counted], [row.host for row in rows if not row.counted]

    def set_aside(self, directory: str | None) -> tuple[list[SetAside], int]:
        """The files that ``ingest`` could not take over, and how many they are."""
        if directory is None or not storage.exists(self._spark, directory):
            return [], 0
        whole = self._spark.read.schema(REJECTED_FILES).parquet(directory)
        rows, count = _first(whole, TABLE_ROWS, "path")
        return [SetAside(row.path, row.reason) for row in rows], count

    def hosts_without_recorder(self) -> tuple[list[str], int]:
        whole = self._pairs.where("basis = 'gaps'").selectExpr("sender as host").distinct()
        rows, count = _first(whole, TABLE_ROWS, *NATURAL)
        return [row.host for row in rows], count

    def sources(self) -> tuple[list[Source], int]:
        whole = self._sql(
            """with counted as (
                 select src, count(*) as receivers, sum(received) as received, sum(lost) as gaps,
                        sum(duplicates) as duplicates, sum(late) as late, max(restarts) as restarts
                 from (select src, receiver, sum(received) as received, sum(lost) as lost,
                              sum(duplicates) as duplicates, sum(late) as late, sum(restarts) as restarts
                       from {sources} group by src, receiver)
                 group by src),
               missed as (select src, sum(sent) as sent, sum(lost) as lost from {losses}
                          where sender <> receiver group by src)
               select src, coalesce(receivers, 0) as receivers, coalesce(received, 0) as received,
                      coalesce(lost, gaps, 0) as lost, coalesce(duplicates, 0) as duplicates,
                      coalesce(late, 0) as late, coalesce(restarts, 0) as restarts,
                      coalesce(sent, received + gaps, 0) as sent
               from counted full join missed using (src)"""
        )
        weight = "restarts + lost + late + duplicates desc"
        rows, count = _first(whole, TABLE_ROWS, weight, "received desc", "src")
        return [Source(*row) for row in rows], count

    def reorderings(self) -> tuple[list[Reordering], int]:
        whole = self._sql(
            """select r.receiver, r.src, coalesce(received, 0) as received, reordered, p50, top from
                 (select receiver, src, sum(reordered) as reordered, max_by(distance_p50, reordered) as p50,
                         max(distance_max) as top
                  from {reordering} group by receiver, src having sum(reordered) > 0) r
                 left join (select receiver, src, sum(received) as received from {sources} group by receiver, src) s
                   on r.receiver = s.receiver and r.src = s.src"""
        )
        rows, count = _first(whole, TABLE_ROWS, "reordered desc", "src", "receiver")
        return [Reordering(*row) for row in rows], count

    def copies(self) -> tuple[list[Copies], Copies, int]:
        """The pairs for which most was saved, the sum of all pairs, and how many there are."""
        whole = self._sql(
            """select sender, receiver, max(copies) as copies, sum(sent) as sent, sum(lost) as lost,
                      sum(lost_single) as lost_single, sum(saved) as saved
               from {copies} where copies > 1 and sender <> receiver group by sender, receiver"""
        )
        (row,) = self._rows(
            """select '' as sender, '' as receiver, coalesce(max(copies), 0) as copies,
                      coalesce(sum(sent), 0) as sent,
                      coalesce(sum(lost), 0) as lost, coalesce(sum(lost_single), 0) as lost_single,
                      coalesce(sum(saved), 0) as saved, count(*) as pairs from {whole}""",
            whole=whole,
        )
        rows = _ordered(whole, PAIRS, "saved desc", "sender", "receiver")
        return [Copies(*each) for each in rows], Copies(*row[:7]), row.pairs


def block_hosts(hosts: int) -> int:
    """How many hosts a row of the thumbnail stands for."""
    return max(1, -(-hosts // THUMBNAIL))


def _ordered(whole: DataFrame, limit: int, *order: str) -> list[Any]:
    """The first rows by ``order``, expressions of SQL of which some end with ``desc``."""
    by = [F.expr(each.removesuffix(" desc")) for each in order]
    ascending = [not each.endswith(" desc") for each in order]
    return whole.orderBy(*by, ascending=ascending).limit(limit).collect()


def _first(whole: DataFrame, limit: int, *order: str) -> tuple[list[Any], int]:
    """The first rows by ``order``, and how many rows there are in all."""
    rows = _ordered(whole, limit, *order)
    return rows, len(rows) if len(rows) < limit else whole.count()


def _pair(row: Any) -> Pair:
    """Where a column is null, the pair has its default."""
    return NO_PAIR._replace(**{name: value for name, value in row.asDict().items() if value is not None})


NO_PAIR = Pair("", "", 0, 0)
