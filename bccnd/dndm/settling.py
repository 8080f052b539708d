"""Carries out what follows from adverts, for peers and for the bus: a bounded part at a time.

Rules
- A change of a route is noted, and carried out in a ``step``, which looks at STEP pairs of a route and a link. So a
  peer that advertises hundreds of routes to dozens of others keeps nobody waiting. Of several changes the last
  counts.
- Noted changes of a route are carried out before a message of it goes anywhere (``settle``): public peers drop
  messages of routes without an intent.
- A newcomer is told all routes in steps as well, and every REFRESH_SECONDS each peer is told again what it was told.
"""

from collections.abc import Iterator

from bccnd.dndm.link import Link
from bccnd.dndm.routing import Routing
from bccnd.dndm.state import State
from bccnd.dndm.telling import (
    BATCH_BYTES,
    TTL_SECONDS,
    as_told,
    change,
    intents_again,
    interests_again,
)
from bccnd.relay.moment import Moment
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.messages import Known

# Seconds between two rounds in which a peer is told everything again: three within the time to live.
REFRESH_SECONDS = TTL_SECONDS / 3
# Pairs of a route and a link that are looked at before others have their turn: some ten milliseconds.
STEP = 512
# Pairs of one newcomer in a row; and the pairs that a message of a refresh counts as.
SHARE = 64
AGAIN = 32


class Settling:
    def __init__(self, state: State, routing: Routing) -> None:
        self._state = state
        self._routing = routing
        # Routes that have changed, in order.
        self._changed: dict[str, None] = {}
        # Link -> the routes that it must still be told, the last first; and those that it is told again.
        self._untold: dict[int, list[str]] = {}
        self._again: dict[int, Iterator[Known]] = {}

    @property
    def waits(self) -> bool:
        """Whether there is something for ``step`` to do."""
        return bool(self._changed or self._untold or self._again)

    def note(self, route_id: str) -> None:
        self._changed[route_id] = None

    def settle(self, route_id: str, at: Moment) -> None:
        """Carry out the noted changes of a route now."""
        if route_id not in self._changed:
            return
        del self._changed[route_id]
        self._state.effects += self._routing.bus(route_id)
        for link in self._state.links.values():
            for message in self._differing(link, route_id, at):
                self._state.tell(link, message, at)

    def step(self, at: Moment) -> None:
        left = STEP
        while self._changed and left > 0:
            left -= 1 + len(self._state.links)
            self.settle(next(iter(self._changed)), at)
        while self._untold and left > 0:
            left -= self._tell_some(next(iter(self._untold)), at)
        while self._again and left > 0:
            left -= AGAIN
            self._tell_again(next(iter(self._again)), at)

    def greet(self, link: Link, message: pb.Handshake, at: Moment) -> list[Known]:
        """Fill the handshake with short adverts, and return those that did not fit. The rest is told in steps."""
        routes = sorted({*self._routing.intents.ids(), *self._routing.interests.ids()}, reverse=True)
        rest: list[Known] = []
        while routes and not rest:
            for said in self._differing(link, routes.pop(), at):
                room = message.ByteSize() + said.ByteSize() < BATCH_BYTES
                if room and isinstance(said, pb.Intent):
                    message.intents.append(said)
                elif room and isinstance(said, pb.Interest):
                    message.interests.append(said)
                else:
                    rest.append(said)
        if routes:
            self._untold[link.number] = routes
        return rest

    def refresh(self, link: Link, at: Moment) -> None:
        """Tell a peer everything again, before the time to live ends."""
        link.next_refresh = at.monotonic + REFRESH_SECONDS
        self._again[link.number] = _all_again(link)

    def forget(self, link: Link) -> None:
        self._untold.pop(link.number, None)
        self._again.pop(link.number, None)

    def _tell_some(self, number: int, at: Moment) -> int:
        """Tell a newcomer some of its routes; then others have their turn. Returns how many it was told."""
        routes, link = self._untold.pop(number), self._state.links[number]
        some, rest = routes[-SHARE:], routes[:-SHARE]
        for route_id in reversed(some):
            for message in self._differing(link, route_id, at):
                self._state.tell(link, message, at)
        if rest:
            self._untold[number] = rest
        return len(some)

    def _tell_again(self, number: int, at: Moment) -> None:
        batches = self._again.pop(number)
        message = next(batches, None)
        if message is not None:
            self._state.tell(self._state.links[number], message, at)
            self._again[number] = batches

    def _differing(self, link: Link, route_id: str, at: Moment) -> list[Known]:
        """What a link must be told about a route, and was not."""
        if link.peer is None:
            return []
        fresh = at.monotonic + REFRESH_SECONDS
        intent = interest = None
        route = self._routing.form(route_id, link.number)
        if route is not None:
            intent = self._routing.intent_for(link, route_id)
            interest = self._routing.interest_for(link, route_id, route)
        changes = [
            change(pb.Intent, link.intents, route_id, route, intent, fresh),
            change(pb.Interest, link.interests, route_id, route, interest, fresh),
        ]
        messages: list[Known] = [each for each in changes if each is not None]
        own = self._routing.intents.of(route_id).get(link.number)
        if own is None or interest is None:
            link.notified.discard(route_id)
        elif route_id not in link.notified:
            link.notified.add(route_id)
            messages.append(pb.NotifyIntent(route=as_told(own.route)))
        return messages


def _all_again(link: Link) -> Iterator[Known]:
    yield from intents_again(link.intents)
    yield from interests_again(link.interests)
