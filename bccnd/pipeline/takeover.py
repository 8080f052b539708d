"""Takes over recorded files that lie on this machine, by columns: a quarter of the processor time that rows take.

    date=D/host=H/*.parquet -> batch=N/date=D/host=H/part-0.parquet

Spark's tasks, in Python: each takes some of these folders, and makes one file of each. Of little the driver does it.

Rules
- What is written is what ``ingest.taken_over`` gives.
- Only files that are as recorders write them are taken over here. If one of a batch is not, or anything else is
  wrong, nothing is, and ``ingest`` has Spark read the batch: it finds out what is wrong with which file.
- A file appears under its name when it is whole.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bccnd.pipeline import storage
from bccnd.recorder.layout import SCHEMA, Direction, Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Bytes that are held at once, of a file that is read and of one that is written.
HELD_BYTES = 32 << 20
ROWS = 250_000
# Of less, to start Python for Spark's tasks takes longer than it saves: the driver does it.
BYTES = 4 << 20
BROKEN = "broken"
_REPEATED = [field.name for field in SCHEMA if not pa.types.is_primitive(field.type)]
_SEQ = pa.decimal128(20, 0)


class _Folder(NamedTuple):
    """Files of one host and day, and the one that is made of them."""

    files: Sequence[Path]
    target: Path


class _NotPlainError(Exception):
    """A file is not as recorders write it."""


def taken_over(spark: "SparkSession", source: str, files: Sequence[str], batch: str) -> int | None:
    """Write these files below ``source`` to the directory ``batch``. Returns how many rows there were; None where
    Spark has to do it.
    """
    context = spark.sparkContext
    here, there = (storage.on_this_machine(spark, path) for path in (source, batch))
    if not str(context.master).startswith("local") or not here or not there or not files:
        return None
    folders = defaultdict[Path, list[Path]](list)
    for file in files:
        path = Path("/", file.removeprefix("file:").lstrip("/"))
        if path.suffix != ".parquet":
            return None
        folders[path.parent].append(path)
    try:
        size = sum(path.stat().st_size for of in folders.values() for path in of)
    except OSError:
        return None
    storage.delete(spark, batch)
    tasks = [
        _Folder(of, there / folder.parent.name / folder.name / "part-0.parquet")
        for folder, of in folders.items()
    ]
    if size < BYTES:
        counts = [_rows_of(task) for task in tasks]
    else:
        jobs = context.parallelize(tasks, min(len(tasks), 4 * context.defaultParallelism))
        counts = jobs.map(_rows_of).collect()
    if None in counts:
        return None
    storage.write_text(spark, f"{batch}/_SUCCESS", "")
    return sum(count or 0 for count in counts)


def _rows_of(folder: _Folder) -> int | None:
    """How many rows were written; None if anything was wrong."""
    try:
        return _write(folder)
    except (OSError, pa.ArrowException, _NotPlainError):
        return None


def _write(folder: _Folder) -> int:
    folder.target.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.target.with_name(f".{folder.target.name}")
    rows, held, held_bytes = 0, list[pa.Table](), 0
    with pq.ParquetWriter(aside, _TRAFFIC, compression="zstd", write_page_checksum=True) as writer:
        for file in folder.files:
            for batch in _read(file):
                held.append(_split(batch))
                rows, held_bytes = rows + batch.num_rows, held_bytes + held[-1].nbytes
                if held_bytes > HELD_BYTES:
                    writer.write_table(_joined(held))
                    held, held_bytes = [], 0
        writer.write_table(_joined(held))
    aside.replace(folder.target)
    return rows


def _read(file: Path) -> Iterator[pa.RecordBatch]:
    """Raises _NotPlainError for a file that does not end with ``closed`` or has other columns, and OSError or
    ArrowException for what is no file of Parquet.
    """
    closed = False
    with pq.ParquetFile(file, read_dictionary=_REPEATED, page_checksum_verification=True) as parquet:
        there = parquet.schema_arrow
        if any(
            name not in there.names or _plain(there.field(name)) != _plain(SCHEMA.field(name))
            for name in SCHEMA.names
        ):
            raise _NotPlainError
        groups = map(parquet.metadata.row_group, range(parquet.metadata.num_row_groups))
        bytes_a_row = sum(group.total_byte_size for group in groups) // max(1, parquet.metadata.num_rows)
        rows = max(1, min(ROWS, HELD_BYTES // max(1, bytes_a_row)))
        for batch in parquet.iter_batches(rows, columns=SCHEMA.names, use_threads=False):
            marks = batch["verdict"].filter(pc.equal(batch["direction"], Direction.MARK.value))
            kinds = set(marks.unique().to_pylist())
            if BROKEN in kinds:
                raise _NotPlainError
            closed |= Mark.CLOSED in kinds
            yield batch
    if not closed:
        raise _NotPlainError


def _plain(field: pa.Field) -> pa.DataType:
    return field.type.value_type if pa.types.is_dictionary(field.type) else field.type


def _repeated(of: pa.DataType) -> pa.DataType:
    return pa.dictionary(pa.int32(), of)


_TRAFFIC = pa.schema(
    [
        *(
            (field.name, _repeated(_plain(field)) if field.name in _REPEATED else field.type)
            for field in SCHEMA
            if field.name != "seq"
        ),
        ("seq", _SEQ),
        ("word", pa.int64()),
        ("bit", pa.int32()),
        ("capture", pa.bool_()),
    ]
)


def _split(batch: pa.RecordBatch) -> pa.Table:
    """The columns of ``_TRAFFIC``: the sequence number split into ``word`` and ``bit``."""
    seq = batch["seq"]
    columns: dict[str, Any] = {name: batch[name] for name in SCHEMA.names}
    columns["seq"] = seq.cast(_SEQ)
    columns["word"] = pc.shift_right(seq, pa.scalar(6, pa.uint64())).cast(pa.int64())
    columns["bit"] = pc.bit_wise_and(seq, pa.scalar(63, pa.uint64())).cast(pa.int32())
    columns["capture"] = pa.repeat(False, batch.num_rows)
    return pa.table([columns[field.name].cast(field.type) for field in _TRAFFIC], _TRAFFIC)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """With one dictionary for each column, as Parquet has it."""
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
