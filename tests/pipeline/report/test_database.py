"""``bccnd/pipeline/report/database.py``."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bccnd.pipeline.report.database import Tables
from tests.pipeline.report.tables import write_table

NOON = datetime(2026, 8, 1, 12, tzinfo=UTC)
TICKS = int(NOON.timestamp()) * 1_000_000


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[Tables]:
    with closing(Tables(str(tmp_path))) as made:
        yield made


def test_missing_tables_and_columns_are_nulls(tables: Tables, tmp_path: Path) -> None:
    assert tables.rows("select * from {minutes}") == []
    write_table(tmp_path, "coverage", [{"host": "a", "from_ns": 1, "until_ns": 2}])
    (row,) = tables.rows("select * from {coverage}")
    assert (row.host, row.from_ns, row.counted) == ("a", 1, None)


def test_hours_are_summed_while_they_are_read(tables: Tables, tmp_path: Path) -> None:
    rows = [
        {"sender": "a", "receiver": "b", "src": "a/x/1", "hour": at, "sent": 5, "lost": lost}
        for lost, at in enumerate([NOON, NOON + timedelta(hours=1), NOON + timedelta(hours=2)])
    ]  # fmt: skip
    write_table(tmp_path, "losses", rows)
    assert tables.rows("select sender, receiver, src, sent, lost from {losses}") == [
        ("a", "b", "a/x/1", 15, 3)
    ]


def test_times_are_microseconds_and_lists_json(tables: Tables, tmp_path: Path) -> None:
    write_table(tmp_path, "episodes", [{"sender": "a", "from": NOON, "until": NOON, "starts": [NOON]}])
    (row,) = tables.rows("select `from`, starts from {episodes}")
    assert row == (TICKS, f"[{TICKS}]")


def test_bins_are_of_chosen_pairs_and_of_all(tables: Tables, tmp_path: Path) -> None:
    rows = [
        {"sender": sender, "receiver": "b", "minute": NOON + timedelta(minutes=minute), "sent": 10, "lost": 1}
        for sender in "ac" for minute in (0, 1, 2)
    ]  # fmt: skip
    write_table(tmp_path, "minutes", rows)
    found = sorted(tables.bins("minutes", "minute", 120_000_000, [("a", "b")]))
    later = TICKS + 120_000_000
    assert found == [
        ("", "", TICKS, 40, 4), ("", "", later, 20, 2), ("a", "b", TICKS, 20, 2), ("a", "b", later, 10, 1),
    ]  # fmt: skip
    assert tables.extent(("minutes", "minute", 60_000_000)) == (TICKS, TICKS + 180_000_000)


def test_aggregates_are_those_of_spark(tables: Tables, tmp_path: Path) -> None:
    rows = [
        {"host": name, "from_ns": place, "until_ns": 0}
        for place, name in enumerate(["a9", "b10", "b", "c" * 9])
    ]
    write_table(tmp_path, "coverage", rows)
    (row,) = tables.rows(
        """select max_by(host, from_ns) as last, percentile(from_ns, 0.5) as middle, percentile(null, 0.5) as none
           from {coverage}"""
    )
    assert row == ("c" * 9, 1.5, None)
    assert tables.rows("select stem(host), tail(host) from {coverage} limit 3") == [
        ("a", 9),
        ("b", 10),
        ("b", None),
    ]
    assert tables.first("select host from {coverage}", 1, "host desc") == ([("c" * 9,)], 4)
