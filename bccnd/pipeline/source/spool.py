"""The spooler: a process between the bus, which never repeats anything, and a query, which may have to.

    python -m bccnd.pipeline.source.spool DIR [--channels PATTERN ...]

Reads the bus as the tap does, or subscribed to patterns, and writes it into the spool's segments as it comes: nothing
is taken apart here, which leaves the time to read. ``readStream.format("bccn")`` starts one where none runs.

Rules
- One spooler per spool: it holds the lock of ``<spool>/spooler``. Who starts one may have locked it already and hands
  the descriptor over (``--lock``); so there is no moment at which two could start, or none.
- Two threads. The one that reads waits for nothing but the bus; the other syncs to the disk. Between them are
  ``BUFFERS`` of a segment each. When all wait for a slow or full disk, reading stops: then the daemon's queue
  for us fills, and where it overflows it says how many messages are missing, which the segment keeps.
- A segment is finished a second (``--seconds``) after its first packet, or when it is full: so much, and what is in
  the buffers when it is killed, a ``kill -9`` loses. The marks of the segments show it.
- The spool has at most ``--bytes``; beyond that the oldest segment goes, and is counted as removed in a later one.
- The daemon may go and come back: the segment ends, the next begins when there is a connection again.
- Started by a reader it ends ``--linger`` seconds after the last one has gone, so that a query which is killed and
  started again misses nothing, and nothing is left behind by one that is not.
"""

import argparse
import fcntl
import json
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from mmap import mmap
from pathlib import Path
from typing import Any

import bccn
from bccn.path import socket_address
from bccnd.errors import BccndError, ConfigError, RefusedError, UnavailableError
from bccnd.pipeline.source import segments
from bccnd.pipeline.source.segments import SEGMENT_BYTES, Header, Segment
from bccnd.wire.native import unpack
from bccnd.wire.sbus import LENGTH, PACK

SECONDS = 1.0  # of traffic in one segment
SPOOL_BYTES = 1 << 30
BUFFERS = 4  # of SEGMENT_BYTES each: seconds of a flood, while a disk is slow
LINGER = 600.0  # seconds: a driver that crashed is running again by then, or will not be
SPOOLER, READER = "spooler", "reader"  # files that are locked by whoever is that
READY = b"ready\n"
REVOKED = b"CMSG revoked\0"  # of the daemon, for a tap or a subscription

QUEUE = (
    "packets=65536 bytes=33554432 policy=drop-oldest"  # the daemon's, for us: what a second of stalling needs
)
PACKET_LIMIT = 128 << 10  # more than the daemon sends in one
TURN = 0.2  # seconds at most without looking at clock and signals
GREETING_SECONDS = 5.0
RETRY_SECONDS = 1.0  # to the daemon, to a full disk, for a lock
LOCK_SECONDS = 5.0  # who is just being killed, or looks whether somebody is there, lets go within

_TIMEVAL = struct.Struct("ll")


def locked(spool: str, name: str, seconds: float = 0.0) -> int | None:
    """A descriptor that holds the lock of a file there; None when somebody else has it for all these seconds."""
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


class Bus:
    """A connection that gives packets as they are. Raises ``UnavailableError`` without a daemon, ``RefusedError`` or
    ``ConfigError`` when it does not grant what is asked for."""

    def __init__(self, path: str, channels: Sequence[str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._early: list[bytes] = []
        try:
            self._socket.settimeout(GREETING_SECONDS)
            self._socket.connect(socket_address(path))
            for key, value in (("format", "full"), ("pack", "on"), ("queue", QUEUE)):
                self._ask(key, value)
            status: dict[str, Any] = json.loads(self._ask("status"))
            for pattern in channels:
                self._socket.send(b"SUB " + pattern.encode())
            self._ask(*(("ping", "") if channels else ("tap", "interface")))
        except PermissionError:
            self._socket.close()
            raise RefusedError(f"{path}: permission denied") from None
        except OSError as error:
            self._socket.close()
            raise UnavailableError(f"no daemon at {path}: {error.strerror or error}") from None
        except BaseException:
            self._socket.close()
            raise
        self.host: str = status["host"]
        self.local: list[str] = status["local"]
        self._socket.setblocking(True)
        seconds, fraction = divmod(TURN, 1)
        timeout = _TIMEVAL.pack(int(seconds), int(fraction * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)

    def _ask(self, key: str, value: str = "") -> str:
        self._socket.send(f"CMSG {key}\0{value}".encode())
        answers = {f"CMSG {'pong' if key == 'ping' else key}", "CMSG error"}
        while packet := self._socket.recv(PACKET_LIMIT):
            head, _, answer = packet.partition(b"\0")
            if head.decode("ascii", "replace") not in answers:
                self._early.append(packet)
            elif head != b"CMSG error":
                return answer.decode()
            else:
                text = answer.decode("utf-8", "replace")
                raise (RefusedError if text.startswith("refused") else ConfigError)(f"the daemon says {text}")
        raise UnavailableError("the daemon closed the connection")

    def receive_into(self, room: memoryview) -> int | None:
        """The length of the next packet; None when there was none for a while, 0 when the connection has ended."""
        if self._early:
            packet = self._early.pop(0)
            room[: len(packet)] = packet
            return len(packet)
        try:
            return self._socket.recv_into(room)
        except (BlockingIOError, ConnectionResetError):  # which is told once, before what is still there
            return None
        except OSError:
            return 0

    def close(self) -> None:
        self._socket.close()


class Filling:
    """A segment's worth of packets, each behind its length, as the file has them."""

    def __init__(self) -> None:
        self._memory = mmap(-1, SEGMENT_BYTES)
        self._view = memoryview(self._memory)
        self.begin("", [], 0)

    def begin(self, host: str, local: list[str], opened: int) -> None:
        self.host, self.local, self.opened, self.closed = host, local, opened, 0
        self.size = 0
        self.due = float("inf")  # on the monotonic clock

    @property
    def full(self) -> bool:
        return self.size + LENGTH.size + PACKET_LIMIT > SEGMENT_BYTES

    def receive(self, bus: Bus) -> int | None:
        """As ``Bus.receive_into``; a connection without the right that it was made for is none any more."""
        start = self.size + LENGTH.size
        length = bus.receive_into(self._view[start : start + PACKET_LIMIT])
        if not length:
            return length
        LENGTH.pack_into(self._memory, self.size, length)
        self.size = start + length
        return 0 if self._memory[start : start + len(REVOKED)] == REVOKED else length

    def frames(self) -> memoryview:
        return self._view[: self.size]

    def messages(self) -> int:
        memory = self._memory
        count = 0
        for start, end in segments.places(self.frames()):
            inside = unpack(memory, start, end) if memory[start : start + len(PACK)] == PACK else None
            count += len(inside[0]) if inside else 1
        return count


class Writer(threading.Thread):
    """Takes what is full, gives back what is written. ``fault``: why it cannot go on."""

    def __init__(self, spool: str, limit: int) -> None:
        super().__init__(name="writer", daemon=True)
        self._spool = spool
        self._limit = limit
        self._number = segments.next_number(spool)
        self.empty: queue.SimpleQueue[Filling] = queue.SimpleQueue()
        self.full: queue.SimpleQueue[Filling | None] = queue.SimpleQueue()
        for _ in range(BUFFERS):
            self.empty.put(Filling())
        self.fault: BaseException | None = None
        self._leaving = threading.Event()

    def leave(self) -> None:
        """Write what there is, and end."""
        self._leaving.set()
        self.full.put(None)
        self.join()

    def run(self) -> None:
        try:
            while filling := self.full.get():
                self._write(filling)
                self.empty.put(filling)
        except BaseException as error:  # noqa: BLE001 - the thread that reads raises it
            self.fault = error

    def _write(self, filling: Filling) -> None:
        excess = self._excess(filling.size)
        header = Header(filling.host, filling.opened, filling.closed, filling.local, _removed(excess))
        messages = filling.messages()
        told = False
        while True:
            try:
                segments.write(self._spool, self._number, messages, header, filling.frames())
                break
            except FileNotFoundError:
                raise ConfigError(f"{self._spool}: the directory is gone") from None
            except OSError as error:
                if self._leaving.is_set():
                    raise
                if not told:
                    complain(f"{self._spool}: {error.strerror}; {messages} messages wait to be written")
                told = True
                self._leaving.wait(RETRY_SECONDS)
        self._number += 1
        for each in excess:
            Path(each.path).unlink(missing_ok=True)

    def _excess(self, size: int) -> list[Segment]:
        """The oldest, so many that a segment more stays within the limit; never the newest."""
        there = segments.listed(self._spool)
        total = sum(each.size for each in there) + size
        excess = []
        for segment in there[:-1]:
            if total <= self._limit:
                break
            total -= segment.size
            excess.append(segment)
        return excess


def _removed(excess: list[Segment]) -> tuple[int, int] | None:
    """From when on how many messages go with these, and have gone with those of which they tell."""
    if not excess:
        return None
    headers = [segments.header_of(each.path) for each in excess]
    before = [header.removed[1] for header in headers if header.removed]
    return headers[0].opened, sum(each.messages for each in excess) + sum(before)


class Spooler:
    def __init__(self, arguments: argparse.Namespace) -> None:
        self._spool: str = arguments.spool
        self._path = bccn.socket_path(arguments.socket)
        self._channels: list[str] = arguments.channels
        self._seconds: float = arguments.seconds
        self._linger: float = arguments.linger
        self._writer = Writer(self._spool, arguments.bytes)
        self._leaving = False
        self._read_at = time.monotonic()  # when a reader was there, as far as we looked

    def leave(self, *_: object) -> None:
        self._leaving = True

    def run(self) -> None:
        bus: Bus | None = Bus(self._path, self._channels)
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        self._writer.start()
        try:
            while bus:
                try:
                    self._spool_from(bus)
                finally:
                    bus.close()
                bus = None if self._done() else self._reconnected()
        finally:
            self._writer.leave()
        if self._writer.fault:
            raise self._writer.fault

    def _done(self) -> bool:
        if self._linger:
            now = time.monotonic()
            if (descriptor := locked(self._spool, READER)) is None:
                self._read_at = now
            else:
                os.close(descriptor)
            self._leaving |= now - self._read_at > self._linger
        return self._leaving or self._writer.fault is not None

    def _reconnected(self) -> Bus | None:
        complain("the daemon is gone, waiting for it")
        while not self._done():
            try:
                bus = Bus(self._path, self._channels)
            except BccndError:  # whatever it is, it may be granted again
                time.sleep(RETRY_SECONDS)
            else:
                complain("the daemon is back")
                return bus
        return None

    def _spool_from(self, bus: Bus) -> None:
        """Until the connection ends, or it is time to leave."""
        opened = time.time_ns()
        length: int | None = None
        while length != 0 and (filling := self._next_empty()):
            filling.begin(bus.host, bus.local, opened)
            length = self._fill(filling, bus)
            opened = filling.closed = time.time_ns()
            if filling.size:
                self._writer.full.put(filling)
            else:
                self._writer.empty.put(filling)

    def _next_empty(self) -> Filling | None:
        while not self._done():
            try:
                return self._writer.empty.get(timeout=TURN)
            except queue.Empty:
                continue
        return None

    def _fill(self, filling: Filling, bus: Bus) -> int | None:
        """Until it is due or full; what the last attempt to receive gave."""
        look = time.monotonic() + RETRY_SECONDS
        while True:
            length = filling.receive(bus)
            now = time.monotonic()
            if length and filling.due > now + self._seconds:
                filling.due = now + self._seconds
            if length == 0 or filling.full or now >= filling.due or (self._leaving and not length):
                return length  # who leaves takes what is there
            if now >= look:
                look = now + RETRY_SECONDS
                if self._done():
                    return length


def complain(text: str) -> None:
    sys.stderr.write(f"bccnd spool: {text}\n")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bccnd.pipeline.source.spool",
        description="Keep what is on the bus for a streaming query (format bccn) until it has it.",
    )
    parser.add_argument("spool", metavar="DIR", help="the spool; one query's")
    parser.add_argument("--socket", help="the daemon's (default: as for bccn)")
    parser.add_argument(
        "--channels", metavar="PATTERN", nargs="*", default=[], help="only these; default: tap"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of traffic in a segment")
    parser.add_argument("--bytes", type=int, default=SPOOL_BYTES, help="at most; the oldest goes")
    parser.add_argument("--linger", type=float, default=0.0, help="end so many seconds after the last reader")
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)  # a descriptor that holds it
    return parser.parse_args(arguments)


def main() -> int:
    arguments = parse()
    try:
        # Held until the process ends, however it does.
        lock = (
            arguments.lock if arguments.lock is not None else locked(arguments.spool, SPOOLER, LOCK_SECONDS)
        )
        if lock is None:
            raise UnavailableError(f"{arguments.spool}: another spooler writes there")
        os.pwrite(lock, b"%-10d\n" % os.getpid(), 0)  # for people
        spooler = Spooler(arguments)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, spooler.leave)
        spooler.run()
    except BccndError as error:
        complain(str(error))
        return error.exit_code
    except OSError as error:
        complain(f"{arguments.spool}: {error.strerror or error}")
        return UnavailableError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
