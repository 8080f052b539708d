"""``bccnd/pipeline/locks.py``."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bccnd.errors import RefusedError, UnavailableError
from bccnd.pipeline import locks
from bccnd.pipeline.locks import ANALYSE, INGEST, held

HOLDER = """
import pathlib, sys
from bccnd.pipeline import locks
with locks.held(pathlib.Path(sys.argv[1]), *sys.argv[2:]):
    print("held", flush=True)
    sys.stdin.read()
"""


def fail(line: str) -> None:
    raise AssertionError(line)


def test_the_second_learns_the_pid_of_the_first(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(output), INGEST, ANALYSE],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        for work in INGEST, ANALYSE:
            with (
                pytest.raises(
                    UnavailableError, match=f"pid {holder.pid}, is at work there .{work}.; wait until"
                ),
                held(output, work),
            ):
                pass
        holder.kill()
        holder.wait()
    with held(output, INGEST, ANALYSE):  # a kill leaves nothing behind
        assert (output / ".ingest.lock").read_text().split()[0] == str(os.getpid())


def test_other_work_goes_on_and_a_lock_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(2):
        with held(tmp_path, INGEST), held(tmp_path, ANALYSE), held(tmp_path, locks.MAINTAIN):
            pass


def test_nobody_removes_while_somebody_reads(tmp_path: Path) -> None:
    with locks.reading(tmp_path, fail), locks.removing(tmp_path) as alone:
        assert not alone
        with locks.reading(tmp_path, fail), held(tmp_path, ANALYSE):
            pass  # it keeps out nobody
    with locks.removing(tmp_path) as alone:
        assert alone
        with held(tmp_path, ANALYSE):
            pass


def test_who_reads_waits_while_somebody_removes(tmp_path: Path) -> None:
    done, begun = list[str](), threading.Event()

    def read() -> None:
        begun.set()
        with locks.reading(tmp_path, [].append):
            done.append("read")

    reader = threading.Thread(target=read)
    with locks.removing(tmp_path) as alone:
        assert alone
        reader.start()
        begun.wait()
        done.append("removed")
    reader.join()
    assert done == ["removed", "read"]


REMOVER = """
import os, pathlib, signal, sys
from bccnd.pipeline import locks
with locks.removing(pathlib.Path(sys.argv[1])) as alone:
    assert alone
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_who_waits_for_a_stopped_removal_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "SILENT_SECONDS", 0.0)
    with subprocess.Popen([sys.executable, "-c", REMOVER, str(tmp_path)]) as remover:
        try:
            os.waitpid(remover.pid, os.WUNTRACED)
            said = list[str]()

            def say(line: str) -> None:
                said.append(line)
                remover.kill()  # and so the reader goes on

            with locks.reading(tmp_path, say):
                pass
        finally:
            remover.kill()
    (line,) = said
    assert line.startswith(
        f"{tmp_path}: waiting, as bccnd-pipeline, pid {remover.pid}, removes old files there; "
    )
    assert f"it is stopped: kill -CONT {remover.pid} lets it go on, kill -KILL {remover.pid} ends it" in line


@pytest.mark.needs("root")
def test_a_lock_that_root_makes_is_the_owners(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    (tmp_path / "another").touch()
    (tmp_path / ".analyse.lock").symlink_to("another")
    with held(tmp_path, INGEST), locks.reading(tmp_path, fail):
        pass
    with pytest.raises(RefusedError, match=r"analyse\.lock"), held(tmp_path, ANALYSE):
        pass
    assert {path.name: path.stat().st_uid for path in tmp_path.iterdir()} == {
        ".ingest.lock": 65534, ".reading.lock": 65534, ".analyse.lock": 0, "another": 0
    }  # fmt: skip


def test_who_fails_to_get_one_lock_keeps_none(tmp_path: Path) -> None:
    with held(tmp_path, INGEST), pytest.raises(UnavailableError), held(tmp_path, ANALYSE, INGEST):
        pass
    with held(tmp_path, ANALYSE, INGEST):
        pass


def test_a_holder_on_another_host_is_named_with_it(tmp_path: Path) -> None:
    with held(tmp_path, INGEST):
        (tmp_path / ".ingest.lock").write_text("4711 elsewhere")
        with (
            pytest.raises(UnavailableError, match="pid 4711 on host elsewhere, is at work"),
            held(tmp_path, INGEST),
        ):
            pass


def test_a_file_system_without_locks_is_nobody_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(locks.fcntl, "flock", flock)
    with (
        pytest.raises(RefusedError, match=r"ingest.lock: cannot be locked: No locks"),
        held(tmp_path, INGEST),
    ):
        pass


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(RefusedError, match=r"file.*--output must be writable"),
        held(tmp_path / "file", INGEST),
    ):
        pass
