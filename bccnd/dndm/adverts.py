"""Keeps which links advertise which routes: the intents of all peers, or their interests.

Rules
- An advert ends when it is taken back, when its link closes, or when its time to live passes unused. One without a
  time to live ends with its link.
- A link holds at most ``limit`` routes: further ones are refused, at no cost to others.
- Hops are bounded. When peers echo each other's adverts, hops grow until these are refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm import routes
from bccnd.wire.dndm.messages import Known
from bccnd.wire.dndm.peers import Peer
from bccnd.wire.dndm.routes import Hashed, Route

# Most hops of an advert that is taken, and passed on with one more: more gateways than ever stand in a row.
HOPS_LIMIT = 8
# Seconds. An advert with a longer time to live ends with its link.
TTL_LIMIT = 86_400.0


@dataclass(frozen=True, slots=True)
class Advert:
    """``route``: as the peer writes it; ``ttl``: in seconds, 0 for none."""

    route: Route
    hops: int
    ttl: float


def listed(message: Known) -> list[pb.Intent | pb.Interest]:
    """The adverts in a message of any type."""
    match message:
        case pb.Intent() | pb.Interest():
            return [message]
        case pb.Intents():
            return list(message.intents)
        case pb.Interests():
            return list(message.interests)
        case pb.Handshake():
            return [*message.intents, *message.interests]
    return []


def refusal(peer: Peer, said: pb.Intent | pb.Interest, route: Route) -> str:
    """The checks for peers that are not trusted: a well-formed hash, and intents within the own path."""
    if isinstance(route, Hashed) and not routes.is_sha1(route):
        return "route"
    return "path" if isinstance(said, pb.Intent) and not peer.covers(route.path) else ""


class Adverts:
    """Adverts of one kind, by the id of their route and by link."""

    def __init__(self, limit: int, alarm: Alarm) -> None:
        self._limit = limit
        self._adverts: dict[str, dict[int, Advert]] = {}
        self._ids: dict[int, set[str]] = {}
        self._ends: Deadlines[tuple[int, str]] = Deadlines(alarm)

    def put(self, link: int, advert: Advert, now: float) -> str:
        """Add or renew an advert. Returns what is wrong with it: ``hops``, ``limit``, or nothing."""
        if advert.hops >= HOPS_LIMIT:
            self.drop(link, advert.route.id)
            return "hops"
        ids = self._ids.setdefault(link, set())
        if advert.route.id not in ids and len(ids) >= self._limit:
            return "limit"
        ids.add(advert.route.id)
        self._adverts.setdefault(advert.route.id, {})[link] = advert
        self.use(link, advert.route.id, now)
        return ""

    def use(self, link: int, route_id: str, now: float) -> None:
        """A message used the advert: its time to live starts again."""
        advert = self.of(route_id).get(link)
        if advert is None:
            return
        if 0 < advert.ttl <= TTL_LIMIT:
            self._ends.set((link, route_id), now + advert.ttl)
        else:
            self._ends.remove((link, route_id))

    def drop(self, link: int, route_id: str) -> bool:
        """Remove an advert. Whether there was one."""
        there = self._adverts.get(route_id, {})
        if there.pop(link, None) is None:
            return False
        self._ends.remove((link, route_id))
        self._ids[link].discard(route_id)
        if not there:
            del self._adverts[route_id]
        return True

    def drop_link(self, link: int) -> list[str]:
        """Remove the adverts of a link. Returns the ids of their routes."""
        ids = sorted(self._ids.get(link, ()))
        for route_id in ids:
            self.drop(link, route_id)
        self._ids.pop(link, None)
        return ids

    def ended(self, now: float) -> Iterator[str]:
        """Remove the adverts that have ended. Returns the ids of their routes."""
        while due := self._ends.pop(now):
            (link, route_id), _ = due
            self.drop(link, route_id)
            yield route_id

    @property
    def next(self) -> float:
        """When to call ``ended``."""
        return self._ends.next

    def of(self, route_id: str) -> Mapping[int, Advert]:
        """The adverts of a route, by link."""
        return self._adverts.get(route_id, {})

    def ids(self) -> list[str]:
        return list(self._adverts)

    @property
    def total(self) -> int:
        return sum(map(len, self._ids.values()))

    def count(self, link: int) -> int:
        return len(self._ids.get(link, ()))

    def beyond(self, route_id: str, link: int) -> int | None:
        """The hops to tell ``link`` for the adverts of other links; None without any, or if they are too far away."""
        hops = [each.hops + 1 for other, each in self.of(route_id).items() if other != link]
        return min((each for each in hops if each < HOPS_LIMIT), default=None)
