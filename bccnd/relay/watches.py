"""The watches of clients, which report whether somebody listens: ``CMSG watch`` (``clients/PROTOCOL.md``, "Watches").

    lookout: somebody here listens --------------------> here
    nobody here, and it leaves the host -> elsewhere --> elsewhere, or no
    nobody here, and it is local ----------------------> no

Rules
- A client is told a state, and only one that differs from the last: so it may miss states, and still knows the
  newest. It is told at most once in TOLD_SECONDS for each watch, and not at all while UNREAD answers wait for it.
- Nothing is told before it is known; for other hosts that takes a third of a second. Until then the last state holds.
- To learn whom a message would reach, a client needs the right to publish on every channel that the pattern means.
- Watches are bounded in bytes: a user may take as much of the whole as it leaves free.
"""

from collections import Counter
from collections.abc import Iterable

from bccnd.errors import DeniedError, PacketError
from bccnd.relay import pattern as patterns
from bccnd.relay.deadlines import Deadlines
from bccnd.relay.delivery import Delivery
from bccnd.relay.elsewhere import PATTERN_BYTES, Elsewhere
from bccnd.relay.lookout import Key, Lookout, Watch
from bccnd.relay.moment import Moment
from bccnd.relay.router import NOTICES, QUESTIONS
from bccnd.relay.session import Session
from bccnd.relay.state import State
from bccnd.wire.sbus import Cmsg

# Bytes of all watches: some 4,000 of short patterns.
WATCHES_BYTES = 2 << 20
TOLD_SECONDS = 0.05
UNREAD, UNREAD_SECONDS = 16, 0.25
# Watches that one turn examines for something to tell: each may take a system call.
TOLD_A_TURN, TURN_SECONDS = 64, 0.004
HERE, ELSEWHERE, NO = b"here", b"elsewhere", b"no"


class Watches:
    def __init__(self, state: State, delivery: Delivery, lookout: Lookout, elsewhere: Elsewhere) -> None:
        self._rules, self._router, self._sessions = state.rules, state.router, state.sessions
        self._delivery, self._lookout, self._elsewhere = delivery, lookout, elsewhere
        elsewhere.on_change = self._tell_soon
        self._bytes: Counter[int] = Counter()  # by uid
        self._untold: Deadlines[Watch] = Deadlines(state.alarm)  # when each may be told
        self._next_turn = 0.0

    def __len__(self) -> int:
        return sum([len(session.watches) for session in self._sessions.values()])

    def next_deadline(self) -> float:
        due = max(self._untold.next, self._next_turn)
        return min(due, self._lookout.next_deadline(), self._elsewhere.next_deadline())

    def watch(self, session: Session, pattern: bytes, moment: Moment) -> None:
        """Tell the client from now on whether somebody listens. If it already watches that, tell it again."""
        patterns.check(pattern, session.separator)
        key = session.separator, pattern
        if pattern.startswith(NOTICES):
            raise DeniedError("publish", "only the daemon publishes there")
        if not session.rights.may_publish_all(*key):
            raise DeniedError("publish", "no right to publish on all that it matches")
        if held := session.watches.get(key):
            held.told = b""
            self._tell_soon(held, moment)
            return
        self._check_room(session, pattern)
        self._add(session, key, moment.monotonic)

    def unwatch(self, session: Session, pattern: bytes) -> None:
        """End a watch; does nothing if the client has none."""
        if (session.separator, pattern) in session.watches:
            self._remove(session, (session.separator, pattern))

    def leave(self, session: Session) -> None:
        for key in list(session.watches):
            self._remove(session, key)

    def revoke(self, session: Session) -> list[bytes]:
        """End the watches that the client has no right to any more. Returns their patterns."""
        lost = [key for key in session.watches if not session.rights.may_publish_all(*key)]
        for key in lost:
            self._remove(session, key)
        return [pattern for _, pattern in lost]

    def settings_changed(self, moment: Moment) -> None:
        """Look at all watches again: other channels may be local now."""
        self._router.listeners.again()
        for session in self._sessions.values():
            for watch in session.watches.values():
                self._tell_soon(watch, moment)

    def adopt(self, session: Session, watches: Iterable[tuple[bytes, bytes, bytes]]) -> None:
        """Take over the watches of a predecessor: separator, pattern, the state that was told."""
        for separator, pattern, told in watches:
            self._add(session, (separator, pattern), 0.0).told = told

    def on_deadline(self, moment: Moment) -> None:
        changed = self._lookout.on_deadline(moment.monotonic)
        self._elsewhere.looked(changed, moment)
        for watch in changed:
            if isinstance(watch.owner, Session):
                self._tell_soon(watch, moment)
        self._elsewhere.on_deadline(moment)
        if moment.monotonic >= self._next_turn:
            self._tell_some(moment)

    def _add(self, session: Session, key: Key, now: float) -> Watch:
        watch = session.watches[key] = Watch(key, session, session.peer.uid)
        self._bytes[session.peer.uid] += _cost(key[1])
        self._lookout.add(watch, now)
        return watch

    def _remove(self, session: Session, key: Key) -> None:
        watch = session.watches.pop(key)
        self._bytes[session.peer.uid] -= _cost(key[1])
        if not self._bytes[session.peer.uid]:
            del self._bytes[session.peer.uid]
        self._untold.remove(watch)
        self._elsewhere.forget(watch)
        self._lookout.remove(watch)

    def _check_room(self, session: Session, pattern: bytes) -> None:
        most, size = self._rules.options.limits.subscriptions, _cost(pattern)
        if len(session.watches) >= most:
            raise PacketError("limit", f"at most {most} watches a client")
        if self._bytes[session.peer.uid] + size > WATCHES_BYTES - self._bytes.total() - size:
            raise PacketError("limit", "the watches of a user take at most as much as they leave for others")

    def _tell_soon(self, watch: Watch, moment: Moment) -> None:
        if self._untold.get(watch) is None:
            self._untold.set(watch, moment.monotonic)

    def _tell_some(self, moment: Moment) -> None:
        """Tell clients the new states of some watches."""
        now = moment.monotonic
        for _ in range(TOLD_A_TURN):
            due = self._untold.pop(now)
            if due is None:
                return
            watch = due[0]
            where = self._where(watch, now)
            if where in (b"", watch.told):
                continue
            again = (
                UNREAD_SECONDS if watch.owner.outbox.answers >= UNREAD else watch.told_at + TOLD_SECONDS - now
            )
            if again > 0:
                self._untold.set(watch, now + again)
                continue
            watch.told, watch.told_at = where, now
            self._delivery.answer(watch.owner, Cmsg(b"wanted", b"%b %b" % (where, watch.key[1])), moment)
        self._next_turn = now + TURN_SECONDS

    def _where(self, watch: Watch, now: float) -> bytes:
        """Where somebody listens; empty while that is not known."""
        if watch.listened is None:
            return b""
        if watch.listened:
            self._elsewhere.forget(watch)
            return HERE
        if not self._leaves(watch.key):
            self._elsewhere.forget(watch)
            return NO
        self._elsewhere.want(watch, now)
        found = self._elsewhere.listened(watch.key)
        return b"" if found is None else ELSEWHERE if found else NO

    def _leaves(self, key: Key) -> bool:
        """Whether any channel of the pattern leaves the host, and other hosts can be asked."""
        separator, pattern = key
        if self._router.route(QUESTIONS).local or self._lookout.is_confined(key):
            return False
        return patterns.has_wildcard(pattern, separator) or not self._router.route(pattern).local


def _cost(pattern: bytes) -> int:
    return PATTERN_BYTES + len(pattern)
