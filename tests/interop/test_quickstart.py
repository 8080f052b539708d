"""``sh etc/quickstart.sh`` does what it says and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon_process import die_with_parent
from tests.packet_client import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A tree like a clone's, with the environment of this run for its .venv."""
    tree = tmp_path / "checkout"
    (tree / "etc").mkdir(parents=True)
    shutil.copy(ROOT / "etc" / "quickstart.sh", tree / "etc")
    (tree / ".venv").symlink_to(sys.prefix)
    return tree


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where it may put temporary files; a short path, since a socket's has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


def quickstart(checkout: Path, scratch: Path, *arguments: str, seconds: float) -> str:
    """What it shows, which is no complaint."""
    shown = subprocess.run(
        ["sh", "etc/quickstart.sh", *arguments],
        cwd=checkout,
        env=environment(scratch),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stdout
    assert sorted(path.name for path in checkout.iterdir()) == [".venv", "etc"]
    return shown.stdout


def test_quickstart_shows_messages_and_leaves_nothing(checkout: Path, scratch: Path) -> None:
    shown = quickstart(checkout, scratch, seconds=4 * PATIENCE)
    heard = shown.partition("What the subscriber heard")[2].splitlines()[1:3]
    assert [line.strip() for line in heard] == [
        "demo/greeting hello from a second program",
        "demo/raw hello from plain UDP",
    ]
    assert list(scratch.iterdir()) == []


@pytest.mark.spark
@pytest.mark.needs("java")
def test_quickstart_reports_on_its_own_traffic(checkout: Path, scratch: Path) -> None:
    shown = quickstart(checkout, scratch, "--report", str(scratch / "network"), seconds=600)
    assert "lost 9.9 percent of host raw's messages" in shown
    assert "(10 of 101)" in shown
    assert [path.name for path in scratch.iterdir()] == ["network"]
    assert (scratch / "network" / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_an_interrupted_quickstart_leaves_nothing(checkout: Path, scratch: Path) -> None:
    with subprocess.Popen(
        ["sh", "etc/quickstart.sh"],
        cwd=checkout,
        env=environment(scratch),
        stdout=subprocess.DEVNULL,
        preexec_fn=die_with_parent,
    ) as process:
        wait_until(lambda: list(scratch.glob("*/bus.sock")), "the quick start's daemon")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert list(scratch.iterdir()) == []
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(scratch) in command_line(path)]


def command_line(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it has ended
        return ""
