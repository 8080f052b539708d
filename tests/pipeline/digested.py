"""Literal rows of all kinds, and what the tables take of digests of them."""

from collections import Counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline import channels, latency, liveness, rejected, segments, words
from bccnd.pipeline.digests import Digests
from tests.pipeline.rows import datagram, frame, recording, sent

ROWS = [
    *recording("a", 0, 90), *recording("b", 0, 50), *recording("b", 50, 90),
    *(sent("a", 1 + seq / 10, "a/p/1", seq) for seq in range(300)),
    *(datagram("b", 1 + seq / 10, "a/p/1", seq) for seq in range(0, 300, 7)),
    *(datagram("b", 9 + seq / 10, "a/p/1", seq, verdict="late") for seq in (3, 4)),
    *(datagram("b", 9.5 + seq / 10, "a/p/1", seq, verdict="duplicate") for seq in (0, 7)),
    *(datagram("b", 9.7 + seq / 10, "a/p/1", seq, verdict="repaired") for seq in (5, 64, 71)),
    *(datagram("b", 5 + at, "x/p/1", at, channel="only/seen") for at in range(9)),
    *(datagram("b", 5 + at, "a/p/1", 1000 + at, channel="heartbeat/a/p/1", payload=b"leaving") for at in (0, 5)),
    *(datagram("b", 20 + at, None, None, verdict="hmac", channel=f"c/{at}") for at in range(3)),
    datagram("a", 6, "a/p/1", 4, direction="echo", verdict="own"),
    datagram("a", 7, "a/p/1", None, direction="local", channel="local/work"),
]  # fmt: skip


def used(spark: SparkSession, found: Digests, rows: DataFrame) -> dict[str, "Counter[Any]"]:
    """All that the tables take of digests."""
    best = channels.witnesses(found.heard)
    known = frame(spark, [], "address string, known string")
    made = {
        "marks": found.marks,
        "words": words.of(found.words, 10**10),
        "heard": segments.heard(found.heard),
        "sizes": channels.sizes(best, found.sizes, rows),
        "beats": liveness.beats(found.beats),
        "rejected": rejected.rejected(found.rejected, known),
        "sample": latency.sample(found.sample, 0),
    }
    return {name: counted(each) for name, each in made.items()}


def counted(rows: DataFrame) -> "Counter[Any]":
    return Counter(str(row) for row in rows.select(*sorted(rows.columns)).collect())
