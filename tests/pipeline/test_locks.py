"""``bccnd/pipeline/locks.py``."""

import errno
import os
import subprocess
import sys
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
        assert locks.is_held(output, INGEST)
        holder.kill()
        holder.wait()
    with held(output, INGEST, ANALYSE):  # a kill leaves nothing behind
        assert (output / ".ingest.lock").read_text().split()[0] == str(os.getpid())


def test_other_work_goes_on_and_a_lock_can_be_taken_again(tmp_path: Path) -> None:
    with held(tmp_path, INGEST), held(tmp_path, ANALYSE):
        assert not locks.is_held(tmp_path, locks.MAINTAIN)
    assert not locks.is_held(tmp_path, INGEST)


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
