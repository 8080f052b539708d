"""Passes messages on: those of peers to the bus and to other peers, those of the bus to peers.

Rules
- A message goes once to each peer with an interest, never back to where it came from.
- It goes to the bus if programs there listen, or while that is not known. If it does not fit a datagram, only
  programs of this host get it.
- A peer that reads too slowly loses messages, and nobody else does.
"""

from bccnd.dndm.adverts import Advert
from bccnd.dndm.asking import LOCAL, route_of
from bccnd.dndm.effects import Publish
from bccnd.dndm.link import Link
from bccnd.dndm.routing import Routing
from bccnd.dndm.seen import Seen
from bccnd.dndm.settling import REFRESH_SECONDS, Settling
from bccnd.dndm.state import State
from bccnd.dndm.telling import TTL_SECONDS, advert
from bccnd.errors import DndmError
from bccnd.relay.moment import Moment
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm import routes
from bccnd.wire.dndm.messages import join
from bccnd.wire.dndm.routes import Route

# The number that stands for the bus, among those of links.
BUS = -1


class Passing:
    def __init__(self, state: State, routing: Routing, settling: Settling) -> None:
        self._state = state
        self._routing = routing
        self._settling = settling
        self._seen = Seen()

    def came(self, channel: str, payload: bytes, at: Moment) -> None:
        """A message of the bus, of another program."""
        try:
            route = route_of(channel)
        except DndmError:
            self._state.counts["bus: channel"] += 1
            return
        header = pb.Header(timestamp=at.unix_ns, type=pb.MESSAGE)
        self._seen.again(BUS, route.id, at.unix_ns, payload)
        self._pass_on(BUS, route, header, payload, at)

    def wants(self, number: int, route: str) -> bool:
        """Whether a message of this route would go anywhere, if it came by this link."""
        try:
            parsed = routes.parse(route)
        except DndmError:
            return False
        interests = self._routing.interests.of(parsed.id)
        return any(link != number for link in interests) or any(self._routing.listening(parsed))

    def forget(self, link: Link) -> None:
        self._seen.forget(link.number)

    def message(self, link: Link, header: pb.Header, data: bytes, at: Moment) -> str:
        if header.type != pb.MESSAGE and header.type < pb.USER_TYPES:
            return "type"
        try:
            route = routes.parse(header.route)
        except DndmError:
            return "route"
        intents = self._routing.intents
        if link.number not in intents.of(route.id):
            if self._state.options.strict:
                return "no intent"
            # A trusted peer that sends it has an intent, it seems.
            if intents.put(link.number, Advert(route, 0, TTL_SECONDS), at.monotonic):
                return "limit"
            self._settling.note(route.id)
        self._settling.settle(route.id, at)
        intents.use(link.number, route.id, at.monotonic)
        if self._seen.again(link.number, route.id, header.timestamp, data):
            link.counts["again"] += 1
            return ""
        for channel in self._routing.listening(route):
            if channel.startswith(LOCAL):
                where, fits = "host", len(data) <= self._state.options.local
            else:
                where, fits = "segment", len(channel) + len(data) <= self._state.options.room
            if fits:
                self._state.effects.append(Publish(channel, data))
            else:
                link.counts[f"too large for the {where}"] += 1
        self._pass_on(link.number, route, header, data, at)
        return ""

    def _pass_on(self, source: int, route: Route, header: pb.Header, data: bytes, at: Moment) -> None:
        """Send it to the peers with an interest, each with the route in its own form."""
        self._settling.settle(route.id, at)
        frames: dict[str, bytes] = {}
        for number, interest in self._routing.interests.of(route.id).items():
            link = self._state.links[number]
            if number == source:
                continue
            if link.backlog > self._state.options.backlog:
                link.counts["slow"] += 1
                continue
            told = link.intents.get(route.id)
            if told is not None:
                # Public peers end an idle intent, whatever its time to live.
                if at.monotonic > told.fresh:
                    self._state.tell(link, advert(pb.Intent, told), at)
                told.fresh = at.monotonic + REFRESH_SECONDS
            text = str(interest.route)
            try:
                frame = frames.get(text) or frames.setdefault(text, join(_passed(header, text), data))
            except DndmError:
                link.counts["too large"] += 1
                continue
            self._state.send(link, frame)
            self._routing.interests.use(number, route.id, at.monotonic)


def _passed(header: pb.Header, route: str) -> pb.Header:
    """The part of a header that is passed on."""
    return pb.Header(
        receive_timestamp=header.receive_timestamp,
        timestamp=header.timestamp,
        type=header.type,
        signature=header.signature,
        route=route,
    )
