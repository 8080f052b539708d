"""What an action costs, in steps and calls: counted, never timed."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def calls_of(owner: object, name: str) -> Iterator[list[Any]]:
    """The first arguments of all calls of this function or method."""
    calls: list[Any] = []
    method = getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments[0])
        return method(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield calls


def steps(action: Callable[[], object]) -> int:
    """How many functions it calls, those of C among them."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count
