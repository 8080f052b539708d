"""``bccnd/pipeline/versions.py``: whoever reads the tables gets all of one analysis, at any time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bccnd.errors import ConfigError
from bccnd.pipeline import storage, versions
from bccnd.pipeline.layout import Output

NAMES = ("delivery", "losses")


def made(spark: SparkSession, root: Path, said: str) -> None:
    """An analysis whose tables say this."""
    output = Output(str(root))
    version = versions.begin(spark, output)
    for name in NAMES:
        storage.write_text(spark, f"{version}/{name}", said)
    versions.publish(spark, output, version, "")


def kept(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "versions").iterdir())


def test_a_version_replaces_another_under_one_name(spark: SparkSession, tmp_path: Path) -> None:
    output = Output(str(tmp_path))
    with (
        pytest.raises(ConfigError, match="run bccnd-pipeline analyse first"),
        versions.reading(spark, output),
    ):
        pass
    for number, said in enumerate(("one", "two", "three", "four"), 1):
        made(spark, tmp_path, said)
        assert (tmp_path / "tables" / "losses").read_text() == said
        with versions.reading(spark, output) as found:
            assert found == output.version(number)
    assert kept(tmp_path) == ["3", "4"], "the one before stays for those who still read it"
    assert str((tmp_path / "tables").readlink()) == "versions/4", "the folder can be moved"


def test_a_reader_in_a_loop_always_finds_one_whole_version(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path, "0")
    rounds, faults, over = [0], list[str](), threading.Event()

    def read() -> None:
        while not over.is_set():
            try:
                first, second = ((tmp_path / "tables").resolve() / name for name in NAMES)
                if (said := first.read_text()) != second.read_text() and first.parent == second.parent:
                    faults.append(f"{said} and another")
            except OSError as error:
                faults.append(str(error))
            rounds[0] += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, 30):
            before = rounds[0]
            made(spark, tmp_path, str(number))
            while reader.is_alive() and rounds[0] < before + 2:
                over.wait(0.001)
    finally:
        over.set()
        reader.join()
    assert faults == []


def test_a_file_that_the_reader_misses_is_told_to_it(tmp_path: Path) -> None:
    """It is no version that has gone: reading is not tried again."""
    version = tmp_path / "versions" / "1"
    version.mkdir(parents=True)
    (version / versions.WHOLE).touch()
    with (
        pytest.raises(FileNotFoundError, match="losses"),
        versions.reading(None, Output(str(tmp_path))) as found,
    ):
        (Path(found) / "losses").read_text()


def test_what_is_being_read_is_not_removed(spark: SparkSession, tmp_path: Path) -> None:
    output = Output(str(tmp_path))
    made(spark, tmp_path, "one")
    with versions.reading(spark, output) as found:
        for said in ("two", "three", "four"):
            made(spark, tmp_path, said)
        assert (Path(found) / "delivery").read_text() == "one"
        assert kept(tmp_path) == ["1", "3", "4"]
    made(spark, tmp_path, "five")
    assert kept(tmp_path) == ["4", "5"]


class Killed(BaseException):
    pass


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, place: object, name: str) -> Iterator[None]:
    """Nothing after ``place.name`` is called is done: a kill at that point."""

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(place, name, kill)
        with pytest.raises(Killed):
            yield


@pytest.mark.parametrize(
    ("place", "name", "left"),
    [
        (storage, "write_text", "old"),
        (Path, "symlink_to", "old"),
        (Path, "replace", "old"),
        (versions, "_remove", "new"),
        (storage, "delete", "new"),
    ],
)
def test_a_kill_leaves_whole_tables_and_the_next_run_mends(
    place: object, name: str, left: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = Output(str(tmp_path))
    for said in ("older", "old"):
        made(spark, tmp_path, said)
    version = versions.begin(spark, output)
    for each in NAMES:
        storage.write_text(spark, f"{version}/{each}", "new")
    with killed_at(monkeypatch, place, name):
        versions.publish(spark, output, version, "")
    assert {(tmp_path / "tables" / each).read_text() for each in NAMES} == {left}
    with versions.reading(spark, output) as found:
        assert {(Path(found) / each).read_text() for each in NAMES} <= {left, "new"}
        assert len({(Path(found) / each).read_text() for each in NAMES}) == 1
    made(spark, tmp_path, "newest")
    assert (tmp_path / "tables" / "losses").read_text() == "newest"
    assert len(kept(tmp_path)) == versions.KEPT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tables", "versions"]


def of_a_user(root: Path, kind: str) -> Path:
    """``tables`` that a user made, of something that is dear to them."""
    tables, dear = root / "tables", root / "dear"
    dear.mkdir()
    (dear / "losses").write_text("dear")
    match kind:
        case "link":
            tables.symlink_to("dear")
        case "dangling":
            tables.symlink_to("/nowhere")
        case "directory":
            (tables / "losses").mkdir(parents=True)
            (tables / "mine.parquet").write_text("dear")
        case "file":
            tables.write_text("dear")
        case _:
            tables.mkdir()
    return tables


KINDS = ("link", "dangling", "directory", "file", "empty")


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_a_user_are_not_replaced(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    output = Output(str(tmp_path))
    tables = of_a_user(tmp_path, kind)
    with pytest.raises(ConfigError, match="tables: is not of bccnd-pipeline; move it away, or give"):
        versions.begin(spark, output)
    tables.rename(tmp_path / "aside")
    version = versions.begin(spark, output)
    storage.write_text(spark, f"{version}/losses", "ours")
    (tmp_path / "aside").rename(tables)  # it comes back meanwhile
    before = tables.lstat().st_ino
    with pytest.raises(ConfigError, match="is not of bccnd-pipeline"):
        versions.publish(spark, output, version, "")
    assert tables.lstat().st_ino == before
    assert (tmp_path / "dear" / "losses").read_text() == "dear"


def test_versions_of_a_user_are_neither_read_nor_removed(spark: SparkSession, tmp_path: Path) -> None:
    theirs = tmp_path / "versions" / "7"
    theirs.mkdir(parents=True)
    (theirs / "mine.parquet").write_text("dear")
    (tmp_path / "versions" / "9").write_text("dear")
    for whole in False, True:
        if whole:
            (theirs / versions.WHOLE).touch()
        for said in ("one", "two", "three"):
            made(spark, tmp_path, said)
            with versions.reading(None, Output(str(tmp_path))) as found:
                assert (Path(found) / "losses").read_text() == said
    assert kept(tmp_path) == ["14", "15", "7", "9"]
    assert (theirs / "mine.parquet").read_text() == "dear"


def test_tables_of_an_earlier_program_are_taken_over(spark: SparkSession, tmp_path: Path) -> None:
    output = Output(str(tmp_path))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "losses").write_text("old")
    with versions.reading(spark, output) as found:
        assert found == output.tables
    made(spark, tmp_path, "new")
    assert (tmp_path / "versions" / "1" / "losses").read_text() == "old"
    assert (tmp_path / "tables" / "losses").read_text() == "new"
