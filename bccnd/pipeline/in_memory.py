"""The tables' largest part made in memory, where the digests lie on this machine: ``matching``, to and from Spark.

Rules
- The result is the same as Spark's: ``analyse`` takes whichever is possible. Spark makes the rest of the tables,
  which have few rows.
- Data with more rows than MOST says does not fit into memory: then Spark does everything.
- Received words are processed in parts (``ordered.Words.parts``), so that results for all parts are never in memory
  together.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bccnd.pipeline import arrays, delays, latency, matching, ordered, segments
from bccnd.pipeline.arrays import Array, Columns
from bccnd.pipeline.columnar import in_sample
from bccnd.pipeline.layout import PAIR, TABLES
from bccnd.pipeline.segments import Talk
from bccnd.pipeline.times import HOUR_NS, MINUTE_NS, SECOND_NS
from bccnd.recorder.layout import Direction

# Rows of digests that are held in memory, where Spark's heap of 4 GB has nothing to do meanwhile.
# 170 bytes each, while they are read and put in order: 2.7 GB. 50 million messages of 200 hosts are 5 million words.
WORDS = 16_000_000
# 215 bytes each, while words take 100: 1.7 GB. As many as ``latency`` samples of each digest, and all messages of
# who chooses numbers that are in each sample.
SAMPLED = 4 * latency.SAMPLED_ROWS
# 550 bytes each, as Python looks at a row for each address that somebody is known by: 1.1 GB.
HEARD = 2_000_000
# Rows of ``marks``, which Python looks at one by one: 850 bytes each.
MARKS = 500_000
MOST = {"words": WORDS, "sample": SAMPLED, "heard": HEARD, "marks": MARKS}
# Hosts times hosts times minutes, of which each has a row with loss even where nobody heard anything: eight numbers,
# held twice, and a row of Arrow, 200 bytes together.
PAIR_MINUTES = 8_000_000
_ENDS = ("from_ns", "until_ns")
_TIMES = {"hour": HOUR_NS, "minute": MINUTE_NS}
_MOMENT = pa.timestamp("us", tz="UTC")
_TYPES = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "double": pa.float64(),
          "boolean": pa.bool_(), "timestamp": _MOMENT}  # fmt: skip


class Found(NamedTuple):
    """What ``matching`` found of pairs with a record, as the functions of ``delivery`` and ``copies`` would."""

    minutes: pa.Table
    losses: pa.Table
    senders: pa.Table
    copies: pa.Table
    bursts: pa.Table


class InMemory:
    """Of the digests that ``read`` gives of a name, ``words``, ``sample`` and ``heard``, and the stretches of each
    host.
    """

    def __init__(
        self,
        spark: SparkSession,
        read: Callable[[str], Iterator[pa.Table]],
        stretches: Mapping[str, Sequence[tuple[int, int]]],
        slot_ns: int,
    ) -> None:
        self._spark, self._stretches_by_name, self._read = spark, stretches, read
        words = ordered.Words(read("words"), slot_ns, stretches)
        self._hosts, self._sources = words.hosts, words.sources
        self._stretches = {
            int(host): (np.array(spans, np.int64)[:, 0], np.array(spans, np.int64)[:, 1])
            for host, spans in zip(
                self._hosts.of(pa.array(stretches, pa.string())), stretches.values(), strict=True
            )
        }
        self._owner, self._recorded = words.owners()
        apart = latency.apart(words.rows)
        sample = pa.concat_tables(
            table.drop(["capture", "date"]).filter(
                pa.array(in_sample(table["src"], table["word"].to_numpy(), apart))
            )
            for table in read("sample")
        )
        self._latencies = delays.latencies(words, sample, self._owner, self._recorded)
        del sample
        sums, judged, late = list[Columns](), list[Columns](), list[Columns]()
        for seen in words.parts():
            missing = matching.gaps(seen, self._stretches)
            sums.append(matching.sources(words, seen, missing))
            judged.append(self._judged(missing))
            late.append(arrays.grouped(seen, ("host", "src"), {"late": np.add}))
        self._sums, self._gaps, self._late = map(arrays.together, (sums, judged, late))
        self._sent = matching.Sent(words, self._owner)

    # -- as Spark's functions

    def sources(self) -> pa.Table:
        """``loss.sources``."""
        return self._table("sources", self._sums | {"receiver": self._sums["host"]})

    def owned(self) -> DataFrame:
        """``delivery.owners``."""
        return self._frame(
            {
                "src": self._sources.strings(np.arange(len(self._owner))),
                "sender": self._hosts.strings(self._owner),
                "recorded": pa.array(self._recorded),
            }
        )

    def talks(self) -> list[Talk]:
        """``segments.whom`` makes ``addresses`` and ``edges`` of it."""
        parts = [self._talk(table) for table in self._read("heard")]
        sums = pa.concat_tables(parts).group_by([*Talk._fields[:-1]]).aggregate([("delivered", "sum")])
        found = sums.rename_columns({"delivered_sum": "delivered"})
        # Anybody can send from any number of addresses: those that nobody is known by are no rows of Python.
        named = pc.or_(found["echo"], pc.is_valid(found["sender"]))
        known = found.filter(named)
        others = found.filter(pc.and_(pc.invert(named), pc.is_in(found["address"], known["address"])))
        return segments.talks(pa.concat_tables([known, others]))

    def _talk(self, heard: pa.Table) -> pa.Table:
        """A row for each ``Talk``, of some that was ``heard``."""
        rows = heard.filter(
            pc.field("direction").isin([Direction.IN.value, Direction.ECHO.value])
            & pc.field("address").is_valid()
        )
        owner = np.append(self._owner, -1)[self._sources.of(rows["src"])]
        told = pa.table(
            {
                **{name: rows[name].cast(pa.string()) for name in ("host", "interface", "address")},
                "delivered": rows["delivered"],
                "echo": pc.equal(rows["direction"], Direction.ECHO.value),
                "sender": self._hosts.strings(owner),
            }
        )
        sums = told.group_by([*Talk._fields[:-1]]).aggregate([("delivered", "sum")])
        return sums.rename_columns({"delivered_sum": "delivered"})

    def pairs(self, places: Iterable[tuple[str, str]]) -> pa.Table:
        """``delivery.pairs``, of ``segments.segments``."""
        together = defaultdict[str, set[str]](set)
        for host, segment in places:
            together[segment].add(host)
        senders = {self._hosts.all[host] for host in self._owner[self._recorded]}
        found = sorted(
            {
                (sender, receiver)
                for hosts in together.values()
                for sender in hosts & senders
                for receiver in hosts & self._stretches_by_name.keys()
                if sender != receiver
            }
        )
        offsets = self._latencies.offsets
        ahead = zip(*(self._hosts.strings(offsets[name]).to_pylist() for name in PAIR), strict=True)
        apart = dict(
            zip(
                ahead,
                zip(offsets["least_ns"].tolist(), offsets["most_ns"].tolist(), strict=True),
                strict=True,
            )
        )
        rows = []
        for pair in found:
            least, most = apart.get(pair, (0, 0))
            rows.append([(since - least, until - most) for since, until in self._stretches_by_name[pair[1]]])
        columns = [*zip(*found, strict=True)] or [(), ()]
        return pa.table(
            {
                **{name: pa.array(column, pa.string()) for name, column in zip(PAIR, columns, strict=True)},
                "stretches": _spans(rows),
            }
        )

    def stretches(self) -> DataFrame:
        """``coverage.stretches``."""
        return stretches_frame(self._spark, self._stretches_by_name)

    def late(self) -> DataFrame:
        """Of ``words.of``, what ``reordering.suspects`` asks for."""
        late = self._late
        return self._frame(
            {
                "direction": pa.repeat("in", len(late["host"])),
                "host": self._hosts.strings(late["host"]),
                "src": self._sources.strings(late["src"]),
                "late": pa.array(late["late"]),
            }
        )

    def offsets(self) -> DataFrame:
        """``latency.offsets``."""
        return self._frame(self._named(self._latencies.offsets))

    def latency(self) -> DataFrame:
        """``latency.latency``."""
        found = self._latencies.table
        offset = found["offset"]
        columns: dict[str, Any] = self._named({name: found[name] for name in (*PAIR, "hour")})
        method = np.where(np.isnan(offset), "above-fastest", "both-ways")
        columns |= {"latency_method": pa.array(method, pa.string()), "clock_offset_us": _known(offset / 1000)}
        columns |= {name: _known(values) for name, values in found.items() if name.endswith("_us")}
        return self._frame(columns)

    def _judged(self, gaps: Columns) -> Columns:
        """Those of ``matching.gaps`` that the sender's record says nothing of."""
        sender = self._owner[gaps["src"]]
        pairs = {"sender": sender, "receiver": gaps["host"]}
        at = arrays.found(pairs, self._latencies.offsets, PAIR)
        least, most = (np.append(self._latencies.offsets[name], 0)[at] for name in ("least_ns", "most_ns"))
        since = np.where(gaps["is_first"], gaps["first_ns"], gaps["since_ns"])
        # Whether one stretch of the sender has all of it.
        order = np.argsort(sender, kind="stable")
        begin = np.empty(len(order), np.int64)
        end = np.empty(len(order), np.int64)
        begin[order] = matching.at_stretches(sender[order], (since - most)[order], self._stretches)
        end[order] = matching.at_stretches(sender[order], (gaps["last_ns"] - least)[order], self._stretches)
        covered = (begin == end) & (begin % 2 == 1)
        judged = (sender != gaps["host"]) & ~(self._recorded[gaps["src"]] & covered)
        return arrays.chosen(gaps, np.flatnonzero(judged))

    def gaps(self) -> DataFrame | None:
        """Those of ``loss.gaps`` that ``guesses.by_gaps`` counts; None without any."""
        found = dict(self._gaps)
        if not len(found["host"]):
            return None
        first = found.pop("is_first")
        columns: dict[str, Any] = dict(found)
        columns["receiver"] = self._hosts.strings(columns.pop("host"))
        columns["src"] = self._sources.strings(found["src"])
        columns["epoch"] = columns["epoch"].astype(np.int32)
        for name in ("previous", "previous_high", "since_ns"):
            columns[name] = pa.array(found[name], mask=first)
        return self._frame(columns)

    def sent(self) -> DataFrame:
        """Of ``delivery.sent``, what ``guesses.by_gaps`` asks for."""
        known = self._sent.known()
        frame = self._frame({**known, "src": self._sources.strings(known["src"])})
        return frame.withColumn("slots", F.array(F.struct(F.col("known").alias("bits")))).drop("known")

    def matched(self, places: Iterable[tuple[str, str]], seconds: int | None) -> Found:
        """``segments.segments`` -> what is made of ``delivery.matched``; ``seconds`` are those of a step."""
        self._pairs = matching.Pairs(self.pairs(places), self._hosts)
        found = self._sent.matched(self._pairs, seconds * SECOND_NS if seconds else None)
        self._steps = found.steps
        minutes = self._named(found.minutes)
        return Found(
            pa.table(minutes),
            self._table("losses", found.sources),
            self._table("senders", found.senders),
            self._table("copies", _copies(found.minutes)),
            pa.table(self._named(found.bursts)),
        )

    def steps(self, worst: Sequence[tuple[str, str]]) -> DataFrame:
        """(sender, receiver, step, sent, lost) of these pairs, and of all others together under their own name."""
        places = {name: place for place, name in enumerate(self._hosts.all)}
        own = self._sent.steps_of(
            self._pairs, {(places[sender], places[receiver]) for sender, receiver in worst}
        )
        every = dict(self._steps)
        if own:
            less = own | {name: -own[name] for name in ("sent", "lost")}
            parts = [every, {name: less[name] for name in every}]
            every = arrays.grouped(arrays.together(parts), ("step",), {"sent": np.add, "lost": np.add})
        rest = self._named(every) | dict.fromkeys(PAIR, pa.repeat("", len(every["step"])))
        parts_ = [pa.table({name: of[name] for name in (*PAIR, "step", "sent", "lost")})
                  for of in (rest, self._named(own) if own else rest)]  # fmt: skip
        return self._spark.createDataFrame(pa.concat_tables(parts_ if own else parts_[:1]))

    # -- as tables

    def frame(self, table: pa.Table) -> DataFrame:
        return self._spark.createDataFrame(table)

    def _frame(self, columns: Mapping[str, Any]) -> DataFrame:
        return self._spark.createDataFrame(pa.table(dict(columns)))

    def _named(self, columns: Mapping[str, Array]) -> dict[str, Any]:
        """Hosts and sources by name, and times as such."""
        made: dict[str, Any] = {}
        for name, values in columns.items():
            if name in PAIR:
                made[name] = self._hosts.strings(values)
            elif name == "src":
                made[name] = self._sources.strings(values)
            elif name in _TIMES:
                made[name] = pa.array(values * (_TIMES[name] // 1000), pa.int64()).cast(_MOMENT)
            else:
                made[name] = pa.array(values)
        return made

    def _table(self, name: str, columns: Columns) -> pa.Table:
        return typed(self._named(columns), name)


def typed(columns: Mapping[str, Any] | pa.Table, name: str) -> pa.Table:
    """The columns of ``TABLES[name]``, in their order and types."""
    fields = [column.split() for column in TABLES[name].split(", ")]
    return pa.table({field: columns[field].cast(_TYPES[of]) for field, of in fields})


def empty(name: str) -> pa.Table:
    """The columns of ``TABLES[name]``."""
    columns = to_arrow_schema(cast("StructType", StructType.fromDDL(TABLES[name])), timezone="UTC")
    return columns.empty_table()


def stretches_frame(spark: SparkSession, stretches: Mapping[str, Sequence[tuple[int, int]]]) -> DataFrame:
    """(host, stretches array<struct<from_ns, until_ns>>)."""
    names = pa.array(stretches, pa.string())
    return spark.createDataFrame(pa.table({"host": names, "stretches": _spans([*stretches.values()])}))


def _spans(several: Sequence[Sequence[tuple[int, int]]]) -> pa.Array:
    return pa.array(
        [[dict(zip(_ENDS, span, strict=True)) for span in spans] for spans in several],
        pa.list_(pa.struct([(name, pa.int64()) for name in _ENDS])),
    )


def write(table: pa.Table, folder: Path) -> None:
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "part-0.parquet", compression="zstd")


def _known(values: Array) -> pa.Array:
    """Null where it is not a number."""
    return pa.array(values, mask=np.isnan(values))


def _copies(minutes: Columns) -> Columns:
    """``copies.copies``."""
    hourly = minutes | {
        "hour": minutes["minute"] * MINUTE_NS // HOUR_NS,
        "lost": minutes["lost"] + minutes["repaired"],
    }
    sums = arrays.grouped(hourly, (*PAIR, "hour"), dict.fromkeys(("sent", "lost", "rows"), np.add))
    sums = arrays.chosen(sums, np.flatnonzero((sums["rows"] > 0) & (sums["lost"] < sums["sent"])))
    rows, sent, lost = (sums[name] for name in ("rows", "sent", "lost"))
    number = np.maximum(1, np.floor(rows / (sent - lost) + 0.5).astype(np.int64))
    single = np.maximum(0.0, 1 - rows / (number * sent)) * sent
    saved = np.maximum(0.0, single - lost)
    return {name: sums[name] for name in (*PAIR, "hour", "sent", "lost")} | {
        "copies": number, "lost_single": single, "saved": saved,
    }  # fmt: skip
