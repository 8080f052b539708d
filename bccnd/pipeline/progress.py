"""The progress of long work on stderr: one line that changes on a terminal, a line per step elsewhere.

Spark's own progress bar shows numbers of stages and writes over other output; this one names the step.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from pyspark import SparkContext

REFRESH_SECONDS = 0.5


class Progress:
    """Reports steps on ``stream`` (stderr), and with ``context`` the stages that run."""

    def __init__(self, context: "SparkContext | None" = None, stream: TextIO | None = None) -> None:
        self._context = context
        self._stream = sys.stderr if stream is None else stream
        self._moving = self._stream.isatty()
        self._step = ""
        self._begun = 0.0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._moving:
            self._thread = threading.Thread(target=self._refresh, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()
        self._clear()

    @contextmanager
    def step(self, text: str) -> Iterator[None]:
        """Report ``text`` as being done, and afterwards the time it took."""
        with self._lock:
            self._step, self._begun = text, time.monotonic()
        try:
            yield
        except BaseException:
            self._step = ""
            raise
        took = time.monotonic() - self._begun
        with self._lock:
            self._step = ""
        self.say(f"{text}  {took:.1f} s")

    def say(self, line: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._clear()
            self._stream.write(line + "\n")
            self._stream.flush()

    def _refresh(self) -> None:
        while not self._over.wait(REFRESH_SECONDS):
            with self._lock:
                if self._step:
                    seconds = int(time.monotonic() - self._begun)
                    self._clear()
                    self._stream.write(f"{self._step}  {seconds} s{self._tasks()}")
                    self._stream.flush()

    def _tasks(self) -> str:
        """``, stage 12: 34 of 200 tasks``, of the stage with most tasks left; empty if none runs."""
        if self._context is None:
            return ""
        tracker = self._context.statusTracker()
        stages = [info for at in tracker.getActiveStageIds() if (info := tracker.getStageInfo(at))]
        if not stages:
            return ""
        stage = max(stages, key=lambda info: info.numTasks - info.numCompletedTasks)
        return f", stage {stage.stageId}: {stage.numCompletedTasks} of {stage.numTasks} tasks"

    def _clear(self) -> None:
        if self._moving:
            self._stream.write("\r\x1b[K")
