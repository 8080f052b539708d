"""The tables' largest part made in memory, where the digests lie on this machine: ``matching``, to and from Spark.

Rules
- What it finds, Spark would find as well: ``analyse`` takes whichever can be had. The rest of the tables, of few
  rows, are Spark's.
- What has more rows than MOST says does not fit into memory: then Spark does all.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
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

from bccnd.pipeline import arrays, delays, latency, matching, segments
from bccnd.pipeline.arrays import Array, Columns
from bccnd.pipeline.columnar import in_sample
from bccnd.pipeline.layout import PAIR, TABLES
from bccnd.pipeline.segments import Talk
from bccnd.pipeline.times import HOUR_NS, MINUTE_NS, SECOND_NS
from bccnd.recorder.layout import Direction

# Rows of digests. A million take 700 MB while they are matched.
WORDS = 4_000_000
# Of each digest as many as ``latency`` samples, and all messages of who chooses numbers that are in each sample.
SAMPLED = 4 * latency.SAMPLED_ROWS
# Rows of ``marks``, which Python looks at one by one.
MARKS = 500_000
MOST = {"words": WORDS, "sample": SAMPLED, "heard": WORDS, "marks": MARKS}
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
    """Of digests ``words``, ``sample`` and ``heard``, and the stretches of each host."""

    def __init__(
        self,
        spark: SparkSession,
        digests: Mapping[str, pa.Table],
        stretches: Mapping[str, Sequence[tuple[int, int]]],
        slot_ns: int,
    ) -> None:
        sample, self._heard = digests["sample"], digests["heard"]
        self._words = matching.Words(digests["words"], slot_ns, stretches)
        self._hosts, self.slot_ns = self._words.hosts, slot_ns
        self._spark, self._spans = spark, stretches
        self._stretches = {
            int(host): (np.array(spans, np.int64)[:, 0], np.array(spans, np.int64)[:, 1])
            for host, spans in zip(
                self._hosts.of(pa.array(stretches, pa.string())), stretches.values(), strict=True
            )
        }
        self._owner, self._recorded = self._words.owners()
        self._seen = self._words.of(False)
        self._gaps = matching.gaps(self._seen, self._stretches)
        apart = latency.apart(self._words.rows)
        taken = in_sample(sample["src"], sample["word"].to_numpy(), apart)
        self._latencies = delays.latencies(
            self._words, sample.filter(pa.array(taken)), self._owner, self._recorded
        )

    # -- as Spark's functions

    def sources(self) -> pa.Table:
        """``loss.sources``."""
        found = matching.sources(self._words, self._seen, self._gaps)
        return self._table("sources", found | {"receiver": found["host"]})

    def owned(self) -> DataFrame:
        """``delivery.owners``."""
        return self._frame(
            {
                "src": self._words.sources.strings(np.arange(len(self._owner))),
                "sender": self._hosts.strings(self._owner),
                "recorded": pa.array(self._recorded),
            }
        )

    def talks(self) -> list[Talk]:
        """``segments.whom`` makes ``addresses`` and ``edges`` of it."""
        rows = self._heard.filter(
            pc.field("direction").isin([Direction.IN.value, Direction.ECHO.value])
            & pc.field("address").is_valid()
        )
        owner = np.append(self._owner, -1)[self._words.sources.of(rows["src"])]
        told = pa.table(
            {
                **{name: rows[name] for name in ("host", "interface", "address", "delivered")},
                "echo": pc.equal(rows["direction"], Direction.ECHO.value),
                "sender": self._hosts.strings(owner),
            }
        )
        sums = told.group_by([*Talk._fields[:-1]]).aggregate([("delivered", "sum")])
        return segments.talks(sums.rename_columns({"delivered_sum": "delivered"}))

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
                for receiver in hosts & self._spans.keys()
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
            rows.append([(since - least, until - most) for since, until in self._spans[pair[1]]])
        columns = [*zip(*found, strict=True)] or [(), ()]
        return pa.table(
            {
                **{name: pa.array(column, pa.string()) for name, column in zip(PAIR, columns, strict=True)},
                "stretches": _spans(rows),
            }
        )

    def stretches(self) -> DataFrame:
        """``coverage.stretches``."""
        return stretches_frame(self._spark, self._spans)

    def late(self) -> DataFrame:
        """Of ``words.of``, what ``reordering.suspects`` asks for."""
        late = arrays.grouped(self._seen, ("host", "src"), {"late": np.add})
        return self._frame(
            {
                "direction": pa.repeat("in", len(late["host"])),
                "host": self._hosts.strings(late["host"]),
                "src": self._words.sources.strings(late["src"]),
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

    def gaps(self) -> DataFrame | None:
        """Those of ``loss.gaps`` that ``delivery.by_gaps`` counts; None without any."""
        sender = self._owner[self._gaps["src"]]
        pairs = {"sender": sender, "receiver": self._gaps["host"]}
        at = arrays.found(pairs, self._latencies.offsets, PAIR)
        least, most = (np.append(self._latencies.offsets[name], 0)[at] for name in ("least_ns", "most_ns"))
        since = np.where(self._gaps["is_first"], self._gaps["first_ns"], self._gaps["since_ns"])
        # Whether one stretch of the sender has all of it.
        order = np.argsort(sender, kind="stable")
        begin = np.empty(len(order), np.int64)
        end = np.empty(len(order), np.int64)
        begin[order] = matching.at_stretches(sender[order], (since - most)[order], self._stretches)
        end[order] = matching.at_stretches(
            sender[order], (self._gaps["last_ns"] - least)[order], self._stretches
        )
        covered = (begin == end) & (begin % 2 == 1)
        judged = (sender != self._gaps["host"]) & ~(self._recorded[self._gaps["src"]] & covered)
        at = np.flatnonzero(judged)
        if not len(at):
            return None
        found = arrays.chosen(self._gaps, at)
        first = found.pop("is_first")
        columns: dict[str, Any] = dict(found)
        columns["receiver"] = self._hosts.strings(columns.pop("host"))
        columns["src"] = self._words.sources.strings(found["src"])
        columns["epoch"] = columns["epoch"].astype(np.int32)
        for name in ("previous", "previous_high", "since_ns"):
            columns[name] = pa.array(found[name], mask=first)
        return self._frame(columns)

    @cached_property
    def _sent(self) -> matching.Sent:
        return matching.Sent(self._words, self._owner)

    def sent(self) -> DataFrame:
        """Of ``delivery.sent``, what ``delivery.by_gaps`` asks for."""
        known = self._sent.known()
        frame = self._frame({**known, "src": self._words.sources.strings(known["src"])})
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
                made[name] = self._words.sources.strings(values)
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
