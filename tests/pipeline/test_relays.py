"""``bccnd/pipeline/relays.py``: what is made of marks; test_links has a network with relayed sources."""

import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import relays
from bccnd.wire.repair import OFFSET_LIMIT
from tests.pipeline.rows import frame, mark, traffic


def test_hosts_that_relay_the_same_are_of_one_segment() -> None:
    found = relays.senders([["a"], ["a", "b"], ["b", "c"], ["x"]], ["b", "c"])
    assert found == {**dict.fromkeys("abc", (3, ["b", "c"])), "x": (1, ["x"])}


def test_what_was_left_out_counts_up_to_a_bound(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several write down counts once. Of a source with more nothing is taken: its gaps are no losses."""
    monkeypatch.setattr(relays, "WORDS_OF_SOURCE", 3)
    said = {"a/p/1": [[0, 191]], "a/q/1": [[0, 191], [200, 201]]}
    rows = [{"src": src, "left_out": ranges} for src, ranges in said.items()]
    marks = [mark(host, 1, "relayed", said={"by": "r", "sources": rows}) for host in "bc"]
    made = relays.relays(traffic(spark, marks), ["b", "c"], lambda frame: frame)
    assert made.cut == relays.Cut(sources=1, numbers=194)
    assert {(row.src, row.word) for row in made.left_out.collect()} == {
        ("a/p/1 via r", word) for word in range(3)
    }
    missing = [(f"a/{program}/1 via r", 5, 1) for program in "pq"]
    gaps = made.gaps(frame(spark, missing, "src string, before bigint, inside bigint"))
    assert {tuple(row) for row in gaps.collect()} == {("a/p/1 via r", 5, 1), ("a/q/1 via r", 0, 0)}


def test_made_up_names_share_one_bound(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a host, and of all: what little there is of others is looked at before much of one."""
    for name, most in {"WORDS_OF_SOURCE": 3, "WORDS_OF_HOST": 5, "WORDS": 6}.items():
        monkeypatch.setattr(relays, name, most)
    words_of = {
        "r": {f"made/up/{number}": 2 for number in range(50)},
        "s": {"a/p/1": 1},
        "t": {"b/p/1": 1, "b/q/1": 3},
    }
    marks = [
        mark("c", 1, "relayed", said={"by": by, "sources": [
            {"src": src, "left_out": [[0, 64 * words - 1]]} for src, words in sources.items()
        ]})
        for by, sources in words_of.items()
    ]  # fmt: skip
    made = relays.relays(traffic(spark, marks), ["c"], lambda frame: frame)
    kept = [tuple(row) for row in made.left_out.groupBy("src").count().orderBy("src").collect()]
    assert kept == [("a/p/1 via s", 1), ("b/p/1 via t", 1), ("made/up/0 via r", 2)]
    assert made.cut == relays.Cut(sources=50, numbers=49 * 128 + 3 * 64)


def test_what_was_left_out_is_bits_of_words(spark: SparkSession) -> None:
    """Numbers of 64 bits among them, and ranges that no recorder writes."""
    ranges = [[1, 2], [62, 129], [2**64 - 1, 2**64 - 1], [9, 3], [7], [0, 2**64 - 1], [0, OFFSET_LIMIT]]
    marks = traffic(spark, [
        mark("b", 1, "relayed", said={"by": "r", "sources": [{"src": "a/p/1", "left_out": ranges}]}),
        mark("b", 2, "relayed", said={"by": "r", "sources": [{"src": "a/p/1", "left_out": []}]}),
        mark("b", 3, "relayed", said=["of another form"]),
    ])  # fmt: skip
    made = relays.relays(marks, ["b"], lambda frame: frame)
    assert [tuple(row) for row in made.via.collect()] == [("b", "a/p/1", "a/p/1 via r", True)]
    known = {row.word: row.known % 2**64 for row in made.left_out.collect()}
    beats = frame(spark, [("b", "a/p/1"), ("c", "a/p/1"), ("b", "x/p/1")], "host string, src string")
    assert {tuple(row) for row in made.beats(beats).collect()} == {("c", "a/p/1"), ("b", "x/p/1")}
    assert known == {0: 0b11 << 62 | 0b110, 1: 2**64 - 1, 2: 0b11, 2**58 - 1: 1 << 63}
