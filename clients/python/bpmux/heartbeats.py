"""Whether the peer still answers: for the connection as a whole, and for each channel and request that is watched.

The connection is asked when nothing came for IDLE_SECONDS; whatever comes counts as an answer. Who watches a channel
or a request wants to know about that one, so only its own pong counts. After MISSED_LIMIT pings without an answer it
is given up at the time at which the next one would be due. Time is any clock in seconds that does not go back.
"""

from heapq import heappop, heappush

from bpmux.entities import Channel, Request, State
from bpmux.events import Entity

IDLE_SECONDS = 10.0
MISSED_LIMIT = 3
# One ping each: how many may come due at a time.
WATCHED_LIMIT = 4096


class Watch:
    """``missed``: pings since the last pong; ``due``: when the next one is."""

    __slots__ = ("due", "entity", "missed", "seconds")

    def __init__(self, entity: Entity, seconds: float, due: float) -> None:
        self.entity = entity
        self.seconds = seconds
        self.due = due
        self.missed = 0


class Heartbeats:
    """Timers as data: ``deadline`` says when ``due`` has something to say."""

    __slots__ = ("_heap", "_order", "_top", "_watches")

    def __init__(self, top: Channel, now: float) -> None:
        self._top = Watch(top, IDLE_SECONDS, now + IDLE_SECONDS)
        self._watches: dict[Entity, Watch] = {}
        self._heap: list[tuple[float, int, Watch]] = []
        self._order = 0

    @property
    def deadline(self) -> float:
        """When to call ``due`` next, at the latest."""
        return min(self._top.due, self._heap[0][0]) if self._heap else self._top.due

    def heard(self, now: float) -> None:
        """Something came from the peer."""
        self._top.missed = 0
        self._top.due = now + IDLE_SECONDS

    def watch(self, entity: Entity, seconds: float, now: float) -> bool:
        """False: too many are watched."""
        if seconds <= 0:
            raise ValueError(f"every {seconds} seconds")
        if entity not in self._watches and len(self._heap) >= WATCHED_LIMIT:
            return False
        watch = self._watches.get(entity)
        if watch is None:
            watch = self._watches[entity] = Watch(entity, seconds, now + seconds)
            self._wait(watch)
        watch.seconds = seconds
        return True

    def pong(self, entity: Entity) -> None:
        if watch := self._watches.get(entity):
            watch.missed = 0

    def due(self, now: float) -> tuple[list[Entity], list[Entity]]:
        """Those to ping now, and those to give up."""
        pings: list[Entity] = []
        lost: list[Entity] = []
        while self._heap and self._heap[0][0] <= now:
            watch = heappop(self._heap)[2]
            if _is_of_interest(watch.entity) and self._ask(watch, now, pings, lost):
                self._wait(watch)
            else:
                del self._watches[watch.entity]
        if self._top.due <= now:
            self._ask(self._top, now, pings, lost)
        return pings, lost

    def _wait(self, watch: Watch) -> None:
        self._order += 1
        heappush(self._heap, (watch.due, self._order, watch))

    @staticmethod
    def _ask(watch: Watch, now: float, pings: list[Entity], lost: list[Entity]) -> bool:
        """Whether it is still waited for. What is not open yet cannot be asked for."""
        watch.due = now + watch.seconds
        if watch.missed >= MISSED_LIMIT:
            lost.append(watch.entity)
            return False
        if watch.entity.is_open:
            watch.missed += 1
            pings.append(watch.entity)
        return True


def _is_of_interest(entity: Entity) -> bool:
    """Whether we still wait for something: messages, or the response."""
    return (entity.state if isinstance(entity, Request) else entity.receiving) is State.OPEN
