"""A listener and whom it lets in.

Rules
- Who comes in is counted against its user, or turned away and told why. There are REFUSALS of those at a time;
  whoever comes besides is closed at once.
- Without descriptors it pauses, and those that have connected wait.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM

import structlog

from bccnd.mux import limits
from bccnd.mux.carrier import Carrier, Plain
from bccnd.mux.connection import Connection, House
from bccnd.mux.peer import Peer
from bccnd.mux.threshold import Threshold
from bccnd.net.peers import identify
from bccnd.process import local_stream
from bccnd.process.local_stream import Listening

_NO_ROOM = frozenset({EMFILE, ENFILE, ENOBUFS, ENOMEM})

# Whoever is turned away because nobody knows it.
NOBODY = Peer(65534, (65534,))

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Far:
    """What a connection from elsewhere is carried by, and who it is once that is ready, or why nobody knows."""

    carrier: Carrier
    who: Callable[[], Peer | bytes]


class Entrance:
    """``listening``: non-blocking. ``welcome`` makes a connection of what was accepted; ``empty`` sends away those of
    whom nobody knows yet who they are.
    """

    def __init__(
        self,
        house: House,
        listening: Listening,
        welcome: Callable[[socket.socket], None],
        empty: Callable[[], None] = lambda: None,
    ) -> None:
        self._empty = empty
        self._house = house
        self._listening = listening
        self._welcome = welcome
        self._is_full = False

    def open(self) -> None:
        self._house.loop.add_reader(self._listening, self._accept)

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
            log.error("nobody can come in", reason=error.strerror)
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
    """``peer``: who it is, or why it is turned away. None: so many are that this one is not even told so."""
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


def local_entrance(house: House, listening: Listening) -> Entrance:
    """For programs of this host, who are what the kernel says."""

    def welcome(accepted: socket.socket) -> None:
        found = identify(accepted)
        groups = (found.gid, *sorted(found.groups - {found.gid}))
        let_in(house, accepted, Plain(), Peer(found.uid, groups, found.pid, found.program))

    return Entrance(house, listening, welcome)


def far_entrance(house: House, listening: Listening, greet: "Callable[[], Far]") -> Entrance:
    """For programs elsewhere, whose carrier says who they are. ``greet`` makes what the next one is met with."""
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

    return Entrance(house, listening, welcome, empty)
