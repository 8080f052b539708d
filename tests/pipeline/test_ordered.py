"""``bccnd/pipeline/ordered.py``: literal words in order; test_in_memory compares what is made of them with Spark."""

import tracemalloc
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from bccnd.pipeline import columnar, ordered

NAMES = columnar.schema("words").names


def words(*rows: tuple[str, str, str, int, int, int]) -> ordered.Words:
    """Of (host, direction, src, word, bits, second)."""
    full = [
        (host, direction, src, word, second, False, "2026-01-31", bits, 0, 0, bits.bit_count(), 0,
         second * 10**9, second * 10**9)
        for host, direction, src, word, bits, second in rows
    ]  # fmt: skip
    columns = dict(zip(NAMES, map(list, zip(*full, strict=True)), strict=True))
    return ordered.Words([pa.table(columns).cast(columnar.schema("words"))], 10**9)


def test_source_belongs_to_the_host_that_sent_most_of_it() -> None:
    found = words(
        ("b", "out", "a/p/1", 0, 1, 5), ("a", "out", "a/p/1", 0, 6, 5), ("b", "in", "x/p/1", 0, 1, 5)
    )
    owner, recorded = found.owners()
    assert [found.hosts.all[host] for host in owner] == ["a", "x"]
    assert recorded.tolist() == [True, False]


def test_parts_hold_all_of_a_source_at_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "PART", 3)
    of = {("b", "a/p/1"): 2, ("b", "a/q/1"): 5, ("c", "a/p/1"): 1, ("c", "x/p/1"): 1}
    rows = [(host, "in", src, word, 1, 5) for (host, src), several in of.items() for word in range(several)]
    found = words(("a", "out", "a/p/1", 0, 1, 5), *rows)
    parts = [
        [
            (found.hosts.all[host], found.sources.all[src])
            for host, src in zip(part["host"], part["src"], strict=True)
        ]
        for part in found.parts()
    ]
    assert [len(part) for part in parts] == [7, 2]
    assert {pair: sum(part.count(pair) for part in parts) for pair in of} == of
    assert [len(part["host"]) for part in words(("a", "out", "a/p/1", 0, 1, 5)).parts()] == [0]


def test_memory_for_a_word_is_little_while_they_are_read() -> None:
    """As much as the limit of the words that are held counts on (``in_memory.WORDS``)."""
    size, schema = 10_000, columnar.schema("words")

    def read() -> Iterator[pa.Table]:
        for number in range(20):
            word = np.arange(size)[::-1] + number * size
            columns = {
                field.name: word if field.type == pa.int64() else pa.repeat(field.name, size).cast(field.type)
                for field in schema
                if field.type != pa.bool_()
            }
            columns["capture"] = np.zeros(size, bool)
            yield pa.table(columns).select(schema.names)

    tracemalloc.start()
    before = pa.total_allocated_bytes()
    found = ordered.Words(read(), 10**9)
    peak = tracemalloc.get_traced_memory()[1] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    assert len(found.of(sent=False)["word"]) == 20 * size
    assert peak < 200 * 20 * size, peak / size / 20
