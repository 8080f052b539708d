"""``bccnd/pipeline/digests.py``: the same tables, however the rows came in, and old rows are not read again."""

import io
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from bccnd.pipeline import digests, storage, words
from bccnd.pipeline.analyse import Span, analyse
from bccnd.pipeline.digests import Digests
from bccnd.pipeline.ingest import ingest
from bccnd.pipeline.layout import TABLES, Output
from bccnd.pipeline.progress import Progress
from bccnd.pipeline.storage import Batch
from tests.pipeline import network
from tests.pipeline.digested import ROWS, counted, used
from tests.pipeline.rows import traffic

PLAN = network.Plan(
    hosts=3, sources=1, messages=400, seconds=200, burst=0.01, duplicate=0.02, reorder=0.02, restarts=True,
    clock_step=0.1, silent={1: (60, 120)}, unrecorded=frozenset({2}), forged=3, local=2, file_rows=300, seed=3,
)  # fmt: skip


class Network:
    """Recorded files, which come into ``output`` a few at a time."""

    def __init__(self, spark: SparkSession, folder: Path, plan: network.Plan) -> None:
        self._spark, self._recorded, self._input = spark, folder / "recorded", folder / "in"
        self.output = Output(str(folder / "out"))
        self.truth = network.write(plan, self._recorded)
        self.files = sorted(self._recorded.rglob("*.parquet"))

    def ingest(self, files: Sequence[Path]) -> None:
        """As one batch."""
        for file in files:
            place = self._input / file.relative_to(self._recorded)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, place)
        ingest(self._spark, str(self._input), self.output, lambda _: None)

    def digest(self) -> list[str]:
        """The names of the digests that there are then."""
        digests.kept(self._spark, self.output)
        return sorted(path.name for path in Path(self.output.digests, str(digests.FORM)).iterdir())

    def analyse(self) -> None:
        analyse(self._spark, self.output, Span(), Progress(None, io.StringIO()))

    def table(self, name: str) -> DataFrame:
        return self._spark.read.schema(TABLES[name]).parquet(f"{self.output.tables}/{name}")

    def tables(self) -> dict[str, "Counter[Any]"]:
        self.analyse()
        return {name: counted(self.table(name)) for name in TABLES}


def test_tables_are_the_same_in_several_increments(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Network(spark, tmp_path / "once", PLAN)
    made.ingest(made.files)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(digests, "_here", lambda *_: None)  # as on a cluster: of the rows alone, by Spark
        expected = made.tables()
    assert not Path(made.output.digests).exists()
    monkeypatch.setattr(digests, "BYTES", 0)
    assert made.digest() == ["batch=0-0"]
    parts = Network(spark, tmp_path / "parts", PLAN)
    # The later files of each host first, then one host, then the rest: each source is in several batches.
    later, middle = parts.files[2::3], parts.files[1::3]
    parts.ingest(later)
    assert parts.digest() == ["batch=0-0"]
    parts.ingest(middle)
    assert parts.digest() == ["batch=0-1"]
    parts.ingest(parts.files)
    with monkeypatch.context() as little:
        little.setattr(digests, "BYTES", 1 << 30)  # of the last batch one is made that does not stay
        assert parts.tables() == expected
    assert parts.digest() == ["batch=0-1", "batch=2-2"]
    assert all(expected[name] for name in set(TABLES) - {"drops", "links", "senders"})


def test_rows_that_were_digested_are_not_read_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "BYTES", 0)
    plan = network.Plan(hosts=2, sources=1, messages=200, seconds=100, burst=0.02)
    made = Network(spark, tmp_path, plan)
    made.ingest(made.files)
    assert made.digest() == ["batch=0-0"]
    for file in Path(made.output.traffic).glob("batch=*/date=*/host=*/*.parquet"):
        file.write_bytes(b"nobody reads this")
    made.analyse()
    rows = made.table("delivery").collect()
    assert {(row.sender, row.receiver): row.lost for row in rows} == made.truth.lost
    assert {(row.sender, row.receiver): row.sent for row in rows} == made.truth.sent
    assert made.table("channels").count() == made.table("channels").select("channel").distinct().count() == 4


def test_what_a_kill_left_and_old_forms_are_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "BYTES", 0)
    made = Network(spark, tmp_path, network.Plan(hosts=2, sources=1, messages=20, seconds=20))
    made.ingest(made.files)
    write = storage.write_text

    def killed(spark: SparkSession, path: str, text: str) -> None:
        if made.output.digests in path:
            raise KeyboardInterrupt
        write(spark, path, text)

    monkeypatch.setattr(storage, "write_text", killed)
    with pytest.raises(KeyboardInterrupt):
        digests.kept(spark, made.output)
    monkeypatch.setattr(storage, "write_text", write)
    folder = Path(made.output.digests)
    left = folder / str(digests.FORM) / "batch=0-0"
    assert left.exists()
    (folder / "0" / "batch=0-0").mkdir(parents=True)
    (left / "words" / "stale").touch()
    assert made.digest() == ["batch=0-0"]
    assert not (left / "words" / "stale").exists()
    assert [path.name for path in folder.iterdir() if path.name[0] != "."] == [str(digests.FORM)]
    # Killed between the write of one that holds it and its removal.
    shutil.copytree(left, left.with_name("batch=0-1"))
    assert made.digest() == ["batch=0-1"]


def test_a_batch_that_may_change_is_digested_each_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "BYTES", 0)
    made = Network(spark, tmp_path, network.Plan(hosts=2, sources=1, messages=20, seconds=20))
    made.ingest(made.files)
    taken, planned = (Path(made.output.checkpoint, name, "0.json") for name in ("taken", "planned"))
    planned.parent.mkdir(exist_ok=True)
    taken.rename(planned)
    assert made.digest() == [digests.FEW]
    assert words.rows(digests.kept(spark, made.output).words) > 0


def test_what_is_too_old_does_not_count(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "BYTES", 0)
    made = Network(spark, tmp_path, network.Plan(hosts=2, sources=1, messages=20, seconds=20))
    made.ingest(made.files)
    assert words.rows(digests.kept(spark, made.output).words) > 0
    Path(made.output.traffic, f"{storage.KEPT_SINCE}2026-02-01").touch()
    assert words.rows(digests.kept(spark, made.output).words) == 0


def test_digests_of_parts_are_those_of_the_whole(spark: SparkSession) -> None:
    every = traffic(spark, ROWS)
    expected = used(spark, digests.of(every), every)
    for parts in ([ROWS[0::2], ROWS[1::2]], [ROWS[:40], ROWS[40:330], ROWS[330:]]):
        several = [digests.of(traffic(spark, part)) for part in parts]
        assert used(spark, reduce(together, several), every) == expected


def together(one: Digests, other: Digests) -> Digests:
    return one.each(lambda name, frame: frame.unionByName(getattr(other, name)))


def batches(*names: str) -> list[Batch]:
    return [found for name in names if (found := Batch.at(f"/out/batch={name}"))]


@pytest.mark.parametrize(
    ("there", "digested", "expected", "left"),
    [
        (("0", "1", "2"), ("0-1",), ("0-1",), ("2",)),
        (("0-3", "4"), ("0-1", "2-2", "3-3"), ("0-1", "2-2", "3-3"), ("4",)),  # merged since
        (("0-3", "4"), ("0-1", "2-2"), (), ("0-3", "4")),  # a part of it
        (("0", "1-3"), ("0-1", "2-2"), (), ("0", "1-3")),  # beyond it
        (("3",), ("0-1", "2-3"), ("2-3",), ()),  # the others are gone
    ],
)
def test_digests_are_used_for_batches_they_hold(
    there: tuple[str, ...], digested: tuple[str, ...], expected: tuple[str, ...], left: tuple[str, ...]
) -> None:
    assert digests.selected(batches(*there), batches(*digested)) == (batches(*expected), batches(*left))


def test_neighbours_are_digested_together() -> None:
    new = batches("2", "4", "5", "7", "8")
    assert [*digests.runs(new, batches("3-3"), [7])] == [batches("2"), batches("4", "5"), batches("8")]


@pytest.mark.parametrize(
    ("done", "run", "there", "expected"),
    [
        (("0-3", "4-4"), ("5",), (), ("4-4",)),
        (("0-3", "4-5", "6-6"), ("7",), (), ("0-3", "4-5", "6-6")),
        (("0-3", "4-4"), ("6",), ("5",), ()),  # not digested yet
        (("0-9", "12-12"), ("10", "11"), (), ()),  # before it only
    ],
)
def test_a_digest_takes_up_those_that_are_no_larger(
    done: tuple[str, ...], run: tuple[str, ...], there: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert digests.taken_up(batches(*done), batches(*run), batches(*there)) == batches(*expected)
