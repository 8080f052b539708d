"""Replacing the running program without anybody noticing (SIGUSR2).

Two processes, one conversation over a socket pair; only one of them serves at any moment.

    the one that serves                          the successor: the same command line, started afresh
    starts it, goes on serving
                                                 reads settings and keys, builds its relay
                                      <- READY
    pauses: reads no socket any more
    state, descriptors                ->
                                                 takes them over
                                      <- TAKEN
    GO                                ->
    exits, closing nothing down                  serves

Rules
- Until GO the old program can go on as if nothing had been, and does when the successor fails, exits, or takes longer
  than PATIENCE to start or HANDOVER_SECONDS to take over; it says why, and the successor is killed before that.
- The successor reads nothing before GO, or before the old program is dead.
- Nothing is shut down: the descriptors are the same, what the pause holds up waits in the kernel's buffers.
- The state is plain values (``relay.succession``), so that the successor may be other code.
"""

import array
import asyncio
import contextlib
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any, BinaryIO

from bccnd.errors import BccndError, ConfigError, UnavailableError
from bccnd.process.systemd import notify

PATIENCE = 30.0  # seconds for a new program to start; the old one serves meanwhile
HANDOVER_SECONDS = 5.0  # for it to take over; everybody waits meanwhile
DESCRIPTORS_A_MESSAGE = 250  # the kernel passes at most 253 at once (SCM_MAX_FD)
VARIABLE = "BCCN_SUCCEED"  # names the descriptor of the conversation to the successor

READY, TAKEN, GO = b"ready", b"taken", b"go"
FAILED = b"failed "  # and why


class Successor:
    """The old program's side: a process that wants to take over."""

    def __init__(self, process: subprocess.Popen[bytes], talk: socket.socket) -> None:
        self._process = process
        self._talk = talk

    @classmethod
    async def start(cls, command: Sequence[str] | None = None) -> "Successor":
        """Start it and wait until it could take over. Raises ``UnavailableError`` that says why it cannot."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            try:
                process = subprocess.Popen(
                    command or [sys.executable, *sys.orig_argv[1:]],
                    env=os.environ | {VARIABLE: str(theirs.fileno())},
                    pass_fds=[theirs.fileno()],
                )
            except OSError as error:
                ours.close()
                raise UnavailableError(f"cannot start {sys.executable}: {error.strerror}") from None
        successor = cls(process, ours)
        try:
            await successor._expect(READY, PATIENCE)
        except asyncio.CancelledError:
            successor._failure("not wanted any more")
            raise
        return successor

    @property
    def pid(self) -> int:
        return self._process.pid

    async def hand_over(self, state: dict[str, Any], descriptors: Sequence[int]) -> None:
        """Everything, and GO. After it this process must only exit; when it raises, nothing has happened."""
        file = os.memfd_create("bccnd-state", os.MFD_CLOEXEC)
        with os.fdopen(file, "wb") as stream:
            pickle.dump(state, stream, protocol=4)
            stream.flush()
            everything = [file, *descriptors]
            for first in range(0, len(everything), DESCRIPTORS_A_MESSAGE):
                await self._send_descriptors(
                    everything[first : first + DESCRIPTORS_A_MESSAGE], len(everything)
                )
        await self._expect(TAKEN, HANDOVER_SECONDS)
        notify(f"MAINPID={self.pid}")
        self._talk.send(GO)

    async def _send_descriptors(self, descriptors: Sequence[int], of: int) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        while True:
            try:
                self._talk.sendmsg([b"%d" % of], rights)
                return
            except BlockingIOError:
                await asyncio.sleep(0.001)
            except OSError as error:
                raise self._failure(f"it left while it took over ({error.strerror})") from None

    async def _expect(self, word: bytes, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        try:
            answer = await asyncio.wait_for(loop.sock_recv(self._talk, 4096), seconds)
        except TimeoutError:
            raise self._failure(f"it was not {word.decode()} within {seconds:g} seconds") from None
        except OSError as error:
            raise self._failure(str(error)) from None
        if answer != word:
            why = answer.removeprefix(FAILED).decode(errors="replace") if answer else ""
            raise self._failure(why)

    def _failure(self, why: str) -> UnavailableError:
        """Make sure that it is gone before anything else happens here."""
        if not why:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            why = f"it left with code {self._process.returncode}"
        self._process.kill()
        self._process.wait()
        self._talk.close()
        return UnavailableError(why)


class Predecessor:
    """The successor's side of the conversation."""

    def __init__(self, talk: socket.socket) -> None:
        self._talk = talk

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> "Predecessor | None":
        """None when this process was started in the ordinary way. Takes the variable out of ``environ``."""
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

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """Say that we are ready; the state and the descriptors."""
        self._talk.send(READY)
        descriptors: list[int] = []
        expected = 1
        while len(descriptors) < expected:
            space = socket.CMSG_SPACE(4 * DESCRIPTORS_A_MESSAGE)
            data, control, _, _ = self._talk.recvmsg(64, space, socket.MSG_CMSG_CLOEXEC)
            if not data:
                raise UnavailableError("the daemon to succeed has left, or has given up")
            expected = int(data)
            for _, _, rights in control:
                passed = array.array("i")
                passed.frombytes(rights[: len(rights) - len(rights) % passed.itemsize])
                descriptors += passed
        with os.fdopen(descriptors.pop(0), "rb") as stream:
            stream.seek(0)
            state = load_state(stream)
        return state, descriptors

    def wait_for_go(self) -> None:
        """Everything is taken; return when we are the one that serves."""
        self._talk.send(TAKEN)
        # An end without GO: the old program is dead. Had it given up on us, it would have killed us first.
        self._talk.recv(16)
        self._talk.close()

    def say_failed(self, error: BaseException) -> None:
        with contextlib.suppress(OSError):
            self._talk.send(FAILED + str(error).encode()[:4000])


def load_state(stream: BinaryIO) -> dict[str, Any]:
    """The state that a predecessor wrote. Raises ``BccndError`` for what is none, or is not plain values."""
    try:
        state = _PlainUnpickler(stream).load()
    except _UNREADABLE as error:
        raise BccndError(f"the state cannot be read: {type(error).__name__}: {str(error)!a}") from None
    if not isinstance(state, dict):
        raise BccndError(f"the state is a {type(state).__name__}, not a dict")
    return state


# What the unpickler raises for damaged bytes (``pickle``, "UnpicklingError": "other exceptions may also be raised").
_UNREADABLE = (
    pickle.UnpicklingError, ArithmeticError, AttributeError, EOFError, ImportError, LookupError, MemoryError,
    RecursionError, TypeError, ValueError,
)  # fmt: skip


class _PlainUnpickler(pickle.Unpickler):
    """Builtins only: nothing that is read can name a class or call anything."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(stream)

    def find_class(self, module: str, name: str) -> Any:
        raise BccndError(f"the state names {f'{module}.{name}'!a}; only plain values are taken over")
