"""A listener, and how it lets connections in.

Rules
- A connection is counted against its user, or refused and told why. REFUSALS connections are told at a time; further
  ones are closed at once.
- Without descriptors it pauses, and those that have connected wait.
- If the socket file disappears while the door runs, it is made again.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM

import structlog

from bccnd.errors import BccndError
from bccnd.mux import limits
from bccnd.mux.carrier import Carrier, Plain
from bccnd.mux.connection import Connection, House
from bccnd.mux.peer import Peer
from bccnd.mux.threshold import Threshold
from bccnd.net.peers import identify
from bccnd.process import local_stream
from bccnd.process.local_stream import Listening

_NO_ROOM = frozenset({EMFILE, ENFILE, ENOBUFS, ENOMEM})

# The user that a refused connection from elsewhere counts against: nobody.
NOBODY = Peer(65534, (65534,))

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Far:
    """The carrier of a connection from elsewhere; once that is ready, its peer, or why it is refused."""

    carrier: Carrier
    who: Callable[[], Peer | bytes]


class Entrance:
    """``listen`` makes the socket, and raises ``BccndError``. ``welcome`` makes a connection of what was accepted;
    ``empty`` closes the connections whose user is not known yet.
    """

    def __init__(
        self,
        house: House,
        listen: Callable[[], Listening],
        welcome: Callable[[socket.socket], None],
        empty: Callable[[], None] = lambda: None,
    ) -> None:
        self._empty = empty
        self._house = house
        self._listen = listen
        self._listening = listen()
        self._gone_told = False
        self._welcome = welcome
        self._is_full = False

    def open(self) -> None:
        self._house.loop.add_reader(self._listening, self._accept)

    def tick(self) -> None:
        """Make the socket file again if it was removed, probably by mistake. Call this each second."""
        if not local_stream.is_gone(self._listening):
            return
        try:
            listening = self._listen()
        except BccndError as error:
            if not self._gone_told:
                log.warning("socket file gone: nobody can connect", reason=str(error))
            self._gone_told = True
            return
        self._accept()  # those that had connected
        self._house.loop.remove_reader(self._listening)
        self._listening.close()
        self._listening, self._gone_told = listening, False
        self.open()
        log.warning("socket file made again", socket=listening.getsockname())

    def close(self) -> None:
        self._house.loop.remove_reader(self._listening)
        self._empty()
        local_stream.close(self._listening)

    def _accept(self) -> None:
        for _ in range(limits.ACCEPTS):
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno in _NO_ROOM:
                    self._pause(error)
                break
            accepted.setblocking(False)
            self._is_full = False
            self._welcome(accepted)

    def _pause(self, error: OSError) -> None:
        if not self._is_full:
            log.error("nobody can connect", reason=error.strerror)
        self._is_full = True
        self._house.loop.remove_reader(self._listening)
        self._house.loop.call_later(limits.ACCEPT_SECONDS, self._resume)

    def _resume(self) -> None:
        if self._listening.fileno() >= 0:
            self.open()


def let_in(
    house: House,
    accepted: socket.socket,
    carrier: Carrier,
    peer: Peer | bytes,
    *,
    chatter: int = 0,
    early: bytes = b"",
) -> Connection | None:
    """``peer``: who it is, or why it is refused. Returns None if too many are refused to tell this one."""
    if isinstance(peer, bytes):
        reason, peer = peer, NOBODY
    else:
        reason = house.accounts.admit(peer.uid)
    if reason:
        house.counts["turned_away"] += 1
        if sum(not each.is_served for each in house.connections) >= limits.REFUSALS:
            accepted.close()
            return None
    return Connection(house, accepted, carrier, peer, chatter=chatter, turned_away=reason, early=early)


def local_entrance(house: House, listen: Callable[[], Listening]) -> Entrance:
    """For programs of this host, whose user the kernel reports."""

    def welcome(accepted: socket.socket) -> None:
        found = identify(accepted)
        groups = (found.gid, *sorted(found.groups - {found.gid}))
        let_in(house, accepted, Plain(), Peer(found.uid, groups, found.pid, found.program))

    return Entrance(house, listen, welcome)


def far_entrance(house: House, listen: Callable[[], Listening], greet: "Callable[[], Far]") -> Entrance:
    """For programs elsewhere, whose carrier says who they are. ``greet`` makes the carrier of the next one."""
    thresholds: dict[Threshold, None] = {}

    def welcome(accepted: socket.socket) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        far = greet()

        def enter(accepted: socket.socket, early: bytes) -> None:
            let_in(house, accepted, far.carrier, far.who(), chatter=limits.CHATTER, early=early)

        Threshold(house, accepted, far.carrier, enter, thresholds)

    def empty() -> None:
        for threshold in list(thresholds):
            threshold.drop("stopped")

    return Entrance(house, listen, welcome, empty)
