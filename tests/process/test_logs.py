"""Log lines for a pipe, a terminal, a full pipe and a reader that has gone."""

import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import structlog

from bccnd.process.logs import LineWriter, configure


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    handlers, level = logging.root.handlers, logging.root.level
    yield
    structlog.reset_defaults()
    logging.root.handlers = handlers
    logging.root.setLevel(level)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ends = os.openpty()
    yield ends
    for end in ends:
        os.close(end)


def drain(descriptor: int) -> str:
    data = b""
    try:
        while piece := os.read(descriptor, 65536):
            data += piece
    except BlockingIOError:
        pass
    return data.decode()


def test_machines_get_a_line_of_json(pipe: tuple[int, int]) -> None:
    configure("info", "auto", pipe[1])
    structlog.get_logger().info("client connected", client="a/b/1", pid=1, odd="\n\x1b[31m\udcff", raw=b"\0")
    (line,) = drain(pipe[0]).splitlines()
    event = json.loads(line)
    assert list(event) == ["timestamp", "level", "event", "client", "pid", "odd", "raw"]
    assert (event["level"], event["event"], event["odd"]) == ("info", "client connected", "\n\x1b[31m\udcff")
    stamp = datetime.fromisoformat(event["timestamp"])
    assert event["timestamp"].endswith("Z")
    assert abs((datetime.now(UTC) - stamp).total_seconds()) < 60


def test_people_on_a_terminal_get_a_coloured_line(
    terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    configure("info", "auto", terminal[1])
    structlog.get_logger().warning("queue full", client="a\n\x1b]0;b")
    text = os.read(terminal[0], 4096).decode()
    assert text.count("\n") == 1
    assert "\x1b[" in text
    assert "\x1b]" not in text
    plain = re.sub(r"\x1b\[\d*m", "", text)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z \[warning *\] queue full +client='a\\n\\x1b]0;b'\r\n", plain
    )


def test_other_readers_get_no_colours(
    pipe: tuple[int, int], terminal: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("info", "console", pipe[1])
    structlog.get_logger().info("started")
    assert "\x1b" not in drain(pipe[0])
    monkeypatch.setenv("NO_COLOR", "1")
    configure("info", "console", terminal[1])
    structlog.get_logger().info("started")
    assert "\x1b" not in os.read(terminal[0], 4096).decode()


def test_a_second_configure_changes_the_level(pipe: tuple[int, int]) -> None:
    logger = structlog.get_logger()
    for level, count in (("debug", 4), ("info", 3), ("warning", 2), ("error", 1)):
        configure(level, "json", pipe[1])  # type: ignore[arg-type]
        for method in ("debug", "info", "warning", "error"):
            getattr(logger, method)("event")
        assert drain(pipe[0]).count("\n") == count


def test_an_exception_keeps_its_traceback(pipe: tuple[int, int]) -> None:
    configure("info", "json", pipe[1])
    try:
        raise ValueError("ours")
    except ValueError:
        structlog.get_logger().exception("internal fault")
    event = json.loads(drain(pipe[0]))
    assert event["exception"].startswith("Traceback")
    assert event["exception"].endswith("ValueError: ours")


def test_lines_of_libraries_have_the_same_form(pipe: tuple[int, int]) -> None:
    configure("info", "json", pipe[1])
    logging.getLogger("asyncio").error("Task exception was never retrieved: %s", "x")
    logging.getLogger("asyncio").info("not this")
    event = json.loads(drain(pipe[0]))
    logging.getLogger("other").error("%d of %d", "x")
    assert "'%d of %d' % ('x',)" in drain(pipe[0])
    assert (event["event"], event["logger"]) == ("Task exception was never retrieved: x", "asyncio")
    assert event["level"] == "error"


def test_lines_lost_in_a_full_pipe_are_counted_in_the_next(pipe: tuple[int, int]) -> None:
    writer = configure("info", "json", pipe[1])
    logger = structlog.get_logger()
    sent = 0
    while not writer.lost:
        logger.info("filling", number=sent)
        sent += 1
        assert sent < 100_000
    logger.info("lost too")
    assert writer.lost == 2
    written = [json.loads(line) for line in drain(pipe[0]).splitlines()]
    assert [event["number"] for event in written] == list(range(sent - 1))
    logger.info("through")
    logger.info("again")
    first, second = (json.loads(line) for line in drain(pipe[0]).splitlines())
    assert (first["event"], first["log_lines_lost"]) == ("through", 2)
    assert "log_lines_lost" not in second


def test_a_line_cut_off_by_a_full_pipe_is_ended_before_the_next(pipe: tuple[int, int]) -> None:
    writer = LineWriter(pipe[1])
    writer.write("x" * 1_000_000)
    assert writer.lost == 1
    assert set(drain(pipe[0])) == {"x"}
    writer.write("next")
    assert drain(pipe[0]) == "\nnext\n"
    writer.write("last")
    assert drain(pipe[0]) == "last\n"


def test_threads_that_log_at_once_lose_nothing(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    writer = LineWriter(descriptor)
    start = threading.Barrier(4)

    def write(name: str) -> None:
        start.wait()
        for number in range(2_000):
            writer.write(f"{name} {number}")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, "abcd"))
    finally:
        sys.setswitchinterval(interval)
        os.close(descriptor)
    lines = (tmp_path / "log").read_text().splitlines()
    assert sorted(lines) == sorted(f"{name} {number}" for name in "abcd" for number in range(2_000))


def test_lines_for_a_reader_that_left_are_counted(pipe: tuple[int, int]) -> None:
    read_end, write_end = os.pipe()
    writer = LineWriter(write_end)
    os.close(read_end)
    writer.write("nobody")
    assert writer.lost == 1
    os.close(write_end)
    writer.write("nowhere")
    assert writer.lost == 2


def test_no_socket_takes_the_number_of_a_closed_standard_error() -> None:
    code = """
import os
os.close(2)
from bccnd.process.logs import configure
import structlog
writer = configure()
assert os.readlink("/proc/self/fd/2") == os.devnull
structlog.get_logger().error("into the void")
print(writer.lost)
"""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ)
    assert (done.returncode, done.stdout) == (0, "0\n")
