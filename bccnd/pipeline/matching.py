"""Words of numbers, matched in memory by numpy: what ``loss`` and ``delivery`` have Spark do with them.

    words -> received, lost, repaired of each source         table ``sources``
          -> for one receiver after the other, sent & ~received    minutes, sources, senders, bursts, steps

Spark writes and compiles a program for each query. Where the words of a network fit into memory, that takes ten times
as long as the work itself.

Rules
- The results are those of the functions of the same names in ``loss`` and ``delivery``, which say what they mean.
  These also do the work for few rows.
- Hosts and sources are numbers here, in the order of their names.
- Only the pairs of one receiver are held at once: the pairs of all grow with the square of the hosts.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bccnd.pipeline.arrays import (
    ALL_BITS,
    Array,
    Columns,
    Names,
    begins,
    chosen,
    count,
    found,
    from_bit,
    grouped,
    highest,
    lengths,
    lowest,
    runs,
    together,
    until_bit,
)
from bccnd.pipeline.layout import MARGIN_NS
from bccnd.pipeline.ordered import Words
from bccnd.pipeline.times import HOUR_NS, MINUTE_NS, SECOND_NS
from bccnd.pipeline.words import BITS

Stretches = Mapping[int, tuple[Array, Array]]

_ONE = np.int64(1)

# -- what a receiver's record says of a source


def at_stretches(host: Array, time_ns: Array, stretches: Stretches) -> Array:
    """``coverage.stretch_at``, of rows in the order of ``host``."""
    positions = np.zeros(len(host), np.int64)
    for start, end in runs(host):
        if (spans := stretches.get(int(host[start]))) is not None:
            of = time_ns[start:end]
            positions[start:end] = np.searchsorted(spans[0], of, "right") + np.searchsorted(
                spans[1], of, "left"
            )
    return positions


def gaps(seen: Columns, stretches: Stretches) -> Columns:
    """``loss.gaps`` of the words that were received, with ``host`` as the receiver."""
    how = dict.fromkeys(BITS, np.bitwise_or) | {"first_ns": np.minimum, "last_ns": np.maximum}
    merged = grouped(seen, ("host", "src", "epoch", "word"), how)
    merged = chosen(merged, np.flatnonzero(merged["bits"]))
    first = at_stretches(merged["host"], merged["first_ns"], stretches)
    last = at_stretches(merged["host"], merged["last_ns"], stretches)
    low, high = lowest(merged["bits"]), highest(merged["bits"])
    begin = np.zeros(len(low), bool)
    begin[begins(merged["host"], merged["src"], merged["epoch"])] = True

    def before(values: Array) -> Array:
        return np.where(begin, 0, np.roll(values, 1))

    previous, previous_high = before(merged["word"]), before(high)
    known = ~begin & (before(last) == first) & (first % 2 == 1)
    between = (merged["word"] - previous - 1) * 64 + 63 - previous_high + low
    inside = ~merged["bits"] & from_bit(low) & until_bit(high)
    return merged | {
        "low": low,
        "previous": previous,
        "previous_high": previous_high,
        "since_ns": before(merged["last_ns"]),
        "is_first": begin,
        "before": np.where(known, between, 0),
        "inside": np.where((first == last) & (first % 2 == 1), inside, 0),
    }


def sources(words: Words, seen: Columns, missing: Columns) -> Columns:
    """``loss.sources``, with ``host`` as the receiver and ``hour`` in hours since 1970."""
    seen = chosen(seen, np.lexsort([seen[name] for name in ("slot", "word", "epoch", "src", "host")]))
    starts = begins(*(seen[name] for name in ("host", "src", "epoch", "word")))
    place = np.arange(len(seen["bits"])) - np.repeat(starts, lengths(starts, len(seen["bits"])))
    known = np.zeros_like(seen["bits"])
    for number in range(1, int(place.max(initial=0)) + 1):
        at = np.flatnonzero(place == number)
        known[at] = known[at - 1] | seen["bits"][at - 1]
    received = count(seen["bits"] & ~known)
    again = np.maximum(0, seen["rows"] - received - seen["late"])
    none = np.zeros_like(received)
    counted = {
        **{name: seen[name] for name in ("host", "src", "rows", "late")},
        "hour": seen["first_ns"] // HOUR_NS,
        "received": received,
        "lost": none,
        "restarts": seen["restart"].astype(np.int64),
        "repaired": count(seen["repaired_bits"]),
        "resent": np.minimum(again, count(words.resent(seen))),
    }
    missing = chosen(missing, np.flatnonzero((missing["before"] > 0) | (missing["inside"] != 0)))
    lost = dict.fromkeys(counted, np.zeros_like(missing["before"])) | {
        **{name: missing[name] for name in ("host", "src")},
        "hour": missing["first_ns"] // HOUR_NS,
        "lost": missing["before"] + count(missing["inside"]),
    }
    names = ("received", "lost", "rows", "late", "restarts", "repaired", "resent")
    sums = grouped(together([counted, lost]), ("host", "src", "hour"), dict.fromkeys(names, np.add))
    sums["duplicates"] = sums.pop("rows") - sums["received"] - sums["late"] - sums["resent"]
    return sums


# -- what was sent, and what came


class Pairs:
    """``delivery.pairs``: for each receiver its senders, and its stretches by their clocks."""

    def __init__(self, table: pa.Table, hosts: Names) -> None:
        spans = table["stretches"].combine_chunks()
        flat = spans.flatten()
        self._from, self._until = (flat.field(name).to_numpy() for name in ("from_ns", "until_ns"))
        self._ends = np.cumsum(np.append(0, pc.list_value_length(spans).to_numpy()))
        sender, receiver = hosts.of(table["sender"]), hosts.of(table["receiver"])
        order = np.lexsort((sender, receiver))
        self._sender, self._order = sender[order], order
        self._receivers = receiver[order]

    def __iter__(self) -> Iterator[tuple[int, Array, Array]]:
        """Receivers, and the senders of each, and their rows."""
        for start, end in runs(self._receivers):
            yield int(self._receivers[start]), self._sender[start:end], self._order[start:end]

    def whole(self, slots: "Slots", rows: Array, row_of: Array, slot_ns: int) -> Array:
        """Which slots of the senders whose row ``row_of`` says count at their receiver; ``coverage.whole``."""
        row = row_of[slots.sender]
        there = row >= 0
        since, until = slots.slot * slot_ns - MARGIN_NS, (slots.slot + 1) * slot_ns + MARGIN_NS
        least, most = self._ends[row], self._ends[np.minimum(row + 1, len(self._ends) - 1)]
        counts = np.zeros(len(row), bool)
        for number in range(int((self._ends[rows + 1] - self._ends[rows]).max(initial=0))):
            place = np.minimum(least + number, len(self._from) - 1)
            counts |= (least + number < most) & (self._from[place] <= since) & (self._until[place] >= until)
        return np.flatnonzero(there & counts)


class Slots(NamedTuple):
    """``delivery.sent``, a row for each slot of a word: which word, whose, when, and the numbers sent then."""

    word: Array
    sender: Array
    slot: Array
    bits: Array
    first_ns: Array
    last_ns: Array


class Matched(NamedTuple):
    """All that is counted of ``delivery.matched``; times since 1970, in minutes, hours and steps."""

    minutes: Columns
    sources: Columns
    senders: Columns
    bursts: Columns
    steps: Columns


class Sent:
    """``delivery.sent`` and ``delivery.received``: words that were sent, and what came of them."""

    def __init__(self, words: Words, owner: Array) -> None:
        self._hosts, self._slot_ns = len(words.hosts), words.slot_ns
        out = words.of(sent=True)
        out = chosen(out, np.flatnonzero(out["host"] == owner[out["src"]]))
        order = np.lexsort([out[name] for name in ("slot", "epoch", "word", "src")])
        out = chosen(out, order)
        starts = begins(out["src"], out["word"], out["epoch"]) if len(order) else order
        self.word = {name: out[name][starts] for name in ("src", "word", "epoch", "host")}
        self.word["first_ns"] = (
            np.minimum.reduceat(out["first_ns"], starts) if len(starts) else out["first_ns"]
        )
        of = np.repeat(np.arange(len(starts)), lengths(starts, len(order)))
        self.slots = Slots(of, out["host"], out["slot"], out["bits"], out["first_ns"], out["last_ns"])
        used = begins(self.word["src"], self.word["word"]) if len(starts) else starts
        several = np.repeat(lengths(used, len(starts)), lengths(used, len(starts)))
        self.word["era"] = np.where(several > 1, self.word["epoch"], 0)
        self._received(words, several)

    def _received(self, words: Words, several: Array) -> None:
        parts = [self._came_of(words, came, several) for came in words.parts()]
        self._came = {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}
        self._came_from = np.searchsorted(self._came["host"], np.arange(self._hosts + 1))

    def _came_of(self, words: Words, came: Columns, several: Array) -> Columns:
        """By word that was sent; those of one source follow each other, so parts do, too."""
        first = begins(self.word["src"], self.word["word"]) if len(several) else several
        once = {name: self.word[name][first] for name in ("src", "word")}
        at = found(came, once, ("src", "word"))
        place = np.append(first, -1)[at]
        eras = np.append(several, 0)[place]
        best, off = place.copy(), np.full(len(place), np.iinfo(np.int64).max)
        for number in range(int(eras.max(initial=0))):
            open_ = np.flatnonzero(number < eras)
            apart = np.abs(self.word["first_ns"][place[open_] + number] - came["first_ns"][open_])
            nearer = apart < off[open_]
            off[open_[nearer]] = apart[nearer]
            best[open_[nearer]] = place[open_[nearer]] + number
        came = chosen(came | {"sent_word": best}, np.flatnonzero(best >= 0))
        how = dict.fromkeys(BITS, np.bitwise_or) | {"rows": np.add}
        came = grouped(came, ("host", "sent_word"), how)
        resent = words.resent(chosen({name: self.word[name] for name in ("src", "word")}, came["sent_word"]))
        again = np.maximum(came["rows"] - count(came["bits"] | came["late_bits"]), 0)
        came["rows"] -= count(came["repaired_bits"]) + np.minimum(again, count(resent))
        return came

    def known(self) -> Columns:
        """All numbers sent, by (src, word)."""
        word = chosen(self.word, self.slots.word)
        columns = {"src": word["src"], "word": word["word"], "known": self.slots.bits}
        return grouped(columns, ("src", "word"), {"known": np.bitwise_or})

    def matched(self, pairs: Pairs, step_ns: int | None) -> Matched:
        """Of one receiver after the other. ``steps`` are of all pairs together."""
        self._steps_ns = step_ns
        words = len(self.word["src"])
        everywhere = {
            **{name: np.zeros(words, np.int64) for name in ("receivers", "lost", "missed")},
            **{name: np.full(words, ALL_BITS) for name in ("everywhere", "missed_by_all")},
            "slot": np.full(words, np.iinfo(np.int64).max),
        }
        minutes, sums, bursts, steps = list[Columns](), list[Columns](), list[Columns](), list[Columns]()
        nobody = 0, np.zeros(0, np.int64), np.zeros(0, np.int64)
        for receiver, senders, rows in chain([nobody], pairs):
            at, of = self._of(pairs, receiver, senders, rows)
            minutes.append(self._minutes(receiver, at, of))
            used = begins(self.slots.word[at])
            place = self.slots.word[at][used]
            sent = self.slots.bits[at]
            sent = np.bitwise_or.reduceat(sent, used) if len(at) else sent
            slot = self.slots.slot[at][used]
            sums.append(self._sums(receiver, place, sent, slot, of))
            self._add(everywhere, place, sent, slot, of)
            bursts.append(self._bursts(receiver, place, sent & ~of["bits"][place]))
            steps.append(self._steps(at, of) if step_ns or not steps else steps[0])
        every = grouped(together(steps), ("step",), {"sent": np.add, "lost": np.add})
        return Matched(together(minutes), together(sums), self._senders(everywhere), together(bursts), every)

    def steps_of(self, pairs: Pairs, wanted: set[tuple[int, int]]) -> Columns:
        """Of these pairs (sender, receiver), each on its own."""
        parts = []
        for receiver, senders, rows in pairs:
            for sender in senders:
                if (int(sender), receiver) in wanted:
                    one = senders == sender
                    at, of = self._of(pairs, receiver, senders[one], rows[one])
                    if len(at):
                        part = self._steps(at, of)
                        size = len(part["step"])
                        parts.append(
                            part | {"sender": np.full(size, sender), "receiver": np.full(size, receiver)}
                        )
        return together(parts) if parts else {}

    def _of(self, pairs: Pairs, receiver: int, senders: Array, rows: Array) -> tuple[Array, Columns]:
        """The slots that count at a receiver, and by word what it received."""
        row_of = np.full(self._hosts + 1, -1)
        row_of[senders] = rows
        at = pairs.whole(self.slots, rows, row_of, self._slot_ns)
        mine = slice(self._came_from[receiver], self._came_from[receiver + 1])
        of = {name: np.zeros(len(self.word["src"]), np.int64) for name in (*BITS, "rows")}
        for name, values in of.items():
            values[self._came["sent_word"][mine]] = self._came[name][mine]
        return at, of

    def _minutes(self, receiver: int, at: Array, of: Columns) -> Columns:
        word, sent = self.slots.word[at], self.slots.bits[at]
        missing = sent & ~of["bits"][word]
        first = np.zeros(len(at), bool)
        first[begins(word)] = True
        counts = {
            "sender": self.slots.sender[at],
            "minute": self.slots.slot[at] * self._slot_ns // MINUTE_NS,
            "sent": count(sent),
            "lost": count(missing),
            "late": count(missing & of["late_bits"][word]),
            "repaired": count(sent & of["repaired_bits"][word]),
            "rows": np.where(first, of["rows"][word], 0),
        }
        names = ("sent", "lost", "late", "repaired", "rows")
        sums = grouped(counts, ("sender", "minute"), dict.fromkeys(names, np.add))
        return sums | {"receiver": np.full(len(sums["sender"]), receiver)}

    def _sums(self, receiver: int, place: Array, sent: Array, slot: Array, of: Columns) -> Columns:
        counts = {
            **{name: self.word[known][place] for name, known in (("sender", "host"), ("src", "src"))},
            "hour": slot * self._slot_ns // HOUR_NS,
            "sent": count(sent),
            "lost": count(sent & ~of["bits"][place]),
            "repaired": count(sent & of["repaired_bits"][place]),
        }
        names = ("sent", "lost", "repaired")
        sums = grouped(counts, ("sender", "src", "hour"), dict.fromkeys(names, np.add))
        return sums | {"receiver": np.full(len(sums["sender"]), receiver)}

    def _add(self, everywhere: Columns, place: Array, sent: Array, slot: Array, of: Columns) -> None:
        """What this receiver says of the senders that it hears."""
        hears = np.zeros(self._hosts, bool)
        hears[self.word["host"][place[of["bits"][place] != 0]]] = True
        heard = hears[self.word["host"][place]]
        place, sent, slot = place[heard], sent[heard], slot[heard]
        lost = sent & ~of["bits"][place]
        missed = sent & (~of["bits"][place] | of["repaired_bits"][place])
        everywhere["receivers"][place] += 1
        everywhere["lost"][place] += count(lost)
        everywhere["missed"][place] += count(missed)
        everywhere["everywhere"][place] &= lost
        everywhere["missed_by_all"][place] &= missed
        everywhere["slot"][place] = np.minimum(everywhere["slot"][place], slot)

    def _senders(self, everywhere: Columns) -> Columns:
        several = np.flatnonzero(everywhere["receivers"] > 1)
        of = chosen(everywhere, several)
        counts = {
            "sender": self.word["host"][several],
            "hour": of["slot"] * self._slot_ns // HOUR_NS,
            "lost": of["lost"],
            "lost_everywhere": count(of["everywhere"]) * of["receivers"],
            "missed": of["missed"],
            "missed_everywhere": count(of["missed_by_all"]) * of["receivers"],
        }
        names = ("lost", "lost_everywhere", "missed", "missed_everywhere")
        return grouped(counts, ("sender", "hour"), dict.fromkeys(names, np.add))

    def _bursts(self, receiver: int, place: Array, missing: Array) -> Columns:
        """``words.runs``, stitched, with the times of their ends."""
        some = np.flatnonzero(missing)
        place, missing = place[some], missing[some]
        # By era, as numbers follow each other.
        order = np.lexsort([self.word[name][place] for name in ("word", "era", "src")])
        place, missing = place[order], missing[order]
        word, src, era = (self.word[name][place] for name in ("word", "src", "era"))
        bits = missing.view(np.uint64)
        goes_on = (np.diff(word) == 1) & (np.diff(src) == 0) & (np.diff(era) == 0)
        goes_on &= (bits[:-1] >> 63 == 1) & (bits[1:] & 1 == 1)
        # Of a run its ends alone are looked at: who heard nothing lost more numbers than memory holds one by one.
        starts, ends = bits & ~(bits << 1), bits & ~(bits >> 1)
        starts[1:] &= ~goes_on.astype(np.uint64)
        ends[:-1] &= ~(goes_on.astype(np.uint64) << 63)
        (first, from_bits), (last, until_bits) = _bits(starts), _bits(ends)
        from_ns = self._sent_ns(place[first], from_bits)
        return {
            "sender": self.word["host"][place[first]],
            "receiver": np.full(len(first), receiver),
            "src": src[first],
            "minute": from_ns // self._slot_ns * self._slot_ns // MINUTE_NS,
            "from_ns": from_ns,
            "until_ns": self._sent_ns(place[last], until_bits),
            "length": (word[last] - word[first]) * 64 + until_bits - from_bits + 1,
        }

    def _sent_ns(self, place: Array, bit: Array) -> Array:
        """When the number of that bit was sent, as ``delivery`` takes it."""
        first = np.searchsorted(self.slots.word, place)
        bit_of = np.left_shift(_ONE, bit)
        slot, open_ = first.copy(), np.arange(len(place))
        # The first slot of the word that has it.
        while len(open_ := open_[(self.slots.bits[slot[open_]] & bit_of[open_]) == 0]):
            slot[open_] += 1
        bits = self.slots.bits[slot]
        before = count(bits & ~from_bit(bit))
        first_ns, last_ns = self.slots.first_ns[slot], self.slots.last_ns[slot]
        found: Array = first_ns + (last_ns - first_ns) * before // np.maximum(1, count(bits) - 1)
        return found

    def _steps(self, at: Array, of: Columns) -> Columns:
        """Sent and lost in each step of these slots."""
        word, sent = self.slots.word[at], self.slots.bits[at]
        counts = {
            "step": self.slots.slot[at] * self._slot_ns // (self._steps_ns or SECOND_NS),
            "sent": count(sent),
            "lost": count(sent & ~of["bits"][word]),
        }
        return grouped(counts, ("step",), {"sent": np.add, "lost": np.add})


def _bits(words: Array) -> tuple[Array, Array]:
    """Which bits are set: the row of each, and its number in it."""
    some = np.flatnonzero(words)
    row, bit = np.nonzero(np.unpackbits(words[some].view(np.uint8), bitorder="little").reshape(-1, 64))
    return some[row], bit
