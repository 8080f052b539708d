"""The spooler: a process between the bus, which repeats nothing, and a query, which may have to.

    python -m bccnd.pipeline.source.spool DIR [--channels PATTERN ...]

It is the recorder (``bccnd.recorder``) with files of a second, in the place of one query (``spool_files``): it taps
the bus, or subscribes to patterns. ``readStream.format("bccn")`` starts a spooler where none runs.

Rules
- A spool has one spooler, which holds the lock of ``<spool>/spooler``. A program that starts one may have locked
  the file already and hands the descriptor over (``--lock``): at no moment could two start, or none.
- Without a daemon, or without the right to hear it, a spooler does not start. Later it waits for a daemon that goes.
- A file is finished ``--seconds`` after it began, if it has anything to say, or when it is full. ``kill -9`` loses
  that much, and what waits for the disk in BUFFER_BYTES. The marks of the files show it.
- The spool has at most ``--bytes``. Beyond that the oldest file goes, and a later one counts its messages.
- A spooler that a reader started ends ``--linger`` seconds after the last reader has gone: a query that is killed
  and started again misses nothing, and one that is not leaves nothing behind.
"""

import argparse
import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bccnd.errors import BccndError, ConfigError, UnavailableError
from bccnd.pipeline.source.spool_files import Spool
from bccnd.process import logs
from bccnd.process.standard_streams import STDOUT, CommandLine, OutputError, complain, guarded, write

if TYPE_CHECKING:
    from bccnd.recorder.files import Counts, Recording

# Seconds of traffic in one file.
SECONDS = 1.0
SPOOL_BYTES = 1 << 30
# A task reads a file as a whole, and needs a few times this much memory.
FILE_BYTES = 8 << 20
# Seconds of a flood, while a disk is slow.
BUFFER_BYTES = 64 << 20
# Seconds: a driver that crashed is running again by then, or will not be.
LINGER = 600.0
# Files that the spooler and the reader lock.
SPOOLER, READER = "spooler", "reader"
READY = b"ready\n"
# The name before its complaints.
PROGRAM = "bccnd spool"

# Seconds between two looks for readers.
LOOK_SECONDS = 1.0
# Seconds in which a process that is being killed, or only looks whether somebody is there, lets go of a lock.
LOCK_SECONDS = 5.0


def locked(spool: str, name: str, seconds: float = 0.0) -> int | None:
    """A descriptor that holds the lock of a file in the spool; None if somebody else holds it for ``seconds``."""
    Path(spool).mkdir(parents=True, exist_ok=True)
    descriptor = os.open(Path(spool) / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.01)
        else:
            return descriptor


class Spooler:
    """Runs the recorder until it is stopped, fails, or nobody reads any longer."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        # Loaded late: readers import this module, too, for its locks.
        from bccnd.recorder.files import Limits
        from bccnd.recorder.service import Recorder

        self._spool: str = arguments.spool
        self._linger: float = arguments.linger
        self._limits = Limits(
            rotate_seconds=arguments.seconds,
            rotate_bytes=FILE_BYTES,
            keep_bytes=arguments.bytes,
            group_bytes=FILE_BYTES,
            empty_files=False,
        )
        self._recorder = Recorder(
            arguments.socket, arguments.channels, self._recording, BUFFER_BYTES, self._fault
        )
        self._ended = threading.Event()
        self._faults: list[BaseException] = []
        # When a reader was last seen.
        self._read_at = time.monotonic()

    def stop(self, *_: object) -> None:
        self._ended.set()

    def run(self, lock: int) -> None:
        """Spool until the end. Raises what the recorder could not go on with."""
        self._recorder.tap.connect()
        # The process id, for people: it is there once nothing is missed any longer.
        os.pwrite(lock, b"%-10d\n" % os.getpid(), 0)
        write(STDOUT, READY)
        self._recorder.start()
        while not self._ended.wait(LOOK_SECONDS):
            self._look_for_readers()
        if not self._recorder.stop():
            complain(PROGRAM, f"{self._spool}: the disk takes nothing; not everything is there")
            # A thread that the disk holds would keep the interpreter from ending.
            os._exit(UnavailableError.exit_code)
        if self._faults:
            raise self._faults[0]

    def _recording(self, host: str, counts: "Counts") -> "Recording":
        from bccnd.recorder.files import Recording

        return Recording(Spool(self._spool, host, self._limits.keep_bytes), self._limits, counts)

    def _fault(self, error: BaseException) -> None:
        self._faults.append(error)
        self._ended.set()

    def _look_for_readers(self) -> None:
        if not Path(self._spool).is_dir():
            self._fault(ConfigError(f"{self._spool}: the directory is gone"))
        elif self._linger:
            now = time.monotonic()
            if (descriptor := locked(self._spool, READER)) is None:
                self._read_at = now
            else:
                os.close(descriptor)
            if now - self._read_at > self._linger:
                self._ended.set()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = CommandLine(
        prog="python -m bccnd.pipeline.source.spool",
        description="Keep what is on the bus for a streaming query (format bccn) until it has it.",
    )
    parser.add_argument("spool", metavar="DIR", help="the spool of one query")
    parser.add_argument("--socket", help="the daemon's socket (default: as for bccn)")
    parser.add_argument(
        "--channels", metavar="PATTERN", nargs="*", default=[], help="subscribe to these (default: tap)"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds of traffic in a file")
    parser.add_argument(
        "--bytes",
        type=int,
        default=SPOOL_BYTES,
        help="the most that the spool takes; the oldest file goes first",
    )
    parser.add_argument(
        "--linger", type=float, default=0.0, help="end this many seconds after the last reader"
    )
    # A descriptor that holds the lock.
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    return guarded(PROGRAM, _run)


def _run() -> int:
    arguments = parse()
    try:
        # Held until the process ends, however it does.
        lock = (
            arguments.lock if arguments.lock is not None else locked(arguments.spool, SPOOLER, LOCK_SECONDS)
        )
        if lock is None:
            raise UnavailableError(f"{arguments.spool}: another spooler writes there")
        spooler = Spooler(arguments)
        logs.configure("warning")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, spooler.stop)
        spooler.run(lock)
    except BccndError as error:
        complain(PROGRAM, str(error))
        return error.exit_code
    except OutputError:
        raise
    except OSError as error:
        complain(PROGRAM, f"{arguments.spool}: {error.strerror or error}")
        return UnavailableError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
