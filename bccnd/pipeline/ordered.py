"""Words of numbers in memory, in order: what ``words`` has Spark do with the digests, by numpy.

Rules
- Hosts and sources are numbers here, in the order of their names.
- Memory is for the words, once: 170 bytes each while they are put in order, a column after the other, and 100 then.
- What is made of those that were received is made of PART of them at a time.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bccnd.pipeline.arrays import Array, Columns, Names, begins, chosen, found, grouped, reorder, so_far
from bccnd.pipeline.words import BITS, JUMP_WORDS, SANITY_WORDS, SENT_NS
from bccnd.recorder.layout import Direction

# Words that were received, of which something is made at a time: 500 bytes each.
PART = 250_000
_NUMBERS = ("word", "slot", *BITS, "rows", "late", "first_ns", "last_ns")
# Of what is equal in place, word and slot.
_HOW: dict[str, np.ufunc] = {
    **dict.fromkeys(BITS, np.bitwise_or),
    **dict.fromkeys(("rows", "late"), np.add),
    "first_ns": np.minimum,
    "last_ns": np.maximum,
}


class Words:
    """``words.of``. ``hosts`` are all that are named, and those that are ``recorded``: of one that hears nothing
    there are no words.
    """

    def __init__(self, digests: Iterable[pa.Table], slot_ns: int, recorded: Iterable[str] = ()) -> None:
        self.slot_ns = slot_ns
        columns = self._read(digests, recorded)
        self.rows = int(columns["rows"].sum())
        self._all = self._with_epochs(_once(columns))
        self._resent = self._by_repair()

    def _read(self, digests: Iterable[pa.Table], recorded: Iterable[str]) -> Columns:
        """``place`` counts (direction, host, source): what was received comes first."""
        strings = {name: list[pa.DictionaryArray]() for name in ("host", "src")}
        numbers = {name: [np.zeros(0, np.int64)] for name in _NUMBERS}
        directions = [np.zeros(0, bool)]
        for table in digests:
            for name, parts in strings.items():
                parts += pc.dictionary_encode(table[name]).chunks
            for name, values in numbers.items():
                values.append(table[name].to_numpy())
            directions.append(pc.equal(table["direction"], Direction.OUT.value).to_numpy())
        hosts, sources = ({name for part in parts for name in part.unique().to_pylist()}
                          for parts in strings.values())  # fmt: skip
        self.sources = Names(sources)
        self.hosts = Names(hosts, (src.partition("/")[0] for src in sources), recorded)
        sent = np.concatenate(directions).astype(np.int64)
        host, src = (
            np.concatenate([np.zeros(0, np.int64), *map(names.of, strings.pop(name))])
            for name, names in (("host", self.hosts), ("src", self.sources))
        )
        columns = {name: np.concatenate(numbers.pop(name)) for name in _NUMBERS}
        columns["place"] = (sent * len(self.hosts) + host) * max(1, len(self.sources)) + src
        columns["slot"] //= np.where(sent, self.slot_ns // SENT_NS, 1)
        return columns

    def _with_epochs(self, columns: Columns) -> Columns:
        reorder(columns, np.lexsort((columns["word"], columns["first_ns"], columns["place"])))
        starts = begins(columns["place"])
        step = np.diff(columns["word"], prepend=columns["word"][:1])
        step[starts] = 0
        columns["restart"] = step < -SANITY_WORDS
        breaks = (columns["restart"] | (step > JUMP_WORDS)).astype(np.int64)
        columns["epoch"] = so_far(breaks, starts)
        rest, columns["src"] = np.divmod(columns.pop("place"), max(1, len(self.sources)))
        self._received = int(np.searchsorted(rest, len(self.hosts)))
        columns["host"] = rest % max(1, len(self.hosts))
        return columns

    def of(self, sent: bool) -> Columns:
        """A view of those that were sent, or received; by host and source."""
        which = slice(self._received, None) if sent else slice(self._received)
        return {name: values[which] for name, values in self._all.items()}

    def parts(self) -> Iterator[Columns]:
        """Those that were received, about PART at a time; all that a host has of a source is in one."""
        seen = self.of(sent=False)
        starts = begins(seen["host"], seen["src"])
        cuts = np.searchsorted(starts, np.arange(PART, self._received, PART))
        ends = np.unique(starts[cuts[cuts < len(starts)]]).tolist()
        for start, end in pairwise([0, *ends, self._received]):
            yield {name: values[start:end] for name, values in seen.items()}

    def _by_repair(self) -> Columns:
        """``words.resent``."""
        seen = {name: self.of(sent=False)[name] for name in ("src", "word", "repaired_bits")}
        at = np.flatnonzero(seen["repaired_bits"])
        return grouped(chosen(seen, at), ("src", "word"), {"repaired_bits": np.bitwise_or})

    def resent(self, columns: Columns) -> Array:
        """Of these words, the numbers that came by repair to any receiver."""
        at = found(columns, self._resent, ("src", "word"))
        return np.append(self._resent["repaired_bits"], 0)[at]

    def owners(self) -> tuple[Array, Array]:
        """``delivery.owners``: the host of each source, and whether it is recorded."""
        prefixes = Names(self.hosts.all).of(
            pa.array([src.partition("/")[0] for src in self.sources.all], pa.string())
        )
        most = grouped(self.of(sent=True), ("src", "host"), {"rows": np.add})
        most = chosen(most, np.lexsort((most["host"], most["rows"], most["src"])))
        recorded = np.zeros(len(self.sources), bool)
        recorded[most["src"]] = True
        prefixes[most["src"]] = most["host"]  # the last one of each source stays
        return prefixes, recorded


def _once(columns: Columns) -> Columns:
    """A row for each word and slot of a place."""
    key = ("place", "word", "slot")
    reorder(columns, np.lexsort([columns[name] for name in reversed(key)]))
    starts = begins(*(columns[name] for name in key))
    for name in columns:
        how = _HOW.get(name)
        columns[name] = how.reduceat(columns[name], starts) if how and len(starts) else columns[name][starts]
    return columns
