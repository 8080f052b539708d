"""The spooler beside a real daemon: what it keeps, and what is left of it after kills and full disks."""

import os
import resource
import signal
from pathlib import Path

import bccn
from bccnd.pipeline.source import spool, spool_files
from bccnd.wire.verdict import Verdict
from tests.daemon_process import LOOPBACK_BROADCAST, DaemonProcess
from tests.packet_client import wait_until
from tests.pipeline.source.spooling import (
    await_messages,
    bounds,
    ended,
    payloads,
    publish,
    spooled,
    spooling,
    start,
)


def test_each_message_is_spooled_once(unrepairing: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with spooling(unrepairing, folder, "--seconds=0.2") as process:
        publish(unrepairing, "local/x", range(1000))
        await_messages(folder, 1000)
        publish(unrepairing, "far/x", range(1000, 1010))
        await_messages(folder, 1020)
        assert int((folder / "spooler").read_text()) == process.pid
    rows = spooled(folder)
    assert payloads(rows) == [*range(1010)]
    echoes = [row["verdict"] for row in rows if row["direction"] == "echo"]
    assert len(echoes) == 10
    assert set(echoes) <= {Verdict.OWN, Verdict.DUPLICATE}, "the sender may have left when its echo came back"
    assert {row["host"] for row in rows} == {"here"}
    assert {row["channel"]: row["direction"] for row in rows if row["direction"] in ("out", "local")} == {
        "local/x": "local",
        "far/x": "out",
    }
    marks = bounds(rows)
    assert [verdict for verdict, _ in marks] == ["opened", "closed"] * (len(marks) // 2)
    assert [time for _, time in marks[1:-1:2]] == [time for _, time in marks[2::2]], (
        "each goes on where the one before it ends"
    )


def test_only_the_channels_asked_for_are_spooled(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with spooling(daemon, folder, "--channels", "local/a/>", "far/>"):
        for number, channel in enumerate(("local/a/x", "local/b/x", "far/x", "local/a")):
            publish(daemon, channel, range(number, number + 1))
        await_messages(folder, 2)
    assert payloads(spooled(folder)) == [0, 2]


def test_the_spooler_goes_on_when_the_daemon_is_back(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with spooling(daemon, folder, "--seconds=0.1"):
        publish(daemon, "local/x", range(10))
        assert daemon.terminate() == 0
        await_messages(folder, 10)
        daemon.start()
        wait_until(lambda: _tapped(daemon), "the tap")
        publish(daemon, "local/x", range(10, 20))
        await_messages(folder, 20)
    rows = spooled(folder)
    assert payloads(rows) == [*range(20)]
    times = [time for _, time in bounds(rows)]
    assert any(closed < opened for closed, opened in zip(times[1:-1:2], times[2::2], strict=True)), (
        "the gap shows"
    )
    inner = [row["verdict"] for row in rows if not row["direction"]]
    assert [verdict for verdict in inner if verdict in ("stopped", "returned")] == ["stopped", "returned"]


def _tapped(daemon: DaemonProcess) -> bool:
    with bccn.Client(str(daemon.socket)) as bus:
        return any(row["tap"] for row in bus.clients())


def test_a_kill_loses_only_unsynced_messages_and_numbers_go_on(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    process = start(folder, f"--socket={daemon.socket}", "--seconds=0.1")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    publish(daemon, "local/x", range(10))
    await_messages(folder, 10)
    process.kill()
    process.communicate()
    [before] = spool_files.listed(str(folder))
    (folder / f".{before.number + 1:017}.parquet.partial").write_bytes(b"half of one")
    with spooling(daemon, folder):
        publish(daemon, "local/x", range(10, 20))
        await_messages(folder, 20)
    assert payloads(spooled(folder)) == [*range(20)]
    numbers = [each.number for each in spool_files.listed(str(folder))]
    assert numbers == [*range(before.number, before.number + len(numbers))]


def test_a_full_spool_removes_the_oldest_and_counts_it(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with spooling(daemon, folder, "--seconds=0.05", "--bytes=20000"):
        for number in range(0, 1000, 100):
            publish(daemon, "local/x", range(number, number + 100))
            wait_until(lambda upto=number + 100: _newest(folder) >= upto, "its file")  # type: ignore[misc]
    rows = spooled(folder)
    there = payloads(rows)
    assert sum(each.size for each in spool_files.listed(str(folder))) <= 20_000 + 8_000
    assert there == [*range(1000 - len(there), 1000)]
    assert 0 < len(there) < 1000
    removed = [row["size"] for row in rows if row["verdict"] == "unrecorded"]
    assert sum(removed) == 1000 - len(there), "a removed file hands on what it counted"


def _asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def _newest(folder: Path) -> int:
    return max(payloads(spooled(folder)), default=-1) + 1


def test_a_full_disk_stops_nothing_but_writing(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with spooling(daemon, folder, "--seconds=0.1") as process:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        publish(daemon, "local/x", range(1000))
        assert process.stderr is not None
        assert b"File too large" in process.stderr.readline()
        publish(daemon, "local/x", range(1000, 2000))
        assert spool_files.listed(str(folder)) == []
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        await_messages(folder, 2000)
    assert payloads(spooled(folder)) == [*range(2000)]


def test_a_spool_has_one_spooler(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with spooling(daemon, folder):
        code, complaint = ended(start(folder, f"--socket={daemon.socket}"))
        assert (code, complaint) == (5, f"bccnd spool: {folder}: another spooler writes there\n")


def test_no_daemon_or_no_right_is_one_line(tmp_path: Path, loopback_port: int) -> None:
    code, complaint = ended(start(tmp_path / "spool", f"--socket={tmp_path / 'none'}"))
    assert (code, complaint.count("\n")) == (5, 1)
    settings = tmp_path / "bccnd.toml"
    settings.write_text("[[rights]]\nuid = 54321\ntap = true\n")
    flags = ["--config", str(settings), "--broadcast", LOOPBACK_BROADCAST, "--port", str(loopback_port)]
    with DaemonProcess(tmp_path, *flags) as daemon:
        code, complaint = ended(start(tmp_path / "spool", f"--socket={daemon.socket}"))
    assert (code, complaint.count("\n")) == (4, 1), complaint


def test_the_spooler_ends_once_nobody_reads(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    reader = spool.locked(str(folder), spool.READER)
    assert reader is not None
    process = start(folder, f"--socket={daemon.socket}", "--linger=0.1")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        publish(daemon, "local/x", range(10))
        await_messages(folder, 10)
        assert process.poll() is None, "a reader is there"
        os.close(reader)
        assert ended(process)[0] == 0
    finally:
        process.kill()
        process.communicate()


def test_a_lock_is_handed_over_without_a_gap(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    lock = spool.locked(str(folder), spool.SPOOLER)
    assert lock is not None
    os.set_inheritable(lock, True)
    process = spool.parse([str(folder), "--lock", str(lock)])
    assert process.lock == lock
    assert spool.locked(str(folder), spool.SPOOLER) is None
    os.close(lock)
    again = spool.locked(str(folder), spool.SPOOLER)
    assert again is not None
    os.close(again)


def test_sigterm_writes_what_was_read(daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    with spooling(daemon, folder, "--seconds=3600") as process:
        publish(daemon, "local/x", range(10))
        assert spool_files.listed(str(folder)) == []
        wait_until(lambda: _asleep(process.pid), "it to have read everything")
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0
    assert payloads(spooled(folder)) == [*range(10)]
