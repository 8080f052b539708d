"""One program at a time does one kind of work in an output directory; the second one learns who the first is.

Rules
- The lock is a kernel lock on ``<output>/.<work>.lock``, so it ends with its holder, however that ends. The file says
  who holds it, and stays.
- Nothing is removed under a reader: readers share ``.reading.lock``, and a program that removes holds it alone. Such
  a program never waits for the lock, and holds it for one removal at a time. A reader that waits longer names the
  holder.
- A lock file that root makes belongs to the owner of the directory, who needs it as well. A link is not followed.
- Only a directory of this machine, or one that it mounts, can be locked. On ``hdfs://`` and the like the user must
  see to it that only one program runs.
"""

import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bccnd.errors import RefusedError, UnavailableError

# What is done to an output directory by one at a time.
INGEST, ANALYSE, MAINTAIN = "ingest", "analyse", "maintain"
_READING = "reading"
# A removal takes less, unless it was stopped.
SILENT_SECONDS = 3.0


@contextmanager
def held(output: Path, *work: str) -> Iterator[None]:
    """Hold the locks of all this ``work`` in ``output``, which is made if it is missing.

    Raises UnavailableError if another process does such work there, RefusedError if nothing can be written or
    locked there.
    """
    with ExitStack() as stack:
        for each in sorted(work):
            descriptor = stack.enter_context(_opened(output, each))
            if not _locked(output, each, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
                raise UnavailableError(
                    f"{output}: {_holder(descriptor)} is at work there ({each}); wait until it ends, or end it"
                )
            _sign(descriptor)
        yield


@contextmanager
def reading(output: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Let nobody remove anything there meanwhile; waits for a removal that is going on, and after SILENT_SECONDS
    ``say``s so. Raises as ``held``.
    """
    with _opened(output, _READING) as descriptor:
        if not _locked(output, _READING, descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB):
            waiting = threading.Timer(SILENT_SECONDS, lambda: say(_waits(output, descriptor)))
            waiting.start()
            try:
                _locked(output, _READING, descriptor, fcntl.LOCK_SH)
            finally:
                waiting.cancel()
                waiting.join()
        yield


@contextmanager
def removing(output: Path) -> Iterator[bool]:
    """Whether nobody reads there, and then nobody begins to meanwhile. Raises as ``held``."""
    with _opened(output, _READING) as descriptor:
        if alone := _locked(output, _READING, descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB):
            _sign(descriptor)
        yield alone


@contextmanager
def _opened(output: Path, name: str) -> Iterator[int]:
    """The file of a lock, made if it is missing. To close it ends the lock."""
    path = _path(output, name)
    try:
        output.mkdir(parents=True, exist_ok=True)
        descriptor = _made(path, output.stat())
    except OSError as error:
        raise RefusedError(f"{error.filename or path}: {error.strerror}; --output must be writable") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _made(path: Path, folder: os.stat_result) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o640)
    except FileExistsError:
        return os.open(path, flags)
    if os.geteuid() == 0:
        os.fchown(descriptor, folder.st_uid, folder.st_gid)
    return descriptor


def _locked(output: Path, name: str, descriptor: int, how: int) -> bool:
    """Whether it is now; False if somebody else holds it, and ``how`` does not wait."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError as error:  # such as NFS without its lock service
        raise RefusedError(
            f"{_path(output, name)}: cannot be locked: {error.strerror}; "
            "give an --output on a file system that has locks"
        ) from None
    return True


def _path(output: Path, name: str) -> Path:
    return output / f".{name}.lock"


def _sign(descriptor: int) -> None:
    """Say in the file of a lock who holds it."""
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}".encode(), 0)


def _signed(descriptor: int) -> tuple[str, str]:
    """The pid and the host of the holder, as far as they are there."""
    pid, _, host = os.pread(descriptor, 300, 0).decode("utf-8", "replace").partition(" ")
    return pid, host


def _waits(output: Path, descriptor: int) -> str:
    pid, host = _signed(descriptor)
    remedy = "wait until it ends, or end it"
    if host == socket.gethostname() and _is_stopped(pid):
        remedy = f"it is stopped: kill -CONT {pid} lets it go on, kill -KILL {pid} ends it and loses nothing"
    return f"{output}: waiting, as {_holder(descriptor)} removes old files there; {remedy}"


def _is_stopped(pid: str) -> bool:
    try:
        status = Path("/proc", pid, "stat").read_text(errors="replace")
    except OSError:  # it has ended, or there is no /proc
        return False
    return status.rpartition(") ")[2][:1] in {"T", "t"}


def _holder(descriptor: int) -> str:
    pid, host = _signed(descriptor)
    if not pid.isdigit():  # it has just taken the lock
        return "another bccnd-pipeline"
    return f"bccnd-pipeline, pid {pid}{f' on host {host}' * (host != socket.gethostname())},"
