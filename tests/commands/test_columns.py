"""The tables of ``bccn top``: numbers in few characters, and columns that fit."""

from typing import Any

import pytest

from bccnd.commands.columns import CLIENTS, SOURCES, amount, brief, fit, percent, rate


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (0.0, "0"), (0.04, "<0.1"), (0.5, "0.5"), (9.94, "9.9"), (9.96, "10"), (812.4, "812"),
     (9999.2, "9999"), (12345.0, "12.3k"), (999_600.0, "1M"), (4_567_000.0, "4.57M")],
)  # fmt: skip
def test_rates(value: float | None, shown: str) -> None:
    assert rate(value) == shown


def test_amounts_fit_five_characters() -> None:
    assert [amount(value) for value in (0, 9999, 10_000, 123_456, 999_999, 10**6, 2 * 10**9)] == [
        "0", "9999", "10k", "123k", "1M", "1M", "2G"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0%"), (0.01, "<0.1%"), (2.34, "2.3%"), (99.99, "99.9%"), (100.0, "100%")]
)
def test_percent_rounds_neither_to_nothing_nor_to_all(value: float, shown: str) -> None:
    assert percent(value) == shown


def test_durations_are_brief() -> None:
    assert [brief(seconds) for seconds in (0.4, 59, 61, 90061)] == ["0s", "59s", "1m1s", "1d1h"]


def client(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "pid": 4711, "uid": 0, "user": "root", "subscriptions": 2, "queued": 5, "in": 0.5, "out": 1e4,
        "dropped": 3, "holds": 0, "policy": "drop-oldest", "seconds": 61, **more,
    }  # fmt: skip


def test_a_table_is_aligned() -> None:
    assert fit(CLIENTS, [client("here/a/4711"), client("here/worker/17", pid=17, policy="block")], 100) == [
        "CLIENT          PID USER SUBS PENDING IN/S OUT/S DROPS HOLDS POLICY   UP",
        "here/a/4711    4711 root    2       5  0.5   10k     3     0 oldest 1m1s",
        "here/worker/17   17 root    2       5  0.5   10k     3     0 block  1m1s",
    ]


@pytest.mark.parametrize("width", range(45, 130, 5))
def test_a_table_fits_its_width_and_cuts_no_number(width: int) -> None:
    titles, row = fit(CLIENTS, [client("a-host-with-a-long-name/program/123456", dropped=1234567)], width)
    assert max(len(titles), len(row)) <= width
    assert "/123456" in row
    assert "1.23M" in row


def test_spare_columns_go_first() -> None:
    titles, row = fit(CLIENTS, [client("relay01/payments-import/4711")], 60)
    assert titles.split() == ["CLIENT", "USER", "SUBS", "PENDING", "IN/S", "OUT/S", "DROPS", "HOLDS"]
    assert row.startswith("…yments-import/4711 ")


def test_names_are_made_printable() -> None:
    assert "\x1b" not in "".join(fit(CLIENTS, [client("here/\x1b[2J/1", user="\x1b]0;x\a")], 80))


def test_an_empty_column_is_left_out() -> None:
    row = {
        "src": "there/a/1", "peer": "10.0.0.2:5400", "rate": 1.0, "lost": 0, "loss": 0.0, "duplicates": 0, "late": 0,
        "restarts": 0, "silent": 0.2,
    }  # fmt: skip
    assert "STATE" not in fit(SOURCES, [row], 120)[0]
    assert fit(SOURCES, [row | {"state": "alive"}], 120)[0].endswith("STATE")
