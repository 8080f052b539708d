"""Runs the tests of one collection in several processes: ``pytest -p tests.side_by_side --copies 2``.

pytest-xdist has each process collect all tests, and sends six messages for each test that runs. This is for thousands
of tests of which most take a millisecond: the process that collected them copies itself (fork), and a copy sends
what became of the tests of a file at once.

    collects --fork--> copy: takes the next file, runs its tests, takes the next one ...
             <-------- reports of a file, as soon as it is done or a test fails

Rules
- The tests of a file stay in one process, for what they share. Files begin in the order in which they were collected.
- A copy that ends before its work does is a failed test, and so is a file that nobody ran.
- ``-n`` of pytest-xdist goes first, so ``-n0`` still runs one test at a time, in one process.
"""

import multiprocessing
import os
import warnings
from collections.abc import Iterable
from itertools import groupby
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import pytest

# Bytes of the number of a file. The pipe that has them all holds 64 KiB.
NUMBER = 2

Files = list[tuple[str, list[pytest.Item]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--copies", type=int, default=1, help="run the tests in so many processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    alone = options.copies < 2 or options.collectonly or options.usepdb
    if alone or session.testsfailed or getattr(options, "numprocesses", None) is not None:
        return None  # pytest does it
    files = [(path, list(items)) for path, items in groupby(session.items, _path_of)]
    _run(session, files, options.copies)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


def _run(session: pytest.Session, files: Files, copies: int) -> None:
    waiting = _queue_of(len(files))
    context = multiprocessing.get_context("fork")
    running: dict[Connection, Any] = {}
    begun: dict[Connection, str] = {}
    try:
        for _ in range(min(copies, len(files))):
            reader, writer = context.Pipe(duplex=False)
            copy = context.Process(target=_work, args=(session, files, waiting, writer))
            with warnings.catch_warnings():
                # Python 3.12 and later; what has threads here, such as pyarrow, is ready to be copied.
                warnings.simplefilter("ignore", DeprecationWarning)
                copy.start()
            writer.close()
            running[reader] = copy
        while running:
            for ready in wait(list(running)):
                reader = cast(Connection, ready)
                try:
                    begun[reader], reports = reader.recv()
                except EOFError:
                    _end(session, running.pop(reader), begun.pop(reader, "no file"))
                    reader.close()
                else:
                    _show(session, reports)
            if _stops(session):
                _drain(waiting)
        for number in _drain(waiting):
            _show(session, [_failed(files[number][0], "no process was left to run these tests")])
    finally:
        os.close(waiting)
        for reader, copy in running.items():
            reader.close()
            copy.kill()
            copy.join()


def _path_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _stops(session: pytest.Session) -> bool:
    """After a failure with ``-x``, or when a test says so."""
    return bool(session.shouldfail or session.shouldstop)


def _queue_of(files: int) -> int:
    """A pipe with the number of each file, which ends when all are taken."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.write(writer, b"".join(number.to_bytes(NUMBER) for number in range(files)))
    os.close(writer)
    return reader


def _taken(waiting: int) -> int | None:
    taken = os.read(waiting, NUMBER)
    return int.from_bytes(taken) if taken else None


def _drain(waiting: int) -> list[int]:
    return list(iter(lambda: _taken(waiting), None))


def _show(session: pytest.Session, reports: Iterable[pytest.TestReport]) -> None:
    hook = session.config.hook
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
        if report.when == "teardown":
            hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)


def _end(session: pytest.Session, copy: Any, file: str) -> None:
    """A copy has ended. ``file``: the one that it ran last, or nothing if it ran all that it was to."""
    copy.join()
    if file:
        _show(
            session,
            [_failed(file, f"the process that ran these tests ended too early, with {copy.exitcode}")],
        )


def _failed(path: str, text: str) -> pytest.TestReport:
    return pytest.TestReport(path, (path, None, path), {}, "failed", text, "call")


# --- in a copy ---


class _Reports:
    """Sends what becomes of tests: of a file at once, of a failure as soon as it is known."""

    def __init__(self, writer: Connection) -> None:
        self._writer = writer
        self._path = ""
        self._reports: list[pytest.TestReport] = []

    def begin(self, path: str) -> None:
        self._path = path
        self.send()

    def send(self) -> None:
        self._writer.send((self._path, self._reports))
        self._reports = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)
        if report.failed:
            self.send()


def _work(session: pytest.Session, files: Files, waiting: int, writer: Connection) -> None:
    plugins = session.config.pluginmanager
    capture: Any = plugins.getplugin("capturemanager")
    # The others would write into the file that takes the output.
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    plugins.unregister(name="terminalreporter")
    reports = _Reports(writer)
    plugins.register(reports)
    try:
        while not _stops(session) and (number := _taken(waiting)) is not None:
            path, items = files[number]
            reports.begin(path)
            # What the session shares stays for the next file, which another process may yet take.
            for item, following in zip(items, [*items[1:], cast(pytest.Item, session)], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if _stops(session):
                    break
            reports.send()
        session._setupstate.teardown_exact(None)
        # Whatever is found out when all is over, such as a file that nobody closed, ends this process with an error.
        session.config._ensure_unconfigure()
        writer.send(("", []))
    except KeyboardInterrupt:
        os._exit(2)
