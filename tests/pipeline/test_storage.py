"""``bccnd/pipeline/storage.py``."""

from pathlib import Path

from pyspark.sql import SparkSession

from bccnd.pipeline import storage
from bccnd.pipeline.layout import Output


def test_whole_batches_are_listed_in_order(spark: SparkSession, tmp_path: Path) -> None:
    output = Output(str(tmp_path))
    assert storage.batches(spark, output) == []
    for name in ("batch=10", "batch=9", "batch=11", "other"):
        (tmp_path / "traffic" / name).mkdir(parents=True)
        if name != "batch=11":
            (tmp_path / "traffic" / name / "_SUCCESS").touch()
    assert storage.batches(spark, output) == [output.batch(9), output.batch(10)]


def test_a_folder_is_deleted_with_what_is_in_it(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "old" / "deep").mkdir(parents=True)
    storage.delete(spark, str(tmp_path / "old"))
    storage.delete(spark, str(tmp_path / "old"))
    assert list(tmp_path.iterdir()) == []


def test_paths_of_this_machine_are_known(spark: SparkSession, tmp_path: Path) -> None:
    for path in (f"{tmp_path}/a b%20", f"file:{tmp_path}/a b%20", f"file://{tmp_path}/a b%20"):
        assert storage.on_this_machine(spark, path) == tmp_path / "a b%20"
    assert storage.on_this_machine(spark, "hdfs://127.0.0.1:1/in") is None


def test_text_is_replaced_where_only_spark_can_write(spark: SparkSession, tmp_path: Path) -> None:
    target = tmp_path / "out" / "report.html"
    for text in ("old", "→ new"):
        storage.write_text(spark, target.as_uri(), text)
        assert target.read_text(encoding="utf-8") == text
    assert [path.name for path in target.parent.iterdir() if not path.name.startswith(".")] == ["report.html"]


def test_files_are_found_by_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a=1/x y,z.txt", "a=2/100%25.txt", "a=2/.hidden.txt", "a=2/other", "b/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = ["a=1/x y,z.txt", "a=2/100%25.txt"]
    for folder in (str(tmp_path), f"{tmp_path}/", tmp_path.as_uri()):
        assert storage.found(spark, folder, "a=*/*.txt") == [f"file:{tmp_path}/{name}" for name in names]
    assert storage.found(spark, str(tmp_path), "{c,d*}") == []


def test_a_file_is_renamed_into_a_new_folder(spark: SparkSession, tmp_path: Path) -> None:
    storage.write_text(spark, str(tmp_path / "one"), "→ text")
    storage.rename(spark, str(tmp_path / "one"), str(tmp_path / "folder" / "two"))
    assert storage.read_text(spark, str(tmp_path / "folder" / "two")) == "→ text"
