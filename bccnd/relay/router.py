"""From a channel to its subscribers.

Rules
- A plain channel goes to the sessions with a matching pattern, ``!`` to every listening session, ``!<target>`` to the
  listening sessions whose name matches (``bccnd/wire/BCCN1.md``, "Channels"). Each gets one copy. A session that taps
  sees every datagram anyway, and is in no route.
- A session that holds a pattern twice has to remove it twice (``clients/PROTOCOL.md``, "Packets").
- How a channel is treated (local, retained, noted) is part of its route: one look-up finds both.
- Presence notices are local and never retained. They go only to sessions with a pattern below NOTICES, taps among
  them, as no datagram carries them.
- Routes are cached by channel in two generations: when the young one holds half of the limit, the old one is
  forgotten and the young one grows old. A change removes the entries it makes wrong: a pattern without wildcards
  removes its own channel, one with wildcards those that begin as it does, a new name or listener the directed ones,
  anything else all.
- Channels with the same subscribers that are treated alike share one route, so that messages are grouped by identity.
"""

from collections.abc import Callable, Iterable
from functools import partial

from bccnd.errors import PacketError
from bccnd.relay import pattern as patterns
from bccnd.relay.identity import Names
from bccnd.relay.session import Format, Session
from bccnd.wire.bccn1 import split_target

NOTICES = b"local/presence/"
HEARTBEATS = b"heartbeat/"
# To the daemons of all hosts.
QUESTIONS = b"bccnd/ask"
# Cached channels that a new pattern is compared with, which takes a millisecond; of more, all are looked up anew.
SWEPT = 16384


class Route:
    """What is known of one channel: its subscribers, sorted by how they are served, and how it is treated.

    ``single``: subscribers that take a single MSG packet as it is, ``plain`` and ``packed`` together; ``*_ports``:
    the port of each, in the same order. ``open``: whoever may publish on all plain channels may publish on it;
    ``local``: it never leaves the host; ``retained``: its newest message is kept; ``noted``: its messages are
    heartbeats, or for the daemon itself; ``private``: no tap sees them; ``whole``: somebody wants whole datagrams.
    """

    __slots__ = (
        "full",
        "lines",
        "local",
        "noted",
        "open",
        "packed",
        "plain",
        "plain_ports",
        "private",
        "retained",
        "single",
        "single_ports",
        "size",
        "whole",
    )

    def __init__(
        self,
        subscribers: Iterable[Session],
        *,
        is_open: bool = False,
        local: bool = False,
        retained: bool = False,
        noted: bool = False,
        private: bool = False,
    ) -> None:
        ordered = sorted(subscribers, key=lambda session: session.number)
        self.open = is_open
        self.local = local
        self.retained = retained
        self.noted = noted
        self.private = private
        self.size = len(ordered)
        self.full = [session for session in ordered if session.format is Format.FULL]
        self.lines = [session for session in ordered if session.format is Format.LINES]
        self.whole = retained or bool(self.full)
        self.single = [session for session in ordered if session.format is Format.PLAIN]
        self.plain = [session for session in self.single if not session.packed]
        self.packed = [session for session in self.single if session.packed]
        self.single_ports = [session.port for session in self.single]
        self.plain_ports = [session.port for session in self.plain]

    def serves(self, session: Session) -> bool:
        """Whether the session is a subscriber."""
        return session in self.single or session in self.full or session in self.lines


class Router:
    """Who subscribed to what. ``local``: patterns of the channels that never leave the host; ``retained``: whether
    the newest message of a channel is to be kept."""

    def __init__(
        self,
        names: Names,
        local: Iterable[str],
        *,
        cache_limit: int,
        retained: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self._names = names
        self._indexes = {
            separator: patterns.PatternIndex[Session](separator) for separator in patterns.SEPARATORS
        }
        self._is_local = patterns.matcher([pattern.encode() for pattern in local], b"/")
        self._retained = retained
        self._cache_limit = cache_limit
        self._young: dict[bytes, Route] = {}
        self._old: dict[bytes, Route] = {}
        self._shared: dict[tuple[object, ...], Route] = {}
        self._directed: set[bytes] = set()
        self._listening: set[Session] = set()
        self.subscriptions = 0

    def reconfigure(self, local: Iterable[str], *, cache_limit: int) -> None:
        self._is_local = patterns.matcher([pattern.encode() for pattern in local], b"/")
        self._cache_limit = cache_limit
        self.service_changed()

    def subscribe(self, session: Session, pattern: bytes) -> None:
        """Raise ``PacketError`` for a pattern that can match nothing."""
        patterns.check(pattern, session.separator)
        key = (session.separator, pattern)
        count = session.subscriptions.get(key, 0)
        session.subscriptions[key] = count + 1
        self.subscriptions += 1
        if not count:
            self._indexes[session.separator].add(pattern, session)
            self._forget_channels(pattern, session.separator)
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
        separator, pattern = key
        self.subscriptions -= session.subscriptions.pop(key)
        self._indexes[separator].remove(pattern, session)
        self._forget_channels(pattern, separator)

    def listen(self, session: Session) -> None:
        if not session.listening:
            session.listening = True
            self._listening.add(session)
            self.names_changed()

    def stop_listening(self, session: Session) -> None:
        """Undo ``listen``; no route, cached or shared, holds the session any more."""
        if session.listening:
            session.listening = False
            self._listening.discard(session)
            self.service_changed()

    def leave(self, session: Session) -> None:
        """Forget the session; its name is for the caller to release."""
        in_routes = session.listening or session.subscriptions
        for (separator, pattern), count in session.subscriptions.items():
            self._indexes[separator].remove(pattern, session)
            self.subscriptions -= count
        session.subscriptions.clear()
        self._listening.discard(session)
        session.listening = False
        if in_routes:  # who only publishes comes and goes at no cost to the cache
            self.service_changed()

    def adopt(self, session: Session, subscriptions: Iterable[tuple[bytes, bytes, int]]) -> None:
        """Take over a session of a predecessor: (separator, pattern, how often)."""
        for separator, pattern, count in subscriptions:
            session.subscriptions[separator, pattern] = count
            self._indexes[separator].add(pattern, session)
            self.subscriptions += count
        if session.listening:
            self._listening.add(session)
        self.service_changed()

    def reaches(self, session: Session, channel: bytes) -> bool:
        """Whether a pattern of the session matches this plain channel."""
        return any(index.reaches(channel, session) for index in self._indexes.values())

    def names_changed(self) -> None:
        for channel in self._directed:
            self._young.pop(channel, None)
            self._old.pop(channel, None)
        self._directed.clear()

    def service_changed(self) -> None:
        """A session is served in another way from now on: format, packing, tap."""
        self._young.clear()
        self._old.clear()
        self._shared.clear()
        self._directed.clear()

    def route(self, channel: bytes) -> Route:
        """Who gets messages on this (valid) channel."""
        return self._young.get(channel) or self._remember(
            channel, self._old.get(channel) or self._find(channel)
        )

    @property
    def cached(self) -> dict[bytes, Route]:
        """Some of what ``known`` would find, to be looked up only."""
        return self._young

    def known(self, channel: bytes) -> Route | None:
        """The same for a channel that may be none, and only if it was looked up lately."""
        route = self._young.get(channel)
        if route is None:
            route = self._old.get(channel)
            if route is not None:
                self._remember(channel, route)
        return route

    def _remember(self, channel: bytes, route: Route) -> Route:
        if len(self._young) * 2 >= self._cache_limit:
            self._directed.difference_update(self._old.keys() - self._young.keys() - {channel})
            self._old, self._young = self._young, {}
        self._young[channel] = route
        return route

    def _find(self, channel: bytes) -> Route:
        plain = channel[:1] != b"!"
        if plain:
            slashed, dotted = self._indexes.values()
            members = (
                slashed.match(channel) if dotted.empty() else slashed.match(channel) | dotted.match(channel)
            )
        else:
            self._directed.add(channel)
            members = frozenset(self._listening)
            if len(channel) > 1:
                members &= set(self._names.directed(channel[1:]))
        if channel.startswith(NOTICES):
            members = frozenset(filter(partial(_asked_for, channel), members))
            return self._share(members, local=True, private=True)
        noted = channel.startswith(HEARTBEATS) or channel == QUESTIONS
        return self._share(
            frozenset([session for session in members if not session.tap]),
            is_open=plain,
            local=plain and self._is_local(channel),
            retained=self._retained(channel),
            noted=noted or (not plain and self._calls_the_daemon(channel)),
        )

    def _share(self, subscribers: frozenset[Session], **treatment: bool) -> Route:
        """One route for all channels with these subscribers that are treated alike."""
        key = subscribers, *treatment.items()
        route = self._shared.get(key)
        if route is None:
            route = Route(subscribers, **treatment)
            if len(self._shared) >= self._cache_limit:
                self._shared.clear()
            self._shared[key] = route
        return route

    def _calls_the_daemon(self, channel: bytes) -> bool:
        """Whether it is directed to the daemon, and not just to all of its host."""
        return (
            len(channel) > 1
            and b"/" in split_target(channel[1:])[1]
            and any(not isinstance(holder, Session) for holder in self._names.directed(channel[1:]))
        )

    def _forget_channels(self, pattern: bytes, separator: bytes) -> None:
        if not patterns.has_wildcard(pattern, separator):
            self._young.pop(pattern, None)
            self._old.pop(pattern, None)
        elif len(self._young) + len(self._old) > SWEPT:
            self.service_changed()
        else:
            begin = patterns.fixed_part(pattern)
            for generation in (self._young, self._old):
                matching = [channel for channel in generation if channel.startswith(begin)]
                for channel in matching:
                    if channel not in self._directed:  # those no pattern matches
                        del generation[channel]


def _asked_for(notice: bytes, session: Session) -> bool:
    """Whether a pattern of the session that begins as the notices do matches the channel of this one."""
    return any(
        pattern.startswith(NOTICES) and patterns.matches(pattern, separator, notice)
        for separator, pattern in session.subscriptions
    )
