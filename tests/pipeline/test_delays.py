"""``bccnd/pipeline/delays.py``: offsets and percentiles of literal messages; test_in_memory compares with Spark."""

import math

import numpy as np
import pyarrow as pa

from bccnd.pipeline import columnar, delays
from tests.pipeline.test_ordered import words

MS = 10**6


def sample(*rows: tuple[str, str, str, int, int]) -> pa.Table:
    """Of (host, direction, src, bit, milliseconds), all of word 0."""
    full = [(host, to, src, 0, bit, False, at * MS, False, "2026-01-31") for host, to, src, bit, at in rows]
    schema = columnar.schema("sample")
    return pa.table(dict(zip(schema.names, map(list, zip(*full, strict=True)), strict=True))).cast(schema)


def test_offset_is_half_of_what_both_ways_differ() -> None:
    found = words(("a", "out", "a/p/1", 0, 7, 0), ("b", "out", "b/p/1", 0, 1, 0))
    owner, recorded = found.owners()
    sampled = sample(
        *(("a", "out", "a/p/1", bit, bit) for bit in range(3)),
        *(("b", "in", "a/p/1", bit, 10 + 2 * bit) for bit in range(3)),
        ("b", "out", "b/p/1", 0, 5), ("a", "in", "b/p/1", 0, 7),
        ("a", "in", "b/p/1", 0, 9),  # the first copy counts
    )  # fmt: skip
    there, back = delays.latencies(found, sampled, owner, recorded).table["offset"]
    assert (there, back) == (4 * MS, -4 * MS)


def test_one_way_has_no_offset_and_counts_above_the_fastest() -> None:
    found = words(("a", "out", "a/p/1", 0, 7, 0), ("b", "in", "a/p/1", 0, 7, 0))
    rows = [("a", "out", "a/p/1", bit, 0) for bit in range(4)]
    # Number 3 was used twice.
    sampled = sample(*rows, rows[3], *(("b", "in", "a/p/1", bit, 3000 + bit) for bit in range(4)))
    made = delays.latencies(found, sampled, *found.owners())
    assert math.isnan(made.table["offset"][0])
    names = ("latency_p50_us", "latency_p99_us", "latency_max_us", "direct_p50_us")
    assert [made.table[name].tolist() for name in names] == [[1000.0], [2000.0], [2000.0], [1000.0]]
    assert np.isnan(made.table["repaired_p50_us"]).all()
    assert made.offsets["least_ns"].tolist() == [3000 * MS]  # more than any network takes
