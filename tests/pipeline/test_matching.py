"""``bccnd/pipeline/matching.py``: epochs, gaps and bursts of literal words; test_in_memory compares with Spark."""

import tracemalloc

import numpy as np
import pyarrow as pa

from bccnd.pipeline import matching, ordered
from tests.pipeline.test_ordered import words

EVER = {0: (np.array([0]), np.array([10**18])), 1: (np.array([0]), np.array([10**18]))}


def test_a_gap_ends_with_the_epoch_of_its_source() -> None:
    found = words(
        ("b", "in", "a/p/1", 0, 0b1011, 5), ("b", "in", "a/p/1", 2, 0b100, 6), ("b", "in", "a/p/1", 900, 1, 7),
        ("b", "in", "a/p/1", 1, 1, 8),
    )  # fmt: skip
    gaps = matching.gaps(found.of(sent=False), EVER)
    # Numbers 4 to 129; then those up to the word 900; and a restart, before which nothing is missing.
    assert gaps["word"].tolist() == [0, 2, 900, 1]
    assert gaps["before"].tolist() == [0, 126, 64 * 900 - 131, 0]
    assert gaps["inside"].tolist() == [0b100, 0, 0, 0]


def test_what_comes_while_nothing_is_recorded_is_no_gap() -> None:
    found = words(("b", "in", "a/p/1", 0, 0b101, 5), ("b", "in", "a/p/1", 2, 1, 9))
    gaps = matching.gaps(found.of(sent=False), {1: (np.array([0, 7 * 10**9]), np.array([6 * 10**9, 10**18]))})
    assert gaps["before"].tolist() == [0, 0]
    assert gaps["inside"].tolist() == [0b10, 0]


def sent_to_b(found: ordered.Words) -> matching.Matched:
    ever = [{"from_ns": 0, "until_ns": 10**18}]
    pairs = matching.Pairs(pa.table({"sender": ["a"], "receiver": ["b"], "stretches": [ever]}), found.hosts)
    return matching.Sent(found, found.owners()[0]).matched(pairs, None)


def test_a_burst_goes_on_from_word_to_word() -> None:
    top = -(2**63)
    found = words(
        ("a", "out", "a/p/1", 0, top | 0b1001, 5), ("a", "out", "a/p/1", 1, -1, 6), ("a", "out", "a/p/1", 2, 1, 7),
        ("a", "out", "a/p/1", 4, 0b110, 8), ("a", "out", "a/q/1", 5, 1, 9), ("b", "in", "a/q/1", 9, 1, 9),
    )  # fmt: skip
    bursts = sent_to_b(found).bursts
    assert bursts["length"].tolist() == [1, 1, 66, 2, 1]
    assert (bursts["from_ns"] // 10**9).tolist() == [5, 5, 5, 8, 9]
    assert (bursts["until_ns"] // 10**9).tolist() == [5, 5, 7, 8, 9]


def test_what_nobody_heard_takes_no_memory_for_each_number() -> None:
    many = 4000
    found = words(
        *(("a", "out", "a/p/1", each, -1, 5) for each in range(many)), ("b", "in", "b/p/1", 1, 1, 5)
    )
    tracemalloc.start()
    bursts = sent_to_b(found).bursts
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bursts["length"].tolist() == [64 * many]
    assert peak < 2000 * many, peak / many
