"""Which input files were ingested: each once, however often it runs or is killed, with memory that has a bound.

    checkpoint/planned/<N>.json     the files of batch N, noted before any is read
    checkpoint/taken/<N>.json       the same, renamed once the batch is written for good
    checkpoint/taken/<N>.all.json   all that is remembered of the batches up to N

Rules
- A batch that is planned and not taken is repeated with the same files, under the same number.
- A file is remembered by its host and name, wherever the input directory lies; a capture by its whole path.
- What is remembered is bounded by what is there: every BATCHES_KEPT batches a recorded file that is gone is
  forgotten, if a newer one of its host is there. A recorder removes its oldest files first; of an input directory
  that is not mounted, or has lost a host, nothing is forgotten. A capture is never forgotten.
- A file older than one of its host that was forgotten may have been ingested before. It is not ingested, and never
  silently left out: it is set aside, with the reason MAYBE_TAKEN.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from pyspark.sql import SparkSession

from bccnd.errors import ConfigError
from bccnd.pipeline import storage

# Batches whose files are kept one by one; then they are put together, and files that are gone are forgotten.
BATCHES_KEPT = 10
MAYBE_TAKEN = "is older than files of its host that were forgotten, and may have been ingested before"
PLANNED, TAKEN = "planned", "taken"

_RECORDED = re.compile(r".*?(date=[^/]+/host=([^/]+)/([0-9]+)-[^/]*\.parquet)")
_NAME = re.compile(r"([0-9]+)(\.all)?\.json")


class Name(NamedTuple):
    """What a file is remembered by; ``host`` and ``opened``, Unix ns, where a recorder named it."""

    key: str
    host: str
    opened: int

    @classmethod
    def of(cls, path: str) -> "Name":
        found = _RECORDED.fullmatch(path)
        return cls(found[1], found[2], int(found[3])) if found else cls(path, "", 0)


@dataclass(slots=True)
class Ledger:
    """``taken``: the keys of files that were ingested; ``forgotten``: of each host the newest that was forgotten."""

    taken: set[str] = field(default_factory=set)
    forgotten: dict[str, int] = field(default_factory=dict)

    def new(self, listed: Iterable[str]) -> tuple[list[str], list[str]]:
        """Those of the files that are to be ingested, the oldest first, and those that may have been before."""
        new: list[tuple[int, str]] = []
        doubtful: list[tuple[int, str]] = []
        for path in listed:
            name = Name.of(path)
            if name.key not in self.taken:
                old = bool(name.host) and name.opened <= self.forgotten.get(name.host, -1)
                (doubtful if old else new).append((name.opened, path))
        return [path for _, path in sorted(new)], [path for _, path in sorted(doubtful)]

    def take(self, files: Iterable[str]) -> None:
        self.taken.update(Name.of(path).key for path in files)

    def forget(self, listed: Iterable[str]) -> None:
        """Forget recorded files that are not listed while a newer one of their host is."""
        there, newest = set(), dict[str, int]()
        for path in listed:
            name = Name.of(path)
            there.add(name.key)
            newest[name.host] = max(newest.get(name.host, -1), name.opened)
        for name in [Name.of(key) for key in self.taken - there]:
            if name.host and name.opened < newest.get(name.host, -1):
                self.taken.remove(name.key)
                self.forgotten[name.host] = max(self.forgotten.get(name.host, -1), name.opened)

    def as_json(self) -> str:
        return json.dumps({"taken": sorted(self.taken), "forgotten": self.forgotten})


def numbers(spark: SparkSession, checkpoint: str, which: str) -> list[int]:
    """The batches that are noted one by one as PLANNED or TAKEN, in order."""
    names = map(_NAME.fullmatch, storage.children(spark, f"{checkpoint}/{which}"))
    return sorted(int(found[1]) for found in names if found and not found[2])


def settled(spark: SparkSession, checkpoint: str) -> Callable[[int], bool]:
    """Tells of a batch whether it was taken for good. ``ingest`` writes any other, or writes it again, over what is
    there.
    """
    planned = {*numbers(spark, checkpoint, PLANNED)}
    names = map(_NAME.fullmatch, storage.children(spark, f"{checkpoint}/{TAKEN}"))
    last = max([*(int(found[1]) for found in names if found), *_committed(spark, checkpoint)], default=-1)
    return lambda number: number <= last and number not in planned


def _committed(spark: SparkSession, checkpoint: str) -> set[int]:
    """The batches that Structured Streaming, which an earlier ``ingest`` used, took note of here."""
    return {int(name) for name in storage.children(spark, f"{checkpoint}/commits") if name.isdigit()}


class Plan(NamedTuple):
    """The files of a batch: those to be ingested, and those that may have been before."""

    number: int
    files: list[str]
    doubtful: list[str]


class Inputs:
    """The files below ``source`` that match ``patterns``; ``checkpoint`` says which of them were ingested."""

    def __init__(self, spark: SparkSession, source: str, patterns: Sequence[str], checkpoint: str) -> None:
        self._spark = spark
        self._source = source
        self._patterns = patterns
        self._checkpoint = checkpoint
        self._ledger = Ledger()
        # Listed, and not yet in a batch.
        self._new: list[str] = []
        self._doubtful: list[str] = []
        self._load()

    def plan(self, most: int) -> Plan | None:
        """The next batch, of at most so many files: the one that was not finished, if there is one; None without new
        files.
        """
        for number in self._numbers(PLANNED):
            noted = self._read(PLANNED, f"{number}.json")
            return Plan(number, noted["files"], noted["doubtful"])
        if not self._new and not self._doubtful:
            self._new, self._doubtful = self._ledger.new(self._listed())
        if not self._new and not self._doubtful:
            return None
        made = Plan(self._next, self._new[:most], self._doubtful[:most])
        text = json.dumps({"files": made.files, "doubtful": made.doubtful})
        storage.write_text(self._spark, self._at(PLANNED, f"{made.number}.json"), text)
        self._new, self._doubtful = self._new[most:], self._doubtful[most:]
        return made

    def knows(self, number: int) -> bool:
        """Whether a batch of this number, which is whole, can be of this checkpoint. Of Structured Streaming one more
        can, which it did not commit.
        """
        return number < self._next + self._adopted

    def done(self, plan: Plan) -> None:
        """Take note that the batch is written for good."""
        name = f"{plan.number}.json"
        storage.rename(self._spark, self._at(PLANNED, name), self._at(TAKEN, name))
        self._ledger.take([*plan.files, *plan.doubtful])
        self._next = plan.number + 1
        if self._next % BATCHES_KEPT == 0:
            self._put_together(plan.number)

    def _load(self) -> None:
        """Read what was taken: the newest of all, and the batches after it."""
        numbers, upto = self._numbers(TAKEN), -1
        for name in storage.children(self._spark, self._at(TAKEN)):
            if (found := _NAME.fullmatch(name)) and found[2]:
                upto = max(upto, int(found[1]))
        if upto >= 0:
            everything = self._read(TAKEN, f"{upto}.all.json")
            self._ledger = Ledger(set(everything["taken"]), everything["forgotten"])
        for number in numbers:
            if number > upto:
                noted = self._read(TAKEN, f"{number}.json")
                self._ledger.take([*noted["files"], *noted["doubtful"]])
        done = _committed(self._spark, self._checkpoint)
        if upto < 0:
            self._adopt(done)
        ours = max([upto, *numbers, *self._numbers(PLANNED)])
        self._next = max([ours, *done]) + 1
        self._adopted = ours < 0 and storage.exists(self._spark, self._at("sources"))

    def _adopt(self, done: set[int]) -> None:
        """Remember the files of the batches that Structured Streaming committed, until they are put together with
        ours.
        """
        for name in storage.children(self._spark, self._at("sources", "0")):
            for line in storage.read_text(self._spark, self._at("sources", "0", name)).splitlines()[1:]:
                entry = json.loads(line)
                if int(entry["batchId"]) in done:
                    self._ledger.take([re.sub("^file:/+", "file:/", unquote(entry["path"]))])

    def _put_together(self, number: int) -> None:
        self._ledger.forget(self._listed())
        storage.write_text(self._spark, self._at(TAKEN, f"{number}.all.json"), self._ledger.as_json())
        for name in storage.children(self._spark, self._at(TAKEN)):
            if (found := _NAME.fullmatch(name)) and (int(found[1]), bool(found[2])) < (number, True):
                storage.delete(self._spark, self._at(TAKEN, name))

    def _listed(self) -> list[str]:
        return [
            path for pattern in self._patterns for path in storage.found(self._spark, self._source, pattern)
        ]

    def _numbers(self, which: str) -> list[int]:
        return numbers(self._spark, self._checkpoint, which)

    def _read(self, *names: str) -> dict[str, Any]:
        path = self._at(*names)
        try:
            made: dict[str, Any] = json.loads(storage.read_text(self._spark, path))
        except ValueError:
            raise ConfigError(f"{path}: is damaged; without it nobody knows what was ingested") from None
        return made

    def _at(self, *names: str) -> str:
        return "/".join([self._checkpoint, *names])
