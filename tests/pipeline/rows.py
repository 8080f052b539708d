"""Literal rows of recorded traffic for the tests of the transforms."""

import json
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bccnd.pipeline.layout import TABLES, TRAFFIC

DAY = datetime(2026, 1, 31, tzinfo=UTC)
# A midnight, after which rows are timed in seconds.
START_NS = int(DAY.timestamp()) * 10**9


def at(seconds: float) -> datetime:
    """The timestamp as Spark returns it: in UTC, without a zone (the tests run in UTC)."""
    return datetime.fromtimestamp(DAY.timestamp() + seconds, UTC).replace(tzinfo=None)


def ns(seconds: float) -> int:
    return START_NS + round(seconds * 10**9)


def datagram(
    host: str,
    seconds: float,
    src: str | None,
    seq: int | None,
    *,
    direction: str = "in",
    verdict: str = "ok",
    channel: str | None = "a/b",
    payload: bytes | None = b"payload",
    peer: str | None = "10.0.0.1:4321",
    size: int = 60,
) -> tuple[Any, ...]:
    word, bit = divmod(seq, 64) if seq is not None else (None, None)
    number = None if seq is None else Decimal(seq)
    return (
        ns(seconds), "eth0", direction, verdict, "none", peer, src, number, channel, payload, size, word, bit,
        False, "0", "2026-01-31", host,
    )  # fmt: skip


def sent(host: str, seconds: float, src: str, seq: int, **others: Any) -> tuple[Any, ...]:
    return datagram(host, seconds, src, seq, direction="out", peer=None, **others)


def mark(host: str, seconds: float, what: str, size: int = 0, said: object = None) -> tuple[Any, ...]:
    """``said``: its payload, in JSON."""
    payload = None if said is None else json.dumps(said).encode()
    return (
        ns(seconds), None, "", what, None, None, None, None, None, payload, size, None, None, False, "0",
        "2026-01-31", host,
    )  # fmt: skip


def recording(host: str, begin: float, end: float) -> list[tuple[Any, ...]]:
    return [mark(host, begin, "opened"), mark(host, end, "closed")]


def frame(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str | StructType) -> DataFrame:
    """Literal rows of ``schema`` (DDL). Made from Arrow: a list would go through a Python worker at every use."""
    typed = cast("StructType", StructType.fromDDL(schema)) if isinstance(schema, str) else schema
    columns = to_arrow_schema(typed, timezone="UTC")
    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [pa.array(column, field.type) for column, field in zip(values, columns, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=columns), typed)


def captured(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The same rows, of a capture."""
    place = [column.split()[0] for column in TRAFFIC.replace("(20,0)", "").split(", ")].index("capture")
    return [(*row[:place], True, *row[place + 1 :]) for row in rows]


def traffic(spark: SparkSession, rows: Iterable[tuple[Any, ...]]) -> DataFrame:
    return frame(spark, rows, TRAFFIC)


def table(spark: SparkSession, name: str, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    return frame(spark, rows, TABLES[name])
