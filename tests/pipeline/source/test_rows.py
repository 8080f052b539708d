"""Datagrams as rows: Spark and Arrow have the same columns."""

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bccnd.pipeline.source.rows import ROWS, SCHEMA, SIZE_LIMIT, batch_of, mark, parts_of
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.verdict import Verdict
from tests.plain_bccn import datagram

OPEN = Integrity()


def test_spark_and_arrow_have_the_same_columns(spark: SparkSession) -> None:
    assert to_arrow_schema(StructType.fromDDL(ROWS), timezone="UTC").equals(SCHEMA)


def test_a_mark_has_no_datagram_and_its_size_fits_the_column() -> None:
    [row] = batch_of([mark(7, "a", "unrecorded", 2**40)]).to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == {
        "time_ns": 7, "host": "a", "direction": "", "verdict": "unrecorded", "size": SIZE_LIMIT,
    }  # fmt: skip


@given(seq=st.integers(0, 2**64 - 1), payload=st.binary(max_size=100))
def test_a_sound_datagram_becomes_a_row_unchanged(seq: int, payload: bytes) -> None:
    sound = datagram("a/x/1", seq, "c/d", payload)
    verdict, parts = parts_of(sound, OPEN)
    assert (verdict, parts) == (Verdict.OK, ("none", "a/x/1", seq, "c/d", payload))
    [row] = batch_of(
        [(1, "h", None, "in", verdict, parts[0], "1.2.3.4:5", *parts[1:], len(sound))]
    ).to_pylist()
    assert (int(row["seq"]), row["payload"], row["size"]) == (seq, payload, len(sound))


@given(st.binary(max_size=60) | st.binary(max_size=40).map(lambda body: b"BCCN1[%d]" % len(body) + body))
@example(b"BCCN1[10]?:\xb2:c|pay")
@example(b"BCCN1[5]a:9:|")
def test_any_bytes_make_a_row(noise: bytes) -> None:
    _, parts = parts_of(noise, OPEN)
    assert isinstance(
        batch_of([(1, "h", None, "in", "x", parts[0], None, *parts[1:], len(noise))]), pa.RecordBatch
    )
