"""What an action costs, in steps and calls: counted, never timed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.fuzz.steps import Steps


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
    """How many lines of the relay and of the protocols it runs."""
    counted = Steps()
    with counted.counting():
        action()
    return counted.count
