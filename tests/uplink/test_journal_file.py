"""Who may use the file of a journal."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from bccnd.errors import ConfigError, UnavailableError
from bccnd.uplink.journal_file import APPLICATION, check_is_ours, locked, opened, remedy, sync


def test_a_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    os.close(opened(tmp_path / "j"))
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o600


def test_no_link_is_followed_and_no_folder_is_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "j")
    with pytest.raises(ConfigError, match="must not be a symbolic link"):
        opened(tmp_path / "link")
    with pytest.raises(ConfigError, match="make its folder first"):
        opened(tmp_path / "nowhere" / "j")
    with pytest.raises(ConfigError, match="Is a directory"):
        opened(tmp_path)


def test_a_folder_is_no_journal_and_gets_no_lock_beside_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="folder: is a folder; name a file in it"):
        locked(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_two_uplinks_do_not_share_a_file(tmp_path: Path) -> None:
    lock = locked(tmp_path / "j")
    with pytest.raises(UnavailableError, match="each has a journal of its own"):
        locked(tmp_path / "j")
    os.close(lock)
    os.close(locked(tmp_path / "j"))


@pytest.mark.parametrize(
    ("query", "what_to_do"),
    [
        ("PRAGMA max_page_count=1; CREATE TABLE b (c)", "make room on its disk"),
        ("PRAGMA query_only=1; CREATE TABLE b (c)", "needs a disk that can be written"),
        ("ATTACH '/nowhere/at/all' AS b", "must own it and its folder"),
        ("no query", ""),
    ],
)
def test_what_sqlite_complains_of_says_what_to_do(tmp_path: Path, query: str, what_to_do: str) -> None:
    with closing(sqlite3.connect(tmp_path / "j")) as database:
        database.execute("CREATE TABLE a (b)")
        with pytest.raises(sqlite3.OperationalError) as raised:
            database.executescript(query)
    said = remedy(tmp_path / "j", raised.value)
    assert said.startswith("; ") == bool(said) == bool(what_to_do)
    assert what_to_do in said


@pytest.mark.parametrize(
    ("room", "what_to_do"), [(1 << 19, "make room"), (1 << 30, "a local disk that works")]
)
def test_an_io_error_of_a_full_disk_is_no_broken_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, what_to_do: str
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=room >> 12, f_frsize=1 << 12))
    assert what_to_do in remedy(tmp_path / "j", error)


@pytest.mark.parametrize(
    ("content", "ours"),
    [
        (b"", True),
        (b"SQLite format 3\0" + bytes(84), True),
        (bytes(68) + APPLICATION.to_bytes(4, "big") + bytes(28), True),
        (bytes(100), False),
        (b"127.0.0.1 localhost\n", False),
    ],
    ids=["empty", "a database", "a damaged journal", "zeros", "a text"],
)
def test_a_file_that_never_was_a_database_is_not_ours(tmp_path: Path, content: bytes, ours: bool) -> None:
    (tmp_path / "j").write_bytes(content)
    if ours:
        check_is_ours(tmp_path / "j")
    else:
        with pytest.raises(ConfigError, match="no journal"):
            check_is_ours(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == content


def test_a_sync_that_fails_is_for_the_next_commit_to_say(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"no database" * 100)
    sync(tmp_path / "j")
    sync(tmp_path / "nowhere" / "j")
