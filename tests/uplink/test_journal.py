"""What an uplink remembers over a restart, and what becomes of it when the disk fails."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from bccnd.errors import ConfigError, RefusedError
from bccnd.uplink import journal as module
from bccnd.uplink.journal import KEPT_LIMIT, RESTART_JUMP, RETRY_SECONDS, Journal, Limits, Row
from bccnd.uplink.journal_file import APPLICATION
from tests.uplink.segment import Clock, killed


def opened(
    path: Path | None, limits: Limits | None = None, now: Callable[[], float] | None = None
) -> Journal:
    journal = Journal(path, limits, now) if now else Journal(path, limits)
    journal.open()
    return journal


def written(journal: Journal) -> None:
    """Write what is gathered, whatever the disk is at."""
    journal._wait_for_sync()
    journal.commit()


def test_all_is_there_after_a_restart(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    journal.next = 3
    journal.add(Row(1, b"door", b"one"))
    journal.add(Row(2, b"door", b"two"))
    journal.keep(17, b"datagram")
    journal.note(17, {b"paris/uplink/0123456789abcdef": 2**64 - 1})
    journal.close()
    again = opened(tmp_path / "j")
    assert (again.instance, again.next, again.position) == (journal.instance, 3, 17)
    assert again.links == {b"paris/uplink/0123456789abcdef": 2**64 - 1}
    assert again.waiting(1, 10) == [Row(1, b"door", b"one"), Row(2, b"door", b"two")]
    assert again.kept(0, 20) == [(17, b"datagram")]
    again.close()


def test_after_a_kill_no_number_is_used_twice(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    journal.next = 3
    journal.commit()
    journal.next = 9
    killed(journal)
    again = opened(tmp_path / "j")
    assert (again.instance, again.next) == (journal.instance, 3 + RESTART_JUMP)
    again.close()
    assert opened(tmp_path / "j").next == 3 + RESTART_JUMP, "it was closed in order"


def test_after_a_power_cut_no_number_is_used_twice(tmp_path: Path) -> None:
    """The disk is sure to have the file, and not what is in its log."""
    journal = opened(tmp_path / "j")
    journal.next = 3
    journal.close()
    used = opened(tmp_path / "j")
    used.next = 9
    used.commit()
    (tmp_path / "left").write_bytes((tmp_path / "j").read_bytes())
    used.close()
    left = opened(tmp_path / "left")
    assert left.next == 3 + RESTART_JUMP
    left.close()


def test_what_is_gathered_is_found_as_if_it_were_written() -> None:
    journal = opened(None)
    journal.add(Row(1, b"", b"one"))
    journal.keep(5, b"five")
    journal.commit()
    journal.add(Row(2, b"", b"two"))
    journal.add(Row(3, b"", b"three"))
    journal.keep(4, b"four")
    assert [row.number for row in journal.waiting(1, 9)] == [1, 2, 3]
    assert [row.number for row in journal.waiting(2, 1)] == [2]
    assert journal.kept(0, 9) == [(4, b"four"), (5, b"five")]
    journal.published(2)
    assert [row.number for row in journal.waiting(1, 9)] == [1, 3]
    journal.close()


def test_the_archive_is_bounded_the_oldest_goes_first() -> None:
    journal = opened(None, Limits(archive_bytes=100_000))
    for position in range(1, 1000):
        journal.keep(position, bytes(1000))
        if position % 10 == 0:
            journal.commit()
    kept = [position for position, _ in journal.kept(0, 1000)]
    assert kept == list(range(kept[0], 1000))
    assert 70 < len(kept) < 100
    journal.close()


def test_the_file_is_for_its_owner_alone_and_no_link(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    journal.commit()
    assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == dict.fromkeys(
        ["j", "j.lock", "j-wal", "j-shm"], "0o600"
    )
    journal.close()
    (tmp_path / "link").symlink_to(tmp_path / "j")
    with pytest.raises((ConfigError, RefusedError), match="symbolic links"):
        opened(tmp_path / "link")
    with pytest.raises(ConfigError, match="No such file"):
        opened(tmp_path / "nowhere" / "j")


def test_a_file_of_another_version_is_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "j")) as database:
        database.execute(f"PRAGMA application_id={APPLICATION}")
        database.execute("PRAGMA user_version=99")
    before = (tmp_path / "j").read_bytes()
    with pytest.raises(ConfigError, match="another version"):
        opened(tmp_path / "j")
    assert (tmp_path / "j").read_bytes() == before
    opened(tmp_path / "other").close()


def test_no_look_up_gives_more_than_it_may() -> None:
    journal = opened(None)
    for position in range(1, 2 * KEPT_LIMIT):
        journal.keep(position, b"x")
        if position == KEPT_LIMIT // 2:
            journal.commit()
    found = [position for position, _ in journal.kept(0, 2**64)]
    assert found == list(range(1, KEPT_LIMIT + 1))
    assert journal.kept(2**63, 2**64) == []
    journal.keep(2**63, b"no position that can be kept")
    assert journal.kept(2**62, 2**64) == []
    journal.close()


def test_what_came_twice_is_kept_and_counted_once() -> None:
    journal = opened(None, Limits(archive_bytes=100_000))
    journal.keep(1, bytes(1000))
    for _ in range(1000):
        journal.keep(2, bytes(1000))
        journal.commit()
    assert [position for position, _ in journal.kept(1, 2)] == [1, 2]
    journal.close()


def test_the_archive_grows_no_older_than_it_may() -> None:
    clock = Clock()
    journal = opened(None, Limits(archive_seconds=256.0), clock)
    for second in range(1, 1000):
        clock.now += 1.0
        journal.keep(second, b"x")
        journal.commit()
    kept = [position for position, _ in journal.kept(0, 1000)]
    assert kept == list(range(kept[0], 1000))
    assert 250 <= len(kept) <= 260
    journal.close()


def test_the_log_of_the_file_does_not_grow_for_ever(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j", Limits(archive_bytes=1 << 20))
    for position in range(1, 40_001):
        journal.keep(position, bytes(1000))
        if position % 100 == 0:
            journal.commit()
    written(journal)
    assert (tmp_path / "j-wal").stat().st_size < 4 * module.CHECKPOINT_BYTES
    assert (tmp_path / "j").stat().st_size < 4 << 20
    journal.close()
    assert not (tmp_path / "j-wal").exists()


# --- a disk that fails ---


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as stream, suppress(OSError):
        while stream.write(bytes(4096)):
            pass
    return filler


def test_a_full_disk_is_said_and_what_fits_waits_in_memory(small_disk: Path) -> None:
    clock = Clock()
    journal = opened(small_disk / "j", Limits(memory_bytes=200_000), clock)
    filler = fill(small_disk)
    forgotten = set()
    for number in range(1, 1001):
        journal.next = number + 1
        forgotten |= {row.number for row in journal.add(Row(number, b"door", bytes(1000)))}
        journal.keep(number, bytes(1000))
        journal.commit()
        clock.now += 0.1
    written(journal)
    assert "full" in journal.fault
    rows = [row.number for row in journal.waiting(1, 2000)]
    assert rows == [number for number in range(1, 1001) if number not in forgotten]
    assert 100 < len(rows) < 500, "all that fits into memory, and into what the file has"
    assert 100 < len(journal.kept(1, 2000)) < 500
    filler.unlink()
    clock.now += RETRY_SECONDS
    written(journal)
    assert journal.fault == ""
    killed(journal)
    again = opened(small_disk / "j")
    assert [row.number for row in again.waiting(1, 2000)] == rows
    again.close()


def test_what_is_written_without_the_archive_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may have room for the one and not for the other."""
    clock = Clock()
    journal = opened(None, Limits(memory_bytes=10_000), clock)
    write = journal._write_rows

    def no_room_for_both(database: sqlite3.Connection, archive: dict[int, bytes], *, clean: bool) -> None:
        if archive:
            raise sqlite3.OperationalError("database or disk is full")
        write(database, archive, clean=clean)

    monkeypatch.setattr(journal, "_write_rows", no_room_for_both)
    journal.keep(1, b"datagram")
    for number in range(1, 100):
        clock.now += RETRY_SECONDS
        journal.next = number + 1
        assert journal.add(Row(number, b"door", bytes(1000))) == []
    assert [row.number for row in journal.waiting(1, 200)] == list(range(1, 100))
    assert journal.kept(1, 1) == [(1, b"datagram")]
    journal.close()


def test_on_a_full_disk_nothing_is_begun(small_disk: Path) -> None:
    """Else the numbers would be used again after a kill, which nobody would know of."""
    opened(small_disk / "j").close()
    fill(small_disk)
    with pytest.raises(ConfigError, match=r"(full|I/O error); make room on its disk$"):
        opened(small_disk / "j")
    with pytest.raises(ConfigError, match=r"(full|I/O error); make room on its disk$"):
        opened(small_disk / "other")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"instance": "xy"}',
        json.dumps(
            {
                "instance": "00" * 8,
                "next": 2**62,
                "floor": 1,
                "position": 0,
                "links": {},
                "siblings": [],
                "clean": True,
            }
        ),
        json.dumps(
            {
                "instance": "00" * 8,
                "next": 1,
                "floor": 2,
                "position": 0,
                "links": {},
                "siblings": [],
                "clean": True,
            }
        ),
        json.dumps(
            {
                "instance": "00" * 8,
                "next": 1,
                "floor": 1,
                "position": 0,
                "links": [],
                "siblings": [],
                "clean": True,
            }
        ),
    ],
    ids=["nothing", "no object", "empty", "instance", "too high", "floor above next", "links"],
)
def test_a_state_that_is_none_is_set_aside(tmp_path: Path, content: str) -> None:
    opened(tmp_path / "j").close()
    with closing(sqlite3.connect(tmp_path / "j")) as database, database:
        database.execute("UPDATE state SET content = ?", (content,))
    journal = opened(tmp_path / "j")
    assert "was damaged" in journal.replaced
    assert (journal.next, journal.floor, journal.links) == (1, 1, {})
    assert journal.instance != b"00" * 8
    journal.close()


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    opened(tmp_path / "j").close()
    with (tmp_path / "j").open("r+b") as file:
        file.write(bytes(60))
    damaged = (tmp_path / "j").read_bytes()
    journal = opened(tmp_path / "j")
    assert "was damaged" in journal.replaced
    assert (tmp_path / "j.damaged").read_bytes() == damaged
    journal.next = 5
    journal.close()
    again = opened(tmp_path / "j")
    assert (again.replaced, again.next) == ("", 5)
    again.close()


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"127.0.0.1 localhost\n" * 9)
    with closing(sqlite3.connect(tmp_path / "j")) as database:
        database.execute("CREATE TABLE state (content TEXT)")
    for name, words in (("text", "no journal"), ("j", "another program")):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(ConfigError, match=words):
            opened(tmp_path / name)
        assert (tmp_path / name).read_bytes() == before


def test_a_file_that_is_damaged_while_it_is_used(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    journal.next = 1000
    for number in range(1, 1000):
        journal.add(Row(number, b"door", bytes(1000)))
    journal.commit()
    journal._sync_soon(module.CHECKPOINT_BYTES)
    journal._wait_for_sync()
    size = (tmp_path / "j").stat().st_size
    with (tmp_path / "j").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * (size - 100))
    assert journal._database is not None
    journal._database.execute("PRAGMA shrink_memory")
    assert journal.waiting(1, 2000) is None
    assert journal.waiting(1, 2000) == []
    assert "was damaged" in journal.replaced
    journal.add(Row(1000, b"door", b"new"))
    journal.next = 1001
    journal.commit()
    assert journal.fault == ""
    killed(journal)
    again = opened(tmp_path / "j")
    assert (again.instance, again.next) == (journal.instance, 1001 + RESTART_JUMP)
    assert again.waiting(1, 9) == [Row(1000, b"door", b"new")]
    again.close()


def test_a_closed_journal_takes_nothing_and_fails_nowhere() -> None:
    journal = opened(None)
    journal.close()
    journal.commit()
    journal.close()
    assert journal.waiting(1, 9) == []
    assert journal.kept(1, 9) == []


def test_the_stream_is_kept_with_the_position(tmp_path: Path) -> None:
    journal = opened(tmp_path / "j")
    assert journal.stream == ("", 0)
    journal.stream = "2026-01-02T03:04:05Z", 1 << 48
    journal.note((1 << 48) + 7, {})
    journal.close()
    again = opened(tmp_path / "j")
    assert (again.stream, again.position) == (("2026-01-02T03:04:05Z", 1 << 48), (1 << 48) + 7)
    again.close()
