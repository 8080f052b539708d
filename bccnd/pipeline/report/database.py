"""The tables as the page asks them: read with Arrow and held by SQLite, which answers at once and needs no JVM.

Rules
- A table is loaded when it is first asked for, with the columns of ``TABLES``. A missing or empty table gives no
  rows and no error, a missing column nulls.
- Where the page never asks by hour, the hours are summed while the table is read, a batch at a time (``SUMMED``). So
  the memory taken grows with the pairs and not with the time. SQLite keeps what is large in an unnamed file.
- Times are whole microseconds since 1970. Lists are JSON.
- An aggregate that SQLite lacks has the name that it has in Spark.
"""

import json
import re
import sqlite3
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from operator import or_
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import acero

from bccnd.pipeline.layout import REJECTED_FILES, TABLES

# Tables that are summed over the hours: by what, and what of them.
SUMMED = {
    "losses": (("sender", "receiver", "src"), ("sent", "lost", "repaired")),
    "sources": (
        ("receiver", "src"),
        ("received", "lost", "duplicates", "late", "restarts", "repaired", "resent"),
    ),
    "senders": (("sender",), ("lost", "lost_everywhere", "missed", "missed_everywhere")),
}
# Tables whose rows are looked up by these columns.
LOOKED_UP = {"sources": ("receiver", "src")}
# With so many digits, a number may be too large for a bigint.
BIGINT_DIGITS = 19
# Rows that go into SQLite at once.
BATCH_ROWS = 16_384

_LETTERS = {
    "bigint": "INTEGER",
    "int": "INTEGER",
    "timestamp": "INTEGER",
    "boolean": "INTEGER",
    "double": "REAL",
}
_DIGITS = re.compile(r"[0-9]+$")


class Tables:
    """The tables below a local directory, and questions to them in SQL. Close it."""

    def __init__(self, directory: str, rejected_files: str | None = None) -> None:
        self._paths = {name: Path(directory) / name for name in TABLES}
        self._columns = {name: _columns(ddl) for name, ddl in TABLES.items()}
        if rejected_files is not None:
            self._paths["rejected_files"] = Path(rejected_files)
        self._columns["rejected_files"] = _columns(REJECTED_FILES)
        self._loaded: set[str] = set()
        self._database = sqlite3.connect("")
        self._database.row_factory = _row
        self._database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536"
        )
        self._database.create_function("stem", 1, lambda name: _DIGITS.sub("", name), deterministic=True)
        self._database.create_function("tail", 1, _tail, deterministic=True)
        self._database.create_aggregate("max_by", 2, _MaxBy)  # type: ignore[arg-type] # typeshed knows one parameter
        self._database.create_aggregate("percentile", 2, _Percentile)  # type: ignore[arg-type]

    def close(self) -> None:
        self._database.close()

    def rows(self, query: str, **values: object) -> list[Any]:
        """The rows of a query; it names tables in braces, and ``values`` with a colon."""
        return self._database.execute(self._naming(query), values).fetchall()

    def keep(self, name: str, query: str) -> None:
        """Make a table ``name`` of the query, for later ones."""
        self._database.execute(f"CREATE TABLE {name} AS {self._naming(query)}")

    def first(self, query: str, limit: int, order: str, **values: object) -> tuple[list[Any], int]:
        """The first rows by ``order``, and how many rows there are in all."""
        # S608: the queries are constants. The window counts before the limit cuts.
        counted = f"SELECT *, count(*) OVER () AS in_all FROM ({query}) ORDER BY {order} LIMIT :limit"  # noqa: S608
        rows = self.rows(counted, limit=limit, **values)
        return [_kind(row._fields[:-1])(*row[:-1]) for row in rows], rows[0].in_all if rows else 0

    def extent(self, *columns: tuple[str, str, int]) -> tuple[int, int] | None:
        """From the first of the times in columns (table, column, length) to the end of the last, each so long."""
        spans = []
        for name, column, length in columns:
            times = {column: _ticks(column)}
            (row,) = self._aggregated(name, times, [(column, "min"), (column, "max")]) or [{"min": None}]
            if row["min"] is not None:
                spans.append((row["min"], row["max"] + length))
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None

    def bins(
        self, name: str, column: str, width: int, pairs: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[str, str, int, int, int]]:
        """(sender, receiver, start, sent, lost) of each bin of so many microseconds: of ``pairs``, and of all pairs
        together, which have no names.
        """
        sender, receiver, ticks = ds.field("sender"), ds.field("receiver"), _ticks(column)
        start = pc.multiply(pc.divide(ticks, width), width)
        counts = {"start": start, "sent": ds.field("sent"), "lost": ds.field("lost")}
        sums = [("sent", "hash_sum"), ("lost", "hash_sum")]
        for row in self._aggregated(name, counts, sums, ["start"], sender != receiver):
            yield "", "", row["start"], row["sent"], row["lost"]
        if chosen := [(sender == one) & (receiver == other) for one, other in pairs]:
            named = {"sender": sender, "receiver": receiver}
            where = reduce(or_, chosen)
            for row in self._aggregated(name, named | counts, sums, [*named, "start"], where):
                yield row["sender"], row["receiver"], row["start"], row["sent"], row["lost"]

    def _aggregated(
        self,
        name: str,
        columns: Mapping[str, ds.Expression],
        aggregates: Sequence[tuple[str, str]],
        key: Sequence[str] = (),
        where: ds.Expression | None = None,
    ) -> list[dict[str, Any]]:
        """Aggregates of ``columns`` of the rows, read a batch at a time; a sum has the name of its column."""
        scanned = self._dataset(name)
        if scanned is None:
            return []
        names = [(column, kind, None, column if kind == "hash_sum" else kind) for column, kind in aggregates]
        plan = [
            acero.Declaration("scan", acero.ScanNodeOptions(scanned, filter=where)),
            *([acero.Declaration("filter", acero.FilterNodeOptions(where))] if where is not None else []),
            acero.Declaration("project", acero.ProjectNodeOptions([*columns.values()], [*columns])),
            acero.Declaration("aggregate", acero.AggregateNodeOptions(names, [*key])),
        ]
        found: list[dict[str, Any]] = acero.Declaration.from_sequence(plan).to_table().to_pylist()
        return found

    def _naming(self, query: str) -> str:
        names = re.findall(r"\{(\w+)\}", query)
        for name in names:
            if name not in self._loaded:
                self._loaded.add(name)
                self._load(name)
        return query.format_map({name: name for name in names})

    def _load(self, name: str) -> None:
        columns = self._columns[name]
        fields = ", ".join(f'"{column}" {kind}' for column, kind in columns.items())
        self._database.execute(f"CREATE TABLE {name} ({fields})")
        places = ", ".join("?" * len(columns))
        for rows in self._read(name):
            # S608: the names are those of ``TABLES``.
            self._database.executemany(f"INSERT INTO {name} VALUES ({places})", rows)  # noqa: S608
        if name in LOOKED_UP:
            self._database.execute(f"CREATE INDEX of_{name} ON {name} ({', '.join(LOOKED_UP[name])})")

    def _read(self, name: str) -> Iterator[Iterable[tuple[Any, ...]]]:
        if name in SUMMED:
            key, sums = SUMMED[name]
            columns = {column: ds.field(column) for column in (*key, *sums)}
            rows = self._aggregated(name, columns, [(each, "hash_sum") for each in sums], key)
            yield [tuple(row.get(column) for column in self._columns[name]) for row in rows]
            return
        scanned = self._dataset(name)
        found = scanned.to_batches(batch_size=BATCH_ROWS) if scanned is not None else ()
        for batch in found:
            yield zip(*(_values(batch, column) for column in self._columns[name]), strict=True)

    def _dataset(self, name: str) -> ds.Dataset | None:
        path = self._paths.get(name)
        files = sorted(map(str, path.rglob("*.parquet"))) if path else []
        if not files:
            return None
        found = ds.dataset(files, format="parquet")
        lacking = [
            pa.field(column, pa.int64()) for column in self._columns[name] if column not in found.schema.names
        ]
        return found.replace_schema(pa.schema([*found.schema, *lacking])) if lacking else found


def _row(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> Any:
    return _kind(tuple(column[0] for column in cursor.description))(*values)


@lru_cache
def _kind(names: tuple[str, ...]) -> Any:
    return namedtuple("Row", names, rename=True)  # noqa: PYI024 - the query says what is in it


def _columns(ddl: str) -> dict[str, str]:
    """DDL -> the columns and their types in SQLite."""
    pairs = (column.split(" ", 1) for column in ddl.split(", "))
    return {name.strip("`"): _LETTERS.get(kind, "TEXT") for name, kind in pairs}


def _values(batch: pa.RecordBatch, column: str) -> list[Any]:
    if column not in batch.schema.names:
        return [None] * len(batch)
    found = batch[column]
    if pa.types.is_timestamp(found.type):
        found = _microseconds(found)
    if not pa.types.is_list(found.type):
        return list(found.to_pylist())
    if pa.types.is_timestamp(found.type.value_type):
        found = pc.cast(
            pc.cast(found, pa.list_(pa.timestamp("us", found.type.value_type.tz))), pa.list_(pa.int64())
        )
    return [None if each is None else json.dumps(each) for each in found.to_pylist()]


def _ticks(column: str) -> ds.Expression:
    return ds.field(column).cast(pa.timestamp("us", "UTC")).cast(pa.int64())


def _microseconds(times: pa.Array) -> pa.Array:
    return pc.cast(pc.cast(times, pa.timestamp("us", times.type.tz)), pa.int64())


def _tail(name: str) -> int | None:
    """The number that a name ends with; None if there is none, or it is too large for SQLite."""
    found = _DIGITS.search(name)
    return int(found.group()) if found and len(found.group()) < BIGINT_DIGITS else None


class _MaxBy:
    """``max_by(value, order)``: the value of the row with the largest order, of which nulls are none."""

    def __init__(self) -> None:
        self._value: Any = None
        self._most: Any = None

    def step(self, value: Any, order: Any, /) -> None:
        if order is not None and (self._most is None or order > self._most):
            self._value, self._most = value, order

    def finalize(self) -> Any:
        return self._value


class _Percentile:
    """``percentile(value, share)``: interpolated between the two nearest values; of no value, null."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._share = 0.5

    def step(self, value: float | None, share: float, /) -> None:
        self._share = share
        if value is not None:
            self._values.append(value)

    def finalize(self) -> float | None:
        if not self._values:
            return None
        values = sorted(self._values)
        place = self._share * (len(values) - 1)
        low = int(place)
        high = min(low + 1, len(values) - 1)
        return values[low] + (place - low) * (values[high] - values[low])
