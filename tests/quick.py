"""Which tests ``sh tests/run.sh --quick`` runs: those that start no program, and those marked ``quick`` by hand.

    test_x(daemon)  ->  fixture daemon  ->  DaemonProcess.start  ->  subprocess        left to the whole suite
    test_y(path)    ->  fixture path    ->  tmp_path                                   quick

Nobody keeps a list. The names that a test's code uses are followed, through its fixtures and through the functions
and classes of this folder, until one of ``PROGRAMS`` turns up. An import that only other tests of the module use does
not count. A test whose subject starts programs cannot be seen from here; those of Spark use its fixture or its mark.
"""

import os
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

FOLDER = f"{Path(__file__).parent}{os.sep}"
PROGRAMS = {"subprocess", "fork", "create_subprocess_exec"}
# What was followed to its end, by id, and kept so that the id stays its own: the tests share most of it.
_starting: dict[int, Any] = {}
_starting_none: dict[int, Any] = {}


def is_quick(item: pytest.Item) -> bool:
    if item.get_closest_marker("quick"):
        return True
    if item.get_closest_marker("spark") or "spark" in getattr(item, "fixturenames", ()):
        return False
    return not _start_a_program(frozenset(_functions(item)))


@cache
def _start_a_program(functions: frozenset[Any]) -> bool:
    seen: dict[int, Any] = {}
    if any(_starts_a_program(function, seen) for function in functions):
        return True
    _starting_none.update(seen)
    return False


def _functions(item: pytest.Item) -> Iterator[Any]:
    """The test's own function and those of its fixtures; for a unittest class, which hypothesis makes, the class."""
    yield getattr(item, "cls", None) or getattr(item, "function", None)
    for fixtures in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
        yield from (fixture.func for fixture in fixtures)


def _starts_a_program(named: Any, seen: dict[int, Any]) -> bool:
    """``seen``: what is being followed, or was and led nowhere; this is added."""
    if id(named) in _starting:
        return True
    if id(named) in seen or id(named) in _starting_none:
        return False
    seen[id(named)] = named
    if starts := _names_a_program(named, seen):
        _starting[id(named)] = named
    return starts


def _names_a_program(named: Any, seen: dict[int, Any]) -> bool:
    if isinstance(named, type):
        return any(_starts_a_program(each, seen) for each in [*vars(named).values(), *named.__bases__])
    function = _function(named)
    known = getattr(function, "__globals__", {})
    if function is None or not known.get("__file__", "").startswith(FOLDER):
        return False
    names = set(_names(function.__code__))
    return bool(names & PROGRAMS) or any(
        _starts_a_program(known[name], seen) for name in names & known.keys()
    )


def _function(named: Any) -> Callable[..., Any] | None:
    """What is called in the end: below decorators, of a property its getter, of a partial its function."""
    for layer in ("__wrapped__", "__func__", "fget", "func"):
        named = getattr(named, layer, named)
    return named if hasattr(named, "__code__") else None


def _names(code: CodeType) -> Iterator[str]:
    """Of globals, attributes and imports, in nested functions too."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
