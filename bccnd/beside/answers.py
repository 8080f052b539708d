"""What a program beside the daemon reports about itself on request: the messages of an answer, written and read.

    {"uplink": NAME, "state": "up", ..., "links_said": 1, "more_links": 0}
    {"uplink": NAME, "link": {"segment": "south", ...}}

Rules
- An answer is JSON in several messages, since messages of the segment are short: one about the program, which says
  how many rows follow, and one for each row. Rows that are left out are counted.
- A message that would be too long leaves out counts, then the ends of lists, then the ends of the longest texts.
- Anybody may ask (``owed.py``). So an answer has at most ``most`` rows.
- Anybody may answer, with anything. So values of the wrong type, or beyond their bounds, are left out.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# Where programs of a host answer questions about themselves. The channel never leaves the host.
CHANNEL = "local/bccnd/facts"
# Bytes of one message: with header and token it still fits a datagram.
PART_BYTES = 1000
# Longer ones are no part of an answer: read, they would take many times their size.
LONGEST = 4 * PART_BYTES
# Bytes of a message for everything around a row.
AROUND_BYTES = 200
# Numbers that are read are below this; any count of numbers below 2^64 is, too.
NUMBER_LIMIT = 1e30

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an answer. ``program``: the key of its name; ``row``, ``rows``: keys of a row and of the list.

    ``most``: rows in one answer; ``texts``, ``numbers``: keys whose values must be of this type; ``counts``: keys of
    counts by name; ``lists``: keys of lists of texts.
    """

    program: str
    row: str
    rows: str
    most: int
    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    counts: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()

    # -- writing

    def answers(self, facts: Mapping[str, Any]) -> list[bytes]:
        """The messages of an answer. ``facts`` have at least the name of the program, and the rows in order."""
        said, more = facts[self.rows][: self.most], len(facts[self.rows]) - self.most
        about = {name: value for name, value in facts.items() if name != self.rows}
        about |= {f"{self.rows}_said": len(said), f"more_{self.rows}": max(0, more)}
        for name in self.counts:
            if len(_encoded(about)) > PART_BYTES:
                about.pop(name, None)
        rows = [{self.program: facts[self.program], self.row: self._fitted(row)} for row in said]
        return [_encoded(self._cut(part, part.get(self.row, part))) for part in [about, *rows]]

    def _fitted(self, row: Mapping[str, Any]) -> Row:
        """A row, with as much of its lists as fits a message."""
        fitted = {**row} | {name: [] for name in self.lists}
        room = PART_BYTES - AROUND_BYTES - len(_encoded(fitted))
        for name in self.lists:
            texts = [str(text) for text in row[name]]
            for text in texts:
                room -= len(_encoded(text)) + 1
                if room < 0:
                    break
                fitted[name].append(text)
            more = len(texts) - len(fitted[name])
            fitted[f"more_{name}"] = int(row.get(f"more_{name}", 0)) + more
        return fitted

    def _cut(self, part: Row, inside: Row) -> Row:
        """A message, with the texts in ``inside`` cut as far as needed."""
        for name in sorted(self.texts, key=lambda name: -len(str(inside.get(name, "")))):
            if (over := len(_encoded(part)) - PART_BYTES) > 0 and name in inside:
                inside[name] = inside[name][: max(0, len(inside[name]) - over)]
        return part

    # -- reading

    def read(self, payload: bytes) -> Row | None:
        """Parse one message of an answer; None for anything else."""
        if len(payload) > LONGEST:
            return None
        try:
            part = json.loads(payload)
        except (ValueError, RecursionError):
            return None
        if not isinstance(part, dict) or not isinstance(part.get(self.program), str):
            return None
        row = part.pop(self.row, None)
        return self._plain(part) | ({self.row: self._plain(row)} if isinstance(row, dict) else {})

    def _plain(self, found: Row) -> Row:
        plain: Row = {}
        for name, value in found.items():
            if name in self.counts:
                counts = value.items() if isinstance(value, dict) else ()
                plain[name] = {kind: count for kind, count in counts if _is_number(count)}
            elif name in self.lists:
                plain[name] = (
                    [text for text in value if isinstance(text, str)] if isinstance(value, list) else []
                )
            elif self._may_be(name, value):
                plain[name] = value
        return plain

    def _may_be(self, name: str, value: object) -> bool:
        if isinstance(value, str):
            return name not in self.numbers
        return name not in self.texts and (value is None or _is_number(value))

    def gathered(self, parts: Iterable[Row], *, only_whole: bool = False) -> list[Row]:
        """The programs by name, each with its rows as they came. ``only_whole``: only those with all rows."""
        parts = list(parts)
        programs = {part[self.program]: {**part, self.rows: []} for part in parts if "state" in part}
        for part in parts:
            program = programs.get(part[self.program])
            if program is not None and self.row in part:
                program[self.rows].append(part[self.row])
        wanted = (programs[name] for name in sorted(programs))
        said = f"{self.rows}_said"
        return [each for each in wanted if not only_whole or len(each[self.rows]) >= (each.get(said) or 0)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < NUMBER_LIMIT


def _encoded(part: object) -> bytes:
    return json.dumps(part, separators=(",", ":")).encode()
