"""What the bus is asked for adverts of one kind: to watch the channels of intents, or to subscribe to those of
interests.

Rules
- Each form of a route has its channel, and each channel a twin that never leaves the host (LOCAL).
- If the daemon has no room, a route gives way (``shares``). When something ends, as much is asked for again. So less
  room is unused, while routes wait, than one of them needs: what a refused route of several forms had got before.
- Ends are told before beginnings, since they make room.
"""

from collections.abc import Iterator
from typing import Literal

from bccnd.dndm.adverts import Adverts
from bccnd.dndm.effects import Subscribe, Unsubscribe, Unwatch, Watch
from bccnd.dndm.shares import Shares
from bccnd.errors import DndmError
from bccnd.wire.dndm import routes
from bccnd.wire.dndm.routes import Route

# The prefix of the twin of a channel, which never leaves this host.
LOCAL = "local/"

Kind = Literal["subscribe", "watch"]
KINDS: tuple[Kind, ...] = "watch", "subscribe"
Asked = Subscribe | Unsubscribe | Unwatch | Watch
EFFECTS: dict[Kind, tuple[type[Asked], type[Asked]]] = {
    "watch": (Watch, Unwatch),
    "subscribe": (Subscribe, Unsubscribe),
}


class Asking:
    def __init__(self, adverts: Adverts, kind: Kind) -> None:
        self._adverts = adverts
        self._begin, self._end = EFFECTS[kind]
        # Id of a route -> channels that the bus was asked for.
        self._asked: dict[str, set[str]] = {}
        self._shares = Shares()

    def has(self, channel: str) -> bool:
        """Whether the bus was asked for it."""
        return channel in self._asked.get(route_of(channel).id, ())

    def waits(self, route_id: str) -> bool:
        """Whether the daemon has no room for it."""
        return self._shares.waits(route_id)

    @property
    def waiting(self) -> int:
        """How many routes the daemon has no room for."""
        return self._shares.waiting

    def update(self, route_id: str) -> Iterator[Asked]:
        """The adverts of a route may have changed. Returns what to ask."""
        self._shares.account(route_id, self._adverts.of(route_id))
        yield from self._differing(route_id)

    def crowded(self, channel: str) -> tuple[str, list[Asked]]:
        """The daemon has no room for it: the route that gives way, and what follows; empty if nothing was asked."""
        if not self.has(channel):
            return "", []
        route_id = route_of(channel).id
        channels = sorted(self._asked[route_id])
        giver = self._shares.refuse(route_id)
        effects = list(self._differing(giver or route_id))
        if giver:
            effects += [effect(each) for effect in (self._end, self._begin) for each in channels]
        return giver or route_id, effects

    def resume(self, room: int = 1) -> Iterator[Asked]:
        """There may be room for one more route, or for as many as need this many channels. Returns what to ask."""
        while room > 0 and (route_id := self._shares.resume()):
            yield from self.update(route_id)
            room -= len(self._asked.get(route_id, ()))  # none if it has ended: the next one gets the room

    def _differing(self, route_id: str) -> Iterator[Asked]:
        before, waits = self._asked.pop(route_id, set()), self.waits(route_id)
        now = set() if waits else channels_of(self._adverts, route_id)
        if now:
            self._asked[route_id] = now
        yield from map(self._end, sorted(before - now))
        yield from map(self._begin, sorted(now - before))
        if before - now and not waits:
            yield from self.resume(len(before - now))


def route_of(channel: str) -> Route:
    """The route of a channel or of its twin. Raises ``DndmError``."""
    return routes.route_of(channel.removeprefix(LOCAL))


def channels_of(adverts: Adverts, route_id: str) -> set[str]:
    """The channels of all forms of a route, without those that would be too long."""
    found = set()
    for advert in adverts.of(route_id).values():
        try:
            channel = advert.route.channel()
        except DndmError:
            continue
        found.add(channel)
        if len(channel) + len(LOCAL) <= routes.CHANNEL_LIMIT:
            found.add(LOCAL + channel)
    return found
