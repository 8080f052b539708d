"""The tables of each analysis lie in a directory of their own: whoever reads gets all of one analysis, at any time.

    <output>/versions/7/<table>/*.parquet     the tables before
    <output>/versions/8/<table>/*.parquet     the tables now: the highest number that has _SUCCESS
    <output>/tables -> versions/8             the same by one name, for any tool

Rules
- A version counts once it has ``_SUCCESS``, which is written last. One that was killed before is removed by the next.
  In it stands of what the tables were made, as a hash: an analysis that would make them of the same makes none.
- The link is replaced by one rename, so there is no moment without it. A file system without links has none
  (``hdfs://``, ``s3a://``): there, readers look for the highest number themselves, as ``reading`` does.
- Only what is ours is replaced or removed: a version has TABLES in it and nothing else, and ``tables`` is what
  ``preconditions.replaceable`` says.
- The newest KEPT versions stay, for who began to read before the last was made. On this machine one that ``reading``
  holds stays as well, until it is let go.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bccnd.errors import ConfigError
from bccnd.pipeline import preconditions, storage
from bccnd.pipeline.layout import TABLES, Output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEPT = 2
WHOLE = "_SUCCESS"
_NUMBER = re.compile("[1-9][0-9]{0,17}")


def begin(spark: "SparkSession", output: Output) -> str:
    """The directory to write the next version to; what killed ones have left is removed.

    Raises ConfigError if ``tables`` is not ours.
    """
    _adopt(spark, output)
    whole = _whole(spark, output)
    for number in _numbers(spark, output):
        if number not in whole:
            storage.delete(spark, output.version(number))
    return output.version(_next(spark, output))


def publish(spark: "SparkSession", output: Output, version: str, made_of: str) -> None:
    """Make this version the one that is read, and remove old ones."""
    storage.write_text(spark, f"{version}/{WHOLE}", made_of)
    if (link := storage.on_this_machine(spark, output.tables)) is not None:
        preconditions.replaceable(link)  # once more, as an analysis takes its time
        aside = link.with_name(f".{link.name}.link")
        aside.unlink(missing_ok=True)
        aside.symlink_to(Path(*Path(version).parts[-2:]))
        aside.replace(link)
    for number in _whole(spark, output)[:-KEPT]:
        _remove(spark, output.version(number))


def made_of(spark: "SparkSession", output: Output) -> str:
    """What ``publish`` was told of the tables that are read; empty if there are none, or not all."""
    whole = _whole(spark, output)
    here = storage.on_this_machine(spark, output.tables) is not None
    read = output.tables if here else output.version(whole[-1]) if whole else ""
    there = storage.children(spark, read) if read and whole else []
    return storage.read_text(spark, f"{read}/{WHOLE}") if {WHOLE, *TABLES} <= {*there} else ""


@contextmanager
def reading(spark: "SparkSession | None", output: Output) -> Iterator[str]:
    """The directory of the newest tables, which stays as it is meanwhile. Raises ConfigError if there are none."""
    while True:
        whole = _whole(spark, output)
        # A directory that an earlier bccnd-pipeline wrote.
        found = output.version(whole[-1]) if whole else output.tables
        if not storage.exists(spark, found):
            raise ConfigError(f"{output.root}: no tables are there; run bccnd-pipeline analyse first")
        place = storage.on_this_machine(spark, found)
        if place is None:
            yield found
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(_shared(place))
            except FileNotFoundError:
                continue  # it was removed just now
            if not whole or (place / WHOLE).exists():  # as above
                yield found
                return


def _remove(spark: "SparkSession", version: str) -> None:
    """Delete a version, but not under a reader: then the next analysis does."""
    place = storage.on_this_machine(spark, version)
    if place is None:
        storage.delete(spark, version)
        return
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # First: then it is none, whenever the rest is interrupted.
        (place / WHOLE).unlink()
        storage.delete(spark, version)
    except BlockingIOError:
        pass
    finally:
        os.close(descriptor)


@contextmanager
def _shared(place: Path) -> Iterator[None]:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _adopt(spark: "SparkSession", output: Output) -> None:
    """Make a version of the directory ``tables`` that an earlier bccnd-pipeline wrote; a link can replace it then."""
    place = storage.on_this_machine(spark, output.tables)
    if place is None:
        return
    preconditions.replaceable(place)
    if place.is_dir() and not place.is_symlink():
        number = _next(spark, output)
        (place / WHOLE).touch()
        storage.rename(spark, output.tables, output.version(number))
        place.symlink_to(Path("versions", str(number)))


def _numbered(spark: "SparkSession | None", output: Output) -> list[int]:
    return sorted(int(name) for name in storage.children(spark, output.versions) if _NUMBER.fullmatch(name))


def _next(spark: "SparkSession", output: Output) -> int:
    return max(_numbered(spark, output), default=0) + 1


def _numbers(spark: "SparkSession | None", output: Output) -> list[int]:
    """Those that are ours, in order."""
    return [
        number
        for number in _numbered(spark, output)
        if preconditions.are_tables(storage.children(spark, output.version(number)))
    ]


def _whole(spark: "SparkSession | None", output: Output) -> list[int]:
    """Those of them that count."""
    return [
        number
        for number in _numbers(spark, output)
        if storage.exists(spark, f"{output.version(number)}/{WHOLE}")
    ]
