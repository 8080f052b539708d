"""Joins intents and interests of peers with the bus: what to tell each peer, and what to ask the bus.

Rules
- A peer with an interest is told an intent without hops, since programs of the bus may publish, and public peers take
  only messages of routes with an intent. All other intents are passed on with one hop more.
- Interests go to peers that may publish: those with an intent of the route, or a path that covers it. Programs of the
  bus that listen count as an interest without hops.
- Nothing is passed back to the link that it came from.
- The gateway watches the channels of intents, and subscribes to those of interests. Each form of a hashed route, with
  and without its prefix, has its own channel. Each channel has a twin that never leaves the host (LOCAL) and takes
  longer messages.
- If the daemon has no room for all subscriptions, or watches, ``shares`` decides which interests are heard, and which
  intents are watched. A peer with an intent that is not watched is told that somebody listens.
"""

from collections.abc import Iterable, Iterator

from bccnd.dndm.adverts import Adverts
from bccnd.dndm.asking import Asked, Asking, Kind, channels_of, route_of
from bccnd.dndm.effects import Effect
from bccnd.dndm.link import Link
from bccnd.relay.deadlines import Alarm
from bccnd.wire.dndm.routes import Route


class Routing:
    """``limit``: most intents, and most interests, of a link."""

    def __init__(self, limit: int, alarm: Alarm) -> None:
        self.intents = Adverts(limit, alarm)
        self.interests = Adverts(limit, alarm)
        self._asking: dict[Kind, Asking] = {
            "watch": Asking(self.intents, "watch"),
            "subscribe": Asking(self.interests, "subscribe"),
        }
        # Channel -> whether somebody listens, as far as the bus has said.
        self._listened: dict[str, bool] = {}

    def listened(self, channel: str, somebody: bool) -> Route | None:
        """Note whether somebody listens to a channel. Returns the route if that is news, else None."""
        if not self._asking["watch"].has(channel) or self._listened.get(channel) is somebody:
            return None
        self._listened[channel] = somebody
        return route_of(channel)

    def listening(self, route: Route) -> Iterable[str]:
        """The channels of the route to which programs of the bus listen, as far as the bus has said."""
        channels = channels_of(self.intents, route.id)
        return sorted(channel for channel in channels if self._listened.get(channel) is not False)

    def is_wanted(self, route_id: str) -> bool:
        """Whether programs of the bus listen, or nobody can tell."""
        heard = any(self._listened.get(channel) for channel in channels_of(self.intents, route_id))
        return heard or self._asking["watch"].waits(route_id)

    def intent_for(self, link: Link, route_id: str) -> int | None:
        """The hops of the intent to tell the link; None for no intent."""
        if link.number in self.interests.of(route_id):
            return 0
        return self.intents.beyond(route_id, link.number)

    def interest_for(self, link: Link, route_id: str, route: Route) -> int | None:
        """The hops of the interest to tell the link; None for no interest."""
        if link.peer is None:
            return None
        if link.number not in self.intents.of(route_id) and not link.peer.covers(route.path):
            return None
        return 0 if self.is_wanted(route_id) else self.interests.beyond(route_id, link.number)

    def form(self, route_id: str, link: int) -> Route | None:
        """The route in the peer's form; else in the form of another peer, with its prefix if that is known."""
        for adverts in (self.interests, self.intents):
            if link in adverts.of(route_id):
                return adverts.of(route_id)[link].route
        known = [each.route for one in (self.intents, self.interests) for each in one.of(route_id).values()]
        return max(known, key=lambda route: (len(str(route)), str(route)), default=None)

    def drop_link(self, link: int) -> list[str]:
        """Remove the adverts of a link. Returns the ids of their routes."""
        return [*self.intents.drop_link(link), *self.interests.drop_link(link)]

    def bus(self, route_id: str) -> Iterator[Effect]:
        """What to ask the bus from now on, and what not any more."""
        for kind in self._asking:
            yield from self._noted(kind, self._asking[kind].update(route_id))

    def crowded(self, kind: Kind, channel: str) -> tuple[str, list[Effect]]:
        """The daemon has no room for this: the route that gives way, and what follows. Empty if nothing was asked."""
        giver, effects = self._asking[kind].crowded(channel)
        return giver, list(self._noted(kind, effects))

    def resume(self, kind: Kind) -> Iterator[Effect]:
        """There may be room for one more route. Returns what follows."""
        return self._noted(kind, self._asking[kind].resume())

    def waiting(self, kind: Kind) -> int:
        """How many routes the daemon has no room for."""
        return self._asking[kind].waiting

    def _noted(self, kind: Kind, effects: Iterable[Asked]) -> Iterator[Effect]:
        """Forget what the bus has said about a channel that is asked about again, or not any more."""
        for effect in effects:
            if kind == "watch":
                self._listened.pop(effect.channel, None)
            yield effect
