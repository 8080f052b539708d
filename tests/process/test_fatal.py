"""The end of a process without memory: one line, at once, with its exit code, wherever the error was raised."""

import asyncio
import json
import subprocess
import sys

import pytest
import structlog

from bccnd.process.fatal import FAULT, FAULTS_LIMIT, OUT_OF_MEMORY, Faults

ENDS = """
import asyncio, gc, os, sys, threading, uvloop
from bccnd.daemon.faults import Watch
from bccnd.process import fatal

fatal.prepare(json=%(json)s)

def fail(*_):
    raise %(error)s

class Dying:
    __del__ = fail

async def turn(start):
    loop = asyncio.get_running_loop()
    Watch(loop)
    start(loop)
    await asyncio.sleep(30)

def in_the_loop(start):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(turn(start))

def reader(loop):
    ours, theirs = os.pipe()
    os.write(theirs, b"x")
    loop.add_reader(ours, fail)

async def task():
    fail()

async def group():
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(task())

def dropped_task(loop, work=task):
    loop.create_task(work())
    loop.call_later(0.01, gc.collect)

%(way)s
print("went on")
"""


def ended(way: str, *, error: str = "MemoryError()", json: bool = False) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ENDS % {"way": way, "error": error, "json": json}],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "way",
    [
        "fail()",
        "in_the_loop(reader)",
        "in_the_loop(lambda loop: loop.call_soon(fail))",
        "in_the_loop(lambda loop: loop.call_later(0.01, fail))",
        "in_the_loop(lambda loop: loop.add_signal_handler(10, fail) or os.kill(os.getpid(), 10))",
        "in_the_loop(dropped_task)",
        "in_the_loop(lambda loop: dropped_task(loop, group))",
        "threading.Thread(target=fail).start(); import time; time.sleep(30)",
        "Dying()",
    ],
    ids=["module", "reader", "callback", "timer", "signal", "task", "group", "thread", "unraisable"],
)
def test_it_is_fatal_at_once_wherever_it_is_raised(way: str) -> None:
    result = ended(way)
    assert (result.returncode, result.stdout) == (OUT_OF_MEMORY, "")
    assert result.stderr == "bccnd: out of memory, leaving at once with exit code 7\n"


def test_the_kernels_word_counts_too() -> None:
    assert (
        ended("in_the_loop(reader)", error="OSError(12, 'Cannot allocate memory')").returncode
        == OUT_OF_MEMORY
    )


def test_in_a_log_of_json_the_line_is_json() -> None:
    result = ended("in_the_loop(reader)", json=True)
    assert json.loads(result.stderr) == {
        "level": "critical",
        "event": "out of memory, leaving at once",
        "exit_code": OUT_OF_MEMORY,
    }


def test_a_callback_that_fails_for_ever_ends_the_process() -> None:
    result = ended("in_the_loop(reader)", error="ValueError('again')")
    assert result.returncode == FAULT
    assert result.stderr.endswith("bccnd: a callback fails again and again, leaving at once\n")


def test_a_fault_now_and_then_is_not_the_end() -> None:
    few = FAULTS_LIMIT // 2
    way = (
        "from bccnd.process.fatal import Faults\nfaults = Faults()\n"
        f"for _ in range(10):\n    [faults.count() for _ in range({few})]\n    faults.tick()"
    )
    assert ended(way).stdout == "went on\n"


def test_an_exception_of_another_kind_is_reported_as_ever() -> None:
    result = ended("fail()", error="ValueError('as ever')")
    assert result.returncode == 1
    assert "ValueError: as ever" in result.stderr


NATIVE = """
import resource
from bccnd.wire import native
native._native.unpack(bytearray(b"PACK " + bytes(1000)), 0, 1005)
memory = bytearray(300 << 20)
memory[:5] = b"PACK "
size = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 20),) * 2)
native._native.unpack(memory, 0, len(memory))
print("went on")
"""


def test_the_compiled_half_ends_it_in_the_same_way() -> None:
    native = pytest.importorskip("bccnd.wire.native._native", reason="not compiled")
    assert native
    result = subprocess.run(
        [sys.executable, "-c", NATIVE], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (OUT_OF_MEMORY, ""), result.stderr
    assert result.stderr == "bccnd: out of memory, leaving at once with exit code 7\n"


def test_a_fault_in_a_loop_is_logged_and_counted() -> None:
    faults, error, loop = Faults(), ValueError("x"), asyncio.new_event_loop()
    with structlog.testing.capture_logs() as logged:
        faults.handle(loop, {"message": "in a callback", "exception": error})
    loop.close()
    assert logged == [{"event": "fault", "where": "in a callback", "exc_info": error, "log_level": "error"}]
    assert faults._since_tick == 1
