"""Columns, marks, folders and names of recorded files."""

from pathlib import Path

import pyarrow as pa
import pytest

from bccnd.recorder.layout import DAY_NS, SCHEMA, Mark, day_of, folder_of, host_of, mark, name_of


def test_the_columns_are_those_the_pipeline_reads():
    types = {
        field.name: str(field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in SCHEMA
    }
    words = dict.fromkeys(["interface", "direction", "verdict", "mode", "peer", "src", "channel"], "string")
    assert types == {
        "time_ns": "int64", **words, "seq": "uint64", "payload": "binary", "size": "int32"
    }  # fmt: skip
    assert {field.name for field in SCHEMA if not field.nullable} == {
        "time_ns",
        "direction",
        "verdict",
        "size",
    }


def test_a_mark_is_a_row_without_a_direction():
    (row,) = mark(Mark.UNRECORDED, 5, 7).to_pylist()
    said = {"time_ns": 5, "direction": "", "verdict": "unrecorded", "size": 7}
    assert row == dict.fromkeys(SCHEMA.names) | said
    (row,) = mark(Mark.COUNTERS, 5, payload=b"{}").to_pylist()
    assert (row["verdict"], row["size"], row["payload"]) == ("counters", 0, b"{}")


@pytest.mark.parametrize(
    ("host", "day", "folder"),
    [
        ("relay01", 0, "date=1970-01-01/host=relay01"),
        ("a b/c", 20_000, "date=2024-10-04/host=a%20b%2Fc"),
        ("..", 20_000, "date=2024-10-04/host=.."),
        ("100%=x", 20_000, "date=2024-10-04/host=100%25%3Dx"),
    ],
)
def test_folders_are_named_after_days_and_hosts(host: str, day: int, folder: str):
    assert folder_of(host, day) == Path(folder)
    assert host_of(Path(folder).name) == host


def test_days_begin_at_midnight_utc():
    assert [day_of(time_ns) for time_ns in (0, DAY_NS - 1, DAY_NS)] == [0, 0, 1]


def test_a_file_name_has_the_time_of_opening():
    assert name_of(1_760_000_000_123_456_789, "0badcafe") == "1760000000123456789-0badcafe.parquet"
