"""A transport through a door: packets as messages of a bpmux duplex over a stream (``clients/BPMUX.md``, "Sessions").

A thread carries them. The client has one end of a socketpair, which is to it as the daemon's socket is, and the
thread has the other. So a program that computes for minutes keeps its connection: the thread answers heartbeats.

Rules:
1. The thread alone touches the stream and what lies over it. It shares no lock with the client, whose calls wait for
   the pair as they wait for a daemon.
2. The door gets credit anew for what the pair has taken. A program that does not read fills the pair and the window;
   then its queue in the daemon fills. Of the client the thread takes only what the door has given credit for.
3. Whatever ends the connection is the ``fault``, which the client raises when it has read what came before.
4. What a client had sent before it closed still goes, within LINGER_SECONDS, also at the end of the program.
5. A child of fork has copies of the descriptors and no thread: it closes them.
"""

import atexit
import errno
import os
import select
import signal
import socket
from collections import deque
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep

from bccn.errors import BccnError, ProtocolError, UnavailableError, rejected
from bccn.transport import MEMORY_PAUSE, NO_SIGNAL, PACKET_LIMIT, Credentials, Transport, off_standard
from bccn_door.address import connected, fault
from bpmux.endpoint import Endpoint
from bpmux.entities import Channel
from bpmux.errors import BpmuxError
from bpmux.events import Closed, Ended, Event, Message, Silent

# Bytes that the door may send before the pair takes more.
WINDOW = 256 * 1024
# Bytes read at once, and made of what waits.
PIECE = 64 * 1024
# Bytes of acknowledgements, credit and pongs that the door does not read, above which nothing is read of it.
REPLIES_LIMIT = 64 * 1024
# Seconds for what a client had sent before it closed.
LINGER_SECONDS = 2.0
# The kernel doubles it, and takes no packet that fills the buffer but for 32 bytes: none longer than PACKET_LIMIT.
SEND_BUFFER = (PACKET_LIMIT + 32) // 2

HANGUP = select.POLLHUP | select.POLLERR
NEVER = float("inf")


class StreamTransport(Transport):
    """A connection through the door at ``address``. It is being made when this returns: whether there is one, and why
    not, is known as the daemon's answer is.
    """

    def __init__(self, address: str, credentials: Credentials) -> None:
        self.path = address
        near, far = map(off_standard, socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        near.setblocking(False)
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._use(near)
        self._carrier = Carrier(address, credentials, far)
        self._carrier.start()

    def receive_into(self, memory: bytearray | memoryview) -> int | None:
        try:
            return super().receive_into(memory)
        except UnavailableError as error:
            raise (self._carrier.fault or error).with_traceback(None) from None

    def close(self) -> None:
        if self._pid != os.getpid():
            self._carrier.close_copies()
        super().close()


class Carrier(Thread):
    """Between ``far``, the other end of the pair, and the door. It ends with either."""

    fault: BccnError | None = None  # set before the pair is closed
    _stream: socket.socket | None = None

    def __init__(self, address: str, credentials: Credentials, far: socket.socket) -> None:
        super().__init__(name="bccn", daemon=True)
        self._address, self._credentials, self._far = address, credentials, far
        far.setblocking(False)
        self._arrived: deque[bytes] = deque()  # for the client, while the pair has no room
        self._unsent = b""
        self._leaves_at = NEVER  # once the client has closed
        self._closed = self._over = False  # our way of the session; all of it

    def start(self) -> None:
        _carriers.add(self)
        super().start()

    def run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the program's
        try:
            self._stream = connected(self._address, self._credentials)
            with self._stream as stream:
                stream.setblocking(False)
                self._carry(stream)
        except BccnError as error:
            self.fault = error
        except BpmuxError as error:
            self.fault = ProtocolError(f"what listens at {self._address} is no door: {error}")
        except OSError as error:
            self.fault = fault(error, self._address, stood=self._stream is not None)
        finally:
            self._drain()
            self._far.close()
            _carriers.discard(self)

    def leave(self) -> None:
        """Take no more of the client, and wait until all that it sent is gone. For the end of the program."""
        with suppress(OSError):
            self._far.shutdown(socket.SHUT_RD)
        if self._stream is not None:
            self.join(LINGER_SECONDS)

    def close_copies(self) -> None:
        """In a child of fork, where the thread is not."""
        self._far.close()
        if self._stream is not None:
            self._stream.close()

    # --- the thread ---

    def _carry(self, stream: socket.socket) -> None:
        self._endpoint = Endpoint(monotonic())
        bus = self._endpoint.open_duplex(b"bus", WINDOW)
        if bus is None:
            raise AssertionError("a new connection has room for a channel")
        self._bus: Channel = bus
        poll, polled = select.poll(), (-1, -1, False)
        while not self._over and monotonic() < self._leaves_at:
            is_full = not self._send(stream)
            reads = self._endpoint.replies < REPLIES_LIMIT
            takes = self._room() > 0
            of_stream = select.POLLIN * reads | select.POLLOUT * is_full
            of_far = select.POLLIN * takes | select.POLLOUT * bool(self._arrived)
            is_done = not takes and self._leaves_at != NEVER
            if polled != (of_stream, of_far, is_done):
                polled = of_stream, of_far, is_done
                poll.register(stream, of_stream)
                poll.register(self._far, of_far)
                if is_done:  # a pair that is closed says so over and over
                    poll.unregister(self._far)
            until = min(self._endpoint.deadline, self._leaves_at)
            ready = dict(poll.poll(max(0.0, until - monotonic()) * 1000 + 1))
            if ready.get(stream.fileno()):
                self._receive(stream)
            if ready.get(self._far.fileno(), 0) & ~select.POLLOUT:
                self._take(ready[self._far.fileno()])
            self._hand_over()
            if self._endpoint.deadline <= monotonic():
                self._see_to(self._endpoint.expire(monotonic()))
        self._send(stream)

    def _drain(self) -> None:
        """The client still gets what came before the end."""
        poll = select.poll()
        poll.register(self._far, select.POLLOUT)
        while self._arrived:
            poll.poll()
            self._hand_over()

    def _receive(self, stream: socket.socket) -> None:
        """All that is there: no more than there is credit for."""
        while True:
            try:
                data = stream.recv(PIECE)
            except OSError as error:
                if _would_block(error):
                    return
                raise
            if not data:
                self._end(UnavailableError(f"the door at {self._address} went away"))
                return
            self._see_to(self._endpoint.receive(data, monotonic()))

    def _see_to(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Message) and event.channel is self._bus:
                self._arrived.append(event.payload)
            # The bus, or all of the connection with a reason.
            elif isinstance(event, Closed) and (event.entity is self._bus or event.payload):
                self._end(_reason(event.payload))
            elif isinstance(event, Ended) and event.entity is self._bus:
                self._over = True
            elif isinstance(event, Silent):
                self._end(UnavailableError(f"the door at {self._address} does not answer"))

    def _end(self, error: BccnError) -> None:
        self.fault, self._over = self.fault or error, True

    def _take(self, events: int) -> None:
        """What the client sends. When it has closed, and all that it had sent is taken, so is the session."""
        if events & HANGUP and self._leaves_at == NEVER:
            self._leaves_at = monotonic() + LINGER_SECONDS
        room = self._room()
        while room > 0:
            try:
                packet = self._far.recv(PACKET_LIMIT)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it closed before it had read all
                continue
            if not packet:
                self._leaves_at = min(self._leaves_at, monotonic() + LINGER_SECONDS)
                self._closed = True
                self._endpoint.close(self._bus)
                return
            self._endpoint.send(self._bus, packet)
            room -= len(packet)

    def _room(self) -> int:
        """Bytes that may be taken of the client, and of the last packet all that there is."""
        if self._closed or self._endpoint.waiting(self._bus) > PIECE:
            return 0
        room = min(self._endpoint.room(self._bus), PIECE)
        if not room:
            self._endpoint.await_credit(self._bus)
        return room

    def _hand_over(self) -> None:
        """To the client, as much as the pair takes; the door has credit for so much more then."""
        size = 0
        with suppress(BlockingIOError):
            while self._arrived:
                try:
                    self._far.send(self._arrived[0], NO_SIGNAL)
                except (BrokenPipeError, ConnectionResetError):  # nobody reads it
                    pass
                except OSError as error:
                    if error.errno not in (errno.ENOBUFS, errno.ENOMEM):
                        raise
                    sleep(MEMORY_PAUSE)
                    break
                size += len(self._arrived.popleft())
        if size:
            self._endpoint.consumed(self._bus, size)

    def _send(self, stream: socket.socket) -> bool:
        """False: the stream takes no more for now."""
        endpoint = self._endpoint
        if self._closed and not endpoint.queued:
            endpoint.cancel(self._bus)
        while True:
            self._unsent = self._unsent or endpoint.data_to_send(PIECE)
            if not self._unsent:
                return True
            try:
                self._unsent = self._unsent[stream.send(self._unsent) :]
            except OSError as error:
                if _would_block(error):
                    return False
                if not self._over:
                    self._receive(stream)  # the door may have said why
                    raise
                return False


def _would_block(error: OSError) -> bool:
    """SSLWantReadError and SSLWantWriteError are no BlockingIOError, and not imported where there is no TLS."""
    return isinstance(error, BlockingIOError) or type(error).__name__ in (
        "SSLWantReadError",
        "SSLWantWriteError",
    )


def _reason(payload: bytes) -> BccnError:
    """Why the door closes the session: ``<code> <text>``, or nothing."""
    code, _, text = payload.decode("utf-8", "backslashreplace").partition(" ")
    if code in ("refused", "limit:"):
        return rejected(f"{code.removesuffix(':')} {text}")
    return UnavailableError(
        text if code == "unavailable" else f"{code} {text}".strip() or "the daemon went away"
    )


# Those of this process that run.
_carriers: set[Carrier] = set()
os.register_at_fork(after_in_child=_carriers.clear)


@atexit.register
def _leave() -> None:
    for carrier in list(_carriers):
        carrier.leave()
