"""Clients that hold publishers (``block``): which publisher waits for which client, and when that ends.

    hold ----> the publisher is not read ----> release: it is read again
        \
         '--> a look every LOOK_SECONDS: does the client read? ----> overdue: the client is closed

Rules
- A client holds the publishers of its own user. Those of others it holds by a right, or if the settings gave it the
  policy (``may_hold``): for them it is like one with ``drop-newest``.
- A publisher waits (``Session.waits_for``) until little waits for the client, the client chooses another policy, or
  leaves. A client with too many unread answers holds itself, which hurts nobody else and is never overdue.
- A client that reads makes progress, however little: what it has not read of its socket shrinks. One that has read
  nothing for ``block_seconds`` is overdue.
- A client is also overdue if waiting publishers get fewer than ``block_floor`` messages a second through to it,
  while somebody waits most of the time. Publishers should slow down to a reader that works, and not stand still for
  one that hardly does. This is judged over windows of WINDOW_SECONDS, or of ``block_seconds`` if that is longer. A
  window begins with the first hold; releases in between do not begin it anew.
- Messages of others that the client takes do not count: it may send them itself. A publisher counts as waiting if it
  has more to send at the end of a window. Waiting publishers are counted by user: each user must get its part of the
  floor.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Protocol

from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.relay.effects import Outgoing
from bccnd.relay.options import Queue
from bccnd.relay.session import Session
from bccnd.relay.slow import SlowClients, Trouble

# ``block`` is meant to hold publishers; a client that takes nothing for so long is in trouble.
LOOK_SECONDS = 1.0
# Long enough for a reader that takes a pause, short enough for those who wait.
WINDOW_SECONDS = 10.0


class Sockets(Protocol):
    def unread(self, port: int, /) -> int:
        """How much of what was sent the client has not read, in bytes."""

    def unsaid(self, port: int, /) -> int:
        """How much of what the client has sent was not read, in bytes."""


@dataclass(slots=True)
class Waiter:
    """A publisher as a client that held it in this window sees it: how many of its messages had gone (``gone``) when
    it was first held; ``queued``: how many of them waited for the client when it was held last, before ``end``.
    """

    gone: int
    queued: int
    end: int

    def left(self, taken: int) -> int:
        """How many still wait, at most, when the client has taken so many messages."""
        return max(0, min(self.queued, self.end - taken))


@dataclass(slots=True)
class Window:
    """When it ``began``, and how many messages the client had ``taken`` then; how many looks there were, how many of
    them found somebody waiting, and what the client had not read of its socket at the last. ``waiters``: by the
    number of their session. A successor begins to count them anew.
    """

    began: float
    taken: int
    unread: int
    looks: int = 0
    waiting: int = 0
    waiters: dict[int, Waiter] = field(default_factory=dict)


class Holding:
    def __init__(self, sockets: Sockets, outgoing: Outgoing, slow: SlowClients, alarm: Alarm) -> None:
        self._sockets = sockets
        self._outgoing = outgoing
        self._slow = slow
        self._windows: dict[Session, Window] = {}
        self._looks: Deadlines[Session] = Deadlines(alarm)

    def hold(self, publisher: Session, session: Session, now: float, queued: int = 0) -> None:
        """Let ``publisher`` wait until ``session`` has taken what it has, of which the last ``queued`` messages are
        its own.
        """
        publisher.waits_for.add(session)
        session.holds.add(publisher)
        if publisher is session:
            return
        taken = _taken(session)
        window = self._windows.get(session)
        if window is None:
            window = self._windows[session] = Window(now, taken, self._sockets.unread(session.port))
            self._looks.set(session, max(now, session.progress + LOOK_SECONDS))
        if queued:
            waiter = window.waiters.get(publisher.number)
            if waiter is None:
                waiter = window.waiters[publisher.number] = Waiter(publisher.published - queued, 0, 0)
            waiter.queued = waiter.left(taken) + queued
            waiter.end = taken + session.outbox.packets

    def release(self, session: Session) -> None:
        """Let everybody go on who waits for the client."""
        for publisher in session.holds:
            publisher.waits_for.discard(session)
            if not publisher.waits_for:
                self._outgoing.clients.resume.append(publisher)
        session.holds.clear()

    def forget(self, session: Session) -> None:
        """The client is gone, as one that holds others and as one that waits."""
        self.release(session)
        self._windows.pop(session, None)
        self._looks.remove(session)
        for other in session.waits_for:
            other.holds.discard(session)
        session.waits_for.clear()

    def next_deadline(self) -> float:
        return self._looks.next

    def overdue(self, now: float, queue: Queue) -> list[Session]:
        """The clients that are to be closed now."""
        found = []
        while (due := self._looks.pop(now)) is not None:
            session = due[0]
            if self._is_overdue(session, self._windows[session], now, queue):
                found.append(session)
            elif session in self._windows:
                # No later, as a reload may shorten ``block_seconds``.
                closed_at = (
                    session.progress + queue.block_seconds if others_of(session) else now + LOOK_SECONDS
                )
                self._looks.set(session, min(now + LOOK_SECONDS, closed_at))
        return found

    def state(self) -> list[tuple[int, float, tuple[float, int, int, int, int]]]:
        """For a successor: the number of each client with a window, when it is looked at next, and the window."""
        return [
            (session.number, self._looks.get(session) or 0.0, astuple(replace(window, waiters={}))[:-1])
            for session, window in self._windows.items()
        ]

    def restore(
        self,
        state: Iterable[tuple[int, float, tuple[float, int, int, int, int]]],
        sessions: Mapping[int, Session],
    ) -> None:
        for number, look_at, window in state:
            self._windows[sessions[number]] = Window(*window)
            self._looks.set(sessions[number], look_at)

    def _is_overdue(self, session: Session, window: Window, now: float, queue: Queue) -> bool:
        unread = self._sockets.unread(session.port)
        if unread < window.unread:
            session.progress = now
        window.unread = unread
        window.looks += 1
        if others_of(session):
            window.waiting += 1
            stalled = now - session.progress
            if stalled >= queue.block_seconds:
                return True
            if stalled >= LOOK_SECONDS or window.waiting * LOOK_SECONDS > WINDOW_SECONDS / 2:
                self._slow.falls_behind(session, Trouble.HOLDS, now)
        seconds = now - window.began
        if seconds >= max(WINDOW_SECONDS, queue.block_seconds):
            if window.waiting * 2 > window.looks and self._starves(
                session, window, queue.block_floor * seconds
            ):
                return True
            self._begin_anew(session, window, now)
        return False

    def _starves(self, session: Session, window: Window, wanted: float) -> bool:
        """Whether waiting publishers got fewer messages through in this window than the floor demands."""
        taken = _taken(session)
        if taken - window.taken < wanted:
            return True
        through: Counter[int] = Counter()
        for publisher in others_of(session):
            if not (publisher.outbox.left or self._sockets.unsaid(publisher.port)):
                continue
            waiter = window.waiters.get(publisher.number)
            # Of one that a predecessor held it is not known which of the messages are its own.
            passed = publisher.published - waiter.gone - waiter.left(taken) if waiter else wanted
            through[publisher.peer.uid] += int(max(0, passed))
        return bool(through) and min(through.values()) < int(wanted / len(through))

    def _begin_anew(self, session: Session, window: Window, now: float) -> None:
        """Begin another window, if somebody still waits."""
        del self._windows[session]
        others = others_of(session)
        if not others:
            return
        taken, waiting = _taken(session), session.outbox.packets
        self._windows[session] = begun = Window(now, taken, window.unread)
        for publisher in others:
            known = window.waiters.get(publisher.number)
            left = known.left(taken) if known else waiting
            end = known.end if known else taken + waiting
            begun.waiters[publisher.number] = Waiter(publisher.published - left, left, end)


def may_hold(session: Session, publisher: Session) -> bool:
    """Whether the publisher waits for the client under ``block``. One of another pid namespace, such as root of a
    container, is not the user of that uid here.
    """
    mine, theirs = session.peer, publisher.peer
    own = mine.uid == theirs.uid and mine.resident >= theirs.resident
    return own or session.rights.block_all or "policy" not in session.queue_asked


def others_of(session: Session) -> set[Session]:
    """The publishers that wait for a client, but for the client itself."""
    return session.holds - {session}


def _taken(session: Session) -> int:
    """Messages that have gone to its socket."""
    return session.delivered - session.outbox.dropped - session.outbox.packets
