"""Columns of numbers in memory: strings as numbers, groups, sums, and words of 64 bits.

Where Spark would be given a query, numpy is given these.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, np.dtype[Any]]
Columns = dict[str, Array]

ALL_BITS = np.int64(-1)


class Names:
    """Strings as numbers, in the order of the strings."""

    def __init__(self, *several: Iterable[str]) -> None:
        self.all = sorted({name for names in several for name in names})
        self._places = {name: place for place, name in enumerate(self.all)}

    def __len__(self) -> int:
        return len(self.all)

    def of(self, column: Any) -> Array:
        """A column of strings -> numbers; -1 for what is no such name."""
        coded = pc.dictionary_encode(column)
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        places = [self._places.get(name, -1) for name in coded.dictionary.to_pylist()]
        found: Array = np.array([*places, -1], np.int64)[coded.indices.fill_null(len(places)).to_numpy()]
        return found

    def strings(self, places: Array) -> Any:
        """Null for what is below 0."""
        indices = pa.array(places, pa.int32(), mask=places < 0)
        of = pa.DictionaryArray.from_arrays(indices, pa.array(self.all, pa.string()))
        return of.cast(pa.string())


def begins(*keys: Array) -> Array:
    """The places at which any of the keys, all in order, is another than before."""
    differs = np.zeros(len(keys[0]), bool)
    differs[:1] = True
    for key in keys:
        differs[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(differs)


def runs(*keys: Array) -> Iterable[tuple[int, int]]:
    """From where and up to where the keys, all in order, are the same."""
    return pairwise([*begins(*keys).tolist(), len(keys[0])])


def lengths(starts: Array, total: int) -> Array:
    return np.diff(np.append(starts, total))


def so_far(values: Array, starts: Array) -> Array:
    """The sum up to each row, from each of ``starts`` on."""
    sums = np.cumsum(values)
    before = sums[starts] - values[starts] if len(starts) else sums
    found: Array = sums - np.repeat(before, lengths(starts, len(values)))
    return found


def grouped(columns: Mapping[str, Array], key: Sequence[str], how: Mapping[str, np.ufunc]) -> Columns:
    """A row for each ``key``, in order, the others combined as ``how`` says."""
    if not len(columns[key[0]]):
        return {name: columns[name] for name in (*key, *how)}
    order = np.lexsort([columns[name] for name in reversed(key)])
    taken = {name: columns[name][order] for name in key}
    starts = begins(*taken.values())
    return {name: values[starts] for name, values in taken.items()} | {
        name: ufunc.reduceat(columns[name][order], starts) for name, ufunc in how.items()
    }


def chosen(columns: Mapping[str, Array], at: Array) -> Columns:
    return {name: values[at] for name, values in columns.items()}


def reorder(columns: Columns, order: Array) -> None:
    """In place, a column after the other: memory holds one of them twice."""
    for name in columns:
        columns[name] = columns[name][order]


def together(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def count(bits: Array) -> Array:
    return np.bitwise_count(bits.view(np.uint64)).astype(np.int64)


def lowest(bits: Array) -> Array:
    """The position of the lowest bit that is set; 64 of none."""
    of = bits.view(np.uint64)
    return count((of & (~of + np.uint64(1))) - np.uint64(1))


def highest(bits: Array) -> Array:
    """The position of the highest bit that is set; -1 of none."""
    of = bits.view(np.uint64).copy()
    for shift in (1, 2, 4, 8, 16, 32):
        of |= of >> np.uint64(shift)
    return count(of) - 1


def from_bit(position: Array) -> Array:
    """All bits from that one on."""
    return np.left_shift(ALL_BITS, position)


def until_bit(position: Array) -> Array:
    """All bits up to and with that one."""
    return (np.uint64(2**64 - 1) >> (63 - position).astype(np.uint64)).view(np.int64)


def found(columns: Mapping[str, Array], known: Mapping[str, Array], key: Sequence[str]) -> Array:
    """For each row the place of its key in ``known``, where each key is once; -1 if it is not there."""
    total = len(known[key[0]])
    both = [np.concatenate([known[name], columns[name]]) for name in key]
    if not total:
        return np.full(len(columns[key[0]]), -1)
    order = np.lexsort(both[::-1])  # stable, so that the known one comes first
    of = np.where(order < total, order, -1)
    starts = begins(*(each[order] for each in both))
    places = np.empty(len(order), np.int64)
    places[order] = np.repeat(of[starts], lengths(starts, len(order)))
    return places[total:]
