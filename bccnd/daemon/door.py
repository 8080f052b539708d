"""The door: accepts clients at the listener and lets them in, or refuses them with the reason.

    accept --> look up who it is --> let in, a turn's worth --> served by the bus
                                     (the rest in the next round of the loop)

Rules
- A client is looked up before the next is accepted, and before anything else is done: many programs leave at once.
- To let a client in can cost as much as a message to everybody, since others may watch who comes. So those who
  arrived together are let in one by one, for one turn at most (``turns``), and nobody is accepted before all are in.
- When the daemon is out of descriptors, it refuses new clients with the reason, or stops accepting for ACCEPT_PAUSE.
  It goes on serving the others.
"""

import contextlib
import os
import socket
import time
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable

import structlog

from bccnd.daemon.turns import TURN_NS
from bccnd.errors import BccndError
from bccnd.net.listener import Listener
from bccnd.net.peers import Identity, has_hung_up, identify
from bccnd.wire.sbus import Cmsg

# Seconds without new clients, once accepting has failed.
ACCEPT_PAUSE = 1.0

# Packets of a refused client that are read before it is closed: with any unread it would get a reset before the
# reason. A client says hello with fewer.
UNREAD = 16

log = structlog.get_logger()


def refuse(client: socket.socket, reason: str) -> None:
    """Close a client that was not let in, with the reason."""
    with contextlib.suppress(OSError):
        client.send(Cmsg(b"closing", reason.encode()).serialize())
        for _ in range(UNREAD):
            if not client.recv(1):
                break
    client.close()


class Door:
    """``let_in``: called with each client and who it is; ``clients``: how many are in; ``end_turn``: called after
    each turn with the time at which it began (``Bus.end_turn``).
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        listener: Listener,
        let_in: Callable[[socket.socket, Identity], None],
        clients: Callable[[], int],
        end_turn: Callable[[int], object],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._let_in = let_in
        self._clients = clients
        self._end_turn = end_turn
        # Those who were accepted and are not in yet.
        self._arrived: deque[tuple[socket.socket, Identity]] = deque()
        # Whether the file of the socket is missing, or somebody else's.
        self.socket_gone = False
        self._open = False
        self._spare = -1
        self._take_spare()

    @property
    def name(self) -> str:
        """The address that clients connect to."""
        return self._listener.name

    @property
    def is_busy(self) -> bool:
        """Whether somebody was accepted and is not in yet."""
        return bool(self._arrived)

    def open(self) -> None:
        self._open = True
        self._loop.add_reader(self._listener.socket, self._connect)

    def shut(self) -> None:
        """Accept nobody for now. Who was accepted is let in."""
        self._open = False
        self._loop.remove_reader(self._listener.socket)
        while self._arrived:
            self._let_in(*self._arrived.popleft())

    def close(self) -> None:
        self._listener.close()
        self._let_go_of_spare()

    def _connect(self) -> None:
        if self._arrived:  # their turn comes
            return
        begun = time.time_ns()
        try:
            self._listener.accept(lambda client: self._look_at(client, begun))
        except OSError as error:
            self._turn_away(error)
            return
        if not self._arrived and has_hung_up(self._listener.socket.fileno()):
            # The program that handed it down has shut it down: it stays readable, and no client will come.
            self._loop.remove_reader(self._listener.socket)
            log.warning("listener shut down", socket=self.name, clients=self._clients())
        self._welcome(begun)

    def _look_at(self, client: socket.socket, begun: int) -> bool:
        """The spare descriptor is for that, if this client took the last. False once the turn is over: to look up
        one that is in tens of thousands of groups takes long."""
        self._let_go_of_spare()
        identity = identify(client)
        self._take_spare()
        self._arrived.append((client, identity))
        return 0 <= time.time_ns() - begun < TURN_NS

    def _welcome(self, begun: int) -> None:
        """Let in who arrived until the turn that began then, in nanoseconds since 1970, is over."""
        try:
            while self._arrived:
                self._let_in(*self._arrived.popleft())
                if not 0 <= time.time_ns() - begun < TURN_NS:
                    break
        finally:
            if self._arrived:
                self._loop.call_soon(self._welcome_more)
            self._end_turn(begun)

    def _welcome_more(self) -> None:
        self._welcome(time.time_ns())

    # -- without descriptors

    def _turn_away(self, error: OSError) -> None:
        """Accepting failed, mostly for lack of descriptors: free the spare one, to accept and refuse the clients."""
        self._let_go_of_spare()
        try:
            for client in self._listener.accept():
                refuse(client, "limit: the daemon is out of file descriptors")
        except OSError as again:
            # That failed, too. The listener stays readable: do not spin on it.
            error = again
            self._loop.remove_reader(self._listener.socket)
            self._loop.call_later(ACCEPT_PAUSE, self._accept_again)
        self._take_spare()
        log.warning("client refused", reason=error.strerror, clients=self._clients())

    def _accept_again(self) -> None:
        self._take_spare()
        if self._open:
            self._loop.add_reader(self._listener.socket, self._connect)

    def _take_spare(self) -> None:
        if self._spare < 0:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _let_go_of_spare(self) -> None:
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    # -- the file of the socket

    def tick(self, mode: int, owner: str | None, group: str | None) -> None:
        """Call this about once a second. ``mode``, ``owner``, ``group``: of the file, should it be made again."""
        gone = self._listener.is_gone
        if gone and not self._listener.handed_down:
            gone = not self._reopen(mode, owner, group)
        elif gone and not self.socket_gone:
            log.warning(
                "socket file gone: nobody can connect",
                socket=self.name,
                remedy="have it made again by whoever passed the socket, as by systemctl restart bccnd.socket",
            )
        self.socket_gone = gone

    def _reopen(self, mode: int, owner: str | None, group: str | None) -> bool:
        waiting, begun = bool(self._arrived), time.time_ns()
        try:
            self._loop.remove_reader(self._listener.socket)
            self._listener.reopen(mode, owner, group, lambda client: self._look_at(client, begun))
        except BccndError as error:
            if not self.socket_gone:
                log.warning(
                    "socket file gone: nobody can connect",
                    socket=self.name,
                    reason=str(error),
                    remedy="mend that, and the file is made again; or end the other daemon",
                )
            return False
        finally:
            if self._open:
                self._loop.add_reader(self._listener.socket, self._connect)
        log.warning("socket file made again", socket=self.name)
        if not waiting:
            self._welcome_more()
        return True
