"""From a channel to its subscribers.

Rules
- A plain channel goes to the sessions with a matching pattern, ``!`` to every listening session, ``!<target>`` to the
  listening sessions whose name matches (``bccnd/wire/BCCN1.md``, "Channels"). Each gets one copy. A session that taps
  sees every datagram anyway, and is served by no route.
- A bridge gets the directed messages that others may have to answer: those whose target it has a pattern for
  (``!relay01/>``), unless the target is of this host alone. What daemons say to each other about loss goes to nobody.
- A session that holds a pattern twice has to remove it twice (``clients/PROTOCOL.md``, "Packets").
- How a channel is treated (local, retained, noted) is part of its route: one look-up finds both.
- Presence notices are local and never retained. They go only to sessions with a pattern below NOTICES, taps among
  them, as no datagram carries them. These patterns have an index of their own: they match nothing else.
- Channels with the same subscribers that are treated alike share one route, so that messages are grouped by identity.

The cache
- Routes are cached by channel. Those in ``cached`` hold now, and are used without a question.
- A change never looks for the channels that it concerns. It sets the young routes aside, as a generation that held up
  to this version. A channel that is used again is compared with the patterns that have changed since: one look-up in
  an index of them. If none matches, its route holds; only if one does, its subscribers are looked up anew.
- A session that is served in another way (format, packing, tap) or leaves changes no look-up: each route that has it
  is sorted anew, or made again without it, when it is used next.
- A pattern without wildcards removes its own channel, a name or listener the directed channels that may mean it.
- Everything is bounded: generations, patterns that have changed, channels. What is beyond is forgotten, which costs
  the look-up that a new channel costs.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import NamedTuple

from bccnd.errors import PacketError
from bccnd.relay import pattern as patterns
from bccnd.relay.changes import Changes
from bccnd.relay.identity import PROGRAM, Names
from bccnd.relay.listeners import Listeners
from bccnd.relay.meter import Meter
from bccnd.relay.ordered import OrderedKeys
from bccnd.relay.pattern import PatternIndex
from bccnd.relay.session import Format, Session
from bccnd.wire.bccn1 import matches_target, split_target
from bccnd.wire.repair import CHANNEL

NOTICES = b"local/presence/"
HEARTBEATS = b"heartbeat/"
# To the daemons of all hosts.
QUESTIONS = b"bccnd/ask"
# Each ``*`` in the middle of a client's patterns may take a step of a look-up, as each pattern may: twice as many as
# a client has patterns by default.
INNER_STARS_LIMIT = 2048
# Generations of routes beside the young ones. What is in use moves to the youngest; the others differ only in how
# many changes they are compared with.
GENERATIONS = 4
# Bytes of a channel for which it counts as one more: the cache is to be bounded in bytes too.
LONG = 128
# What a look-up takes beside the search for patterns; how many subscribers are gathered, or looked at again, in a
# step; what it takes to sort each.
LOOKUP_STEPS = 32
GATHERED_A_STEP = 8
SORT_STEPS = 2
# What a message takes beside its step and those of its deliveries if the daemon keeps it.
KEPT_STEPS = 16
# What a delivery takes: a part of a system call, or room in a queue.
DELIVERY_STEPS = 2
# Deliveries of messages that go as one PACK in a step: they are parts of a copy.
PACKED_A_STEP = 8
# Sessions that have left and are in routes which nobody has used since, some kilobytes each.
DEPARTED_LIMIT = 256


class Treatment(NamedTuple):
    """What is done with messages on a channel, see ``Route``."""

    open: bool = False
    local: bool = False
    retained: bool = False
    noted: bool = False
    private: bool = False


class Route:
    """What is known of one channel: its subscribers, sorted by how they are served, and how it is treated.

    ``single``: subscribers that take a single MSG packet as it is, ``plain`` and ``packed`` together; ``*_ports``:
    the port of each, in the same order. ``open``: whoever may publish on all plain channels may publish on it;
    ``local``: it never leaves the host; ``retained``: its newest message is kept; ``noted``: its messages are
    heartbeats, or for the daemon itself; ``ordinary``: open, and not noted; ``private``: no tap sees them;
    ``whole``: somebody wants whole datagrams; ``simple``: ordinary, and all that is done is to send MSG packets.
    ``steps``: what a short message takes; ``shared_steps``: what one of several takes, which take a step together for
    each that is ``packed``; ``members``: the subscribers, with those that tap; ``sorted_at``: the version then.
    """

    __slots__ = (
        "full",
        "lines",
        "local",
        "members",
        "noted",
        "open",
        "ordinary",
        "packed",
        "plain",
        "plain_ports",
        "private",
        "retained",
        "shared_steps",
        "simple",
        "single",
        "single_ports",
        "size",
        "sorted_at",
        "steps",
        "treatment",
        "whole",
    )

    def __init__(self, members: frozenset[Session], treatment: Treatment, version: int) -> None:
        self.members = members
        self.treatment = treatment
        self.open, self.local, self.retained, self.noted, self.private = treatment
        self.ordinary = self.open and not self.noted
        self.sort(version)

    def sort(self, version: int) -> None:
        """Sort the members by how they are served now."""
        self.sorted_at = version
        served = [session for session in self.members if self.private or not session.tap]
        served.sort(key=lambda session: session.number)
        self.size = len(served)
        around = 1 + KEPT_STEPS * self.retained
        self.steps = around + self.size * DELIVERY_STEPS
        self.full = [session for session in served if session.format is Format.FULL]
        self.lines = [session for session in served if session.format is Format.LINES]
        self.whole = self.retained or bool(self.full)
        self.simple = self.ordinary and not (self.whole or self.lines)
        self.single = [session for session in served if session.format is Format.PLAIN]
        self.plain = [session for session in self.single if not session.packed]
        self.packed = [session for session in self.single if session.packed]
        others = self.size - len(self.packed)
        self.shared_steps = around + others * DELIVERY_STEPS + -(-len(self.packed) // PACKED_A_STEP)
        self.single_ports = [session.port for session in self.single]
        self.plain_ports = [session.port for session in self.plain]

    def serves(self, session: Session) -> bool:
        """Whether the session is a subscriber."""
        return session in self.members and (self.private or not session.tap)


# The version up to which routes held, and these by their channel.
Generation = tuple[int, dict[bytes, Route]]


class Router:
    """Who subscribed to what. ``local``: patterns of the channels that never leave the host; ``retained``: whether
    the newest message of a channel is to be kept; ``meter``: counts what look-ups cost."""

    def __init__(
        self,
        names: Names,
        local: Iterable[str],
        *,
        cache_limit: int,
        retained: Callable[[bytes], bool] = lambda _: False,
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter or Meter()
        self._names = names
        self._indexes = _indexes(self._meter)
        self._notices = _indexes(self._meter)  # of the patterns below NOTICES
        self._directed = _indexes(self._meter)  # of those for directed channels, without their "!"
        self._retained = retained
        self._listening: dict[bytes, Session] = {}  # by name
        self._listening_names = OrderedKeys()
        self.listeners = Listeners()
        self._version = 0  # of everything that routes are made from
        self._served_at = 0  # the version of the last change in how somebody is served
        self.footprint = 0  # bytes that the patterns of all sessions take at most
        self.footprints: Counter[int] = Counter()  # and those of a user's, by uid
        # Some of what ``known`` would find, to be looked up only.
        self.cached: dict[bytes, Route] = {}
        self._long = 0  # how many channels those remembered lately count for beside themselves
        self._aged: list[Generation] = []  # the youngest first
        # Since the oldest of them: of the patterns for plain and for directed channels.
        self._changes, self._directed_changes = Changes(self._meter), Changes(self._meter)
        self._shared: dict[tuple[frozenset[Session], Treatment], Route] = {}
        self._departed = 0  # the sessions that some of these routes may still have
        self.subscriptions = 0
        self.reconfigure(local, cache_limit=cache_limit)

    def reconfigure(self, local: Iterable[str], *, cache_limit: int) -> None:
        self._is_local = patterns.matcher([pattern.encode() for pattern in local], b"/")
        self._cache_limit = cache_limit
        self._forget_all()

    # -- who subscribes

    def subscribe(self, session: Session, pattern: bytes) -> None:
        """Raise ``PacketError`` for a pattern that can match nothing, or has too many ``*`` in its middle."""
        patterns.check(pattern[patterns.is_directed(pattern) :], session.separator)
        key = (session.separator, pattern)
        count = session.subscriptions.get(key, 0)
        if not count:
            stars = patterns.inner_stars(pattern)
            if stars and session.inner_stars + stars > INNER_STARS_LIMIT:
                text = f"at most {INNER_STARS_LIMIT} '*' before the ends of a client's patterns"
                raise PacketError("limit", text)
            self._hold(session, key)
            self._pattern_changed(key)
            self.listeners.gain(session)
        session.subscriptions[key] = count + 1
        self.subscriptions += 1
        self.listen(session)

    def unsubscribe(self, session: Session, pattern: bytes) -> None:
        key = (session.separator, pattern)
        count = session.subscriptions.get(key, 0)
        if not count:
            raise PacketError("not-subscribed", "the client holds no such pattern")
        if count > 1:
            session.subscriptions[key] = count - 1
            self.subscriptions -= 1
        else:
            self.revoke(session, key)

    def revoke(self, session: Session, key: tuple[bytes, bytes]) -> None:
        """Remove a pattern of the session, by its separator and itself, however often it is held."""
        self._release(session, key)
        del session.subscriptions[key]
        self._pattern_changed(key)
        self.listeners.lose()

    def listen(self, session: Session) -> None:
        if not session.listening:
            session.listening = True
            self._address(session, session.name)

    def stop_listening(self, session: Session) -> None:
        """Undo ``listen``, for a session without patterns."""
        if session.listening:
            session.listening = False
            self._address_no_more(session.name)

    def leave(self, session: Session) -> None:
        """Forget the session; its name is for the caller to release."""
        for key in session.subscriptions:
            self._release(session, key)
        session.subscriptions.clear()
        self.listeners.leave(session)
        if not session.listening:  # who only publishes comes and goes at no cost to the cache
            return
        self.stop_listening(session)
        self._departed += 1
        if self._departed > DEPARTED_LIMIT or not self._listening:
            self._forget_all()
        else:
            self.service_changed(session)

    def adopt(self, session: Session, subscriptions: Iterable[tuple[bytes, bytes, int]]) -> None:
        """Take over a session of a predecessor: (separator, pattern, how often)."""
        for separator, pattern, count in subscriptions:
            self._hold(session, (separator, pattern))
            session.subscriptions[separator, pattern] = count
            self.subscriptions += count
        if session.listening:
            self._address(session, session.name)
        self.listeners.gain(session)
        self._forget_all()

    def matching(self, session: Session, channel: bytes) -> int:
        """How many patterns of the session match this plain channel."""
        return sum([index.count(channel, session) for index in self._indexes.values()])

    def renamed(self, session: Session, old: bytes, new: bytes) -> None:
        """The session has another name from now on."""
        if session.listening and new != old:
            self._address_no_more(old)
            self._address(session, new)

    def service_changed(self, session: Session) -> None:
        """The session is served in another way from now on: format, packing, tap."""
        self._new_version()
        session.served_at = self._served_at = self._version
        if session.subscriptions:
            self.listeners.gain(session)

    # -- routes

    def route(self, channel: bytes) -> Route:
        """Who gets messages on this (valid) channel."""
        return (
            self.cached.get(channel) or self._recall(channel) or self._remember(channel, self._find(channel))
        )

    def known(self, channel: bytes) -> Route | None:
        """The same for a channel that may be none, and only if it was looked up lately."""
        return self.cached.get(channel) or self._recall(channel)

    def _recall(self, channel: bytes) -> Route | None:
        """The route that was set aside, as it is by now."""
        for version, routes in self._aged:
            route = routes.get(channel)
            if route is not None:
                directed = channel[:1] == b"!"
                changes = self._directed_changes if directed else self._changes
                if changes.concern(channel[directed:], version):
                    route = self._find(channel)
                return self._remember(channel, self._as_served(route))
        return None

    def _remember(self, channel: bytes, route: Route) -> Route:
        self._long += len(channel) // LONG
        if (len(self.cached) + self._long) * 2 >= self._cache_limit:
            self._set_aside([(self._version, self.cached)])
            self.cached, self._long = {}, 0
        self.cached[channel] = route
        return route

    def _find(self, channel: bytes) -> Route:
        """Look the subscribers up."""
        self._meter.steps += LOOKUP_STEPS
        if channel[:1] == b"!":
            noted = self._calls_the_daemon(channel)
            members = self._addressed(channel[1:])
            if len(channel) > 1 and channel != CHANNEL and not self._is_of_this_host(channel[1:]):
                members |= _holders(self._directed, channel[1:])
            return self._share(members, Treatment(noted=noted))
        if channel.startswith(NOTICES):
            return self._share(_holders(self._notices, channel), Treatment(local=True, private=True))
        treatment = Treatment(
            open=True,
            local=self._is_local(channel),
            retained=self._retained(channel),
            noted=channel.startswith(HEARTBEATS) or channel == QUESTIONS,
        )
        return self._share(_holders(self._indexes, channel), treatment)

    def _share(self, members: frozenset[Session], treatment: Treatment) -> Route:
        """One route for all channels with these subscribers that are treated alike."""
        key = members, treatment
        self._meter.steps += len(members) // GATHERED_A_STEP
        route = self._shared.get(key)
        if route is not None:
            return self._as_served(route)
        self._meter.steps += len(members) * SORT_STEPS
        if len(self._shared) >= self._cache_limit:
            self._shared.clear()
        route = self._shared[key] = Route(members, treatment, self._version)
        return route

    def _as_served(self, route: Route) -> Route:
        """The route with those who have not left, as they are served now."""
        if route.sorted_at < self._served_at:
            self._meter.steps += len(route.members) // GATHERED_A_STEP
            changed = [session for session in route.members if session.served_at > route.sorted_at]
            if not all(session.listening for session in changed):
                staying = frozenset([session for session in route.members if session.listening])
                return self._share(staying, route.treatment)
            if changed:
                self._meter.steps += len(route.members) * SORT_STEPS
                route.sort(self._version)
            route.sorted_at = self._version
        return route

    def _addressed(self, target: bytes) -> frozenset[Session]:
        """Who listens and is meant by a target; all, without one."""
        if not target:
            return frozenset(self._listening.values())
        value = split_target(target)[1]
        names = [value, *self._listening_names.beginning(value + b"/")]
        heard = [name for name in names if name in self._listening and matches_target(target, name)]
        return frozenset([self._listening[name] for name in heard])

    def _is_of_this_host(self, target: bytes) -> bool:
        """Whether nobody elsewhere is meant: a name of this host, or just one program, which listens here."""
        exact, value = split_target(target)
        return value.partition(b"/")[0] == self._names.host or (exact and value in self._listening)

    def _calls_the_daemon(self, channel: bytes) -> bool:
        """Whether it is directed to the daemon, and not just to all of its host."""
        value = split_target(channel[1:])[1] + b"/"
        return value.startswith(b"%b/%b/" % (self._names.host, PROGRAM)) and any(
            not isinstance(holder, Session) for holder in self._names.directed(channel[1:])
        )

    # -- what changes

    def _hold(self, session: Session, key: tuple[bytes, bytes]) -> None:
        pattern = key[1]
        index, bare = self._index_of(key)
        index.add(bare, session)
        cost = patterns.pattern_cost(pattern)
        session.footprint += cost
        self._charge(session.peer.uid, cost)
        session.inner_stars += patterns.inner_stars(pattern)

    def _release(self, session: Session, key: tuple[bytes, bytes]) -> None:
        pattern = key[1]
        index, bare = self._index_of(key)
        index.remove(bare, session)
        cost = patterns.pattern_cost(pattern)
        session.footprint -= cost
        self._charge(session.peer.uid, -cost)
        session.inner_stars -= patterns.inner_stars(pattern)
        self.subscriptions -= session.subscriptions[key]

    def _charge(self, uid: int, cost: int) -> None:
        self.footprint += cost
        self.footprints[uid] += cost
        if not self.footprints[uid]:
            del self.footprints[uid]

    def _index_of(self, key: tuple[bytes, bytes]) -> tuple[PatternIndex[Session], bytes]:
        """Where a pattern is, and what it is there."""
        separator, pattern = key
        if patterns.is_directed(pattern):
            return self._directed[separator], pattern[1:]
        return (self._notices if pattern.startswith(NOTICES) else self._indexes)[separator], pattern

    def _pattern_changed(self, key: tuple[bytes, bytes]) -> None:
        """Somebody has begun or ceased to hold it."""
        separator, pattern = key
        directed = patterns.is_directed(pattern)
        if not patterns.has_wildcard(pattern[directed:], separator):
            self._forget(pattern)
            return
        if self._changes.full() or self._directed_changes.full():
            self._set_aside([])
        self._new_version()
        if self._aged:
            changes = self._directed_changes if directed else self._changes
            changes.add(separator, pattern[directed:], self._version)

    def _new_version(self) -> None:
        """Set the young routes aside: they held up to now."""
        aged = self._aged
        if self.cached:
            aged.insert(0, (self._version, self.cached))
            self.cached = {}
            while len(aged) > 1 and 2 * sum([len(routes) for _, routes in aged]) > self._cache_limit:
                aged.pop()
            if len(aged) > GENERATIONS:
                aged[-2:] = [_merged(aged[-1], aged[-2])]
        self._version += 1

    def _address(self, session: Session, name: bytes) -> None:
        self._listening[name] = session
        self._listening_names.add(name)
        self._forget_addressed(name)

    def _address_no_more(self, name: bytes) -> None:
        del self._listening[name]
        self._listening_names.remove(name)
        self._forget_addressed(name)

    def _forget_addressed(self, name: bytes) -> None:
        """Forget the directed channels that may mean a session of this name."""
        self._forget(b"!")
        for value in accumulate(name.split(b"/"), lambda above, token: above + b"/" + token):
            self._forget(b"!" + value)
            self._forget(b"!" + value + b"/*")

    def _forget(self, channel: bytes) -> None:
        self.cached.pop(channel, None)
        for _, routes in self._aged:
            routes.pop(channel, None)

    def _forget_all(self) -> None:
        self._set_aside([])
        self.cached, self._shared, self._long = {}, {}, 0
        self._departed = 0

    def _set_aside(self, generations: list[Generation]) -> None:
        """These and no others, up to now without a change."""
        self._aged = generations
        self._changes, self._directed_changes = Changes(self._meter), Changes(self._meter)


def _indexes(meter: Meter) -> dict[bytes, PatternIndex[Session]]:
    """By separator."""
    return {separator: PatternIndex(separator, meter) for separator in patterns.SEPARATORS}


def _holders(indexes: dict[bytes, PatternIndex[Session]], channel: bytes) -> frozenset[Session]:
    slashed, dotted = indexes.values()
    found = slashed.match(channel)
    return found if dotted.empty() else found | dotted.match(channel)


def _merged(older: Generation, newer: Generation) -> Generation:
    """Both as one that is as old as the older; it costs what the smaller has."""
    version, routes = older
    if len(routes) >= len(newer[1]):
        routes.update(newer[1])
        return version, routes
    for channel, route in routes.items():
        newer[1].setdefault(channel, route)
    return version, newer[1]
