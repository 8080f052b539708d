"""What every test of this tree shares: a daemon to talk to; and with CI=true nothing is skipped."""

import os
import subprocess
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.needs import IN_CI, NOT_IN_CI, require
from tests.plain_bccn import free_port

TESTS = Path(__file__).parent
os.environ["SPARK_CONF_DIR"] = str(TESTS / "spark")


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """A skip becomes a failure that tells the skip's reason; an expected failure (xfail) stays what it is."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} {NOT_IN_CI}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``-m spark`` chooses what takes all of the processor: ``tests/run.sh`` runs it beside what mostly waits."""
    for item in items:
        if TESTS / "pipeline" in item.path.parents:
            item.add_marker("spark")


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        require(*mark.args)


@pytest.fixture
def loopback_port() -> int:
    return free_port()


@pytest.fixture
def daemon(tmp_path: Path, loopback_port: int) -> Iterator[DaemonProcess]:
    """A daemon on the loopback's broadcast address and ``loopback_port``, without a key."""
    with DaemonProcess(
        tmp_path, "--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)
    ) as running:
        yield running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB; it goes when the last file on it is closed."""
    require("root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
