"""Every decision of the gateway; no socket, no clock, no log (``bccnd/dndm/README.md``).

    connected, received, closed --> links --> adverts --> routing --> effects
    listened, came (the bus)    ------------------------^

Rules
- A link is nobody until its handshake is done; it is given HANDSHAKE_SECONDS.
- What must be told to peers follows from what is advertised (``routing``): after each change of a route every link is
  told what differs from what it was told.
- A message goes to each peer with an interest once, never back to where it came from, and to the bus if programs
  there listen, or while the bus has not said.
- A peer that reads too slowly loses messages, and nobody else does.
- Two gateways of one bus exchange nothing, nor do two links to one bus: what goes to the bus would come back by it.
- Whatever a peer can make grow is bounded for each link: routes, messages seen, addresses told, faults.
- Time enters as a ``Moment``.
"""

from collections import Counter

from bccnd.dndm.addrbook import Addrbook
from bccnd.dndm.adverts import Advert, listed
from bccnd.dndm.adverts import refusal as refused_advert
from bccnd.dndm.effects import Close, Dial, Effect, Publish, Send
from bccnd.dndm.handshake import has_identity, refusal, rival_loses
from bccnd.dndm.handshake import message as handshake
from bccnd.dndm.link import Link
from bccnd.dndm.options import Options
from bccnd.dndm.routing import Routing
from bccnd.dndm.seen import Seen
from bccnd.dndm.telling import (
    BATCH_BYTES,
    TTL_SECONDS,
    advert,
    as_told,
    change,
    intents_again,
    interests_again,
    peers_messages,
)
from bccnd.errors import DndmError
from bccnd.relay.deadlines import Alarm
from bccnd.relay.moment import Moment
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm import peers, routes
from bccnd.wire.dndm.frame import Frame
from bccnd.wire.dndm.messages import Known, decode, encode, join
from bccnd.wire.dndm.routes import Route

HANDSHAKE_SECONDS = 10.0
PING_SECONDS = 10.0
SILENT_SECONDS = 35.0
# Between two rounds in which a peer is told everything again: thrice within the time to live.
REFRESH_SECONDS = TTL_SECONDS / 3
# Frames of a link that are unsound or refused, and handshakes, before it is closed; with each ping one is forgiven.
FAULTS_LIMIT = 64
HANDSHAKES_LIMIT = 8
# How long a serial line is silent within a frame before what has begun is given up.
LINE_SECONDS = 1.0
# For the bus, among the numbers of links.
BUS = -1


class Gateway:
    """Call it with what happens, then ``take`` what is to be done, and ``tick`` at ``due``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._me = peers.parse(options.me)
        self._alarm = Alarm()
        self._routing = Routing(options.routes, self._alarm)
        self._book = Addrbook(self._me.place, self._alarm)
        for each in options.peers:
            self._book.configure(peers.parse(each))
        self._links: dict[int, Link] = {}
        self._seen = Seen()
        self._effects: list[Effect] = []
        # Of links that are closed, and of the bus.
        self.counts: Counter[str] = Counter()

    # --- what happens ---

    def connected(self, number: int, scheme: str, at: Moment, dialled: peers.Peer | None = None) -> None:
        """A new link; ``dialled``: as ``Dial`` had it, None if the peer came."""
        if len(self._links) >= self._options.links:
            self._effects.append(Close(number, "full"))
            if dialled:
                self._book.gone(dialled.place, at.monotonic)
            return
        link = Link(number, dialled, scheme, at.monotonic, noisy=scheme == "serial")
        self._links[number] = link
        if dialled:
            self._tell(link, handshake(self._me, link, dialled, pb.INITIAL), at)

    def received(self, number: int, data: bytes, at: Moment) -> None:
        """Bytes of a link, as many as came."""
        link = self._links.get(number)
        if link is None:
            return
        link.fed = at.monotonic
        self._frames(link, link.reader.feed(data), at)
        if number in self._links and link.reader.fault is not None:
            self._close(link, "frame", at)

    def closed(self, number: int, at: Moment) -> None:
        """The peer is gone."""
        if link := self._links.get(number):
            self._forget(link, at)

    def dial_failed(self, peer: peers.Peer, at: Moment) -> None:
        self._book.gone(peer.place, at.monotonic)

    def backlog(self, number: int, size: int, at: Moment) -> None:
        """How many bytes wait to be written to a link, whenever that has changed."""
        if link := self._links.get(number):
            link.backlog = size
            if size > 2 * self._options.backlog:
                self._close(link, "slow", at)

    def listened(self, channel: str, somebody: bool, at: Moment) -> None:
        """Whether programs of the bus, other than this one, listen to a channel that is watched."""
        route = self._routing.listened(channel, somebody)
        if route is not None:
            self._settle(route.id, at)

    def came(self, channel: str, payload: bytes, at: Moment) -> None:
        """A message of the bus, of another program."""
        try:
            route = routes.route_of(channel)
        except DndmError:
            self.counts["bus: channel"] += 1
            return
        header = pb.Header(timestamp=at.unix_ns, type=pb.MESSAGE)
        self._seen.again(BUS, route.id, at.unix_ns, payload)
        self._pass_on(BUS, route, header, payload, at)

    def tick(self, at: Moment) -> None:
        """Do what is due."""
        now = at.monotonic
        for adverts in (self._routing.intents, self._routing.interests):
            for route_id in adverts.ended(now):
                self._settle(route_id, at)
        for link in list(self._links.values()):
            self._look_after(link, at)
        # One in a call: all of many links at once would keep everybody waiting.
        known = [link for link in self._links.values() if link.peer and link.next_refresh <= now]
        if known:
            self._refresh(min(known, key=lambda link: link.next_refresh), at)
        self._effects += map(Dial, self._book.to_dial(now))

    def take(self) -> list[Effect]:
        """What is to be done, in this order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def due(self) -> float:
        """When to call ``tick``, in monotonic seconds; it may be too early."""
        times = [self._book.next, self._routing.intents.next, self._routing.interests.next]
        for link in self._links.values():
            if link.peer is None:
                times.append(link.since + HANDSHAKE_SECONDS)
            else:
                times += [link.next_ping, link.next_refresh, link.heard + SILENT_SECONDS]
            if link.noisy and link.reader.waiting:
                times.append(link.fed + LINE_SECONDS)
        return min(times)

    @property
    def links(self) -> list[Link]:
        """To be looked at alone."""
        return list(self._links.values())

    # --- a link ---

    def _look_after(self, link: Link, at: Moment) -> None:
        now = at.monotonic
        if link.reader.waiting and link.noisy and now >= link.fed + LINE_SECONDS:
            link.fed = now
            self._frames(link, link.reader.resume(), at)
        if link.number not in self._links:
            return
        if link.peer is None:
            if now >= link.since + HANDSHAKE_SECONDS:
                self._close(link, "no handshake", at)
            return
        if now >= link.heard + SILENT_SECONDS:
            self._close(link, "silent", at)
            return
        if now >= link.next_ping:
            link.next_ping = now + PING_SECONDS
            link.counts["faults"] = max(0, link.counts["faults"] - 1)
            link.handshakes = max(0, link.handshakes - 1)
            self._tell(link, pb.Ping(payload=link.ping(now)), at)

    def _refresh(self, link: Link, at: Moment) -> None:
        """Tell it all again, before the time to live ends."""
        link.next_refresh = at.monotonic + REFRESH_SECONDS
        for intents in intents_again(link.intents.values()):
            self._tell(link, intents, at)
        for interests in interests_again(link.interests.values()):
            self._tell(link, interests, at)

    def _frames(self, link: Link, frames: list[Frame], at: Moment) -> None:
        for frame in frames:
            if link.number in self._links:
                self._frame(link, frame, at)

    def _frame(self, link: Link, frame: Frame, at: Moment) -> None:
        try:
            header, message = decode(frame)
        except DndmError as error:
            self._fault(link, error.rule, at)
            return
        header.receive_timestamp = at.unix_ns
        link.heard = at.monotonic
        if link.peer is None and not isinstance(message, pb.Handshake | pb.Ping | pb.Pong | pb.Result):
            self._close(link, "before the handshake", at)
            return
        wrong = self._heard(link, header, message, at)
        if link.number not in self._links:
            return
        if wrong:
            self._fault(link, wrong, at)
        if header.want_result and header.type != pb.RESULT and link.number in self._links:
            result = pb.Result(nonce=header.timestamp, error=1 if wrong else 0, description=wrong)
            self._tell(link, result, at)

    def _heard(self, link: Link, header: pb.Header, message: Known | bytes, at: Moment) -> str:
        """What is wrong with it, for counters and a RESULT."""
        match message:
            case bytes():
                return self._message(link, header, message, at)
            case pb.Handshake():
                return self._handshake(link, message, at)
            case pb.Peers() | pb.Addrbook():
                return self._told_of(link, message, at)
            case pb.Ping(payload=payload):
                pong = pb.Pong(receive_timestamp=at.unix_ns, ping_timestamp=header.timestamp, payload=payload)
                self._tell(link, pong, at)
            case pb.Pong(payload=payload):
                link.counts["pong"] += not link.pong(payload, at.monotonic)
            case pb.Result() | pb.NotifyIntent():
                # No result is wanted, and interests say what a notice says.
                link.counts[pb.Type.Name(header.type)] += 1
            case _:
                return self._adverts(link, message, at)
        return ""

    def _fault(self, link: Link, what: str, at: Moment) -> None:
        link.counts[what] += 1
        link.counts["faults"] += 1
        if link.counts["faults"] > FAULTS_LIMIT:
            self._close(link, "faults", at)

    def _tell(self, link: Link, message: Known, at: Moment) -> None:
        self._send(link, encode(message, at.unix_ns))

    def _send(self, link: Link, data: bytes) -> None:
        link.backlog += len(data)
        self._effects.append(Send(link.number, data))

    def _close(self, link: Link, reason: str, at: Moment, *, replaced: bool = False) -> None:
        """``replaced``: the peer has another link."""
        self.counts[f"closed: {reason}"] += 1
        self._effects.append(Close(link.number, reason))
        self._forget(link, at, replaced=replaced)

    def _forget(self, link: Link, at: Moment, *, replaced: bool = False) -> None:
        del self._links[link.number]
        self.counts.update(link.counts)
        self._seen.forget(link.number)
        self._book.teller_gone(link.number)
        up = {other.peer.place for other in self._links.values() if other.peer}
        for peer in (link.dialled, link.peer):
            if peer and peer.place not in up and not replaced:
                self._book.gone(peer.place, at.monotonic)
        if link.peer and link.peer.place not in up and not replaced:
            self._share(link.peer, at, remove=True)
        for route_id in self._drop_adverts(link):
            self._settle(route_id, at)

    # --- handshake and peers ---

    def _handshake(self, link: Link, message: pb.Handshake, at: Moment) -> str:
        link.handshakes += 1
        if link.handshakes > HANDSHAKES_LIMIT:
            self._close(link, "handshakes", at)
            return ""
        others = [other for other in self._links.values() if other is not link]
        refused = refusal(self._me, link, message, others, strict=self._options.strict)
        if refused:
            self._close(link, refused, at)
            return ""
        if link.peer is not None:
            if message.stage == pb.INITIAL:  # a board has started again, at the end of the same line
                self._begin_again(link, at)
                self._welcome(link, link.peer, at)
            return self._adverts(link, message, at) if message.stage != pb.INITIAL else ""
        peer = peers.parse(message.me)
        for rival in others:
            if has_identity(peer) and rival.peer and rival.peer.place == peer.place:
                if not rival_loses(self._me, link, rival, peer, strict=self._options.strict):
                    self._close(link, "twice", at)
                    return ""
                self._close(rival, "twice", at, replaced=True)
        self._welcome(link, peer, at)
        if message.stage == pb.FINAL:
            return self._adverts(link, message, at)
        return ""

    def _welcome(self, link: Link, peer: peers.Peer, at: Moment) -> None:
        """Begin with a peer: the last stage of the handshake, with as many adverts as are short, then the rest."""
        link.peer = peer
        for each in filter(None, (link.dialled, peer)):
            self._book.connected(each.place)
        link.next_ping, link.next_refresh = at.monotonic, at.monotonic + REFRESH_SECONDS
        message = handshake(self._me, link, peer, pb.FINAL)
        rest: list[Known] = []
        for route_id in sorted({*self._routing.intents.ids(), *self._routing.interests.ids()}):
            for said in self._differing(link, route_id, at):
                room = message.ByteSize() + said.ByteSize() < BATCH_BYTES
                if room and isinstance(said, pb.Intent):
                    message.intents.append(said)
                elif room and isinstance(said, pb.Interest):
                    message.interests.append(said)
                else:
                    rest.append(said)
        others = [other.peer for other in self._links.values() if other.peer and other is not link]
        for told in (message, *rest, *peers_messages(link, others, remove=False)):
            self._tell(link, told, at)
        self._share(peer, at, remove=False)

    def _begin_again(self, link: Link, at: Moment) -> None:
        """What it advertised and was told it has forgotten."""
        for told in (link.intents, link.interests, link.notified, link.shared):
            told.clear()
        peer, link.peer = link.peer, None
        for route_id in self._drop_adverts(link):
            self._settle(route_id, at)
        link.peer = peer

    def _drop_adverts(self, link: Link) -> list[str]:
        """The ids of the routes that it advertised."""
        routing = self._routing
        return sorted({*routing.intents.drop_link(link.number), *routing.interests.drop_link(link.number)})

    def _share(self, peer: peers.Peer, at: Moment, *, remove: bool) -> None:
        """Tell all others of a peer."""
        for link in self._links.values():
            if link.peer:
                for message in peers_messages(link, [peer], remove=remove):
                    self._tell(link, message, at)

    def _told_of(self, link: Link, message: pb.Peers | pb.Addrbook, at: Moment) -> str:
        """Addresses of others: what is wrong with one of them; the others are noted."""
        entries = [*message.entries] if isinstance(message, pb.Addrbook) else [None] * len(message.ids)
        texts = message.ids if isinstance(message, pb.Peers) else [each.peer for each in message.entries]
        wrong = ""
        for text, entry in zip(texts, entries, strict=True):
            try:
                peer = peers.parse(text)
            except DndmError:
                wrong = "peer"
                continue
            if isinstance(message, pb.Peers) and message.remove:
                self._book.taken_back(peer, link.number)
            elif not self._options.strict and not self._book.told(peer, link.number, at.monotonic, entry):
                link.counts["peers not noted"] += 1
        return wrong

    # --- adverts ---

    def _adverts(self, link: Link, message: Known, at: Moment) -> str:
        """What is wrong with one of them; the others hold."""
        wrong = ""
        for each in listed(message):
            if not link.allowance.take(at.monotonic):
                return "rate"
            wrong = self._advert(link, each, at) or wrong
        return wrong

    def _advert(self, link: Link, said: pb.Intent | pb.Interest, at: Moment) -> str:
        try:
            route = routes.parse(said.route)
        except DndmError:
            return "route"
        if self._options.strict and link.peer and (wrong := refused_advert(link.peer, said, route)):
            return wrong
        adverts = self._routing.intents if isinstance(said, pb.Intent) else self._routing.interests
        before = adverts.of(route.id).get(link.number)
        wrong = ""
        if said.register:
            # As short a time as public peers take for none.
            ttl = said.ttl / 1e9 if said.ttl > 1_000_000 else 0.0
            wrong = adverts.put(link.number, Advert(route, said.hops, ttl), at.monotonic)
        else:
            adverts.drop(link.number, route.id)
        after = adverts.of(route.id).get(link.number)
        if (before and (before.route, before.hops)) != (after and (after.route, after.hops)):
            self._settle(route.id, at)
        if wrong == "hops":  # no fault of the peer: adverts that go round end like that
            link.counts["hops"] += 1
            return ""
        return wrong

    def _settle(self, route_id: str, at: Moment) -> None:
        """Ask the bus, and tell each peer, what follows from a change of the route."""
        self._effects += self._routing.bus(route_id)
        for link in self._links.values():
            for message in self._differing(link, route_id, at):
                self._tell(link, message, at)

    def _differing(self, link: Link, route_id: str, at: Moment) -> list[Known]:
        """What a link is to be told of a route, and was not."""
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

    # --- messages ---

    def _message(self, link: Link, header: pb.Header, data: bytes, at: Moment) -> str:
        if header.type != pb.MESSAGE and header.type < pb.USER_TYPES:
            return "type"
        try:
            route = routes.parse(header.route)
        except DndmError:
            return "route"
        intents = self._routing.intents
        if link.number not in intents.of(route.id):
            if self._options.strict:
                return "no intent"
            # A trusted peer has one, it seems.
            if intents.put(link.number, Advert(route, 0, TTL_SECONDS), at.monotonic):
                return "limit"
            self._settle(route.id, at)
        intents.use(link.number, route.id, at.monotonic)
        if self._seen.again(link.number, route.id, header.timestamp, data):
            link.counts["again"] += 1
            return ""
        for channel in self._routing.listening(route):
            if len(data) > self._options.payload:
                link.counts["too large for the bus"] += 1
            else:
                self._effects.append(Publish(channel, data))
        self._pass_on(link.number, route, header, data, at)
        return ""

    def _pass_on(self, source: int, route: Route, header: pb.Header, data: bytes, at: Moment) -> None:
        """To the peers with an interest, each with the route as it writes it."""
        for number, interest in self._routing.interests.of(route.id).items():
            link = self._links[number]
            if number == source:
                continue
            if link.backlog > self._options.backlog:
                link.counts["slow"] += 1
                continue
            told = link.intents.get(route.id)
            if told is not None:
                if (
                    at.monotonic > told.fresh
                ):  # public peers end an intent that lay idle, whatever they are told
                    self._tell(link, advert(pb.Intent, told), at)
                told.fresh = at.monotonic + REFRESH_SECONDS
            passed = pb.Header(
                receive_timestamp=header.receive_timestamp,
                timestamp=header.timestamp,
                type=header.type,
                signature=header.signature,
                route=str(interest.route),
            )
            try:
                self._send(link, join(passed, data))
            except DndmError:
                link.counts["too large"] += 1
                continue
            self._routing.interests.use(number, route.id, at.monotonic)
