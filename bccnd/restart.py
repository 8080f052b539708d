"""Replaces the running program while its clients stay connected (SIGUSR2).

Two processes hold one conversation over a socket pair. Only one of them serves at any moment.

    the old program, which serves                the successor: the same command line, started afresh
    starts it, goes on serving
                                                 reads settings and keys
                                      <- READY
    pauses: stops reading every socket
    sends state, descriptors          ->
                                                 takes them over
                                      <- TAKEN
    sends GO                          ->
                                                 reads GO, closes the conversation, serves
    sees the end, exits; shuts nothing down

Rules
- Until the successor has read GO, the old program can go on as if nothing had happened. It does so when the
  successor fails, exits, or takes longer than START_SECONDS to start or HANDOVER_SECONDS for a half of the
  hand-over. It kills the successor first, and reports why.
- If the successor dies before it has read GO, the kernel ends the conversation with a reset instead of a clean end.
  So the old program knows which of the two serves.
- The successor reads no other socket before GO, or before the old program is dead.
- Nothing is shut down: the successor has the same descriptors, and whatever the pause holds up waits in the kernel's
  buffers.
- A descriptor has a name, and its user asks for it by that name: ``listener``, ``lock``, ``segment/0``, ``metrics``,
  ``client/7``. The names travel in the state, in the order in which the descriptors are sent.
- The state is plain values (``relay.succession``), because the successor may be other code.
- Signals that come to the old program meanwhile are passed on once the successor serves (``Replacement``).
"""

import array
import asyncio
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping, Sequence
from typing import Any, BinaryIO

import structlog

from bccnd.errors import BccndError, ConfigError, UnavailableError
from bccnd.process.fatal import unless_out_of_memory
from bccnd.process.systemd import notify

# Seconds that a new program may take to start, while the old one serves.
START_SECONDS = 30.0

# Seconds that each half of the hand-over may take, while everybody waits.
HANDOVER_SECONDS = 5.0

# Seconds from the end of the conversation to the exit of the successor, whose exit code is reported.
EXIT_SECONDS = 1.0

# Descriptors sent with one message; the kernel allows 253 (SCM_MAX_FD).
DESCRIPTORS_A_MESSAGE = 250

# The environment variable that names the descriptor of the conversation to the successor.
VARIABLE = "BCCN_SUCCEED"

# Blocked from the start until the program handles them.
EARLY_SIGNALS = {signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}

# Blocked as well in a successor that has begun to take over.
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}

READY, TAKEN, GO = b"ready", b"taken", b"go"
FAILED = b"failed "  # followed by the reason

# The key in the state under which the names of the descriptors stand.
NAMES = "descriptors"

# The state in plain values, and the descriptors by name.
Legacy = tuple[dict[str, Any], Mapping[str, int]]

log = structlog.get_logger()


class Replacement:
    """What signals do to a program that serves: SIGTERM and SIGINT set ``stop``, SIGHUP calls ``reload``, and SIGUSR2
    starts a successor.

    ``leave`` pauses everything and returns what the successor needs; ``resume`` takes that back when it fails.
    ``paused``: from the one to the other, and to the end where it does not fail.
    """

    def __init__(
        self,
        stop: asyncio.Event,
        reload: Callable[[], None],
        leave: Callable[[], Legacy],
        resume: Callable[[], None],
    ) -> None:
        self._stop = stop
        self._reload = reload
        self._leave = leave
        self._resume = resume
        self._reloaded = False  # since the successor was started
        self._succession: asyncio.Task[bool] | None = None
        self.paused = False

    def watch(self) -> None:
        """Handle these signals from now on, and let those in that were blocked. SIGUSR1 has its handler before."""
        loop = asyncio.get_running_loop()
        for signum in STOP_SIGNALS:
            loop.add_signal_handler(signum, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._on_reload)
        loop.add_signal_handler(signal.SIGUSR2, self._begin)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY_SIGNALS | STOP_SIGNALS)

    async def ended(self) -> bool:
        """Wait for ``stop``. True if a successor serves. One that has not begun to take over is killed."""
        await self._stop.wait()
        if self._succession is None:
            return False
        if not self.paused:
            self._succession.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            return await self._succession
        return False

    def _on_reload(self) -> None:
        self._reloaded = True
        self._reload()

    def _begin(self) -> None:
        if self._succession is None and not self._stop.is_set():
            self._succession = asyncio.get_running_loop().create_task(self._succeed())

    async def _succeed(self) -> bool:
        """Start a new process and hand over to it. Returns False when that failed, and everything is as before."""
        self._reloaded = False
        try:
            successor = await Successor.start()
            await successor.hand_over(self._pause)
        except Exception as error:  # a fault of ours is no reason to leave everybody waiting
            unless_out_of_memory(error)
            expected = isinstance(error, BccndError)
            log.error("not replaced, still serving", reason=str(error), exc_info=None if expected else error)
        else:
            log.info("replaced", pid=os.getpid(), by=successor.pid)
            if self._stop.is_set():  # asked to stop while it was too late to stop here
                os.kill(successor.pid, signal.SIGTERM)
            if self._reloaded:  # it may have read the settings before
                os.kill(successor.pid, signal.SIGHUP)
            self._stop.set()
            return True
        if self.paused:
            self.paused = False
            self._resume()
        self._succession = None
        return False

    def _pause(self) -> Legacy:
        self.paused = True
        return self._leave()


class Successor:
    """The process that takes over, as the old program sees it."""

    def __init__(self, process: subprocess.Popen[bytes], talk: socket.socket) -> None:
        self._process = process
        self._talk = talk

    @classmethod
    async def start(cls, command: Sequence[str] | None = None) -> "Successor":
        """Start ``command``, by default the one this process was started with, and wait until it is ready.

        Raises ``UnavailableError``, with the reason, when it fails.
        """
        command = command or [sys.executable, *sys.orig_argv[1:]]
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise UnavailableError(f"cannot talk to a new program: {error.strerror}") from None
        ours.setblocking(False)
        with theirs:
            try:
                process = subprocess.Popen(
                    command,
                    env=os.environ | {VARIABLE: str(theirs.fileno())},
                    pass_fds=[theirs.fileno()],
                )
            except OSError as error:
                ours.close()
                raise UnavailableError(f"cannot start {command[0]}: {error.strerror}") from None
        successor = cls(process, ours)
        async with successor._killed_on_failure(START_SECONDS, "ready"):
            await successor._expect(READY)
        return successor

    @property
    def pid(self) -> int:
        return self._process.pid

    async def hand_over(self, leave: Callable[[], Legacy]) -> None:
        """Call ``leave``, which pauses everything here, and hand over the state and descriptors that it returns.

        On return the successor serves, and this process may only exit. When this raises, the successor is dead and
        has done nothing, and this process must go on. Raises ``UnavailableError`` with the reason, or whatever
        ``leave`` raises.
        """
        async with self._killed_on_failure(HANDOVER_SECONDS, "done with taking over"):
            state, descriptors = leave()
            await self._send(state, descriptors)
            await self._expect(TAKEN)
        async with self._killed_on_failure(HANDOVER_SECONDS, "serving"):
            self._talk.send(GO)
            # Returns at a clean end; raises ConnectionResetError if the successor died before it read GO.
            await self._receive()
        self._talk.close()
        notify(f"MAINPID={self.pid}")

    async def _send(self, state: dict[str, Any], descriptors: Mapping[str, int]) -> None:
        with os.fdopen(os.memfd_create("bccnd-state", os.MFD_CLOEXEC), "wb") as stream:
            pickle.dump(state | {NAMES: list(descriptors)}, stream, protocol=4)
            stream.flush()
            everything = [stream.fileno(), *descriptors.values()]
            for first in range(0, len(everything), DESCRIPTORS_A_MESSAGE):
                part = array.array("i", everything[first : first + DESCRIPTORS_A_MESSAGE])
                await self._send_descriptors(b"%d" % len(everything), part)

    async def _send_descriptors(self, total: bytes, descriptors: "array.array[int]") -> None:
        while True:
            try:
                self._talk.sendmsg([total], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
                return
            except BlockingIOError:
                await asyncio.sleep(0.001)

    async def _expect(self, word: bytes) -> None:
        answer = await self._receive()
        if answer.startswith(FAILED):
            raise UnavailableError(answer.removeprefix(FAILED).decode(errors="replace"))
        if answer != word:
            raise ConnectionResetError

    async def _receive(self) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self._talk, 4096)

    @contextlib.asynccontextmanager
    async def _killed_on_failure(self, seconds: float, step: str) -> AsyncIterator[None]:
        """Kill the successor when anything goes wrong within, or when ``step`` takes longer than ``seconds``.

        Raises ``UnavailableError`` for a fault of the successor.
        """
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            self._kill()
            raise UnavailableError(f"the new program was not {step} within {seconds:g} seconds") from None
        except ConnectionError:
            await self._wait_for_exit()
            raise UnavailableError(f"the new program left with code {self._kill()}") from None
        except OSError as error:
            self._kill()
            raise UnavailableError(f"cannot talk to the new program: {error.strerror}") from None
        except BaseException:
            self._kill()
            raise

    async def _wait_for_exit(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_SECONDS):
                while self._process.poll() is None:
                    await asyncio.sleep(0.001)

    def _kill(self) -> int:
        """Kill it. Returns its exit code, or minus the signal that ended it."""
        self._process.kill()
        self._talk.close()
        return self._process.wait()


class Predecessor:
    """The old program, as the successor sees it."""

    def __init__(self, talk: socket.socket) -> None:
        self._talk = talk

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> "Predecessor | None":
        """The predecessor of this process, or None when it has none. Takes VARIABLE out of ``environ``.

        Raises ``ConfigError`` when VARIABLE names no socket.
        """
        number = environ.pop(VARIABLE, "")
        if not number:
            return None
        try:
            talk = socket.socket(fileno=int(number))
        except (ValueError, OSError):
            raise ConfigError(
                f"{VARIABLE}={number}: is set by a running bccnd for its successor, not by hand"
            ) from None
        talk.set_inheritable(False)
        return cls(talk)

    def receive(self) -> Legacy:
        """Report that this process is ready, and wait for the state and the descriptors.

        Raises ``UnavailableError`` when the old program leaves or gives up, and ``ConfigError`` when it is of a
        version that does not name its descriptors.
        """
        try:
            self._talk.send(READY)
            stream_number, *descriptors = self._receive_descriptors()
        except OSError as error:
            raise UnavailableError(f"the old program has left ({error.strerror})") from None
        with os.fdopen(stream_number, "rb") as stream:
            stream.seek(0)
            state = load_state(stream)
        names = state.pop(NAMES, None)
        if not isinstance(names, list) or len(names) != len(descriptors):
            raise ConfigError("cannot take over descriptors that have no names; stop and start")
        return state, dict(zip(names, descriptors, strict=True))

    def _receive_descriptors(self) -> list[int]:
        descriptors: list[int] = []
        expected = 1
        while len(descriptors) < expected:
            space = socket.CMSG_SPACE(4 * DESCRIPTORS_A_MESSAGE)
            data, control, flags, _ = self._talk.recvmsg(64, space, socket.MSG_CMSG_CLOEXEC)
            if not data:
                raise UnavailableError("the old program has left, or has given up")
            if flags & socket.MSG_CTRUNC:
                raise UnavailableError(f"too few file descriptors allowed, {data.decode()} are needed")
            expected = int(data)
            for _, _, rights in control:
                passed = array.array("i")
                passed.frombytes(rights[: len(rights) - len(rights) % passed.itemsize])
                descriptors += passed
        return descriptors

    def wait_for_go(self) -> None:
        """Report that everything is taken over, and wait for GO. On return this process may serve."""
        # An end without GO means that the old program is dead: had it given up, it would have killed this process.
        with contextlib.suppress(ConnectionError):
            self._talk.send(TAKEN)
            self._talk.recv(16)
        self._talk.close()

    def report_failure(self, error: BaseException) -> None:
        """Give the old program the reason why this process cannot take over."""
        with contextlib.suppress(OSError):
            self._talk.send(FAILED + str(error).encode()[:4000])


def load_state(stream: BinaryIO) -> dict[str, Any]:
    """Read the state that a predecessor wrote.

    Raises ``BccndError`` for damaged bytes, and for anything but plain values.
    """
    try:
        state = _PlainUnpickler(stream).load()
    except _UNREADABLE as error:
        raise BccndError(f"the state cannot be read: {type(error).__name__}: {str(error)!a}") from None
    if not isinstance(state, dict):
        raise BccndError(f"the state is a {type(state).__name__}, not a dict")
    return state


# The exceptions of the unpickler for damaged bytes; its documentation leaves the list open.
_UNREADABLE = (
    pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, ImportError, LookupError, MemoryError,
    RecursionError, TypeError, ValueError,
)  # fmt: skip


class _PlainUnpickler(pickle.Unpickler):
    """Reads plain values only: the bytes cannot name a class or call anything."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)

    def find_class(self, module: str, name: str) -> Any:
        raise BccndError(f"the state names {f'{module}.{name}'!a}; only plain values are taken over")
