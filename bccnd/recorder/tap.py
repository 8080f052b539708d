"""The connection to the daemon, and the thread that does nothing but empty it.

Rules
- The socket holds a fraction of a second of traffic, so whoever reads it must not wait for anything else: packets are
  read into chunks, which others take apart. What finds no chunk is counted and forgotten, and the next one tried.
- The daemon's queue for us is as large as it allows, oldest out, and never ``block``: a recorder holds nobody up.
- A ping a second, answered in the order of everything else, tells up to when all has been read; its value is the time
  at which it was sent.
- When the daemon goes, it is waited for, and everything is asked for anew. The right to tap is not waited for.
"""

import json
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import closing
from errno import EACCES, EPERM

import structlog

from bccnd.errors import BccndError, ConfigError, ProtocolError, RefusedError, UnavailableError
from bccnd.recorder.inbox import ROOM, Chunk, Closed, Finished, Inbox, Lost, Opened
from bccnd.recorder.rows import Dropped, Ended, messages_in
from bccnd.wire.sbus import Cmsg

ANSWER_SECONDS = 10.0  # for one answer; a daemon that is busy needs milliseconds
BACKOFF_FIRST, BACKOFF_LIMIT = 0.05, 1.0  # seconds between two attempts to connect
PING_SECONDS = 1.0
HAND_OVER_SECONDS = 0.1  # between two chunks that are not full: each is work, however little is in it
LAST_SECONDS = 3.0  # to read what the daemon still has for us, once we leave
QUEUES = (
    b"packets=100000 bytes=67108864",
    b"packets=10000 bytes=8388608",
)  # the first that the daemon allows

log = structlog.get_logger()


class Tap:
    """``run`` is the thread; ``stop`` ends it from another. ``fault`` is called with what it cannot go on from."""

    def __init__(self, path: str, inbox: Inbox, fault: Callable[[BaseException], None]) -> None:
        self.path = path
        self.connected = False
        self.turned_at = time.monotonic()  # of the loop: it gets on
        self.unrecorded = 0  # messages that found no room here
        self._inbox = inbox
        self._fault = fault
        self._stop = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True
        os.eventfd_write(self._stop, 1)

    def run(self) -> None:
        try:
            backoff, told = BACKOFF_FIRST, ""
            while not self._stopping:
                try:
                    with closing(connect(self.path)) as tap:
                        backoff, told = BACKOFF_FIRST, ""
                        self._record(tap)
                except UnavailableError as error:
                    if str(error) != told:
                        told = str(error)
                        log.warning("no daemon, tried again", reason=told)
                self._wait(backoff)
                backoff = min(2 * backoff, BACKOFF_LIMIT)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the process must end with it
            self._fault(error)
        self._inbox.put(Finished())

    def _wait(self, seconds: float) -> None:
        self.turned_at = time.monotonic()
        select.select([self._stop], [], [], seconds)

    def _record(self, tap: socket.socket) -> None:
        opened = begin(tap)
        tap.setblocking(False)
        self._inbox.put(opened)
        self.connected = True
        closed_ns = None
        try:
            chunk = self._inbox.chunk()
            while chunk is None:  # the writer is far behind: nothing has been read from this connection yet
                self._wait(HAND_OVER_SECONDS)
                chunk = self._inbox.chunk()
            closed_ns = self._read(tap, chunk)
        finally:
            self.connected = False
            self._inbox.put(Closed(closed_ns))
        if not self._stopping:
            log.warning("the daemon has gone, tried again", socket=self.path)

    def _read(self, tap: socket.socket, chunk: Chunk) -> int | None:
        """Read until the connection ends, or until all is read after ``stop``; up to when, if that is known."""
        ready = select.poll()
        ready.register(tap, select.POLLIN)
        ready.register(self._stop, select.POLLIN)
        ping_at = handed_over = 0.0
        asked_ns, deadline = 0, float("inf")
        try:
            while True:
                self.turned_at = now = time.monotonic()
                if self._stopping and not asked_ns:
                    asked_ns, deadline = time.time_ns(), now + LAST_SECONDS
                    ready.unregister(self._stop)
                    _say(tap, Cmsg(b"tap", b"off"))
                elif now >= ping_at:
                    ping_at = now + PING_SECONDS
                    _say(tap, Cmsg(b"ping", b"%d" % time.time_ns()))
                if chunk.full or (chunk.used and self._inbox.idle and now - handed_over >= HAND_OVER_SECONDS):
                    chunk = self._hand_over(chunk)
                    handed_over = now
                if not self._drain(tap, chunk):
                    return None
                if asked_ns and (_is_off(chunk) or now > deadline):
                    return asked_ns if _is_off(chunk) else None
                if not chunk.full:
                    ready.poll((HAND_OVER_SECONDS if chunk.used else PING_SECONDS) * 1000)
        finally:
            self._inbox.give_back(self._hand_over(chunk))

    def _drain(self, tap: socket.socket, chunk: Chunk) -> bool:
        """Read all there is, or as much as fits; False when the connection has ended."""
        flags = socket.MSG_DONTWAIT | socket.MSG_TRUNC
        try:
            while not chunk.full:
                used = chunk.used
                length = tap.recv_into(chunk.view[used : used + ROOM], ROOM, flags)
                if not length:
                    return False
                if length > ROOM:
                    raise ProtocolError(
                        f"the daemon sent a packet of {length} bytes, at most {ROOM} are read"
                    )
                chunk.add(length)
                if self._stopping and _is_off(chunk):
                    return True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            # It left with words of ours unread: told once, and what it had sent is still there.
            return self._drain(tap, chunk)
        except OSError:
            return False
        return True

    def _hand_over(self, chunk: Chunk) -> Chunk:
        """Give the chunk to the writer; an empty one, which is the same if there is no other."""
        if not chunk.used:
            return chunk
        fresh = self._inbox.chunk()
        if fresh is not None:
            self._inbox.put(chunk)
            return fresh
        rows, others = messages_in(chunk.memory, chunk.starts, chunk.ends)
        chunk.clear()
        for item in others:
            match item:
                case Dropped(messages):
                    rows += messages
                case Ended(reason):
                    self.ended(reason)
        self.unrecorded += rows
        self._inbox.put(Lost(rows))
        return chunk

    def ended(self, reason: str) -> None:
        """What the daemon says of the connection's end."""
        if "revoked" in reason:
            self._fault(RefusedError(f"{self.path}: {reason}"))
        else:
            log.info(reason, socket=self.path)


def connect(path: str) -> socket.socket:
    """A connection to the daemon, on which nothing has been said. ``@name`` is abstract."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    made.settimeout(ANSWER_SECONDS)
    try:
        made.connect("\0" + path[1:] if path.startswith("@") else path)
    except OSError as error:
        made.close()
        if error.errno in (EACCES, EPERM):
            raise RefusedError(f"{path}: {error.strerror}; who may connect is said by its group") from None
        raise UnavailableError(f"{path}: {error.strerror}; is bccnd running?") from None
    return made


def begin(tap: socket.socket) -> Opened:
    """Have everything shown from now on. ``RefusedError`` without the right, ``UnavailableError`` if it goes."""
    try:
        status = json.loads(_ask(tap, b"status"))
        for queue in QUEUES:
            try:
                _ask(tap, b"queue", queue + b" policy=drop-oldest")
                break
            except ConfigError:
                continue  # the daemon's own will do
        _ask(tap, b"pack", b"on")
        _ask(tap, b"tap", b"interface")
    except OSError as error:
        raise UnavailableError(f"the daemon does not answer: {error.strerror or error}") from None
    local = tuple(pattern.encode() for pattern in status.get("local", ()))
    return Opened(time.time_ns(), str(status["host"]), local)


def _ask(tap: socket.socket, key: bytes, value: bytes = b"") -> bytes:
    tap.send(Cmsg(key, value).serialize())
    answer = tap.recv(ROOM)
    if not answer:
        raise UnavailableError("the daemon has closed the connection")
    control = Cmsg.parse(answer.removeprefix(b"CMSG "))
    if control.key == key:
        return control.value
    code, _, text = control.value.decode("ascii", "backslashreplace").partition(" ")
    faults: dict[str, type[BccndError]] = {"refused": RefusedError, "bad-value": ConfigError}
    fault = faults.get(code, UnavailableError)
    if key == b"tap" and fault is ConfigError:
        text = "this daemon cannot tell a tap where a datagram came by; install the same version of both"
    raise fault(f"the daemon says: {text}")


def _say(tap: socket.socket, request: Cmsg) -> None:
    """If it takes nothing now, it will hear it another time; if it has gone, reading tells."""
    try:
        tap.send(request.serialize(), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
    except OSError:
        return


def _is_off(chunk: Chunk) -> bool:
    """Whether the last packet read is, or ends with, the answer after which nothing comes."""
    end = chunk.used
    return chunk.memory[max(0, end - 12) : end] == b"CMSG tap\0off"
