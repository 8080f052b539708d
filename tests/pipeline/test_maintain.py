"""``bccnd/pipeline/maintain.py``: fewer files and fewer days, the same rows, whenever it is killed."""

import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from bccnd.pipeline import locks, maintain, storage
from bccnd.pipeline.ingest import ingest
from bccnd.pipeline.layout import Output
from bccnd.pipeline.maintain import Size, groups
from bccnd.pipeline.storage import Batch
from tests.pipeline.plans import adapting
from tests.pipeline.test_ingest import table

ROWS = 10
DISTURBS = "maintain: somebody reads (analyse or report), so the rest goes with the next maintain"
DAYS = ("2026-01-30", "2026-01-31")


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> Iterator[SparkSession]:
    with adapting(spark):
        yield spark


def ingested(spark: SparkSession, root: Path, batches: int, hosts: int = 2, first: int = 0) -> Output:
    """So many batches, with a file of ROWS for each host and, in turn, each of DAYS."""
    output = Output(str(root / "out"))
    for number in range(first, first + batches):
        for host in range(hosts):
            folder = root / "in" / f"date={DAYS[number % 2]}" / f"host=h{host}"
            folder.mkdir(parents=True, exist_ok=True)
            seq = 1 + (number * hosts + host) * ROWS
            pq.write_table(table(ROWS, first_seq=seq), folder / f"{seq}-00000000.parquet")
        ingest(spark, str(root / "in"), output, lambda _: None)
    return output


def maintained(spark: SparkSession, output: Output, keep_from: date | None = None) -> list[str]:
    said: list[str] = []
    maintain.maintain(spark, output, keep_from, said.append, alone=lambda: locks.removing(Path(output.root)))
    return said


def counted(spark: SparkSession, output: Output) -> Counter[Any]:
    rows = storage.traffic(spark, output).where("direction = 'in'").select("date", "host", "seq", "payload")
    return Counter(rows.collect())


def age(output: Output) -> None:
    """Let everything there be older than GRACE_SECONDS."""
    for path in Path(output.root).rglob("*"):
        os.utime(path, (0, 0))


def names(output: Output) -> list[str]:
    return sorted(path.name for path in Path(output.traffic).iterdir() if path.name[0] != ".")


def files(output: Output) -> int:
    return len([*Path(output.traffic).rglob("*.parquet")])


def test_small_files_are_merged_and_every_row_stays(spark: SparkSession, tmp_path: Path) -> None:
    output = ingested(spark, tmp_path, 6)
    before = counted(spark, output)
    assert (files(output), sum(before.values())) == (12, 6 * 2 * ROWS)
    # Of one day and the other in turn: neighbours share no folder, so nothing would be gained.
    assert maintained(spark, output) == []
    for path in Path(output.traffic).glob("batch=*/date=2026-01-30"):
        path.rename(path.with_name("date=2026-01-31"))
    before = counted(spark, output)
    assert maintained(spark, output) == [
        "maintain: merged batches 0 to 5, 12 files into 2",
        "maintain: 6 merged batches go with a maintain in an hour or later",
    ]
    assert counted(spark, output) == before
    age(output)
    with locks.reading(Path(output.root), [].append):
        assert maintained(spark, output) == [DISTURBS]
    assert maintained(spark, output) == ["maintain: removed 6 batches that were merged"]
    assert (files(output), names(output)) == (2, ["batch=0-5"])
    assert counted(spark, output) == before
    assert maintained(spark, output) == []


def test_a_merged_batch_is_merged_with_later_ones(spark: SparkSession, tmp_path: Path) -> None:
    output = ingested(spark, tmp_path, 1, hosts=1)
    for number in (2, 4, 6):
        ingested(spark, tmp_path, 1, hosts=1, first=number)
    maintained(spark, output)
    for number in (8, 10, 12):
        ingested(spark, tmp_path, 1, hosts=1, first=number)
    before = counted(spark, output)
    assert maintained(spark, output)[0] == "maintain: merged batches 0 to 6, 4 files into 1"
    age(output)
    maintained(spark, output)
    assert names(output) == ["batch=0-6"]
    assert counted(spark, output) == before


def test_days_before_the_first_that_is_kept_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    output = ingested(spark, tmp_path, 3)
    kept = Counter({row: n for row, n in counted(spark, output).items() if row.date == DAYS[1]})
    rejected = Path(output.rejected_files)
    for number in range(3):
        (rejected / f"batch={number}").mkdir(parents=True)
    assert maintained(spark, output, date(2026, 1, 31)) == [
        "maintain: traffic is kept since 2026-01-31",
        "maintain: what is older than 2026-01-31 goes with a maintain in an hour or later",
    ]
    assert counted(spark, output) == kept
    age(output)
    assert maintained(spark, output, date(2026, 1, 30)) == [
        "maintain: removed 1 days, 2026-01-30 to 2026-01-30"
    ]
    assert names(output) == ["_since=2026-01-31", "batch=1"]
    assert [path.name for path in rejected.iterdir()] == ["batch=1"]
    assert counted(spark, output) == kept
    # A file of such a day that comes late does not count.
    ingested(spark, tmp_path, 1, first=4)
    assert counted(spark, output) == kept


class Killed(BaseException):
    pass


@pytest.mark.parametrize(
    ("place", "nth", "later"),
    [
        ("storage.write_text", 1, False),
        ("maintain._merge", 1, False),
        ("storage.found", 6, False),
        ("storage.delete", 1, True),
        ("storage.delete", 3, True),
        ("storage.delete", 4, True),
    ],
)
def test_a_kill_anywhere_loses_and_doubles_no_row(
    place: str, nth: int, later: bool, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``later``: in the run that removes what the one before has merged and forgotten."""
    output = ingested(spark, tmp_path, 1)
    for number in (2, 4, 1, 3):
        ingested(spark, tmp_path, 1, first=number)
    whole = counted(spark, output)
    kept = Counter({row: n for row, n in whole.items() if row.date == DAYS[1]})
    if later:
        maintained(spark, output, date(2026, 1, 31))
        age(output)
    module = {"storage": storage, "maintain": maintain}[place.partition(".")[0]]
    name = place.partition(".")[2]
    real: Callable[..., Any] = getattr(module, name)
    calls = [0]

    def killing(*of: Any, **by: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth:
            if name == "_merge":  # in the midst of it: some files are there, and no _SUCCESS
                real(*of, **by)
                merged = next(Path(output.traffic).glob("batch=*-*"))
                (merged / "_SUCCESS").unlink()
            raise Killed
        return real(*of, **by)

    with monkeypatch.context() as patched:
        patched.setattr(module, name, killing)
        with pytest.raises(Killed):
            maintained(spark, output, date(2026, 1, 31))
    assert counted(spark, output) in (whole, kept)
    maintained(spark, output, date(2026, 1, 31))
    assert counted(spark, output) == kept
    age(output)
    maintained(spark, output, date(2026, 1, 31))
    assert counted(spark, output) == kept
    assert names(output) == ["_since=2026-01-31", "batch=3-4"]


def test_a_reader_in_a_loop_always_gets_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    output = ingested(spark, tmp_path, 1)
    for number in (2, 4, 6):
        ingested(spark, tmp_path, 1, first=number)
    expected = sum(counted(spark, output).values())
    found, over = list[int](), threading.Event()

    def read() -> None:
        while not over.is_set():
            found.append(sum(counted(spark, output).values()))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        said = maintained(spark, output)
        while reader.is_alive() and len(found) < 3:
            over.wait(0.01)
    finally:
        over.set()
        reader.join()
    assert said[0] == "maintain: merged batches 0 to 3, 8 files into 2"
    assert {*found} == {expected}


def test_a_batch_that_may_be_written_again_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    output = ingested(spark, tmp_path, 1)
    for number in (2, 4):
        ingested(spark, tmp_path, 1, first=number)
    checkpoint = Path(output.checkpoint)
    (checkpoint / "taken" / "2.json").rename(checkpoint / "planned" / "2.json")
    assert maintained(spark, output)[0] == "maintain: merged batches 0 to 1, 4 files into 2"
    assert "batch=0-1" in names(output)


def test_nothing_more_is_removed_once_somebody_reads(spark: SparkSession, tmp_path: Path) -> None:
    output = ingested(spark, tmp_path, 1)
    for number in (2, 4):
        ingested(spark, tmp_path, 1, first=number)
    maintained(spark, output)
    age(output)
    said: list[str] = []
    with ExitStack() as readers:

        @contextmanager
        def and_then_somebody_reads() -> Iterator[bool]:
            with locks.removing(Path(output.root)) as alone:
                yield alone
            readers.enter_context(locks.reading(Path(output.root), [].append))

        maintain.maintain(spark, output, None, said.append, alone=and_then_somebody_reads)
        assert said == ["maintain: removed 1 batches that were merged", DISTURBS]
        assert len(names(output)) == 3
    assert maintained(spark, output) == ["maintain: removed 2 batches that were merged"]


def test_what_an_earlier_ingest_did_not_finish_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    """It left a checkpoint of Structured Streaming; the next ``ingest`` gives the number to other files."""
    output = ingested(spark, tmp_path, 1)
    for number in (2, 4, 6):
        ingested(spark, tmp_path, 1, first=number)
    checkpoint, source = Path(output.checkpoint), Path("sources/0")
    for name in "commits", source:
        (checkpoint / name).mkdir(parents=True)
    for number in range(4):
        taken = json.loads((checkpoint / "taken" / f"{number}.json").read_text())
        entries = [json.dumps({"path": path, "batchId": number}) for path in taken["files"]]
        (checkpoint / source / str(number)).write_text("\n".join(["v1", *entries]))
        if number < 3:
            (checkpoint / "commits" / str(number)).write_text("v1\n{}")
    shutil.rmtree(checkpoint / "taken")
    before = counted(spark, output)
    assert maintained(spark, output)[0] == "maintain: merged batches 0 to 2, 6 files into 2"
    for _ in range(2):
        ingest(spark, str(tmp_path / "in"), output, lambda _: None)
        assert counted(spark, output) == before
        assert maintained(spark, output, date(2026, 1, 30))


def test_what_is_left_of_a_removal_goes(spark: SparkSession, tmp_path: Path) -> None:
    output = ingested(spark, tmp_path, 1)
    for number in (2, 4):
        ingested(spark, tmp_path, 1, first=number)
    before = counted(spark, output)
    for number in (1, 2):
        (Path(output.batch(number)) / "_SUCCESS").rename(tmp_path / f"removed-{number}")
    checkpoint = Path(output.checkpoint)
    (checkpoint / "taken" / "2.json").rename(checkpoint / "planned" / "2.json")
    maintained(spark, output)
    assert names(output) == ["batch=0", "batch=2"]
    ingest(spark, str(tmp_path / "in"), output, lambda _: None)
    assert counted(spark, output).keys() < before.keys()


def size(number: int, megabytes: int, files: int, *folders: str, last: int | None = None) -> Size:
    batch = Batch(number, number if last is None else last, last is not None, "")
    return Size(batch, megabytes << 20, files, frozenset(folders))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([size(0, 1, 1, "a")], []),
        ([size(0, 1, 1, "a"), size(1, 1, 1, "a")], [(0, 1)]),
        ([size(0, 1, 1, "a"), size(1, 1, 1, "b")], []),
        ([size(0, 1, 8, "a")], [(0, 0)]),  # many tasks have written it
        ([size(0, 1, 8, "a", last=0)], []),
        ([size(0, 1, 2, "a", "b"), size(1, 1, 2, "a", "b"), size(2, 1, 2, "c", "d")], [(0, 1)]),
        ([size(0, 3000, 24, "a"), size(1, 3000, 24, "a")], []),  # large files already
        ([size(0, 3000, 500, "a"), size(1, 3000, 500, "a")], [(0, 0), (1, 1)]),  # too much for one merge
        ([size(0, 100, 10, "a", last=9), size(10, 1, 1, "a")], [(0, 10)]),
    ],
)
def test_only_what_halves_the_files_is_merged(sizes: list[Size], expected: list[tuple[int, int]]) -> None:
    assert [(group[0].batch.first, group[-1].batch.last) for group in groups(sizes)] == expected


def test_days_are_counted_from_today() -> None:
    assert maintain.first_day(date(2026, 3, 1), 1) == date(2026, 2, 28)
    assert maintain.first_day(date(2026, 3, 1), None) is None
