"""Digests of files that lie on this machine, by columns instead of by rows: a seventh of the processor time.

    file -> 250,000 rows of some columns -> numpy: sort by a hash of the key, combine what is equal -> digests

Tasks of Spark run this, in Python. Each takes some files, and writes a file of each digest. Spark's own code for
rows, which ``digests`` uses elsewhere, needs a pass over all rows for each digest. To move these rows to Python
would take longer than everything here.

Rules
- The result is that of ``digest`` in the modules of the same names; they say what it means.
- A task combines the rows that it holds at once. The reader of the digests combines the rest.
- Strings are numbers here: places in the dictionary that their column has in the file, -1 for null.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bccnd.pipeline import hashing
from bccnd.pipeline.layout import DIGESTS, UNNUMBERED
from bccnd.pipeline.liveness import CHANNELS, LEAVING
from bccnd.pipeline.times import HOUR_NS, MINUTE_NS, SECOND_NS
from bccnd.pipeline.words import SEEN_NS, SENT_NS
from bccnd.recorder.layout import Direction, host_of
from bccnd.wire.verdict import DELIVERED, HARMLESS, Verdict

Array = np.ndarray[Any, np.dtype[Any]]

# Rows and bytes that are held at once: memory holds so much of a file, and so much of each digest.
ROWS = 250_000
HELD_BYTES = 32 << 20
_WORDS = ("interface", "direction", "verdict", "peer", "src", "channel")
_MISSING = {"time_ns": 0, "size": 0, "word": 0, "bit": -1, "capture": False}
_COLUMNS = (*_WORDS, *_MISSING, "payload")
# Of the sample alone.
_FEW = ("direction", "verdict", "src", "time_ns", "word", "bit", "capture")
_TYPES = {
    "string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "boolean": pa.bool_(), "binary": pa.binary(),
}  # fmt: skip


class Task(NamedTuple):
    """What is digested together: ``files`` of traffic, and the digests in folders ``taken`` up, as far as they are
    not older than the date ``since``; of these files each ``of``-th, from ``number`` on.
    """

    files: Sequence[str]
    taken: Sequence[str]
    since: str
    folder: str
    number: int
    of: int

    def write(self, kinds: Sequence[str], apart: int = 1) -> int:
        """Write files ``<folder>/<kind>/<number>.parquet``. Returns how many rows of traffic their words stand for.

        ``apart``: how many words there are for each one that the sample takes.
        """
        name = f"{self.number:05}.parquet"
        with ExitStack() as stack:
            writers = {
                kind: stack.enter_context(_Writer(Path(self.folder, kind, name), schema(kind)))
                for kind in kinds
            }
            for file in self.files[self.number :: self.of]:
                for rows in _read(file, _FEW if kinds == ["sample"] else _COLUMNS):
                    for kind, writer in writers.items():
                        writer.write(_KINDS[kind](rows, apart))
            for kind, writer in writers.items():
                for table in self._taken_up(kind, apart):
                    writer.add(table)
            return sum(writer.numbered for writer in writers.values())

    def _taken_up(self, kind: str, apart: int) -> Iterator[pa.Table]:
        found = sorted(str(file) for folder in self.taken for file in Path(folder, kind).glob("*.parquet"))
        for file in found[self.number :: self.of]:
            with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                for batch in parquet.iter_batches(ROWS, use_threads=False):
                    table = pa.Table.from_batches([batch])
                    if self.since:
                        table = table.filter(pc.greater_equal(table["date"], self.since))
                    if kind == "sample":
                        table = table.filter(
                            pa.array(in_sample(table["src"], _numbers(table["word"], 0), apart))
                        )
                    yield table


def schema(kind: str) -> pa.Schema:
    return pa.schema(
        [(name, _TYPES[of]) for name, of in (each.split() for each in DIGESTS[kind].split(", "))]
    )


def coded(schema: pa.Schema) -> pa.Schema:
    """The schema as Arrow reads it with strings as places in dictionaries."""
    places = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([field.with_type(places) if field.type == pa.string() else field for field in schema])


class _Writer:
    """A file of Parquet, written when there is enough for it; without rows it is there as well."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Spark writes checksums as well, and checks them.
        self._file = pq.ParquetWriter(path, schema, compression="zstd", write_page_checksum=True)
        self._schema, self._held, self._bytes = schema, list[pa.Table](), 0
        self.numbered = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush()
        self._file.close()

    def write(self, columns: Mapping[str, Any]) -> None:
        """``columns`` in any order, of which a string stands for a column of equal values."""
        arrays = [columns[field.name] for field in self._schema]
        count = next(len(array) for array in arrays if not isinstance(array, str))
        filled = [
            pa.repeat(array, count) if isinstance(array, str) else pa.array(array).cast(field.type)
            for array, field in zip(arrays, self._schema, strict=True)
        ]
        self.add(pa.Table.from_arrays(filled, schema=self._schema))

    def add(self, table: pa.Table) -> None:
        self._held.append(table)
        self._bytes += table.nbytes
        if "rows" in self._schema.names:
            self.numbered += pc.sum(table["rows"]).as_py() or 0
        if self._bytes > HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._file.write_table(pa.concat_tables(self._held))
            self._held, self._bytes = [], 0


class _Rows:
    """Some rows of a file, a column each: numbers, or places in ``names``."""

    def __init__(self, batch: pa.RecordBatch, host: str, day: str) -> None:
        self.origin = {"host": host, "date": day}
        self.names: dict[str, list[str]] = {}
        self._columns = dict[str, Array]()
        for name in batch.schema.names:
            if name in _WORDS:
                column = pc.dictionary_encode(batch[name])
                self.names[name] = column.dictionary.to_pylist()
                self._columns[name] = _numbers(column.indices, -1)
            elif name != "payload":
                self._columns[name] = _numbers(batch[name], _MISSING[name])
            else:
                self._payloads = pc.dictionary_encode(batch[name])
        self.delivered = self.is_of("verdict", DELIVERED)
        self.harmless = self.is_of("verdict", HARMLESS)
        self.repaired = self.is_of("verdict", [Verdict.REPAIRED])
        self.received = self.is_of("direction", [Direction.IN])
        self.sent = self.is_of("direction", [Direction.OUT])
        unnumbered = [src for src in self.names["src"] if src is not None and re.search(UNNUMBERED, src)]
        named = (self["src"] >= 0) & ~self.is_of("src", unnumbered)
        self.numbered = (self.received | self.sent) & self.harmless & (self["bit"] >= 0) & named

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def is_of(self, name: str, values: Any) -> Array:
        """Where a column of strings has one of these; not where it is null."""
        return np.array([each in values for each in self.names[name]] + [False])[self[name]]

    def strings(self, name: str, places: Array, names: list[str] | None = None) -> pa.DictionaryArray:
        """Of the ``places`` in a column's ``names``."""
        known = pa.array(self.names[name] if names is None else names, pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32(), mask=places < 0), known)

    def payload(self, at: Array) -> Any:
        return self._payloads.take(pa.array(at)).cast(pa.binary())

    def of_payload(self, what: Any, missing: int, at: Array) -> Array:
        """``what`` it is of the payloads of these rows."""
        places = _numbers(self._payloads.indices, -1)[at]
        return np.append(_numbers(what(self._payloads.dictionary), missing), missing)[places]

    def per(self, span_ns: int) -> Array:
        """The time in spans, as SQL divides."""
        return _numbers(pc.divide(pa.array(self["time_ns"]), span_ns), 0)


def _numbers(array: Any, missing: int) -> Array:
    found: Array = (array.fill_null(missing) if array.null_count else array).to_numpy(zero_copy_only=False)
    return found


def _read(file: str, columns: Sequence[str]) -> Iterator[_Rows]:
    path = Path(file)
    host, day = host_of(path.parent.name), path.parent.parent.name.removeprefix("date=")
    date.fromisoformat(day)  # or it is no file of traffic
    repeated = [*_WORDS, "payload"]
    with pq.ParquetFile(path, read_dictionary=repeated, page_checksum_verification=True) as parquet:
        groups = map(parquet.metadata.row_group, range(parquet.metadata.num_row_groups))
        bytes_a_row = sum(group.total_byte_size for group in groups) // max(1, parquet.metadata.num_rows)
        rows = min(ROWS, HELD_BYTES // max(1, bytes_a_row))
        for batch in parquet.iter_batches(max(1, rows), columns=[*columns], use_threads=False):
            yield _Rows(batch, host, day)


class _Groups:
    """The rows ``at`` these places in groups of equal keys, next to each other; each column in that order."""

    def __init__(self, at: Array, **keys: Array) -> None:
        columns = {name: key[at] for name, key in keys.items()}
        mixed = np.zeros(len(at), np.uint64)
        for key in columns.values():
            mixed = hashing.of_numbers(key, mixed)
        order = np.argsort(mixed)
        # Two keys with one hash may lie mixed: these make more groups than there are keys, which does not matter.
        differs = np.zeros(len(at), bool)
        differs[:1] = True
        for name, key in columns.items():
            columns[name] = key[order]
            differs[1:] |= columns[name][1:] != columns[name][:-1]
        self.at, self._starts = at[order], np.flatnonzero(differs)
        keys = {name: key[self._starts] for name, key in columns.items()}
        # In order they take two thirds of the bytes.
        self._order = np.lexsort([*keys.values()])
        self.keys = {name: key[self._order] for name, key in keys.items()}

    def reduced(self, how: np.ufunc, values: Array) -> Array:
        """One of each group, of ``values`` of all rows."""
        of = values[self.at]
        return how.reduceat(of, self._starts)[self._order] if len(of) else of

    def count(self, where: Array | None = None) -> Array:
        if where is not None:
            return self.reduced(np.add, where.astype(np.int64))
        return np.diff(np.append(self._starts, len(self.at)))[self._order]

    def first(self, time: Array) -> Array:
        """The row of each group that has the least time."""
        of = np.repeat(np.arange(len(self._starts)), np.diff(np.append(self._starts, len(self.at))))
        order = np.lexsort((time[self.at], of))
        return self.at[order][self._starts][self._order]


def _marks(rows: _Rows, _: int) -> dict[str, Any]:
    at = np.flatnonzero(rows.is_of("direction", [Direction.MARK]))
    return {
        **rows.origin,
        "direction": Direction.MARK.value,
        "verdict": rows.strings("verdict", rows["verdict"][at]),
        "payload": rows.payload(at),
        **{name: rows[name][at] for name in ("time_ns", "size", "capture")},
    }


def _of_words(rows: _Rows, _: int) -> dict[str, Any]:
    slot = np.where(rows.received, rows.per(SEEN_NS), rows.per(SENT_NS))
    names = ("direction", "src", "word", "capture")
    groups = _Groups(np.flatnonzero(rows.numbered), slot=slot, **{name: rows[name] for name in names})
    one = np.left_shift(np.int64(1), rows["bit"].clip(0).astype(np.int64))
    counts = rows.sent | rows.delivered
    return {
        **rows.origin,
        **groups.keys,
        **{name: rows.strings(name, groups.keys[name]) for name in ("direction", "src")},
        "bits": groups.reduced(np.bitwise_or, np.where(counts, one, 0)),
        "late_bits": groups.reduced(np.bitwise_or, np.where(counts, 0, one)),
        "repaired_bits": groups.reduced(np.bitwise_or, np.where(rows.repaired, one, 0)),
        "rows": groups.count(),
        "late": groups.count(rows.is_of("verdict", [Verdict.LATE])),
        "first_ns": groups.reduced(np.minimum, rows["time_ns"]),
        "last_ns": groups.reduced(np.maximum, rows["time_ns"]),
    }


def _heard(rows: _Rows, _: int) -> dict[str, Any]:
    addresses, address = _addresses(rows)
    interfaces = [*rows.names["interface"], ""]
    groups = _Groups(
        np.flatnonzero(~rows.is_of("direction", [Direction.MARK]) & (rows["direction"] >= 0)),
        direction=rows["direction"],
        interface=np.where(rows["interface"] < 0, len(interfaces) - 1, rows["interface"]),
        address=address,
        src=np.where(rows.harmless, rows["src"], -1),
        hour=rows.per(HOUR_NS),
        capture=rows["capture"],
    )
    return {
        **rows.origin,
        **groups.keys,
        **{name: rows.strings(name, groups.keys[name]) for name in ("direction", "src")},
        "interface": rows.strings("interface", groups.keys["interface"], interfaces),
        "address": rows.strings("peer", groups.keys["address"], addresses),
        "delivered": groups.count(rows.delivered),
        "said": groups.count(rows.delivered & (rows["channel"] >= 0)),
    }


def _addresses(rows: _Rows) -> tuple[list[str], Array]:
    """Those of the peers, without their ports, and which one each row has."""
    found = pc.dictionary_encode(
        pa.array((re.sub(r":[0-9]+$", "", peer) for peer in rows.names["peer"]), pa.string())
    )
    return found.dictionary.to_pylist(), np.append(_numbers(found.indices, -1), -1)[rows["peer"]]


def _sizes(rows: _Rows, _: int) -> dict[str, Any]:
    own = rows.is_of("direction", [Direction.OUT, Direction.LOCAL])
    at = np.flatnonzero(own & rows.delivered & (rows["channel"] >= 0))
    length = np.full(len(rows["size"]), -1)
    length[at] = rows.of_payload(pc.binary_length, -1, at)
    names = ("src", "channel", "capture")
    groups = _Groups(at, second=rows.per(SECOND_NS), length=length, **{name: rows[name] for name in names})
    lengths = groups.keys["length"]
    return {
        **rows.origin,
        **groups.keys,
        **{name: rows.strings(name, groups.keys[name]) for name in ("src", "channel")},
        "length": pa.array(lengths, pa.int32(), mask=lengths < 0),
        "messages": groups.count(),
        "bytes": groups.reduced(np.add, rows["size"].astype(np.int64)),
    }


def _beats(rows: _Rows, _: int) -> dict[str, Any]:
    sources = {name: place for place, name in enumerate(rows.names["src"])}
    beaters = [sources.get(name.removeprefix(CHANNELS), -1) if name.startswith(CHANNELS) else -1
               for name in rows.names["channel"]]  # fmt: skip
    beater = np.array([*beaters, -1])[rows["channel"]]
    heard = rows.sent | (rows.received & rows.delivered)
    at = np.flatnonzero(heard & (beater >= 0) & (beater == rows["src"]))
    leaving = np.zeros(len(heard), bool)
    leaving[at] = rows.of_payload(lambda payloads: pc.equal(payloads, LEAVING), False, at)
    names = ("src", "word", "bit", "capture")
    groups = _Groups(at, own=rows.sent, **{name: rows[name] for name in names})
    missing = groups.keys["bit"] < 0
    return {
        **rows.origin,
        **groups.keys,
        "src": rows.strings("src", groups.keys["src"]),
        **{name: pa.array(groups.keys[name], mask=missing) for name in ("word", "bit")},
        "time_ns": groups.reduced(np.minimum, rows["time_ns"]),
        "leaving": groups.reduced(np.logical_or, leaving),
    }


def _rejected(rows: _Rows, _: int) -> dict[str, Any]:
    addresses, address = _addresses(rows)
    groups = _Groups(
        np.flatnonzero(rows.received & ~rows.harmless & (rows["verdict"] >= 0)),
        minute=rows.per(MINUTE_NS),
        verdict=rows["verdict"],
        peer=address,
        capture=rows["capture"],
    )
    return {
        **rows.origin,
        **groups.keys,
        "verdict": rows.strings("verdict", groups.keys["verdict"]),
        "peer": rows.strings("peer", groups.keys["peer"], addresses),
        "datagrams": groups.count(),
        "first": groups.reduced(np.minimum, rows["time_ns"]),
        "last": groups.reduced(np.maximum, rows["time_ns"]),
        "example_channel": rows.strings("channel", rows["channel"][groups.first(rows["time_ns"])]),
    }


def _sample(rows: _Rows, apart: int) -> dict[str, Any]:
    at = np.flatnonzero(rows.numbered)
    at = at[in_sample(rows.strings("src", rows["src"][at]), rows["word"][at], apart)]
    return {
        **rows.origin,
        **{name: rows.strings(name, rows[name][at]) for name in ("direction", "src")},
        **{name: rows[name][at] for name in ("word", "bit", "time_ns", "capture")},
        "repaired": rows.repaired[at],
    }


def in_sample(src: Any, word: Array, apart: int) -> Array:
    """Which words are in the sample: the same as ``latency.sample`` takes."""
    if apart == 1 or not len(word):
        return np.ones(len(word), bool)
    named = pc.dictionary_encode(src)
    named = named.combine_chunks() if isinstance(named, pa.ChunkedArray) else named
    of = np.concatenate([hashing.of_string(name) for name in named.dictionary.to_pylist()])
    found: Array = hashing.of_numbers(word, of[_numbers(named.indices, 0)]) % np.uint64(apart) == 0
    return found


_KINDS: dict[str, Callable[[_Rows, int], dict[str, Any]]] = {
    "marks": _marks,
    "words": _of_words,
    "heard": _heard,
    "sizes": _sizes,
    "beats": _beats,
    "rejected": _rejected,
    "sample": _sample,
}
