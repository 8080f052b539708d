"""What the keys of ``bccn top`` do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.commands.columns import TABLES
from bccnd.commands.view import DELAYS, FILTER_LIMIT, Sort, View


def pressed(*keys: str, view: View | None = None) -> View:
    view = view or View()
    for key in keys:
        after = view.press(key)
        assert after is not None
        view = after
    return view


def test_q_quits() -> None:
    assert View().press("q") is None


@pytest.mark.parametrize(
    ("key", "tables"), [("c", ("clients",)), ("s", ("sources",)), ("b", ("clients", "sources"))]
)
def test_keys_choose_the_tables(key: str, tables: tuple[str, ...]) -> None:
    assert pressed("c", key).tables == tables


def test_sorting_moves_from_column_to_column() -> None:
    assert pressed("<").clients == Sort("in", True)
    assert pressed(">", ">", ">", ">", ">").clients == Sort("name", False)  # text from A to Z
    assert pressed("s", ">").sources == Sort("lost", True)
    assert pressed("s", ">").clients == View().clients
    for name, table in ("clients", "c"), ("sources", "s"):
        assert pressed(table, *">" * len(TABLES[name])) == pressed(table)


def test_r_reverses_the_order() -> None:
    assert pressed("r").clients == Sort("out", False)
    assert pressed("r", "r") == View()


def test_the_interval_stays_within_bounds() -> None:
    assert pressed("+").delay == 5.0
    assert pressed("-").delay == 1.0
    assert pressed(*"+" * 20).delay == DELAYS[-1]
    assert pressed(*"-" * 20).delay == DELAYS[0]
    assert pressed("+", view=View(delay=3.0)).delay == 5.0


def test_space_pauses() -> None:
    assert pressed(" ").foot().startswith("PAUSED")
    assert pressed(" ", " ") == View()


def test_a_filter_is_typed() -> None:
    typing = pressed("/", "q", "x", "\x7f", "1")
    assert (typing.filter, typing.typing) == ("q1", True)
    assert typing.foot().startswith("filter: q1_")
    assert pressed("\r", view=typing) == View(filter="q1")
    assert pressed("\x1b", view=typing) == View()
    assert pressed("/", "\n", view=View(filter="x")) == View()


def test_any_key_leaves_the_help() -> None:
    assert pressed("?").help
    assert pressed("?", "?") == View()
    assert pressed("?", "\x1b") == View()


@given(st.lists(st.sampled_from([*"csb<>r /+-?xy", "\r", "\x1b", "\x7f", "\x00", "é"])))
def test_any_keys_leave_a_view_that_can_be_drawn(keys: list[str]) -> None:
    view = pressed(*keys)
    assert view.sort("clients").key in {column.key for column in TABLES["clients"]}
    assert view.sort("sources").key in {column.key for column in TABLES["sources"]}
    assert len(view.filter) <= FILTER_LIMIT
    assert view.filter.isprintable()
