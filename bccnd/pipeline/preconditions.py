"""Reports what is wrong with the directories of a user before Spark starts, which takes seconds and speaks Java.

Rules
- Each fault is one line that names the directory and says what to do.
- Only directories of this machine are looked at (``of_this_machine``). Those of ``hdfs://`` and the like are not.
- Directories may change until Spark reads them, so the steps check again.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from bccnd.errors import ConfigError, RefusedError
from bccnd.pipeline.layout import TABLES
from bccnd.recorder.layout import SUFFIX, UNFINISHED

# As ``source.captures`` reads them; those of tcpdump lie in the input directory itself.
CAPTURES = (".pcap", ".pcapng", ".pcap.gz", ".pcapng.gz")
# Bytes without which Spark cannot begin: it reports a full disk in many ways, and none of them clear.
ROOM = 32 << 20
# Directories that a line names.
NAMED = 3


def of_this_machine(path: str, master: str | None, environ: Mapping[str, str]) -> Path | None:
    """The directory that Spark means by ``path``, or None if it lies elsewhere.

    Under spark-submit, on a cluster, or with settings of Hadoop, only a ``file:`` is certainly here.
    """
    if path.startswith("file:"):
        return Path(re.sub("^file:/+", "/", path))  # nothing in it is escaped
    elsewhere = "PYSPARK_GATEWAY_PORT" in environ or "HADOOP_CONF_DIR" in environ
    if "://" in path or elsewhere or not (master or "local").startswith("local"):
        return None
    return Path(path)


def recordings(source: Path, *, later: bool = False) -> None:
    """Raises if there is nothing in ``source`` to ingest, or something unreadable. ``later``: files may yet come."""
    if not source.exists():
        raise ConfigError(f"{source}: no such directory; give the one that bccnd-record writes to")
    if not source.is_dir():
        raise ConfigError(f"{source}: is a file; give the directory that it lies in, or one of recordings")
    files = list(_recorded(source))
    files += (path for path in _entries(source) if path.name.endswith(CAPTURES) and path.name[0] not in "._")
    if unreadable := [path for path in files if not os.access(path, os.R_OK)]:
        raise RefusedError(f"{unreadable[0]}: permission denied; {_READER}")
    if files:
        return
    if elsewhere := _instead(source):
        raise ConfigError(f"{source}: no recordings in it, {elsewhere}")
    if not later:
        raise ConfigError(
            f"{source}: no recordings in it, neither date=*/host=*/*{SUFFIX} of bccnd-record nor HOST.pcap of tcpdump"
        )


def ingested(output: Path) -> None:
    """Raises if there is nothing to analyse or to maintain."""
    if not any(_entries(output / "traffic")):
        raise _nothing(output, "nothing was ingested", "ingest")


def analysed(output: Path) -> None:
    """Raises if there is nothing to report."""
    # The link comes last.
    if not (output / "tables").is_dir() and not any((output / "versions").glob("*/_SUCCESS")):
        before = "analyse" if (output / "traffic").is_dir() else "ingest and bccnd-pipeline analyse"
        raise _nothing(output, "no tables are", before)


def replaceable(tables: Path) -> None:
    """Raises if ``tables`` is none of an analysis: neither a link into ``versions/`` nor a directory of TABLES."""
    if tables.is_symlink():
        ours = re.fullmatch("versions/[0-9]+", os.fspath(tables.readlink())) is not None
    elif tables.is_dir():
        names = _names(tables)
        ours = are_tables(names) and not TABLES.keys().isdisjoint(names)
    else:
        ours = not tables.exists()
    if not ours:
        raise ConfigError(f"{tables}: is not of bccnd-pipeline; move it away, or give another --output")


def are_tables(names: Iterable[str]) -> bool:
    """Whether a directory of these names has TABLES in it and nothing else, but perhaps ``_SUCCESS``."""
    return all(name in TABLES or name.lstrip("._").startswith("SUCCESS") for name in names)


def writable(output: Path, environ: Mapping[str, str], *, starts_spark: bool = True) -> None:
    """Raises if nothing can be written there, or where Spark must if it starts, or if a disk there is full."""
    scratch = environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or environ.get("TMPDIR") or "/tmp"  # noqa: S108
    for path, remedy in (
        (output, "make room, or give another --output"),
        (
            Path(scratch),
            "make room, or set SPARK_LOCAL_DIRS, Spark's scratch space, to a directory that has some",
        ),
    )[: 1 + starts_spark]:
        there = next((each for each in (path, *path.absolute().parents) if each.exists()), Path("/"))
        if not there.is_dir():
            raise ConfigError(f"{there}: is a file, and a directory is needed there")
        if not os.access(there, os.W_OK | os.X_OK):
            raise RefusedError(f"{there}: nothing can be written there; run it as a user that may")
        left = os.statvfs(there)
        if (free := left.f_bavail * left.f_frsize) < ROOM:
            raise RefusedError(f"{path}: only {free >> 20} MiB are left on its disk; {remedy}")


_READER = "run it as a user that may read it, such as one of the group bccnd"


def _nothing(output: Path, what: str, before: str) -> ConfigError:
    """The fault, with what the directory is instead, or which one beside it is the right one."""
    if not output.is_dir():
        kind = "is a file" if output.exists() else "no such directory"
        return ConfigError(f"{output}: {kind}; give the --output of bccnd-pipeline ingest")
    if next(_recorded(output), None):
        return ConfigError(
            f"{output}: {what} there, it has recordings; give it to bccnd-pipeline ingest as --input, "
            "and another directory as --output"
        )
    # Path.is_dir() raises where this user may not look.
    if right := [path for path in (*_entries(output), output.parent) if os.path.isdir(path / "traffic")]:  # noqa: PTH112
        return ConfigError(f"{output}: {what} there, but in {_listed(right)}; give that as --output")
    return ConfigError(f"{output}: {what} there; run bccnd-pipeline {before} first")


def _recorded(source: Path) -> Iterator[Path]:
    """Whole files below a directory as a recorder fills it: the first and the last of each folder, as there may be a
    million. One that cannot be read between these ends ``ingest``."""
    for date in _entries(source, "date="):
        for host in _entries(date, "host="):
            whole = [name for name in _names(host) if name.endswith(SUFFIX) and name[0] not in "._"]
            if whole:
                yield from {host / min(whole), host / max(whole)}


def _has_recordings(folder: Path) -> bool:
    """Not as far as this user can see, where nothing can be read: nobody has asked for that one."""
    with suppress(RefusedError):
        return next(_recorded(folder), None) is not None
    return False


def _instead(source: Path) -> str:
    """Where the recordings may be, if they are not here."""
    parts = source.absolute().parts
    for place, part in enumerate(parts):
        if part.startswith(("date=", "host=")):
            return f"because it is one of the folders that they are in; give {Path(*parts[:place])}"
    if below := [path for path in _entries(source) if _has_recordings(path)]:
        give = (
            "give that" if len(below) == 1 else "give one of them, or bring what they hold into one directory"
        )
        return f"but in {_listed(below)}; {give}"
    if (source / "checkpoint").is_dir() and (source / "traffic").is_dir():
        return "because it is an --output of bccnd-pipeline; give the directory that bccnd-record writes to"
    if any(path.name.endswith(SUFFIX) for path in _entries(source)):
        return f"but *{SUFFIX}; keep the folders date=*/host=* that bccnd-record makes, and give what they are in"
    if any(path.name.endswith(UNFINISHED) for path in source.glob("date=*/host=*/.*")):
        return (
            "but one that is not finished; bccnd-record finishes a file after --rotate-seconds, 30 by default"
        )
    return ""


def _entries(folder: Path, begin: str = "") -> Iterator[Path]:
    """What is in a directory, in order; nothing if there is none. Raises RefusedError if it cannot be read."""
    yield from (folder / name for name in sorted(_names(folder)) if name.startswith(begin))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - a tenth of the time for a million names
    except PermissionError:
        raise RefusedError(f"{folder}: permission denied; {_READER}") from None
    except (FileNotFoundError, NotADirectoryError):
        return []


def _listed(paths: Iterable[Path]) -> str:
    named = [str(path) for path in paths]
    more = f" and {len(named) - NAMED:,} more" if len(named) > NAMED else ""
    return ", ".join(named[:NAMED]) + more
