"""``bccn top``: what the daemon, its clients, and the sources it hears do at the moment."""

import argparse
import json
import os
import pwd
import shutil
import signal
import time
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import bccn
from bccnd.commands.arguments import count, interval
from bccnd.commands.board import draw
from bccnd.commands.columns import SORT_KEYS, TABLES
from bccnd.commands.outcome import DONE, UNAVAILABLE, complain, silent
from bccnd.commands.rates import Figures, Sample, compare
from bccnd.commands.screen import Screen
from bccnd.commands.view import View
from bccnd.process.standard_streams import say

# Seconds for the daemon to answer. A key that is pressed meanwhile waits as long.
PATIENCE = 2.0
# Characters, where neither a terminal nor $COLUMNS says otherwise.
PAPER_WIDTH = 110

EPILOG = """\
On a terminal the table is renewed until you press q ("?" names the keys). A
pipe or file gets a table for each interval. When the daemon is away, top says
so and goes on when it is back.

examples:
  bccn top
  bccn top --clients --sort pending
  bccn top --once
  bccn top --json -d 10 | jq -c '[.time, .rates.kernel]'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Show what the daemon, its clients, and the sources it hears do per second."
    parser.epilog = EPILOG
    add = parser.add_argument
    add("-d", "--delay", metavar="SECONDS", type=interval, default=2.0, help="the interval (default 2)")
    add("-n", "--count", metavar="COUNT", type=count, help="exit after COUNT intervals")
    add(
        "-s",
        "--sort",
        metavar="KEY",
        choices=SORT_KEYS,
        help=f"sort by this column, where a table has it (default: the busiest first): {', '.join(SORT_KEYS)}",
    )
    add("-r", "--reverse", action="store_true", help="reverse the order")
    tables = parser.add_mutually_exclusive_group()
    tables.add_argument("--clients", action="store_true", help="show only the clients")
    tables.add_argument("--sources", action="store_true", help="show only the sources")
    add(
        "--rows",
        metavar="N",
        type=count,
        default=100,
        help="read at most N clients and N sources (default 100)",
    )
    add("--once", action="store_true", help="print one table after one interval, and exit")
    add("--json", action="store_true", help="print a JSON object for each interval")


def run(arguments: argparse.Namespace) -> int:
    feed = Feed(arguments.socket, arguments.rows)
    if arguments.once or arguments.json or not (os.isatty(0) and os.isatty(1)):
        return _print(arguments, feed)
    return _live(arguments, feed)


class Feed:
    """Samples the daemon. ``figures``: the last ones; ``trouble``: why there are no newer ones."""

    def __init__(self, path: str | None, rows: int) -> None:
        self.figures: Figures | None = None
        self.trouble = ""
        self._path, self._rows = path, rows
        self._bus: bccn.Client | None = None
        self._before: Sample | None = None

    def look(self) -> None:
        """Take a sample. Raises ``RefusedError``, against which waiting does not help."""
        try:
            sample = self._sample()
        except bccn.RefusedError:
            raise
        except bccn.BccnError as error:
            self.trouble, self._before = f"{error}; waiting for it", None
            if self._bus is not None:
                self._bus.close()
                self._bus = None
        else:
            self.figures, self.trouble, self._before = compare(self._before, sample), "", sample

    def _sample(self) -> Sample:
        if self._bus is None:
            self._bus = bccn.Client(self._path, reconnect=False, timeout=PATIENCE, on_notice=silent)
        bus, at = self._bus, time.monotonic()
        status = bus.status()
        clients, more_clients = self._listed(bus, "clients")
        sources, more_sources = self._listed(bus, "sources")
        cut = {name for name, more in (("clients", more_clients), ("sources", more_sources)) if more}
        others = [row | {"user": _user(row["uid"])} for row in clients if row["name"] != bus.name]
        return Sample(at, status, others, sources, frozenset(cut))

    def _listed(self, bus: bccn.Client, key: str) -> tuple[list[dict[str, Any]], bool]:
        """The rows, no more than are asked for, and whether there are more."""
        rows: list[dict[str, Any]] = []
        cursor: str | None = None
        while len(rows) < self._rows:
            page = json.loads(bus.control(key, cursor))
            rows += page[key]
            if page["next"] is None:
                break
            cursor = str(page["next"])
        return rows[: self._rows], len(rows) > self._rows or page["next"] is not None


@cache
def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _view(arguments: argparse.Namespace) -> View:
    view = View(delay=arguments.delay)
    if arguments.clients or arguments.sources:
        view = replace(view, tables=("clients",) if arguments.clients else ("sources",))
    for table, columns in TABLES.items():
        if arguments.sort in {column.key for column in columns}:
            view = view.sorted_by(table, arguments.sort)
        if arguments.reverse:
            view = view.reversed(table)
    return view


def _print(arguments: argparse.Namespace, feed: Feed) -> int:
    """Print to a pipe or file. Returns UNAVAILABLE if the daemon is away at the end."""
    view, left = _view(arguments), 1 if arguments.once else arguments.count
    width, between = shutil.get_terminal_size((PAPER_WIDTH, 0)).columns, ""
    while True:
        feed.look()
        if feed.trouble:
            complain(feed.trouble)
        elif feed.figures and feed.figures.seconds:
            text = _json(feed.figures) if arguments.json else between + _text(view, feed, width)
            between = "\n"
            say(text)
        if left is not None and (feed.trouble or (feed.figures and feed.figures.seconds)):
            left -= 1
            if not left:
                return UNAVAILABLE if feed.trouble else DONE
        time.sleep(view.delay)


def _text(view: View, feed: Feed, width: int) -> str:
    lines = draw(view, feed.figures, "", width=width, clock=time.strftime("%H:%M:%S"))
    return "\n".join(line.text.rstrip() for line in lines)


def _json(figures: Figures) -> str:
    figures_only = asdict(figures)
    cut = figures_only.pop("cut")
    return json.dumps(
        {"time": round(time.time(), 3), **figures_only, "more": {name: name in cut for name in TABLES}}
    )


def _live(arguments: argparse.Namespace, feed: Feed) -> int:
    view, left = _view(arguments), arguments.count
    looked = float("-inf")
    with Screen() as screen:
        while not screen.ended_by:
            if not view.paused and time.monotonic() - looked >= view.delay:
                looked = time.monotonic()
                feed.look()
                if left is not None and feed.figures and (feed.trouble or feed.figures.seconds):
                    left -= 1
            width, height = screen.size()
            clock = time.strftime("%H:%M:%S")
            screen.draw(draw(view, feed.figures, feed.trouble, width=width, height=height, clock=clock))
            if left == 0:
                return DONE
            for key in screen.wait(3600 if view.paused else looked + view.delay - time.monotonic()):
                after = view.press(key)
                if after is None:
                    return DONE
                view = after
    signal.signal(screen.ended_by, signal.SIG_DFL)
    os.kill(os.getpid(), screen.ended_by)
    return DONE
