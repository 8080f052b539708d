"""The spooler: a process between the bus, which repeats nothing, and a query, which may have to.

    python -m bccnd.pipeline.source.spool DIR [--channels PATTERN ...]

    daemon --> Feed --> Block --> Writer (a thread) --> spool file --> query
                          ^         |
                          `---------'  BUFFERS of them go round

It taps the bus, or subscribes to patterns, and writes packets into spool files as they come. It takes nothing
apart, which leaves the time to read. ``readStream.format("bccn")`` starts a spooler where none runs.

Rules
- A spool has one spooler, which holds the lock of ``<spool>/spooler``. A program that starts one may have locked
  the file already and hands the descriptor over (``--lock``): at no moment could two start, or none.
- The thread that reads waits for nothing but the bus; the other syncs to the disk. When all blocks wait for a slow
  or full disk, reading stops: the daemon's queue for the spooler fills, and where it overflows the daemon says how
  many messages are missing, which the spool file keeps.
- A file is finished ``--seconds`` after its first packet, or when it is full. ``kill -9`` loses that much, and what
  is in the blocks. The marks of the files show it.
- The spool has at most ``--bytes``. Beyond that the oldest file goes, and a later one counts its messages as
  removed.
- When the daemon goes, the file ends. The next begins when the daemon is back.
- A spooler that a reader started ends ``--linger`` seconds after the last reader has gone: a query that is killed
  and started again misses nothing, and one that is not leaves nothing behind.
"""

import argparse
import fcntl
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import bccn
from bccn.feed import Block, Feed
from bccnd.errors import BccndError, ConfigError, RefusedError, UnavailableError
from bccnd.pipeline.source import spool_files
from bccnd.pipeline.source.spool_files import FILE_BYTES, Header, SpoolFile
from bccnd.process.standard_streams import STDOUT, CommandLine, OutputError, complain, guarded, write
from bccnd.wire.native import unpack
from bccnd.wire.sbus import LENGTH, PACK

# Seconds of traffic in one file.
SECONDS = 1.0
SPOOL_BYTES = 1 << 30
# Blocks of FILE_BYTES: seconds of a flood, while a disk is slow.
BUFFERS = 4
# Seconds: a driver that crashed is running again by then, or will not be.
LINGER = 600.0
# Files that the spooler and the reader lock.
SPOOLER, READER = "spooler", "reader"
READY = b"ready\n"
# The name before its complaints.
PROGRAM = "bccnd spool"
# The daemon takes back the tap or a subscription.
REVOKED = b"CMSG revoked\0"

# What the daemon keeps while the spooler stalls for a second.
QUEUE = "packets=65536 bytes=33554432 policy=drop-oldest"
# The longest wait for an empty block without looking at the clock and at signals.
TURN = 0.2
# Seconds between two looks for readers, and between two attempts to write to a full disk.
RETRY_SECONDS = 1.0
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


class Writer(threading.Thread):
    """Takes full blocks and gives back empty ones. ``fault``: why it cannot go on."""

    def __init__(self, spool: str, limit: int) -> None:
        super().__init__(name="writer", daemon=True)
        self._spool = spool
        self._limit = limit
        self._number = spool_files.next_number(spool)
        self.empty: queue.SimpleQueue[Block] = queue.SimpleQueue()
        self.full: queue.SimpleQueue[tuple[Header, Block] | None] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            self.empty.put(Block(FILE_BYTES, LENGTH.size))
        self.fault: BaseException | None = None
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Write what there is, and end."""
        self._stopping.set()
        self.full.put(None)
        self.join()

    def run(self) -> None:
        try:
            while item := self.full.get():
                header, block = item
                self._write(header, block)
                block.clear()
                self.empty.put(block)
        except BaseException as error:  # noqa: BLE001 - the thread that reads raises it
            self.fault = error

    def _write(self, header: Header, block: Block) -> None:
        excess = self._excess(block.used)
        header = replace(header, removed=_removed(excess))
        messages, frames = _count(block), _framed(block)
        reported = False
        while True:
            try:
                spool_files.write(self._spool, self._number, messages, header, frames)
                break
            except FileNotFoundError:
                raise ConfigError(f"{self._spool}: the directory is gone") from None
            except OSError as error:
                if self._stopping.is_set():
                    raise
                if not reported:
                    complain(
                        PROGRAM, f"{self._spool}: {error.strerror}; {messages} messages wait to be written"
                    )
                reported = True
                self._stopping.wait(RETRY_SECONDS)
        self._number += 1
        for each in excess:
            Path(each.path).unlink(missing_ok=True)

    def _excess(self, size: int) -> list[SpoolFile]:
        """The oldest files, as many as must go for one more to stay within the limit; never the newest."""
        there = spool_files.listed(self._spool)
        total = sum(each.size for each in there) + size
        excess = []
        for each in there[:-1]:
            if total <= self._limit:
                break
            total -= each.size
            excess.append(each)
        return excess


def _count(block: Block) -> int:
    """How many messages the packets hold."""
    memory = block.memory
    count = 0
    for start, end in zip(block.starts, block.ends, strict=True):
        inside = unpack(memory, start, end) if memory[start : start + len(PACK)] == PACK else None
        count += len(inside[0]) if inside else 1
    return count


def _framed(block: Block) -> memoryview:
    """The packets with their lengths in the gaps before them, as the file has them."""
    for start, end in zip(block.starts, block.ends, strict=True):
        LENGTH.pack_into(block.memory, start - LENGTH.size, end - start)
    return block.view[: block.used]


def _removed(excess: list[SpoolFile]) -> tuple[int, int] | None:
    """From when on how many messages go with these files, and have gone with those that they count."""
    if not excess:
        return None
    headers = [spool_files.header_of(each.path) for each in excess]
    before = [header.removed[1] for header in headers if header.removed]
    return headers[0].opened, sum(each.messages for each in excess) + sum(before)


class Spooler:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._spool: str = arguments.spool
        self._seconds: float = arguments.seconds
        self._linger: float = arguments.linger
        self._feed = Feed(arguments.socket, arguments.channels, queues=[QUEUE])
        self._writer = Writer(self._spool, arguments.bytes)
        self._stopping = False
        # When a reader was last seen.
        self._read_at = time.monotonic()

    def stop(self, *_: object) -> None:
        self._stopping = True
        self._feed.wake()

    def run(self) -> None:
        self._feed.connect()
        write(STDOUT, READY)
        self._writer.start()
        try:
            self._spool_connection()
            while not self._done() and self._reconnect():
                self._spool_connection()
        finally:
            self._feed.close()
            self._writer.stop()
        if self._writer.fault:
            raise self._writer.fault

    def _done(self) -> bool:
        if self._linger:
            now = time.monotonic()
            if (descriptor := locked(self._spool, READER)) is None:
                self._read_at = now
            else:
                os.close(descriptor)
            self._stopping |= now - self._read_at > self._linger
        return self._stopping or self._writer.fault is not None

    def _reconnect(self) -> bool:
        complain(PROGRAM, "the daemon is gone, waiting for it")
        while not self._done():
            try:
                self._feed.connect()
            except bccn.BccnError:  # also a refusal: the right may be granted again
                self._feed.pause()
            else:
                complain(PROGRAM, "the daemon is back")
                return True
        return False

    def _spool_connection(self) -> None:
        """Fill blocks until the connection ends, or the spooler stops."""
        opened = time.time_ns()
        connected = True
        while connected and (block := self._next_empty()):
            # Looked at before reading: what had come by then is spooled.
            done = self._done()
            connected = self._fill(block) and not done
            closed = time.time_ns()
            if block.used:
                self._writer.full.put((Header(self._feed.host, opened, closed, [*self._feed.local]), block))
            else:
                self._writer.empty.put(block)
            opened = closed

    def _next_empty(self) -> Block | None:
        """An empty block; None if the spooler stops before there is one."""
        while True:
            try:
                return self._writer.empty.get(timeout=TURN)
            except queue.Empty:
                if self._done():
                    return None

    def _fill(self, block: Block) -> bool:
        """Read until the block is due or full, or the spooler stops; False when the connection has ended."""
        due = float("inf")
        look = time.monotonic() + RETRY_SECONDS
        while True:
            stopping, before = self._stopping, len(block.starts)
            connected = self._feed.fill(block) and not _is_revoked(block, before)
            now = time.monotonic()
            if block.used:
                due = min(due, now + self._seconds)
            if not connected or block.full or now >= due or stopping:
                return connected
            if now >= look:
                look = now + RETRY_SECONDS
                if self._done():
                    return connected
            self._feed.wait(min(due, look) - now)


def _is_revoked(block: Block, first: int) -> bool:
    """Whether one of the packets from ``first`` on takes back what the connection was made for."""
    return any(block.memory[start : start + len(REVOKED)] == REVOKED for start in block.starts[first:])


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
        # The process id, for people.
        os.pwrite(lock, b"%-10d\n" % os.getpid(), 0)
        spooler = Spooler(arguments)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, spooler.stop)
        spooler.run()
    except (BccndError, bccn.BccnError) as error:
        complain(PROGRAM, str(error))
        return _exit_code(error)
    except OutputError:
        raise
    except OSError as error:
        complain(PROGRAM, f"{arguments.spool}: {error.strerror or error}")
        return UnavailableError.exit_code
    return 0


def _exit_code(error: BccndError | bccn.BccnError) -> int:
    match error:
        case BccndError():
            return error.exit_code
        case bccn.RefusedError():
            return RefusedError.exit_code
        case bccn.RejectedError():
            return ConfigError.exit_code
        case _:
            return UnavailableError.exit_code


if __name__ == "__main__":
    sys.exit(main())
