"""``bccnd/pipeline/arrays.py``: numbers in order, in groups, and as bits."""

import numpy as np
import pyarrow as pa

from bccnd.pipeline import arrays


def test_bits_are_found_at_both_ends_of_a_word() -> None:
    bits = np.array([1, 2**62, -(2**63), -1, 6, 0])
    assert arrays.lowest(bits).tolist() == [0, 62, 63, 0, 1, 64]
    assert arrays.highest(bits).tolist() == [0, 62, 63, 63, 2, -1]
    assert arrays.until_bit(np.array([0, 62, 63])).tolist() == [1, 2**63 - 1, -1]


def test_names_keep_the_order_of_strings() -> None:
    names = arrays.Names(["b", "a"], ["ä", "a"])
    assert names.all == ["a", "b", "ä"]
    assert names.of(pa.chunked_array([["b", None], ["nobody", "a"]])).tolist() == [1, -1, -1, 0]
    assert names.strings(np.array([2, 0])).to_pylist() == ["ä", "a"]


def test_groups_are_in_order_and_nothing_gives_none() -> None:
    columns = {"k": np.array([2, 1, 2]), "v": np.array([1, 2, 4])}
    of = arrays.grouped(columns, ["k"], {"v": np.bitwise_or})
    assert {name: values.tolist() for name, values in of.items()} == {"k": [1, 2], "v": [2, 5]}
    nothing = arrays.chosen(columns, np.zeros(0, np.int64))
    assert not len(arrays.grouped(nothing, ["k"], {"v": np.add})["v"])
    assert arrays.found({"k": np.array([2, 7])}, of, ["k"]).tolist() == [1, -1]
    assert arrays.found({"k": np.array([2, 7])}, nothing, ["k"]).tolist() == [-1, -1]


def test_sums_begin_anew_in_each_group() -> None:
    assert arrays.so_far(np.array([1, 1, 1, 0, 1]), np.array([0, 2])).tolist() == [1, 2, 1, 1, 2]


def test_runs_are_where_keys_stay_the_same() -> None:
    assert [*arrays.runs(np.array([1, 1, 2]), np.array([5, 6, 6]))] == [(0, 1), (1, 2), (2, 3)]
    assert [*arrays.runs(np.array([4, 4]))] == [(0, 2)]
    assert [*arrays.runs(np.zeros(0))] == []
