"""What joins intents and interests of peers with the bus: what each peer is to be told, and what the bus is asked.

Rules
- A peer that has an interest is told an intent without hops, since programs of the bus may publish; public peers take
  messages of routes alone that they were told an intent of. All other intents are passed on with one hop more.
- Interests go to who may publish: who has an intent of the route, or a path that covers it. Programs of the bus that
  listen count as an interest without hops.
- Nothing is passed on to the link that it came from.
- The bus is asked whether somebody listens to the channels of intents, and subscribed to those of interests. Each
  form of a hashed route, with and without its prefix, has its channel. Each channel has a twin that never leaves the
  host (LOCAL) and has room for longer messages.
- Where the daemon has no room for so many subscriptions, or watches, ``shares`` says whose interests it hears, and
  whose intents it watches. Who advertises a route that it does not watch is told that somebody listens.
"""

from collections.abc import Iterable, Iterator

from bccnd.dndm.adverts import Adverts
from bccnd.dndm.asking import Asked, Asking, Kind, channels_of, route_of
from bccnd.dndm.effects import Effect
from bccnd.dndm.link import Link
from bccnd.relay.deadlines import Alarm
from bccnd.wire.dndm.routes import Route


class Routing:
    """``limit``: of intents, and of interests, of a link."""

    def __init__(self, limit: int, alarm: Alarm) -> None:
        self.intents = Adverts(limit, alarm)
        self.interests = Adverts(limit, alarm)
        self._asking: dict[Kind, Asking] = {
            "watch": Asking(self.intents, "watch"),
            "subscribe": Asking(self.interests, "subscribe"),
        }
        # Channel -> whether somebody listens, as the bus has said.
        self._listened: dict[str, bool] = {}

    def listened(self, channel: str, somebody: bool) -> Route | None:
        """The route of which that is news; None where it is none."""
        if not self._asking["watch"].has(channel) or self._listened.get(channel) is somebody:
            return None
        self._listened[channel] = somebody
        return route_of(channel)

    def listening(self, route: Route) -> Iterable[str]:
        """The channels of the route to which programs of the bus listen, as far as the bus has said."""
        channels = channels_of(self.intents, route.id)
        return sorted(channel for channel in channels if self._listened.get(channel) is not False)

    def is_wanted(self, route_id: str) -> bool:
        """Whether programs of the bus are known to listen, or nobody can know."""
        heard = any(self._listened.get(channel) for channel in channels_of(self.intents, route_id))
        return heard or self._asking["watch"].waits(route_id)

    def intent_for(self, link: Link, route_id: str) -> int | None:
        """The hops of the intent that the link is to be told; None for none."""
        if link.number in self.interests.of(route_id):
            return 0
        return self.intents.beyond(route_id, link.number)

    def interest_for(self, link: Link, route_id: str, route: Route) -> int | None:
        """The same of an interest."""
        if link.peer is None:
            return None
        if link.number not in self.intents.of(route_id) and not link.peer.covers(route.path):
            return None
        return 0 if self.is_wanted(route_id) else self.interests.beyond(route_id, link.number)

    def form(self, route_id: str, link: int) -> Route | None:
        """The route as the peer writes it; else as somebody does, with its prefix if anybody knows it."""
        for adverts in (self.interests, self.intents):
            if link in adverts.of(route_id):
                return adverts.of(route_id)[link].route
        known = [each.route for one in (self.intents, self.interests) for each in one.of(route_id).values()]
        return max(known, key=lambda route: (len(str(route)), str(route)), default=None)

    def bus(self, route_id: str) -> Iterator[Effect]:
        """What the bus is to be asked from now on, and what no more."""
        for kind in self._asking:
            yield from self._noted(kind, self._asking[kind].update(route_id))

    def crowded(self, kind: Kind, channel: str) -> tuple[str, list[Effect]]:
        """The daemon has no room for this: the route that gives way, and what follows. Empty if nothing was asked."""
        giver, effects = self._asking[kind].crowded(channel)
        return giver, list(self._noted(kind, effects))

    def resume(self, kind: Kind) -> Iterator[Effect]:
        """There may be room for one more."""
        return self._noted(kind, self._asking[kind].resume())

    def waiting(self, kind: Kind) -> int:
        """How many routes the daemon has no room for."""
        return self._asking[kind].waiting

    def _noted(self, kind: Kind, effects: Iterable[Asked]) -> Iterator[Effect]:
        """Forget what the bus has said of a channel that it is asked about anew, or no more."""
        for effect in effects:
            if kind == "watch":
                self._listened.pop(effect.channel, None)
            yield effect
