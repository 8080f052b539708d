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
- Where the daemon has no room for so many subscriptions, ``shares`` says whose interests it hears.
"""

from collections.abc import Iterable, Iterator

from bccnd.dndm.adverts import Adverts
from bccnd.dndm.effects import Effect, Subscribe, Unsubscribe, Unwatch, Watch
from bccnd.dndm.link import Link
from bccnd.dndm.shares import Shares
from bccnd.errors import DndmError
from bccnd.relay.deadlines import Alarm
from bccnd.wire.dndm import routes
from bccnd.wire.dndm.routes import Route

# What a channel of this host begins with; the channel follows.
LOCAL = "local/"


class Routing:
    """``limit``: of intents, and of interests, of a link."""

    def __init__(self, limit: int, alarm: Alarm) -> None:
        self.intents = Adverts(limit, alarm)
        self.interests = Adverts(limit, alarm)
        # Channel -> whether somebody listens; None until the bus has said so.
        self._watched: dict[str, bool | None] = {}
        # Id -> channels that are watched, and those that are subscribed to.
        self._asked: dict[str, tuple[set[str], set[str]]] = {}
        self._shares = Shares()

    def listened(self, channel: str, somebody: bool) -> Route | None:
        """The route of which that is news; None where it is none."""
        if channel not in self._watched or self._watched[channel] is somebody:
            return None
        self._watched[channel] = somebody
        return routes.route_of(channel.removeprefix(LOCAL))

    def listening(self, route: Route) -> Iterable[str]:
        """The channels of the route to which programs of the bus listen, as far as the bus has said."""
        channels = _channels(self.intents, route.id)
        return sorted(channel for channel in channels if self._watched.get(channel) is not False)

    def is_wanted(self, route_id: str) -> bool:
        """Whether programs of the bus are known to listen."""
        return any(self._watched.get(channel) for channel in _channels(self.intents, route_id))

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
        watched, subscribed = self._asked.pop(route_id, (set(), set()))
        self._shares.account(route_id, self.interests.of(route_id))
        waits = self._shares.waits(route_id)
        watch = _channels(self.intents, route_id)
        subscribe = set() if waits else _channels(self.interests, route_id)
        if watch or subscribe:
            self._asked[route_id] = watch, subscribe
        for channel in sorted(watch - watched):
            self._watched[channel] = None
            yield Watch(channel)
        for channel in sorted(watched - watch):
            del self._watched[channel]
            yield Unwatch(channel)
        yield from map(Unsubscribe, sorted(subscribed - subscribe))
        yield from map(Subscribe, sorted(subscribe - subscribed))
        if subscribed - subscribe and not waits:
            yield from self.resume()

    def crowded(self, channel: str) -> Iterator[Effect]:
        """The daemon has no room for a subscription to this channel: what gives way, and what is asked again."""
        route_id = routes.route_of(channel.removeprefix(LOCAL)).id
        _, subscribed = self._asked.get(route_id, (set(), set()))
        if channel not in subscribed:
            return
        giver = self._shares.refuse(route_id)
        yield from self.bus(giver or route_id)
        if giver:
            yield from map(Subscribe, sorted(subscribed))

    def resume(self) -> Iterator[Effect]:
        """There may be room for one more interest."""
        while route_id := self._shares.resume():
            yield from self.bus(route_id)
            if self.interests.of(route_id):  # else it has ended, and left the room to the next
                break

    @property
    def waiting(self) -> int:
        """How many routes the daemon has no room for."""
        return self._shares.waiting


def _channels(adverts: Adverts, route_id: str) -> set[str]:
    """Those of all forms of the route; one whose channel would be too long has none."""
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
