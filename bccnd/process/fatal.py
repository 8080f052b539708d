"""What ends the process at once: memory that is used up, and a fault that comes back for ever.

Rules
- A daemon without memory serves nobody, and what it was about to do is half done. So a MemoryError is fatal, wherever
  it is raised: one line, then the exit code OUT_OF_MEMORY. Nothing is drained, closed or removed. Whoever supervises
  the process starts it again.
- That takes no memory: the line is made beforehand, and a piece of memory kept for this is given back first.
- A callback that fails again and again, FAULTS_LIMIT times between two ticks, does nothing else any more. That is
  fatal as well, with the exit code of a fault.
"""

import mmap
import os
import sys
import threading
from asyncio import AbstractEventLoop
from errno import ENOMEM
from typing import Any, NoReturn

import structlog

# The exit codes (systemd/README.md, "Exit codes").
FAULT = 1
OUT_OF_MEMORY = 7

# More than all clients and hosts can cause between two ticks, as a fault of theirs costs a connection or a batch.
FAULTS_LIMIT = 1000

# Bytes: room for the frames and small objects of the way to the end.
RESERVE = 1 << 20

log = structlog.get_logger()

_JSON = b'{"level": "critical", "event": "out of memory, leaving at once", "exit_code": %d}\n' % OUT_OF_MEMORY
_TEXT = b"bccnd: out of memory, leaving at once with exit code %d\n" % OUT_OF_MEMORY


class _Last:
    """What is kept for the end."""

    line = _TEXT
    reserve: mmap.mmap | None = None


def prepare(*, json: bool = False) -> None:
    """Have every MemoryError of this process that nobody catches end it, with a line on standard error.

    ``json``: whether the log has a JSON object a line.
    """
    _Last.line = _JSON if json else _TEXT
    if _Last.reserve is None:
        _Last.reserve = mmap.mmap(-1, RESERVE)
    sys.excepthook = _on_exception
    sys.unraisablehook = _on_unraisable
    threading.excepthook = _on_thread


def out_of_memory() -> NoReturn:
    """End the process."""
    try:
        if _Last.reserve is not None:
            _Last.reserve.close()
        os.write(2, _Last.line)
    finally:
        os._exit(OUT_OF_MEMORY)


def unless_out_of_memory(error: BaseException | None) -> None:
    """Return, unless it says that there is no memory, by Python's word or by the kernel's; so may one of a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            unless_out_of_memory(each)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == ENOMEM):
        out_of_memory()


class Faults:
    """Counts the faults of callbacks since the last tick. ``handle``: for a loop whose programs log them alike."""

    def __init__(self) -> None:
        self._since_tick = 0

    def tick(self) -> None:
        self._since_tick = 0

    def handle(self, _loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        """A fault of ours costs the callback that it is in."""
        error = context.get("exception")
        unless_out_of_memory(error)
        log.error("fault", where=context["message"], exc_info=error)
        self.count()

    def count(self) -> None:
        """Count one. The process ends with the last one that is allowed; its log has said what happens."""
        self._since_tick += 1
        if self._since_tick >= FAULTS_LIMIT:
            try:
                os.write(2, b"bccnd: a callback fails again and again, leaving at once\n")
            finally:
                os._exit(FAULT)


def _on_exception(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    unless_out_of_memory(error)
    sys.__excepthook__(kind, error, trace)


def _on_unraisable(unraisable: Any) -> None:
    unless_out_of_memory(unraisable.exc_value)
    sys.__unraisablehook__(unraisable)


def _on_thread(arguments: Any) -> None:
    unless_out_of_memory(arguments.exc_value)
    threading.__excepthook__(arguments)
