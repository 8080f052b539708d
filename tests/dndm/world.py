"""Robots, gateways and buses in virtual time; links are reliable, as TCP, and take LATENCY seconds.

A ``Robot`` does what public peers do, by the second codec: it drops messages of routes that it was told no intent of,
ends an intent that lies idle, reads one frame at a time, and can leave the prefix out of hashed routes.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import count

from bccnd.dndm.core import Gateway
from bccnd.dndm.effects import (
    Close,
    Dial,
    Effect,
    Publish,
    Send,
    Subscribe,
    Unsubscribe,
    Unwatch,
    Watch,
)
from bccnd.dndm.options import Options
from bccnd.relay.moment import Moment
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.frame import Reader
from bccnd.wire.dndm.messages import Known, decode
from bccnd.wire.dndm.peers import Peer, parse
from tests.wire.dndm import plain_dndm
from tests.wire.dndm.plain_dndm import Fields, written

LATENCY = 0.01
EPOCH_NS = 1_700_000_000_000_000_000
MINUTE_NS = 60_000_000_000


class World:
    """Time, and who can be dialled."""

    def __init__(self) -> None:
        self.now = 0.0
        self.places: dict[tuple[str, str], Node] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._numbers = count(1)

    def at(self, delay: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._order), call))

    @property
    def moment(self) -> Moment:
        return Moment(self.now, EPOCH_NS + int(self.now * 1e9))

    def run(self, seconds: float, most: int = 200_000) -> None:
        """``most``: events; more of them go round for ever."""
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            most -= 1
            assert most, "something goes round"
            self.now, _, call = heapq.heappop(self._queue)
            call()
        self.now = until

    def connect(self, dialler: "Node", acceptor: "Node", dialled: Peer) -> None:
        wire = next(self._numbers), next(self._numbers)
        ends = {wire[0]: (acceptor, wire[1]), wire[1]: (dialler, wire[0])}
        dialler.ends[wire[0]], acceptor.ends[wire[1]] = ends[wire[0]], ends[wire[1]]
        acceptor.opened(wire[1], dialled.scheme, None)
        dialler.opened(wire[0], dialled.scheme, dialled)


class Node:
    """One end of links: number -> the other end, and its number there."""

    def __init__(self, world: World, address: str) -> None:
        self.world = world
        self.address = parse(address)
        self.ends: dict[int, tuple[Node, int]] = {}
        world.places[self.address.place] = self

    def opened(self, number: int, scheme: str, dialled: Peer | None) -> None:
        raise NotImplementedError

    def heard(self, number: int, data: bytes) -> None:
        raise NotImplementedError

    def lost(self, number: int) -> None:
        raise NotImplementedError

    def write(self, number: int, data: bytes) -> None:
        other, there = self.ends[number]
        self.world.at(LATENCY, lambda: other.heard(there, data) if there in other.ends else None)

    def hang_up(self, number: int) -> None:
        other, there = self.ends.pop(number)

        def end() -> None:
            if other.ends.pop(there, None):
                other.lost(there)

        self.world.at(LATENCY, end)


class Bus:
    """Programs that publish and listen, and the gateways: one client each, told of others that listen."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.heard: dict[str, list[bytes]] = defaultdict(list)
        self.listeners: Counter[str] = Counter()
        self.gateways: list[GatewayNode] = []

    def listens(self, channel: str, *, on: bool = True) -> None:
        self.listeners[channel] = int(on)
        self.news(channel)

    def news(self, channel: str) -> None:
        for gateway in self.gateways:
            if channel in gateway.watched:
                somebody = bool(self.listeners[channel]) or any(
                    channel in other.subscribed for other in self.gateways if other is not gateway
                )
                self.world.at(LATENCY, lambda one=gateway, yes=somebody: one.told(channel, yes))  # type: ignore[misc]

    def publish(self, channel: str, payload: bytes, by: "GatewayNode | None" = None) -> None:
        if self.listeners[channel]:
            self.heard[channel].append(payload)
        for gateway in self.gateways:
            if gateway is not by and channel in gateway.subscribed:
                self.world.at(LATENCY, lambda one=gateway: one.came(channel, payload))  # type: ignore[misc]


class GatewayNode(Node):
    """A gateway with its loop."""

    def __init__(self, world: World, bus: Bus, options: Options) -> None:
        super().__init__(world, options.me)
        self.bus = bus
        self.core = Gateway(options)
        self.subscribed: set[str] = set()
        self.watched: set[str] = set()
        self.dialled: list[tuple[float, str]] = []
        self.closes: list[str] = []
        self.sent = 0
        # What it can reach; None for all.
        self.reach: set[str] | None = None
        bus.gateways.append(self)
        world.at(0.0, self.tick)

    def opened(self, number: int, scheme: str, dialled: Peer | None) -> None:
        self.core.connected(number, scheme, self.world.moment, dialled)
        self.act()

    def heard(self, number: int, data: bytes) -> None:
        self.core.received(number, data, self.world.moment)
        self.act()

    def lost(self, number: int) -> None:
        self.core.closed(number, self.world.moment)
        self.act()

    def told(self, channel: str, somebody: bool) -> None:
        self.core.listened(channel, somebody, self.world.moment)
        self.act()

    def came(self, channel: str, payload: bytes) -> None:
        if channel in self.subscribed:
            self.core.came(channel, payload, self.world.moment)
            self.act()

    def tick(self) -> None:
        self.core.tick(self.world.moment)
        self.act()

    def act(self) -> None:
        for effect in self.core.take():
            self._do(effect)
        for number in self.ends:
            self.core.backlog(number, 0, self.world.moment)
        due = self.core.due
        if due < self.world.now + 3600:
            self.world.at(max(0.0, due - self.world.now), self._tick_if_due)

    def _tick_if_due(self) -> None:
        if self.core.due <= self.world.now:
            self.tick()

    def _do(self, effect: Effect) -> None:
        match effect:
            case Send(number, data):
                self.sent += 1
                if number in self.ends:
                    self.write(number, data)
            case Close(number, reason):
                self.closes.append(reason)
                if number in self.ends:
                    self.hang_up(number)
            case Dial(peer):
                self.dialled.append((self.world.now, str(peer)))
                other = self.world.places.get(peer.place)
                if other is None or (self.reach is not None and str(peer) not in self.reach):
                    self.core.dial_failed(peer, self.world.moment)
                else:
                    self.world.connect(self, other, peer)
            case Subscribe(channel):
                assert channel not in self.subscribed
                self.subscribed.add(channel)
                self.bus.news(channel)
            case Unsubscribe(channel):
                self.subscribed.remove(channel)
                self.bus.news(channel)
            case Watch(channel):
                assert channel not in self.watched
                self.watched.add(channel)
                self.bus.news(channel)
            case Unwatch(channel):
                self.watched.remove(channel)
            case Publish(channel, payload):
                self.bus.publish(channel, payload, self)


class Robot(Node):
    """A public peer with at most one link."""

    def __init__(self, world: World, address: str, *, bare: bool = False) -> None:
        super().__init__(world, address)
        self.bare = bare
        self.link: int | None = None
        self.done = False
        self.deaf = False
        self.reader = Reader()
        self.intents: set[str] = set()
        self.interests: set[str] = set()
        # Route id -> when what the other side said of it ends.
        self.wanted: dict[str, float] = {}
        self.offered: dict[str, float] = {}
        self.got: list[tuple[str, bytes, int, bytes]] = []
        self.all: list[tuple[pb.Header, Known | bytes]] = []

    def dial(self, other: Node) -> None:
        self.world.connect(self, other, other.address)

    def leave(self) -> None:
        if self.link is not None:
            self.hang_up(self.link)
            self.lost(self.link)

    def opened(self, number: int, scheme: str, dialled: Peer | None) -> None:
        assert scheme == self.address.scheme
        self.link, self.done, self.reader = number, False, Reader()
        if dialled:
            self.say("HANDSHAKE", self.handshake(1, str(dialled)))

    def lost(self, number: int) -> None:
        if number == self.link:
            self.link = None
            self.wanted.clear()
            self.offered.clear()

    def handshake(self, stage: int, you: str) -> Fields:
        return [(1, str(self.address).encode()), (2, you.encode()), (3, stage)]

    def say(self, kind: str, fields: Fields, **header: int | bytes) -> None:
        numbers = {"receive_timestamp": 1, "timestamp": 2, "want_result": 4, "signature": 5, "route": 6}
        stamp = {"timestamp": self.world.moment.unix_ns} | header
        head: Fields = [
            (3, plain_dndm.TYPES[kind]),
            *((numbers[name], value) for name, value in stamp.items()),
        ]
        if self.link is not None:
            self.write(self.link, plain_dndm.frame(written(head), written(fields)))

    def route(self, route: str) -> bytes:
        return (route.partition("#")[2] or route if self.bare else route).encode()

    def advert(self, kind: str, route: str, *, on: bool = True, ttl: int = MINUTE_NS, hops: int = 0) -> None:
        held = self.intents if kind == "INTENT" else self.interests
        (held.add if on else held.discard)(route)
        if self.done:
            self.say(kind, [(1, self.route(route)), (2, hops), (3, ttl), (4, int(on))])

    def send(self, route: str, payload: bytes, **header: int | bytes) -> None:
        self.say("MESSAGE", [(1, payload)], route=self.route(route), **header)

    def heard(self, number: int, data: bytes) -> None:
        if self.deaf or number != self.link:
            return
        frames = self.reader.feed(data)
        assert len(frames) == 1, "a public peer reads a frame with one read"
        header, message = decode(frames[0])
        self.all.append((header, message))
        match message:
            case pb.Handshake():
                self._greet(message)
            case pb.Ping():
                self.say("PONG", [(1, 1), (3, header.timestamp), (4, message.payload)])
            case pb.Intent() | pb.Interest():
                self._note(message)
            case pb.Intents():
                for intent in message.intents:
                    self._note(intent)
            case pb.Interests():
                for interest in message.interests:
                    self._note(interest)
            case bytes():
                self._take(header, message)

    def _greet(self, said: pb.Handshake) -> None:
        if not self.done:
            self.done = True
            self.say("HANDSHAKE", self.handshake(2, said.me))
            for kind, routes in (("INTENT", self.intents), ("INTEREST", self.interests)):
                for route in sorted(routes):
                    self.advert(kind, route)
        for advert in (*said.intents, *said.interests):
            self._note(advert)

    def _note(self, advert: pb.Intent | pb.Interest) -> None:
        route_id = advert.route.partition("#")[2] or advert.route
        held = self.offered if isinstance(advert, pb.Intent) else self.wanted
        if not advert.register:
            held.pop(route_id, None)
        elif held.get(route_id, 0.0) <= self.world.now:
            # What is there already lives no longer for being told again.
            held[route_id] = self.world.now + advert.ttl / 1e9

    def _take(self, header: pb.Header, message: bytes) -> None:
        route_id = header.route.partition("#")[2] or header.route
        if self.offered.get(route_id, 0.0) <= self.world.now:
            return
        self.offered[route_id] = self.world.now + 60.0
        ((_, payload),) = plain_dndm.read(message)
        assert isinstance(payload, bytes)
        self.got.append((header.route, payload, header.timestamp, header.signature))

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload, _, _ in self.got]
