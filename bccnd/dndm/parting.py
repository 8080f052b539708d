"""Takes back what peers were told when the gateway stops, a bounded part at a time. No I/O and no clock.

Rules
- Links have turns, a message each: those that are left when the time is over have had as much as the others.
- Who does not read is told nothing until it does: it holds up neither the others nor the end.
"""

from collections.abc import Callable, Iterator
from math import inf

from bccnd.dndm.link import Link
from bccnd.dndm.state import State
from bccnd.dndm.telling import farewell
from bccnd.relay.moment import Moment
from bccnd.wire.dndm.messages import Known

# Messages before others have their turn: some milliseconds.
STEP = 64
# Bytes that wait for a peer, above which it is told nothing more.
FULL_BYTES = 16_384


class Parting:
    """``leave(link, at)`` has the core forget a link. ``due``: when to call ``step``."""

    def __init__(self, state: State, leave: Callable[[Link, Moment], None]) -> None:
        self._state = state
        self._leave = leave
        # Links whose turn has not come; those that may be told more, in turn; those for which too much waits.
        self._waiting: list[int] = []
        self._ready: dict[int, tuple[Link, Iterator[Known]]] = {}
        self._full: dict[int, tuple[Link, Iterator[Known]]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._waiting or number in self._ready or number in self._full

    @property
    def due(self) -> float:
        return -inf if self._waiting or self._ready else inf

    def begin(self, at: Moment) -> None:
        """The gateway stops. Peers notice the end of TCP by themselves."""
        self._waiting = [link.number for link in self._state.links.values() if link.scheme != "tcp"]
        self.step(at)

    def backlog(self, number: int, size: int) -> None:
        """As of the core."""
        if parting := self._ready.pop(number, None) or self._full.pop(number, None):
            parting[0].backlog = size
            (self._full if size > FULL_BYTES else self._ready)[number] = parting

    def forget(self, number: int) -> None:
        self._ready.pop(number, None)
        self._full.pop(number, None)

    def step(self, at: Moment) -> None:
        link = self._state.links.get(self._waiting.pop()) if self._waiting else None
        if link is not None:
            self._leave(link, at)
            if link.peer:
                self._ready[link.number] = link, farewell(link.intents, link.interests)
        for _ in range(STEP):
            if not self._ready:
                break
            number = next(iter(self._ready))
            link, messages = parting = self._ready.pop(number)
            message = next(messages, None)
            if message is not None:
                self._state.tell(link, message, at)
                (self._full if link.backlog > FULL_BYTES else self._ready)[number] = parting
