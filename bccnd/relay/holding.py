"""Clients that hold publishers up (``block``): who waits for whom, and when that ends.

    hold --------> the publisher is not read --------> release: it is read again
     \                                                /
      '--> every STALL_SECONDS: has the client read? '--> overdue: the client is closed

Rules
- A publisher waits (``Session.waits_for``) until little waits for the client, the client chooses another policy, or
  leaves. A client with too many unread answers holds itself, which hurts nobody else and is never overdue.
- A client that reads makes progress, however little: what it has not read of its socket shrinks. One that has read
  nothing for ``block_seconds`` is overdue.
- So is one that reads, but less than ``block_floor`` messages a second while somebody waits for most of the time:
  publishers are to slow down to a reader that works, not to stand still for one that hardly does. That is looked at
  over windows of WINDOW_SECONDS, which begin with the first hold: releases in between do not begin them anew.
"""

from dataclasses import dataclass
from typing import Protocol

from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.relay.effects import Outgoing
from bccnd.relay.options import Queue
from bccnd.relay.session import Session
from bccnd.relay.slow import SlowClients, Trouble

# ``block`` is meant to hold publishers; a client that takes nothing for so long is in trouble.
STALL_SECONDS = 1.0
# Long enough for a reader that takes a pause, short enough for those who wait.
WINDOW_SECONDS = 10.0


class Sockets(Protocol):
    def unread(self, port: int, /) -> int:
        """How much of what was sent the client has not read, in bytes."""


@dataclass(slots=True)
class Hold:
    """A client that holds publishers, or has since ``began``, when its window began.

    ``since``: when it began to hold those who wait now, None while nobody does; ``seconds``: how long it has held
    anybody in the window before that; ``taken``: messages it had taken when the window began; ``unread``: what it had
    not read of its socket when that was last looked at.
    """

    began: float
    taken: int
    unread: int
    since: float | None = None
    seconds: float = 0.0


class Holding:
    def __init__(self, sockets: Sockets, outgoing: Outgoing, slow: SlowClients, alarm: Alarm) -> None:
        self._sockets = sockets
        self._outgoing = outgoing
        self._slow = slow
        self._holds: dict[Session, Hold] = {}
        self._checks: Deadlines[Session] = Deadlines(alarm)

    def hold(self, publisher: Session, session: Session, now: float) -> None:
        """Let ``publisher`` wait until ``session`` has taken what it has."""
        publisher.waits_for.add(session)
        session.holds.add(publisher)
        if publisher is session:
            return
        hold = self._holds.get(session)
        if hold is None:
            self._holds[session] = hold = Hold(now, _taken(session), self._sockets.unread(session.port))
        if hold.since is None:
            hold.since = now
            self._checks.set(session, max(now, session.progress + STALL_SECONDS))

    def release(self, session: Session, now: float) -> None:
        """Let everybody go on who waits for the client."""
        for publisher in session.holds:
            publisher.waits_for.discard(session)
            if not publisher.waits_for:
                self._outgoing.resume.append(publisher)
        session.holds.clear()
        self._end_hold(session, now)

    def forget(self, session: Session, now: float) -> None:
        """The client is gone, as one that holds others and as one that waits."""
        self.release(session, now)
        self._holds.pop(session, None)
        self._checks.remove(session)
        for other in session.waits_for:
            other.holds.discard(session)
            if not others_of(other):
                self._end_hold(other, now)
        session.waits_for.clear()

    def next_deadline(self) -> float:
        return self._checks.next

    def overdue(self, now: float, queue: Queue) -> list[Session]:
        """The clients that are to be closed now."""
        found = []
        while (due := self._checks.pop(now)) is not None:
            session = due[0]
            if self._is_overdue(session, self._holds[session], now, queue):
                found.append(session)
        return found

    def _is_overdue(self, session: Session, hold: Hold, now: float, queue: Queue) -> bool:
        unread = self._sockets.unread(session.port)
        if unread < hold.unread:
            session.progress = now
        hold.unread = unread
        window, held = now - hold.began, hold.seconds + (now - hold.since if hold.since is not None else 0.0)
        if window >= WINDOW_SECONDS:
            taken = _taken(session)
            if held > window / 2 and taken - hold.taken < queue.block_floor * window:
                return True
            if hold.since is None:
                del self._holds[session]
                return False
            hold.began, hold.since, hold.seconds, hold.taken = now, now, 0.0, taken
        closed_at, looked_at = session.progress + queue.block_seconds, hold.began + WINDOW_SECONDS
        if hold.since is not None:
            if now >= closed_at:
                return True
            if now >= session.progress + STALL_SECONDS or held > WINDOW_SECONDS / 2:
                self._slow.falls_behind(session, Trouble.HOLDS, now)
            # Not at the end of all that time: a reload may shorten ``block_seconds``.
            looked_at = min(looked_at, closed_at, now + STALL_SECONDS)
        self._checks.set(session, looked_at)
        return False

    def _end_hold(self, session: Session, now: float) -> None:
        """Nobody waits for the client any more."""
        hold = self._holds.get(session)
        if hold and hold.since is not None:
            hold.seconds += now - hold.since
            hold.since = None


def others_of(session: Session) -> set[Session]:
    """The publishers that wait for a client, but for the client itself."""
    return session.holds - {session}


def _taken(session: Session) -> int:
    """Messages that have gone to its socket."""
    return session.delivered - session.outbox.dropped - session.outbox.packets
