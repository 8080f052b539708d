"""What is chosen to be seen in ``bccn top``, and what the keys change about it. Values only."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from bccnd.commands.columns import TABLES

# Seconds: the steps of + and -.
DELAYS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
# Characters.
FILTER_LIMIT = 40
ESCAPE, ENTER, ERASE = "\x1b", ("\r", "\n"), ("\x7f", "\b")


class Sort(NamedTuple):
    key: str
    descending: bool


BUSIEST_CLIENTS, BUSIEST_SOURCES = Sort("out", True), Sort("received", True)


@dataclass(frozen=True, slots=True)
class View:
    """``tables``: in this order; the keys sort the first. ``typing``: a filter is being typed."""

    tables: tuple[str, ...] = ("clients", "sources")
    clients: Sort = BUSIEST_CLIENTS
    sources: Sort = BUSIEST_SOURCES
    delay: float = 2.0
    filter: str = ""
    typing: bool = False
    paused: bool = False
    help: bool = False

    def sort(self, table: str) -> Sort:
        return self.clients if table == "clients" else self.sources

    def sorted_by(self, table: str, key: str) -> "View":
        """Sort by this column: numbers from the highest down, text from A to Z."""
        [left] = [column.left for column in TABLES[table] if column.key == key]
        return self._with(table, Sort(key, not left))

    def reversed(self, table: str) -> "View":
        key, descending = self.sort(table)
        return self._with(table, Sort(key, not descending))

    def press(self, key: str) -> "View | None":
        """The view after a key, None to quit. A key without a meaning leaves the help."""
        if self.typing:
            return self._type(key)
        if key in ("q", "Q"):
            return None
        if key == "?":
            return replace(self, help=not self.help)
        action = _ACTIONS.get(key)
        return replace(action(self) if action else self, help=False)

    def foot(self) -> str:
        """The last line of the screen."""
        if self.typing:
            return f"filter: {self.filter}_   Enter: done   Esc: all rows"
        state = "PAUSED" if self.paused else f"every {self.delay:g} s"
        return f"{state}   q quit  c/s/b view  < > sort  r reverse  / filter  ? help"

    def _type(self, key: str) -> "View":
        if key in ENTER:
            return replace(self, typing=False)
        if key == ESCAPE:
            return replace(self, typing=False, filter="")
        if key in ERASE:
            return replace(self, filter=self.filter[:-1])
        return replace(self, filter=(self.filter + key)[:FILTER_LIMIT]) if key.isprintable() else self

    def _with(self, table: str, sort: Sort) -> "View":
        return replace(self, clients=sort) if table == "clients" else replace(self, sources=sort)

    def beside(self, step: int) -> "View":
        """Sort by the column ``step`` to the right of this one."""
        table = self.tables[0]
        keys = [column.key for column in TABLES[table]]
        return self.sorted_by(table, keys[(keys.index(self.sort(table).key) + step) % len(keys)])

    def slower(self) -> "View":
        return replace(self, delay=next((each for each in DELAYS if each > self.delay), self.delay))

    def faster(self) -> "View":
        return replace(self, delay=next((each for each in reversed(DELAYS) if each < self.delay), self.delay))


_ACTIONS: dict[str, Callable[[View], View]] = {
    "c": lambda view: replace(view, tables=("clients",)),
    "s": lambda view: replace(view, tables=("sources",)),
    "b": lambda view: replace(view, tables=("clients", "sources")),
    "<": lambda view: view.beside(-1),
    ">": lambda view: view.beside(1),
    "r": lambda view: view.reversed(view.tables[0]),
    " ": lambda view: replace(view, paused=not view.paused),
    "/": lambda view: replace(view, typing=True, filter=""),
    "+": View.slower,
    "=": View.slower,  # the same key without shift
    "-": View.faster,
}
