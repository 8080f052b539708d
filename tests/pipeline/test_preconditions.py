"""``bccnd/pipeline/preconditions.py``: what is wrong with the directories that a user names."""

import os
import re
from pathlib import Path

import pytest

from bccnd.errors import BccndError, ConfigError, RefusedError
from bccnd.pipeline import preconditions
from bccnd.pipeline.preconditions import of_this_machine, recordings

FILE = "date=2026-01-31/host=a/1-00000000.parquet"


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def complaint(source: Path, kind: type[BccndError] = ConfigError) -> str:
    with pytest.raises(kind) as raised:
        recordings(source)
    return str(raised.value).removeprefix(f"{source}: ")


@pytest.mark.parametrize("name", [FILE, "relay01.pcap", "relay01.pcapng.gz"])
def test_recordings_and_captures_are_accepted(name: str, tmp_path: Path) -> None:
    recordings(touch(tmp_path, name))


def test_a_wrong_directory_is_told(tmp_path: Path) -> None:
    assert complaint(tmp_path / "gone").startswith(
        "no such directory; give the one that bccnd-record writes to"
    )
    assert complaint(touch(tmp_path, "file") / "file").startswith("is a file")
    (tmp_path / "empty").mkdir()
    assert complaint(tmp_path / "empty").startswith("no recordings in it, neither date=")
    recordings(tmp_path / "empty", later=True)


def test_one_level_too_deep_names_the_right_one(tmp_path: Path) -> None:
    touch(tmp_path, f"in/{FILE}")
    for deep in ("in/date=2026-01-31", "in/date=2026-01-31/host=a"):
        assert complaint(tmp_path / deep).endswith(
            f"one of the folders that they are in; give {tmp_path / 'in'}"
        )


def test_one_level_too_high_names_the_right_ones(tmp_path: Path) -> None:
    touch(tmp_path, f"a/{FILE}")
    assert complaint(tmp_path).endswith(f"but in {tmp_path / 'a'}; give that")
    touch(tmp_path, *(f"{name}/{FILE}" for name in "bcde"))
    said = complaint(tmp_path)
    assert f"but in {tmp_path / 'a'}, {tmp_path / 'b'}, {tmp_path / 'c'} and 2 more; give one of them" in said
    with pytest.raises(ConfigError):
        recordings(tmp_path, later=True)  # nothing will come there later


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["1-00000000.parquet"], "keep the folders date=*/host=*"),
        (
            ["date=2026-01-31/host=a/.1-00000000.parquet.partial"],
            "one that is not finished; bccnd-record finishes",
        ),
        (
            ["traffic/batch=0/x", "checkpoint/taken/0.json"],
            "it is an --output of bccnd-pipeline; give the directory",
        ),
    ],
)
def test_what_a_directory_is_instead_is_told(names: list[str], said: str, tmp_path: Path) -> None:
    assert said in complaint(touch(tmp_path, *names))


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root sees none, the kernel's answer is replaced."""
    touch(tmp_path, FILE, FILE.replace("host=a", "host=b"), FILE.replace("/1-", "/2-"))
    last = str(tmp_path / FILE.replace("/1-", "/2-"))
    monkeypatch.setattr(os, "access", lambda path, _mode: str(path) != last)
    assert complaint(tmp_path, RefusedError) == (
        f"{last}: permission denied; run it as a user that may read it, such as one of the group bccnd"
    )


def test_a_directory_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> list[str]:
        raise PermissionError

    monkeypatch.setattr(os, "listdir", refuse)
    assert complaint(tmp_path, RefusedError).startswith("permission denied; run it as")


def test_what_may_not_be_seen_beside_it_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as ``lost+found``: nobody asked for it."""
    closed = tmp_path / "closed"
    closed.mkdir()
    listdir, stat = os.listdir, os.stat

    def refuse(path: Path) -> list[str]:
        if path == closed:
            raise PermissionError
        return listdir(path)

    def refuse_inside(path: Path, **how: bool) -> os.stat_result:
        if closed in Path(path).parents:
            raise PermissionError
        return stat(path, **how)

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "stat", refuse_inside)
    assert complaint(tmp_path).startswith("no recordings in it, neither date=")
    with pytest.raises(ConfigError, match=r"nothing was ingested there; run"):
        preconditions.ingested(tmp_path)


def test_tables_count_before_they_are_linked(tmp_path: Path) -> None:
    preconditions.analysed(touch(tmp_path, "versions/1/_SUCCESS"))


def test_nothing_ingested_or_analysed_says_what_comes_first(tmp_path: Path) -> None:
    for check, said in (
        (preconditions.ingested, "nothing was ingested there; run bccnd-pipeline ingest first"),
        (
            preconditions.analysed,
            "no tables are there; run bccnd-pipeline ingest and bccnd-pipeline analyse first",
        ),
    ):
        with pytest.raises(ConfigError, match=f"{said}$"):
            check(tmp_path)
        with pytest.raises(ConfigError, match="no such directory; give the --output"):
            check(tmp_path / "gone")
    touch(tmp_path, "out/traffic/batch=0/_SUCCESS")
    preconditions.ingested(tmp_path / "out")
    with pytest.raises(ConfigError, match=r"run bccnd-pipeline analyse first$"):
        preconditions.analysed(tmp_path / "out")
    with pytest.raises(ConfigError, match=f"but in {tmp_path / 'out'}; give that as --output"):
        preconditions.ingested(tmp_path)
    with pytest.raises(ConfigError, match=f"but in {tmp_path / 'out'}; give that as --output"):
        preconditions.ingested(tmp_path / "out" / "traffic")


def test_recordings_given_as_output_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it has recordings; give it to bccnd-pipeline ingest as --input"):
        preconditions.ingested(touch(tmp_path, FILE))


@pytest.mark.needs("root")
def test_a_full_disk_is_told_before_anything_starts(tmp_path: Path, small_disk: Path) -> None:
    with pytest.raises(
        RefusedError, match=re.escape(f"{small_disk / 'out'}: only 1 MiB are left on its disk; make")
    ):
        preconditions.writable(small_disk / "out", {})
    with pytest.raises(RefusedError, match="set SPARK_LOCAL_DIRS"):
        preconditions.writable(tmp_path, {"SPARK_LOCAL_DIRS": f"{small_disk},/elsewhere"})
    preconditions.writable(tmp_path, {"SPARK_LOCAL_DIRS": str(small_disk)}, starts_spark=False)
    preconditions.writable(tmp_path / "out" / "deep", {})


def test_a_directory_without_the_right_to_write_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_path_and_mode: False)
    with pytest.raises(RefusedError, match=f"{tmp_path}: nothing can be written there"):
        preconditions.writable(tmp_path / "out", {})


def test_a_file_in_place_of_the_output_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "file")
    for path in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ConfigError, match=f"{tmp_path / 'file'}: is a file, and a directory is needed"):
            preconditions.writable(path, {})


@pytest.mark.parametrize(
    ("path", "master", "environ", "expected"),
    [
        ("in", None, {}, "in"),
        ("in", "local[4]", {}, "in"),
        ("in", "spark://head:7077", {}, None),
        ("in", None, {"PYSPARK_GATEWAY_PORT": "1"}, None),
        ("in", None, {"HADOOP_CONF_DIR": "/etc/hadoop"}, None),
        ("hdfs:///in", None, {}, None),
        ("file:/a%20b/in", "spark://head:7077", {}, "/a%20b/in"),
        ("file:///in", None, {}, "/in"),
    ],
)
def test_only_directories_of_this_machine_are_looked_at(
    path: str, master: str | None, environ: dict[str, str], expected: str | None
) -> None:
    assert of_this_machine(path, master, environ) == (Path(expected) if expected else None)
