"""Which input files were ingested: planned before they are read, remembered with a bound, never silently left out."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.errors import ConfigError
from bccnd.pipeline.ingest import FILES
from bccnd.pipeline.source import inputs
from bccnd.pipeline.source.inputs import BATCHES_KEPT, Inputs, Ledger, Name, Plan


def path(opened: int, host: str = "a", root: str = "file:/in") -> str:
    return f"{root}/date=2026-01-31/host={host}/{opened}-0badcafe.parquet"


def test_a_file_is_known_by_host_and_name_wherever_it_lies() -> None:
    assert Name.of(path(5)) == Name.of(path(5, root="hdfs://head/else/where"))
    assert Name.of(path(5)) == ("date=2026-01-31/host=a/5-0badcafe.parquet", "a", 5)
    assert Name.of("file:/in/a.pcap") == ("file:/in/a.pcap", "", 0)


def test_files_are_new_once_the_oldest_first() -> None:
    ledger = Ledger()
    assert ledger.new([path(7), path(5, "b"), path(6)]) == ([path(5, "b"), path(6), path(7)], [])
    ledger.take([path(6)])
    assert ledger.new([path(7), path(6)]) == ([path(7)], [])


def test_files_that_are_gone_are_forgotten() -> None:
    """What is remembered stays as large as what is there, however much is ingested."""
    ledger = Ledger()
    for opened in range(10, 1010):
        there = [path(each) for each in range(opened - 5, opened + 1)]
        ledger.take(there[-1:])
        ledger.forget(there)
        assert len(ledger.taken) <= 6
    assert ledger.new([path(each) for each in range(1004, 1011)]) == ([path(1010)], [])


def test_nothing_is_forgotten_of_an_input_that_is_missing() -> None:
    ledger = Ledger()
    ledger.take([path(1), path(2), path(1, "b"), path(2, "b"), "file:/in/a.pcap"])
    before = set(ledger.taken)
    ledger.forget([])
    assert ledger.taken == before, "not mounted"
    ledger.forget([path(3, "b")])
    assert ledger.taken == before - {Name.of(path(1, "b")).key, Name.of(path(2, "b")).key}, (
        "one host is missing"
    )
    assert ledger.forgotten == {"b": 2}


def test_a_file_that_may_have_been_forgotten_is_not_new() -> None:
    ledger = Ledger()
    ledger.take([path(5)])
    ledger.forget([path(6)])
    assert ledger.new([path(4), path(5), path(6), path(4, "b")]) == (
        [path(4, "b"), path(6)],
        [path(4), path(5)],
    )
    ledger.take([path(4)])
    assert ledger.new([path(4)]) == ([], []), "set aside once"


def make(folder: Path, *opened: int, host: str = "a") -> list[str]:
    made = []
    for each in opened:
        file = Path(path(each, host, str(folder)))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        made.append(f"file:{file}")
    return made


def reading(spark: SparkSession, folder: Path) -> Inputs:
    return Inputs(spark, str(folder / "in"), FILES, str(folder / "checkpoint"))


def test_a_batch_is_planned_until_it_is_done(spark: SparkSession, tmp_path: Path) -> None:
    files = make(tmp_path / "in", 1, 2, 3, host="a%2Fb c")
    first = reading(spark, tmp_path).plan(2)
    assert first == Plan(0, files[:2], [])
    make(tmp_path / "in", 0)
    again = reading(spark, tmp_path)
    assert again.plan(99) == first, "the same files under the same number"
    again.done(first)
    assert again.plan(99) == Plan(1, [f"file:{path(0, root=str(tmp_path / 'in'))}", files[2]], [])
    third = reading(spark, tmp_path)
    third.done(Plan(1, third.plan(99).files, []))  # type: ignore[union-attr]
    assert third.plan(99) is None
    assert reading(spark, tmp_path).plan(99) is None


def test_a_batch_is_settled_once_it_is_done(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path / "in", *range(BATCHES_KEPT + 1))
    each, expected = reading(spark, tmp_path), [False] * (BATCHES_KEPT + 1)
    for number in range(BATCHES_KEPT + 1):
        plan = each.plan(1)
        assert plan is not None
        for done in False, True:
            if done:
                each.done(plan)
            expected[number] = done
            settled = inputs.settled(spark, str(tmp_path / "checkpoint"))
            assert [*map(settled, range(BATCHES_KEPT + 1))] == expected


def test_captures_and_odd_names_are_listed(spark: SparkSession, tmp_path: Path) -> None:
    make(tmp_path / "in", 1)
    for name in ("b, c [1].pcap", ".hidden.pcap", "d.pcapng", "e.txt"):
        (tmp_path / "in" / name).touch()
    plan = reading(spark, tmp_path).plan(99)
    assert plan is not None
    assert sorted(file.rpartition("/")[2] for file in plan.files) == [
        "1-0badcafe.parquet",
        "b, c [1].pcap",
        "d.pcapng",
    ]


def test_what_was_taken_is_put_together_and_forgotten(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(BATCHES_KEPT):
        make(tmp_path / "in", number)
        each = reading(spark, tmp_path)
        plan = each.plan(1)
        assert plan is not None
        assert plan.number == number
        if number:
            Path(path(number - 1, root=str(tmp_path / "in"))).unlink()
        each.done(plan)
    last = BATCHES_KEPT - 1
    kept = [file for file in (tmp_path / "checkpoint" / "taken").iterdir() if not file.name.startswith(".")]
    assert [file.name for file in kept] == [f"{last}.all.json"]
    assert json.loads(kept[0].read_text()) == {
        "taken": [Name.of(path(last)).key],
        "forgotten": {"a": last - 1},
    }
    after = reading(spark, tmp_path)
    assert after.plan(99) is None
    [back] = make(tmp_path / "in", 3)
    assert after.plan(99) == Plan(BATCHES_KEPT, [], [back])


def test_what_structured_streaming_had_taken_is_adopted(spark: SparkSession, tmp_path: Path) -> None:
    taken, planned, new = make(tmp_path / "in", 1, 2, 3, host="a%20b")
    entries = [(taken, 0), (planned, 1)]
    (tmp_path / "checkpoint" / "sources" / "0").mkdir(parents=True)
    (tmp_path / "checkpoint" / "commits").mkdir()
    (tmp_path / "checkpoint" / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    for file, batch in entries:
        entry = {
            "path": file.replace("%", "%25").replace("file:", "file://"),
            "timestamp": 1,
            "batchId": batch,
        }
        (tmp_path / "checkpoint" / "sources" / "0" / str(batch)).write_text(f"v1\n{json.dumps(entry)}")
    settled = inputs.settled(spark, str(tmp_path / "checkpoint"))
    assert [settled(number) for number in range(3)] == [True, False, False]
    for number, file in enumerate((planned, new), 1):
        each = reading(spark, tmp_path)
        assert each.plan(1) == Plan(number, [file], [])
        each.done(Plan(number, [file], []))
    assert reading(spark, tmp_path).plan(99) is None, "it is still known when others were taken"


def test_a_damaged_checkpoint_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / inputs.TAKEN).mkdir(parents=True)
    (tmp_path / "checkpoint" / inputs.TAKEN / "0.json").write_text("{")
    with pytest.raises(ConfigError, match=r"0\.json: is damaged"):
        reading(spark, tmp_path)
