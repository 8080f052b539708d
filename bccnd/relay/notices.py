"""What the daemon publishes by itself: presence notices, and heartbeats.

    local/presence/<event>/<src>    a source of the segment or a client of this host came, fell silent or left
    heartbeat/<src>                 the daemon and the clients that asked for it are there, or are leaving

Rules
- Presence notices stay on this host whatever the settings say, only the daemon publishes them, and none is retained.
  Only a pattern that begins with PREFIX gets them: neither ``>`` nor ``local/>`` does, as neither asks for them.
- No notice is written when nobody has such a pattern.
- A client's heartbeat is published in its name, and only where the client itself may publish.
- Notices about clients may take a part of the time (STEPS_A_SECOND). Beyond that they wait in a queue, and some of
  them go out at a time. A full queue (WAITING_LIMIT) first loses the oldest pair of a client that came and left
  meanwhile, which nobody misses, and then the newest. A notice ``lost`` in the daemon's own name reports how many.
- However many clients beat together, and however many hear it, other work has its turn after BEATS_STEPS.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

from bccnd.relay.deadlines import Deadlines
from bccnd.relay.heartbeat import LEAVING
from bccnd.relay.identity import LocalSource
from bccnd.relay.listing import as_json
from bccnd.relay.moment import Moment
from bccnd.relay.presence import Event
from bccnd.relay.publisher import Publisher
from bccnd.relay.router import HEARTBEATS
from bccnd.relay.router import NOTICES as PREFIX
from bccnd.relay.session import Session
from bccnd.relay.state import State

# In steps: what the heartbeats of a call may cost, a quarter of a call for a client (``client_input``), as a delivery
# to one who reads slowly takes several; and what a heartbeat costs that nobody hears.
BEATS_STEPS = 2048
BEAT_STEPS = 64
# What the last words of all clients may cost when the daemon ends: a second of its few, where hearers are slow. Whose
# word is not said is found silent.
LAST_STEPS = 1 << 17


# What a notice takes, and each that hears it, in steps: most of it is system calls. How many of them there may be in
# a second, a quarter of it, and how many at once.
NOTICE_STEPS = 64
HEARER_STEPS = 16
STEPS_A_SECOND = 1 << 20
STEPS_AT_ONCE = 8192
# Notices that wait, some hundred bytes each.
WAITING_LIMIT = 1024
LOST = "lost"

# A notice about a client: its event and src, its program, pid and uid, and when that was, in nanoseconds.
Waiting = tuple[str, bytes, str, int, int, int]


class Queue:
    """Notices about clients that wait, and how many were ``lost``."""

    def __init__(self) -> None:
        self.lost = 0
        self._waiting: dict[int, Waiting] = {}
        self._last = 0
        # By src: the number of a notice that it appeared, as long as it waits; and both of one that left as well.
        self._appeared: dict[bytes, int] = {}
        self._pairs: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        yield from self._waiting.values()

    def put(self, notice: Waiting) -> None:
        if len(self._waiting) >= WAITING_LIMIT and not self._fold():
            self.lost += 1
            return
        self._last += 1
        self._waiting[self._last] = notice
        event, src = notice[:2]
        if event == Event.APPEARED:
            self._appeared[src] = self._last
        elif (first := self._appeared.pop(src, None)) is not None:
            self._pairs[first] = self._last

    def take(self) -> Waiting:
        """The oldest."""
        number = next(iter(self._waiting))
        notice = self._waiting.pop(number)
        self._pairs.pop(number, None)
        if self._appeared.get(notice[1]) == number:
            del self._appeared[notice[1]]
        return notice

    def _fold(self) -> bool:
        """Make room by the oldest pair, if there is one."""
        first = next(iter(self._pairs), None)
        if first is None:
            return False
        del self._waiting[first], self._waiting[self._pairs.pop(first)]
        return True


class Notices:
    def __init__(self, state: State, publisher: Publisher) -> None:
        self._publisher = publisher
        self._outgoing = state.outgoing
        self._router, self._sources, self._presence = state.router, state.sources, state.presence
        self._heartbeats, self._own = state.heartbeats, state.own
        self._ended = False
        self._queue = Queue()
        # Until when the notices so far take the time of their part.
        self._paid_until = -inf
        self._due: Deadlines[str] = Deadlines(state.alarm)
        self.next_deadline = lambda: self._due.next

    def of_sources(self, moment: Moment) -> None:
        """Report what has happened to sources of the segment."""
        for event, src, life in self._presence.take_events():
            source = self._sources.get(src)
            peer, interval = source.peer if source else "", round(life.interval, 3)
            about = {"peer": peer, "version": life.version or None, "heartbeat": interval or None}
            self._say(event, src, about, moment)

    def of_client(self, event: Event, name: bytes, session: Session, moment: Moment) -> None:
        if self._ended:  # all leave, and whom each is announced to as well
            return
        chan = b"%b%b/%b" % (PREFIX, event.encode(), name)
        hearers = self._router.route(chan).size
        if not hearers:
            return
        peer, now = session.peer, moment.monotonic
        notice = str(event), name, peer.shown_program, peer.pid, peer.uid, moment.unix_ns
        if not self._queue and self._may_say(now):
            self._say_of_client(notice, moment)
            return
        self._queue.put(notice)
        if self._due.get(LOST) is None:
            self._due.set(LOST, self._paid_until)

    def of_waiting_clients(self, moment: Moment) -> None:
        """Report some of what has happened to clients and could not be said at once."""
        now, queue = moment.monotonic, self._queue
        if self._due.pop(now) is None:
            return
        self._paid_until = min(self._paid_until, now)  # at least one
        while queue and self._may_say(now):
            self._say_of_client(queue.take(), moment)
        if queue:
            self._due.set(LOST, self._paid_until)
        elif queue.lost:
            lost, queue.lost = queue.lost, 0
            self._say(LOST, self._own.name, {"count": lost}, moment)

    def _may_say(self, now: float) -> bool:
        """Whether the notices of clients have not had their part yet."""
        return self._paid_until <= now + STEPS_AT_ONCE / STEPS_A_SECOND

    def _say_of_client(self, notice: Waiting, moment: Moment) -> None:
        event, src, program, pid, uid, unix_ns = notice
        about = {"peer": "local", "program": program, "pid": pid, "uid": uid, "unix_ns": unix_ns}
        steps = NOTICE_STEPS + HEARER_STEPS * self._say(event, src, about, moment)
        self._paid_until = max(self._paid_until, moment.monotonic) + steps / STEPS_A_SECOND

    def state(self) -> list[Waiting]:
        """The notices that wait, for a successor."""
        return list(self._queue)

    def restore(self, state: Iterable[Sequence[Any]]) -> None:
        for event, src, program, pid, uid, unix_ns in state:
            self._queue.put((event, src, program, pid, uid, unix_ns))
        if self._queue:
            self._due.set(LOST, 0.0)

    def beat(self, moment: Moment) -> None:
        """Send the heartbeats that are due, or the first of them: the others stay due."""
        outgoing, until = self._outgoing, self._outgoing.steps + BEATS_STEPS
        for source, text in self._heartbeats.due(moment.monotonic):
            self._heartbeat(source, text, moment)
            outgoing.steps += BEAT_STEPS
            if outgoing.steps >= until:
                return

    def leave(self, source: LocalSource, moment: Moment) -> None:
        """The source leaves in order. If it beats, nobody has to wait for its next beat to find out."""
        if source in self._heartbeats:
            self._heartbeat(source, LEAVING, moment)

    def leave_all(self, moment: Moment) -> None:
        """The daemon ends in order, and nobody beats from now on. Its own word comes last."""
        self._ended = True
        outgoing, until = self._outgoing, self._outgoing.steps + LAST_STEPS
        for source in sorted(self._heartbeats, key=lambda source: source is self._own):
            if outgoing.steps < until or source is self._own:
                self._heartbeat(source, LEAVING, moment)
                outgoing.steps += BEAT_STEPS
            self._heartbeats.stop(source)

    def _heartbeat(self, source: LocalSource, text: bytes, moment: Moment) -> None:
        chan = HEARTBEATS + source.name
        if not isinstance(source, Session) or source.rights.may_publish(chan):
            self._publisher.say(source, chan, text, moment)

    def _say(self, event: str, src: bytes, about: dict[str, Any], moment: Moment) -> int:
        """Returns how many hear it."""
        chan = b"%b%b/%b" % (PREFIX, event.encode(), src)
        hearers = self._router.route(chan).size
        if hearers:
            notice = {"event": str(event), "src": src.decode(), **about}
            notice.setdefault("unix_ns", moment.unix_ns)
            self._publisher.say(self._own, chan, as_json(notice), moment)
        return hearers
