"""Every decision of the gateway; no socket, no clock, no log (``bccnd/dndm/README.md``).

    connected, received, closed --> links --> adverts --> routing --> effects
    listened, came (the bus)    ------------------------^

Rules
- A link has no peer until its handshake is done, for which it has HANDSHAKE_SECONDS.
- What peers are told follows from what is advertised (``routing``): after each change of a route, every link is told
  only what is new to it.
- A message goes once to each peer with an interest, never back to where it came from. It goes to the bus if programs
  there listen, or while that is not known.
- A peer that reads too slowly loses messages, and nobody else does.
- A call does a bounded part of the work. The remaining frames of a link wait (``busy``), and so do the consequences
  of adverts (``settling``). ``tick`` goes on with them, one link after the other, and is due until all is done.
- A serial line is never closed because nobody answers: opening it again restarts many boards.
- Two gateways of one bus exchange nothing, nor do two links to one bus: what goes to the bus would come back.
- Everything that a peer can make grow is bounded for each link: routes, messages seen, addresses told, faults.
- Time comes in as a ``Moment``.
"""

from math import inf

from bccnd.dndm.addrbook import Addrbook
from bccnd.dndm.adverts import Advert, listed
from bccnd.dndm.adverts import refusal as refused_advert
from bccnd.dndm.asking import KINDS, Kind
from bccnd.dndm.effects import Close, Dial, Effect, Met, Silent
from bccnd.dndm.handshake import has_identity, refusal, rival_loses
from bccnd.dndm.handshake import message as handshake
from bccnd.dndm.link import Link
from bccnd.dndm.options import Options
from bccnd.dndm.parting import Parting
from bccnd.dndm.passing import Passing
from bccnd.dndm.routing import Routing
from bccnd.dndm.settling import REFRESH_SECONDS, Settling
from bccnd.dndm.state import State
from bccnd.dndm.telling import TTL_SECONDS, peers_messages
from bccnd.errors import DndmError
from bccnd.relay.deadlines import Alarm
from bccnd.relay.moment import Moment
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm import peers, routes
from bccnd.wire.dndm.frame import FRAME_LIMIT, Frame
from bccnd.wire.dndm.messages import Known, decode_header, decode_message

HANDSHAKE_SECONDS = 10.0
PING_SECONDS = 10.0
# Seconds between two times that everything is told at a broadcast address, however many newcomers there seem to be.
GREETING_SECONDS = 1.0
SILENT_SECONDS = 35.0
# Unsound or refused frames, and handshakes, before a link is closed; each ping forgives one.
FAULTS_LIMIT = 64
HANDSHAKES_LIMIT = 8
# Seconds of silence on a serial line after which an unfinished frame is given up.
LINE_SECONDS = 1.0
# Frames of a link, and their effects, before others have their turn: some ten milliseconds.
FRAMES, EFFECTS = 256, 2048
# Adverts that are tried again when the daemon has come back, or at a reload. The others follow as some end.
ROOMY = 512


class Gateway:
    """Call it with each event, then ``take`` the effects, and call ``tick`` at ``due``."""

    def __init__(self, options: Options) -> None:
        self._me = peers.parse(options.me)
        self._alarm = Alarm()
        self._state = state = State(options)
        self._links, self._effects, self.counts = state.links, state.effects, state.counts
        self._tell = state.tell
        self._routing = Routing(options.routes, self._alarm)
        self._settling = Settling(self._state, self._routing)
        self._book = Addrbook(self._me.place, self._alarm, options.discover)
        for each in options.peers:
            self._book.configure(peers.parse(each))
        # Links with frames that wait, in turn.
        self._busy: dict[int, None] = {}
        self._passing = Passing(state, self._routing, self._settling)
        self._parting = Parting(state, self._leave)

    # --- what happens ---

    def connected(
        self,
        number: int,
        scheme: str,
        at: Moment,
        dialled: peers.Peer | None = None,
        *,
        broadcast: bool = False,
    ) -> None:
        """There is a new link; ``dialled``: as in ``Dial``, None if the peer came. ``broadcast``: as in ``Link``."""
        if len(self._links) >= self._state.options.links:
            self._make_room(at)
        if len(self._links) >= self._state.options.links:
            self._effects.append(Close(number, "full"))
            if dialled:
                self._book.gone(dialled.place, at.monotonic)
            return
        link = Link(number, dialled, scheme, at.monotonic, noisy=scheme == "serial", broadcast=broadcast)
        self._links[number] = link
        if dialled and broadcast:
            self._welcome(link, dialled, at)
        elif dialled:
            self._tell(link, handshake(self._me, link, dialled, pb.INITIAL), at)

    def received(self, number: int, data: bytes, at: Moment) -> None:
        """Take bytes from a link."""
        link = self._links.get(number)
        if link is None:
            return
        link.fed = at.monotonic
        link.frames += link.reader.feed(data)
        self._work(link, at)
        self._settling.step(at)

    def busy(self, number: int) -> bool:
        """Whether bytes of a link still wait for their turn: then read no more from it."""
        return number in self._busy

    def closed(self, number: int, at: Moment) -> None:
        """The peer is gone."""
        self._parting.forget(number)
        if link := self._links.get(number):
            self._forget(link, at)
            self._settling.step(at)

    def dial_failed(self, peer: peers.Peer, at: Moment) -> None:
        self._book.gone(peer.place, at.monotonic)

    def backlog(self, number: int, size: int, at: Moment) -> None:
        """Note how many bytes wait to be written to a link. Call it whenever that changes."""
        self._parting.backlog(number, size)
        if link := self._links.get(number):
            link.backlog = size
            if size > 2 * self._state.options.backlog + FRAME_LIMIT:
                self._close(link, "slow", at)

    def listened(self, channel: str, somebody: bool, at: Moment) -> None:
        """The bus says whether programs other than this one listen to a watched channel."""
        route = self._routing.listened(channel, somebody)
        if route is not None:
            self._settling.note(route.id)
            self._settling.step(at)

    def crowded(self, kind: Kind, channel: str, at: Moment) -> None:
        """The daemon has no room for a subscription to this channel, or for a watch."""
        giver, effects = self._routing.crowded(kind, channel)
        self._effects += effects
        if giver:
            self._settling.note(giver)
            self._settling.step(at)

    def roomy(self) -> None:
        """The daemon may have room: it is a new one, or has new settings."""
        for kind in KINDS:
            for _ in range(min(self._routing.waiting(kind), ROOMY)):
                self._effects += self._routing.resume(kind)

    def came(self, channel: str, payload: bytes, at: Moment) -> None:
        """A message of the bus, of another program."""
        self._passing.came(channel, payload, at)

    def tick(self, at: Moment) -> None:
        """Do the work that is due."""
        now = at.monotonic
        for adverts in (self._routing.intents, self._routing.interests):
            for route_id in adverts.ended(now):
                self._settling.note(route_id)
        for number in list(self._busy)[:1]:
            self._work(self._links[number], at)
        self._parting.step(at)
        self._settling.step(at)
        for link in list(self._links.values()):
            self._look_after(link, at)
        self._effects += map(Dial, self._book.to_dial(now))

    def farewell(self, at: Moment) -> None:
        """The end: take back adverts where peers notice no end, and forget these links; ``tick`` goes on."""
        self._parting.begin(at)

    def parts(self, number: int) -> bool:
        """Whether a link must still be told that the gateway stops."""
        return number in self._parting

    def wants(self, number: int, route: str) -> bool:
        """Whether a message of this route would go anywhere, if it came by this link."""
        return self._passing.wants(number, route)

    def take(self) -> list[Effect]:
        """The effects to carry out, in this order."""
        effects = self._effects[:]
        self._effects.clear()
        return effects

    def reconfigure(self, options: Options) -> None:
        """Use these options from now on. ``me``, and the bounds for existing links and routes, stay."""
        self._state.options, self._book.networks = options, options.discover
        wanted = {peer.place: peer for peer in map(peers.parse, options.peers)}
        self._book.leave([peer for peer in self._book.configured() if peer.place not in wanted])
        for peer in wanted.values():
            self._book.configure(peer)

    @property
    def due(self) -> float:
        """When to call ``tick``, in monotonic seconds; it may be too early."""
        if self._busy or self._settling.waits:
            return -inf
        times = [self._parting.due, self._book.next, self._routing.intents.next, self._routing.interests.next]
        for link in self._links.values():
            if link.broadcast:
                times.append(link.next_refresh)
            elif link.peer is None:
                times.append(link.since + HANDSHAKE_SECONDS)
            else:
                times += [link.next_ping, link.next_refresh, link.heard + SILENT_SECONDS]
            if link.noisy and link.reader.waiting:
                times.append(link.fed + LINE_SECONDS)
        return min(times)

    @property
    def links(self) -> list[Link]:
        """All links, to read only."""
        return list(self._links.values())

    @property
    def adverts(self) -> tuple[int, int]:
        """How many intents and interests peers have."""
        return self._routing.intents.total, self._routing.interests.total

    @property
    def waiting(self) -> dict[Kind, int]:
        """For how many routes the daemon has no room: of interests to subscribe to, and of intents to watch."""
        return {kind: self._routing.waiting(kind) for kind in KINDS}

    # --- a link ---

    def _make_room(self, at: Moment) -> None:
        """The oldest stranger loses its place: neither silence nor forged addresses keep anybody out."""
        strangers = [link for link in self._links.values() if not link.proven and not link.dialled]
        if strangers:
            self._close(min(strangers, key=lambda link: link.since), "full", at)

    def _look_after(self, link: Link, at: Moment) -> None:
        now = at.monotonic
        if link.reader.waiting and link.noisy and now >= link.fed + LINE_SECONDS:
            link.fed = now
            link.frames += link.reader.resume()
            self._work(link, at)
        if link.number not in self._links:
            return
        if link.broadcast:
            if now >= link.next_refresh and link.peer:
                self._tell(link, handshake(self._me, link, link.peer, pb.FINAL), at)
                self._settling.refresh(link, at)
            return
        if link.peer is None:
            if now >= link.since + HANDSHAKE_SECONDS:
                self._wait_on(link, "no handshake", at)
            return
        if now >= link.heard + SILENT_SECONDS:
            self._wait_on(link, "silent", at)
            return
        if now >= link.next_ping:
            link.next_ping = now + PING_SECONDS
            link.counts["faults"] = max(0, link.counts["faults"] - 1)
            link.handshakes = max(0, link.handshakes - 1)
            self._tell(link, pb.Ping(payload=link.ping(now)), at)
        if now >= link.next_refresh:
            self._settling.refresh(link, at)

    def _wait_on(self, link: Link, reason: str, at: Moment) -> None:
        """Nobody answers: give up the link, unless it is a serial line."""
        if link.scheme != "serial":
            self._close(link, reason, at)
            return
        self.counts[reason] += 1
        if link.peer or link.dialled:  # a line to listen on may have no peer yet
            self._effects.append(Silent(link.number, reason))
        if link.peer is not None:
            self._begin_again(link)
            self._share(link.peer, at, remove=True)
            link.peer = None
        link.since = link.heard = at.monotonic
        if link.dialled:
            self._tell(link, handshake(self._me, link, link.dialled, pb.INITIAL), at)

    def _work(self, link: Link, at: Moment) -> None:
        """Work on some of the frames that wait. A link with more has its next turn after the others."""
        self._busy.pop(link.number, None)
        most = len(self._effects) + EFFECTS
        for _ in range(FRAMES):
            if not link.frames or link.number not in self._links or len(self._effects) >= most:
                break
            self._frame(link, link.frames.popleft(), at)
        if link.number not in self._links:
            return
        if link.frames:
            self._busy[link.number] = None
        elif link.reader.fault is not None:
            self._close(link, "frame", at)

    def _frame(self, link: Link, frame: Frame, at: Moment) -> None:
        header = pb.Header()
        try:
            header = decode_header(frame)
            message = decode_message(header, frame.message)
        except DndmError as error:
            wrong = error.rule
            header.want_result &= link.peer is not None  # over UDP a stranger's address may be another's
        else:
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
        wants = header.want_result and header.type != pb.RESULT and not link.broadcast
        if wants and link.number in self._links:
            result = pb.Result(nonce=header.timestamp, error=1 if wrong else 0, description=wrong)
            self._tell(link, result, at)

    def _heard(self, link: Link, header: pb.Header, message: Known | bytes, at: Moment) -> str:
        """Take a message. Returns what is wrong with it, for counters and a RESULT."""
        match message:
            case bytes():
                return self._passing.message(link, header, message, at)
            case pb.Handshake() if not link.broadcast:
                return self._handshake(link, message, at)
            case pb.Handshake(stage=pb.INITIAL):  # a newcomer, which does not know us or our adverts
                if link.next_refresh > at.monotonic + GREETING_SECONDS:
                    soon = link.next_refresh - REFRESH_SECONDS + GREETING_SECONDS
                    link.next_refresh = max(at.monotonic, soon)
                return self._adverts(link, message, at)
            case pb.Ping() | pb.Pong() | pb.Peers() | pb.Addrbook() if link.broadcast:
                link.counts["not for all"] += 1
            case pb.Peers() | pb.Addrbook():
                return self._told_of(link, message, at)
            case pb.Ping(payload=payload):
                pong = pb.Pong(receive_timestamp=at.unix_ns, ping_timestamp=header.timestamp, payload=payload)
                self._tell(link, pong, at)
            case pb.Pong(payload=payload):
                before = link.proven
                link.counts["pong"] += not link.pong(payload, at.monotonic)
                if link.peer and link.proven and not before:
                    self._share(link.peer, at, remove=False)
            case pb.Result() | pb.NotifyIntent():
                # The sender wants no result, and an interest already says what a notice says.
                link.counts[pb.Type.Name(header.type)] += 1
            case _:
                return self._adverts(link, message, at)
        return ""

    def _fault(self, link: Link, what: str, at: Moment) -> None:
        link.counts[what] += 1
        link.counts["faults"] += 1
        if link.counts["faults"] > FAULTS_LIMIT and not link.broadcast:  # it has other speakers, too
            self._close(link, "faults", at)

    def _close(self, link: Link, reason: str, at: Moment, *, replaced: bool = False) -> None:
        """``replaced``: the peer has another link."""
        self.counts[f"closed: {reason}"] += 1
        self._effects.append(Close(link.number, reason))
        self._forget(link, at, replaced=replaced)

    def _forget(self, link: Link, at: Moment, *, replaced: bool = False) -> None:
        del self._links[link.number]
        self._busy.pop(link.number, None)
        self._settling.forget(link)
        self.counts.update(link.counts)
        self._passing.forget(link)
        self._book.teller_gone(link.number)
        up = {other.peer.place for other in self._links.values() if other.peer}
        for peer in (link.dialled, link.peer):
            if peer and peer.place not in up and not replaced:
                self._book.gone(peer.place, at.monotonic)
        if link.peer and link.peer.place not in up and not replaced:
            self._share(link.peer, at, remove=True)
        self._drop_adverts(link)

    # --- handshake and peers ---

    def _handshake(self, link: Link, message: pb.Handshake, at: Moment) -> str:
        link.handshakes += 1
        if link.handshakes > HANDSHAKES_LIMIT:
            self._close(link, "handshakes", at)
            return ""
        others = [other for other in self._links.values() if other is not link]
        refused = refusal(self._me, link, message, others, strict=self._state.options.strict)
        if refused:
            self._close(link, refused, at)
            return ""
        if link.peer is not None:
            if message.stage == pb.INITIAL:  # a board has restarted, on the same line
                self._begin_again(link)
                self._welcome(link, link.peer, at)
            return self._adverts(link, message, at) if message.stage != pb.INITIAL else ""
        peer = peers.parse(message.me)
        for rival in others:
            if has_identity(peer) and rival.peer and rival.peer.place == peer.place:
                if not rival_loses(self._me, link, rival, peer, strict=self._state.options.strict):
                    self._close(link, "twice", at)
                    return ""
                self._close(rival, "twice", at, replaced=True)
        self._welcome(link, peer, at)
        if message.stage == pb.FINAL:
            return self._adverts(link, message, at)
        return ""

    def _welcome(self, link: Link, peer: peers.Peer, at: Moment) -> None:
        """Welcome a peer: end the handshake, with as many adverts as fit a short message, then tell the rest."""
        link.peer = peer
        for each in filter(None, (link.dialled, peer)):
            self._book.connected(each.place)
        link.next_ping, link.next_refresh = at.monotonic, at.monotonic + REFRESH_SECONDS
        self._effects.append(Met(link.number, peer))
        message = handshake(self._me, link, peer, pb.INITIAL if link.broadcast else pb.FINAL)
        rest = self._settling.greet(link, message, at)
        for told in (message, *rest):
            self._tell(link, told, at)
        if link.broadcast:
            return
        others = [other for other in self._links.values() if other is not link and not other.broadcast]
        known = [other.peer for other in others if other.peer and other.proven]
        for told in peers_messages(link, known, remove=False):
            self._tell(link, told, at)
        if link.proven:
            self._share(peer, at, remove=False)

    def _leave(self, link: Link, at: Moment) -> None:
        """Forget a link at the end: nobody else is told that its adverts end."""
        self._routing.drop_link(link.number)
        self._forget(link, at, replaced=True)

    def _begin_again(self, link: Link) -> None:
        """The peer has forgotten what it advertised and what it was told: start again."""
        for told in (link.intents, link.interests, link.notified, link.shared):
            told.clear()
        self._settling.forget(link)
        self._drop_adverts(link)

    def _drop_adverts(self, link: Link) -> None:
        for route_id in self._routing.drop_link(link.number):
            self._settling.note(route_id)

    def _share(self, peer: peers.Peer, at: Moment, *, remove: bool) -> None:
        """Tell all others of a peer."""
        for link in self._links.values():
            if link.peer and not link.broadcast:
                for message in peers_messages(link, [peer], remove=remove):
                    self._tell(link, message, at)

    def _told_of(self, link: Link, message: pb.Peers | pb.Addrbook, at: Moment) -> str:
        """Note addresses of other peers. Returns what is wrong with one of them; the others are noted."""
        strict = self._state.options.strict
        wrong, not_noted = self._book.heard(message, link.number, at.monotonic, strict=strict)
        link.counts.update({"peers not noted": not_noted} if not_noted else {})
        return wrong

    # --- adverts ---

    def _adverts(self, link: Link, message: Known, at: Moment) -> str:
        """Take adverts. Returns what is wrong with one of them; the others hold."""
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
        if self._state.options.strict and link.peer and (wrong := refused_advert(link.peer, said, route)):
            return wrong
        adverts = self._routing.intents if isinstance(said, pb.Intent) else self._routing.interests
        before = adverts.of(route.id).get(link.number)
        wrong = ""
        if link.broadcast and not said.register:  # others may say it there: it ends by its time
            return ""
        if said.register:
            # Times this short mean none to public peers.
            ttl = said.ttl / 1e9 if said.ttl > 1_000_000 else TTL_SECONDS * link.broadcast
            wrong = adverts.put(link.number, Advert(route, said.hops, ttl), at.monotonic)
        else:
            adverts.drop(link.number, route.id)
        after = adverts.of(route.id).get(link.number)
        if (before and (before.route, before.hops)) != (after and (after.route, after.hops)):
            self._settling.note(route.id)
        if wrong == "hops":  # no fault of the peer: adverts that go in circles end here
            link.counts["hops"] += 1
            return ""
        return wrong
