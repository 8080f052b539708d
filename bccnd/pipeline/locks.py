"""One program at a time does one kind of work in an output directory; the second one learns who the first is.

Rules
- The lock is one of the kernel on ``<output>/.<work>.lock``, so it ends with its holder, however that ends. The file
  says who holds it, and stays.
- Only a directory of this machine, or one that it mounts, can be locked. On ``hdfs://`` and the like whoever starts
  the programs sees to it that there is one.
"""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bccnd.errors import RefusedError, UnavailableError

# What is done to an output directory. Whoever reads needs no lock.
INGEST, ANALYSE, MAINTAIN = "ingest", "analyse", "maintain"


@contextmanager
def held(output: Path, *work: str) -> Iterator[None]:
    """Hold the locks of all this ``work`` in ``output``, which is made if it is missing.

    Raises UnavailableError if another process does such work there, RefusedError if nothing can be written or
    locked there.
    """
    with ExitStack() as stack:
        for each in sorted(work):
            stack.enter_context(_held(output, each))
        yield


def is_held(output: Path, work: str) -> bool:
    """Whether a process does such work there now."""
    try:
        with _held(output, work):
            return False
    except UnavailableError:
        return True


@contextmanager
def _held(output: Path, work: str) -> Iterator[None]:
    path = output / f".{work}.lock"
    try:
        output.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise RefusedError(f"{error.filename}: {error.strerror}; --output must be writable") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnavailableError(
                f"{output}: {_holder(descriptor)} is at work there ({work}); wait until it ends, or end it"
            ) from None
        except OSError as error:  # such as NFS without its lock service
            raise RefusedError(
                f"{path}: cannot be locked: {error.strerror}; give an --output on a file system that has locks"
            ) from None
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {socket.gethostname()}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    pid, _, host = os.pread(descriptor, 300, 0).decode("utf-8", "replace").partition(" ")
    if not pid.isdigit():  # it has just taken the lock
        return "another bccnd-pipeline"
    return f"bccnd-pipeline, pid {pid}{f' on host {host}' * (host != socket.gethostname())},"
