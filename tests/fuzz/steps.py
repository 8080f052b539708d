"""How many steps a call takes: lines of the relay and of the protocols that Python runs, each time it runs them.

The number is the same on every machine and however busy it is. What one line does in C (a copy, a search) counts as
one step, so a step is paid for by bytes (``fuzz_relay_cost.py``). A turn of a comprehension is a step.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import bccnd

COUNTED = tuple(f"{Path(bccnd.__file__).parent / part}/" for part in ("relay", "wire"))


class Steps:
    """``count``: of all that was run within ``counting``."""

    def __init__(self) -> None:
        self.count = 0
        self._is_counted: dict[str, bool] = {}

    @contextmanager
    def counting(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Callable[..., Any] | None:
        name = frame.f_code.co_filename
        counted = self._is_counted.get(name)
        if counted is None:
            counted = self._is_counted[name] = name.startswith(COUNTED)
        return self._line if counted else None

    def _line(self, _frame: FrameType, event: str, _argument: Any) -> Callable[..., Any]:
        self.count += event == "line"
        return self._line
