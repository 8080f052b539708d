"""From the tables to the page's few rows: all aggregation is Spark's, and what leaves it is bounded by a named limit.

Rules
- A table that is missing or empty gives no rows and no error: a page about two hosts without heartbeats is a page.
- Times leave Spark as whole microseconds: collected timestamps would be in the driver's time zone.
- Percentiles of hours cannot be merged exactly: for a longer time they are weighted by the messages of the hours.
- The matrix is never collected: at 1000 hosts it has a million ways. Chosen rows and columns are, and a thumbnail.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline import storage
from bccnd.pipeline.layout import TABLES
from bccnd.pipeline.report.rows import (
    OF_ONE_HOST,
    Bin,
    Block,
    Channel,
    Copies,
    Episode,
    Gap,
    HostLoss,
    Reason,
    Recorder,
    Rejection,
    Reordering,
    Silence,
    Source,
    Totals,
    Way,
)

WAYS = 12  # worst ways drawn over time: small multiples fill a screen, three rows of four
LATENCY_WAYS = 16  # slowest ways, a line each
TABLE_ROWS = 20  # of channels, sources, rejected traffic: what a person reads of a list
TIMELINE_ROWS = 30  # silent sources and recorders, a bar each
GAPS = 20  # of one recorder: more cannot be told apart in its bar
EPISODES = 50  # the findings say the worst few of them
NEARLY_ALL = 0.5  # of a way's messages: that is worth a sentence whatever else the host suffers
HOST_LOSSES = 20  # hosts looked at for a cause of their own
GAP_SECONDS = (
    2.0  # between two files of a recorder, below which nothing can be missing: the margin of the slots
)
MATRIX_HOSTS = 40  # rows and columns drawn whole: 1600 fields, each still 15 pixels wide on a laptop
WORST_HOSTS = 24  # rows and columns of a larger matrix that are drawn large
THUMBNAIL = 200  # rows and columns of the thumbnail; with more hosts a field stands for a block of them

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# A person's order: host2 comes before host10.
NATURAL = (
    "regexp_replace(host, '[0-9]+$', ''), try_cast(regexp_extract(host, '([0-9]+)$', 1) as bigint), host"
)


def moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


class Summaries:
    """What the page asks of the tables below a directory. To be closed: the matrix is kept between questions."""

    def __init__(self, spark: SparkSession, tables_dir: str) -> None:
        self._spark = spark
        self._directory = tables_dir.rstrip("/")
        self._tables = {name: self._table(name) for name in TABLES}
        self._ways = self._sql(
            """with timed as (select *, if(latency_p50_us is null, 0, greatest(received, 1)) as weight
                              from {delivery} where sender <> receiver)
               select sender, receiver, sum(sent) as sent, sum(lost) as lost, min(basis) as basis,
                      sum(bursts) as bursts, max_by(burst_p50, lost) as burst_p50, max(burst_max) as burst_max,
                      min(latency_method) as method,
                      sum(latency_p50_us * weight) / nullif(sum(weight), 0) as p50,
                      sum(latency_p90_us * weight) / nullif(sum(weight), 0) as p90,
                      sum(latency_p99_us * weight) / nullif(sum(weight), 0) as p99,
                      max(latency_max_us) as top
               from timed group by sender, receiver"""
        ).persist()

    def close(self) -> None:
        self._ways.unpersist()

    def _table(self, name: str) -> DataFrame:
        try:
            return self._spark.read.schema(TABLES[name]).parquet(f"{self._directory}/{name}")
        except AnalysisException:  # no such path
            return storage.empty(self._spark, TABLES[name])

    def _sql(self, query: str, **values: object) -> DataFrame:
        named = {name: table for name, table in self._tables.items() if f"{{{name}}}" in query}
        return self._spark.sql(query, **named, **values)  # type: ignore[arg-type]

    def _rows(self, query: str, **values: object) -> list[Any]:
        return self._sql(query, **values).collect()

    def period(self) -> tuple[datetime, datetime] | None:
        """Of the recorders; without their marks, of the minutes or hours there are."""
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
                        (select sender as host from {ways} union all select receiver from {ways})) as hosts,
                      count(*) as ways, count_if(lost > 0) as lossy_ways, coalesce(sum(sent), 0) as sent,
                      coalesce(sum(lost), 0) as lost, coalesce(sum(bursts), 0) as bursts,
                      count_if(method is not null and p50 is not null) as measured from {ways}""",
            ways=self._ways,
        )
        return Totals(*row)

    def worst_ways(self) -> list[Way]:
        """At most a few of any one receiver or sender, so that a single bad host does not fill them."""
        ranked = self._sql(
            """select *, row_number() over (partition by receiver order by lost desc, sender) as of_receiver,
                      row_number() over (partition by sender order by lost desc, receiver) as of_sender
               from {ways} where lost > 0""",
            ways=self._ways,
        )
        few = ranked.where(f"of_receiver <= {OF_ONE_HOST} and of_sender <= {OF_ONE_HOST}")
        rows = (
            few.drop("of_receiver", "of_sender")
            .orderBy("lost", "sender", ascending=[False, True])
            .limit(WAYS)
        )
        return [_way(row) for row in rows.collect()]

    def slowest_ways(self) -> list[Way]:
        rows = self._ways.where("method is not null and p50 is not null").orderBy("p99", ascending=False)
        return [_way(row) for row in rows.limit(LATENCY_WAYS).collect()]

    def host_losses(self) -> list[HostLoss]:
        rows = self._rows(
            """with by_host as (
                 select receiver as host, 'receiver' as role, count(*) as partners, count_if(lost > 0) as lossy,
                        sum(sent) as sent, sum(lost) as lost from {ways} group by receiver
                 union all
                 select sender, 'sender', count(*), count_if(lost > 0), sum(sent), sum(lost)
                   from {ways} group by sender),
               worst as (select * from by_host where lost > 0 order by lost desc, host, role limit {limit}),
               within as (
                 select receiver as host, 'receiver' as role, min(`from`) as start, max(until) as end
                   from {episodes} group by receiver
                 union all
                 select sender, 'sender', min(`from`), max(until) from {episodes} group by sender)
               select worst.*, unix_micros(start) as start, unix_micros(end) as end
               from worst left join within using (host, role) order by lost desc, host, role""",
            ways=self._ways, limit=HOST_LOSSES,
        )  # fmt: skip
        return [
            HostLoss(
                row.host, row.role, row.partners, row.lossy, row.sent, row.lost,
                row.start and moment(row.start), row.end and moment(row.end),
            )
            for row in rows
        ]  # fmt: skip

    def matrix_hosts(self, hosts: int) -> tuple[list[str], list[str]]:
        """Senders and receivers of the matrix as it is drawn large; all when there are few, else the worst."""
        return self._chosen("sender", hosts), self._chosen("receiver", hosts)

    def _chosen(self, role: str, hosts: int) -> list[str]:
        limit = MATRIX_HOSTS if hosts <= MATRIX_HOSTS else WORST_HOSTS
        worst = self._ways.groupBy(self._ways[role].alias("host")).agg({"lost": "sum"})
        worst = worst.orderBy("sum(lost)", "host", ascending=[False, True]).limit(limit)
        return [row.host for row in self._rows(f"select host from {{worst}} order by {NATURAL}", worst=worst)]  # noqa: S608

    def matrix(self, senders: Sequence[str], receivers: Sequence[str]) -> list[Way]:
        chosen = self._ways.where(self._ways.sender.isin(*senders) & self._ways.receiver.isin(*receivers))
        return [_way(row) for row in chosen.collect()]

    def thumbnail(self, hosts: int) -> list[Block]:
        """The blocks with loss of the whole matrix, hosts in a person's order."""
        numbered = self._sql(
            f"""select host, (row_number() over (order by {NATURAL}) - 1) div {{block}} as place from
                  (select sender as host from {{ways}} union select receiver from {{ways}})""",  # noqa: S608
            ways=self._ways, block=block_hosts(hosts),
        )  # fmt: skip
        rows = self._rows(
            """select s.place as row, r.place as column, max(lost / greatest(sent, 1)) as loss from {ways}
                 join {numbered} s on sender = s.host join {numbered} r on receiver = r.host
               where lost > 0 group by s.place, r.place""",
            ways=self._ways, numbered=numbered,
        )  # fmt: skip
        return [Block(*row) for row in rows]

    def episodes(self, explained: Sequence[HostLoss]) -> tuple[list[Episode], int]:
        """The worst, and how many there are; without those of explained hosts, unless most of a way was lost."""
        receivers = [host.host for host in explained if host.role == "receiver"]
        senders = [host.host for host in explained if host.role == "sender"]
        table = self._tables["episodes"]
        left = table.where(
            (table.lost >= NEARLY_ALL * table.sent)
            | ~(table.receiver.isin(*receivers) | table.sender.isin(*senders))
        )
        rows = self._rows(
            """select sender, receiver, unix_micros(`from`) as start, unix_micros(until) as end, sent, lost,
                      coalesce(burst_p50, 0) as burst from {left} order by lost desc, start limit {limit}""",
            left=left, limit=EPISODES,
        )  # fmt: skip
        found = [
            Episode(
                row.sender, row.receiver, moment(row.start), moment(row.end), row.sent, row.lost, row.burst
            )
            for row in rows
        ]
        return found, len(rows) if len(rows) < EPISODES else left.count()

    def bins(self, minutes: int, ways: Sequence[Way]) -> list[Bin]:
        """Loss in bins of so many minutes: on all ways together, and on each of the given."""
        few = storage.of_strings(
            self._spark,
            {"sender": [way.sender for way in ways], "receiver": [way.receiver for way in ways]},
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
        """The busiest; and of all how many, their messages and their bytes."""
        whole = self._sql(
            """select channel, sum(messages) as messages, sum(bytes) as size, max(rate_peak) as rate_peak,
                      sum(payload_p50 * messages) / greatest(sum(messages), 1) as payload_p50,
                      sum(payload_p95 * messages) / greatest(sum(messages), 1) as payload_p95,
                      max(payload_max) as payload_max
               from {channels} group by channel"""
        )
        (total,) = self._rows(
            """select count(*) as n, coalesce(sum(messages), 0) as messages, coalesce(sum(size), 0) as size
               from {whole}""",
            whole=whole,
        )
        rows = whole.orderBy("messages", "channel", ascending=[False, True]).limit(TABLE_ROWS).collect()
        return [Channel(*row) for row in rows], total.n, total.messages, total.size

    def silences(self) -> tuple[list[Silence], int]:
        """The silences of a source that observers noticed at overlapping times are one. Lasting ones first."""
        merged = self._sql(
            """with ends as (select host, max(until_ns) div 1000 as end from {coverage} group by host),
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
            margin=int(GAP_SECONDS * 1e6),
        ).persist()
        rows = merged.selectExpr("*", "end - start as length").orderBy("ongoing", "length", ascending=False)
        found = [
            Silence(
                row.src,
                moment(row.start),
                moment(row.end),
                row.expected,
                tuple(row.observers),
                bool(row.ongoing),
            )
            for row in rows.limit(TIMELINE_ROWS).collect()
        ]
        count = merged.count()
        merged.unpersist()
        return found, count

    def reasons(self) -> list[Reason]:
        """Why datagrams were dropped, harmless reasons and others."""
        rows = self._rows(
            """select verdict, max(datagrams) as datagrams, max(peers) as peers, count(*) as hosts
               from (select verdict, host, sum(datagrams) as datagrams, count(distinct peer) as peers
                     from {rejected} group by verdict, host)
               group by verdict order by datagrams desc, verdict limit {limit}""",
            limit=TABLE_ROWS,
        )
        return [Reason(*row) for row in rows]

    def rejections(self) -> tuple[list[Rejection], int]:
        """By reason and peer, without what is dropped every day."""
        whole = self._sql(
            """with seen as (select verdict, coalesce(peer, 'this host') as peer, host, sum(datagrams) as datagrams,
                                    min(first) as first, max(last) as last, max(example_channel) as channel
                             from {rejected} where verdict not in ('ok', 'own', 'duplicate', 'late')
                             group by verdict, coalesce(peer, 'this host'), host)
               select verdict, peer, max(datagrams) as datagrams, count(*) as hosts, max_by(host, datagrams) as host,
                      unix_micros(min(first)) as first, unix_micros(max(last)) as last,
                      coalesce(max(channel), '') as channel
               from seen group by verdict, peer"""
        )
        rows = (
            whole.orderBy("datagrams", "verdict", "peer", ascending=[False, True, True])
            .limit(TABLE_ROWS)
            .collect()
        )
        found = [
            Rejection(
                row.verdict,
                row.peer,
                row.datagrams,
                row.hosts,
                row.host,
                row.first and moment(row.first),
                row.last and moment(row.last),
                row.channel,
            )
            for row in rows
        ]
        return found, len(rows) if len(rows) < TABLE_ROWS else whole.count()

    def recorders(self) -> tuple[list[Recorder], int]:
        """Those with most to say first: what they lost themselves, when they were off; and how many there are."""
        marked = self._sql(
            """select host, from_ns div 1000 as start, until_ns div 1000 as end,
                      coalesce(unrecorded, 0) as unrecorded,
                      max(until_ns div 1000) over (partition by host order by from_ns, until_ns
                                                   rows between unbounded preceding and 1 preceding) as before
               from {coverage}"""
        )
        whole = self._sql(
            """select host, min(start) as start, max(end) as end, sum(unrecorded) as unrecorded,
                      coalesce(sum(start - before) filter (where start > before + {margin}), 0) as missing,
                      count_if(start > before + {margin}) as pauses,
                      slice(array_sort(collect_list(struct(before - start as shortness, before, start))
                            filter (where start > before + {margin})), 1, {gaps}) as gaps
               from {marked} group by host""",
            marked=marked, margin=int(GAP_SECONDS * 1e6), gaps=GAPS,
        )  # fmt: skip
        rows = whole.selectExpr("*", f"row_number() over (order by {NATURAL}) as place")
        rows = rows.orderBy("unrecorded", "missing", "place", ascending=[False, False, True]).limit(
            TIMELINE_ROWS
        )
        found = [
            Recorder(
                row.host, moment(row.start), moment(row.end), row.missing / 1e6, row.unrecorded, row.pauses,
                tuple(sorted(Gap(moment(gap.before), moment(gap.start)) for gap in row.gaps)),
            )
            for row in rows.collect()
        ]  # fmt: skip
        count = len(found) if len(found) < TIMELINE_ROWS else whole.count()
        return found, count

    def hosts_without_recorder(self) -> tuple[list[str], int]:
        whole = self._ways.where("basis = 'gaps'").selectExpr("sender as host").distinct()
        rows = self._rows(f"select host from {{whole}} order by {NATURAL} limit {TABLE_ROWS}", whole=whole)  # noqa: S608
        return [row.host for row in rows], len(rows) if len(rows) < TABLE_ROWS else whole.count()

    def sources(self) -> tuple[list[Source], int]:
        whole = self._sql(
            """select src, count(*) as receivers, sum(received) as received, sum(lost) as lost,
                      sum(duplicates) as duplicates, sum(late) as late, max(restarts) as restarts
               from (select src, receiver, sum(received) as received, sum(lost) as lost,
                            sum(duplicates) as duplicates, sum(late) as late, sum(restarts) as restarts
                     from {sources} group by src, receiver)
               group by src"""
        )
        rows = whole.selectExpr("*", "restarts + lost + late + duplicates as weight")
        rows = rows.orderBy("weight", "received", "src", ascending=[False, False, True]).limit(TABLE_ROWS)
        found = [Source(*row[:7]) for row in rows.collect()]
        return found, len(found) if len(found) < TABLE_ROWS else whole.count()

    def reorderings(self) -> tuple[list[Reordering], int]:
        whole = self._sql(
            """select r.receiver, r.src, coalesce(received, 0) as received, reordered, p50, top from
                 (select receiver, src, sum(reordered) as reordered, max_by(distance_p50, reordered) as p50,
                         max(distance_max) as top
                  from {reordering} group by receiver, src having sum(reordered) > 0) r
                 left join (select receiver, src, sum(received) as received from {sources} group by receiver, src) s
                   on r.receiver = s.receiver and r.src = s.src"""
        )
        rows = (
            whole.orderBy("reordered", "src", "receiver", ascending=[False, True, True])
            .limit(TABLE_ROWS)
            .collect()
        )
        return [Reordering(*row) for row in rows], len(rows) if len(rows) < TABLE_ROWS else whole.count()

    def copies(self) -> tuple[list[Copies], Copies, int]:
        """The ways on which most was saved, the sum of all ways, and how many they are."""
        whole = self._sql(
            """select sender, receiver, max(copies) as copies, sum(sent) as sent, sum(lost) as lost,
                      sum(lost_single) as lost_single, sum(saved) as saved
               from {copies} where copies > 1 and sender <> receiver group by sender, receiver"""
        )
        (row,) = self._rows(
            """select '' as sender, '' as receiver, coalesce(max(copies), 0) as copies,
                      coalesce(sum(sent), 0) as sent,
                      coalesce(sum(lost), 0) as lost, coalesce(sum(lost_single), 0) as lost_single,
                      coalesce(sum(saved), 0) as saved, count(*) as ways from {whole}""",
            whole=whole,
        )
        rows = (
            whole.orderBy("saved", "sender", "receiver", ascending=[False, True, True]).limit(WAYS).collect()
        )
        return [Copies(*way) for way in rows], Copies(*row[:7]), row.ways


def block_hosts(hosts: int) -> int:
    """How many hosts a row of the thumbnail stands for."""
    return max(1, -(-hosts // THUMBNAIL))


def _way(row: Any) -> Way:
    """With what the defaults say where a column is null."""
    return NO_WAY._replace(**{name: value for name, value in row.asDict().items() if value is not None})


NO_WAY = Way("", "", 0, 0)
