"""Finds the Java that Spark would start, and checks that it is new enough, before Spark starts."""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from bccnd.errors import UnavailableError

# What Spark 4 needs.
LEAST = 17
ANSWER_SECONDS = 10.0
NEEDED = (
    f"Spark needs Java {LEAST} or later (apt install openjdk-{LEAST}-jre-headless), on PATH or as JAVA_HOME"
)


def path() -> Path | None:
    """The ``java`` that Spark would start: that of JAVA_HOME if it is set, else the first on PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    return Path(found) if found else None


def require() -> None:
    """Raises UnavailableError if there is no Java, or one that is too old."""
    found = path()
    if found is None:
        home = os.environ.get("JAVA_HOME")
        raise UnavailableError(f"no Java found{f' in JAVA_HOME={home}' if home else ''}: {NEEDED}")
    version = version_of(found)
    if version and major(version) < LEAST:
        raise UnavailableError(f"{found} is Java {version}: {NEEDED}")


def version_of(java: Path) -> str:
    """``17.0.15``, from the file ``release`` that comes with it, or from itself; empty if neither says."""
    with suppress(OSError):
        release = (java.resolve().parents[1] / "release").read_text(encoding="utf-8", errors="replace")
        if named := re.search(r'^JAVA_VERSION="([^"]+)"', release, re.MULTILINE):
            return named[1]
    with suppress(OSError, subprocess.TimeoutExpired):
        ran = subprocess.run([java, "-version"], capture_output=True, timeout=ANSWER_SECONDS, check=False)
        if said := re.search(rb'version "([^"]+)"', ran.stderr):
            return said[1].decode("ascii", "replace")
    return ""


def major(version: str) -> int:
    """``17.0.15`` is 17, ``1.8.0_412`` is 8; LEAST if it cannot be told: then Spark says what is wrong."""
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found[1]) if found else LEAST
