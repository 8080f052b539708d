"""What all tests share: a daemon to talk to, the marks that ``tests/run.sh`` uses, and no skips with CI=true."""

import gc
import os
import signal
import subprocess
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests import prepared
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.needs import IN_CI, NOT_IN_CI, require
from tests.plain_bccn import free_port
from tests.quick import is_quick
from tests.spark import archive

TESTS = Path(__file__).parent
os.environ["SPARK_CONF_DIR"] = str(archive.folder())
# Asked for once: Python takes 0.1 ms to make them, and each test looks at all of them.
SIGNALS = tuple(int(each) for each in signal.valid_signals())
_left = {"tests": 0}
prepared.is_on = True

# However long an example takes: a busy machine may stop it in the middle.
settings.register_profile(
    "tests", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--hostile",
        choices=("suite", "all"),
        default="suite",
        help="which hostile behaviours are tried: a quarter of them by default",
    )


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turns a skip into a failure with the skip's reason; leaves an expected failure (xfail) as it is."""
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{reason} {NOT_IN_CI}"


# --- what a run with -m leaves out, counted at its end; with -n a worker counts ---


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    _left.update(tests=len(items))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = _left["tests"]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _left.update(tests=getattr(node, "workeroutput", {}).get("left", 0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.markexpr == "quick":
        ran = sum(len(terminalreporter.getreports(outcome)) for outcome in ("passed", "failed"))
        terminalreporter.write_line(
            f"{ran} tests ran; {_left['tests']} that start programs are left to the whole suite"
        )


# --- with CI=true ---


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
    """Mark what ``tests/run.sh`` chooses by: ``quick``, and of the pipeline's tests all others as ``spark``."""
    for item in items:
        if is_quick(item):
            item.add_marker("quick")
        elif TESTS / "pipeline" in item.path.parents:
            item.add_marker("spark")
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("one_spark")
        if item.get_closest_marker("spark"):
            _is_found(item)


def _is_found(item: pytest.Item) -> None:
    """``tests/run.sh`` finds tests with Spark by the text of their files, and would leave others out."""
    if TESTS / "pipeline" not in item.path.parents and "mark.spark" not in item.path.read_text():
        raise pytest.UsageError(f"{item.nodeid} has the mark spark from elsewhere than its file")


def pytest_collection_finish() -> None:
    """Eleven thousand tests stay to the end: a collection of garbage takes 0.2 s if it looks at them each time."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        require(*mark.args)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """What a test configures is not there for the next one, whichever that is."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def loopback_port() -> int:
    return free_port()


@pytest.fixture
def daemon(tmp_path: Path, loopback_port: int) -> Iterator[DaemonProcess]:
    """A daemon of the test's own, on the loopback's broadcast address and ``loopback_port``, without a key."""
    with DaemonProcess(
        tmp_path, "--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """Whatever a test blocks or ignores in this process, the programs that later tests start would inherit."""
    blocked, ignored = _signals()
    yield
    now_blocked, now_ignored = _signals()
    more = now_blocked - blocked, now_ignored - ignored
    assert more == (set(), set()), "signals stay blocked or ignored: use own_signals"


@pytest.fixture
def own_signals(same_signals: None) -> Iterator[None]:
    """For tests that run a program in this process: its signals are as before at the end."""
    blocked, ignored = _signals()
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    for number in _signals()[1] - ignored:
        signal.signal(number, signal.SIG_DFL)


def _signals() -> tuple[set[int], set[int]]:
    """Those that are blocked, and those that are ignored."""
    blocked = {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())}
    return blocked, {each for each in SIGNALS if signal.getsignal(each) is signal.SIG_IGN}


@pytest.fixture
def unrepairing(tmp_path: Path, loopback_port: int) -> Iterator[DaemonProcess]:
    """The same for tests that count each datagram: it sends nothing but messages."""
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port))
    with DaemonProcess(tmp_path, *flags, environ={"BCCND_REPAIR__ON": "false"}) as running:
        yield running


@pytest.fixture(scope="module")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """The same once for a module: for tests that neither stop it, configure it nor count what it has counted."""
    flags = ("--host", "here", "--broadcast", LOOPBACK_BROADCAST, "--port", str(free_port()))
    with DaemonProcess(tmp_path_factory.mktemp("daemon"), *flags) as running:
        yield running


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB. It goes when the last file on it is closed."""
    require("root")
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0755", "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)
