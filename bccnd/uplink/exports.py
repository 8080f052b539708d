"""Decides what is carried: by the patterns of export and import, and by the rates.

Rules
- Only channels that a pattern names are carried, and those of NEVER under no circumstances.
- A pattern that begins with ``!`` means targets of directed messages, ``!`` alone messages to all.
- A channel that matches several rates needs one of each.
"""

from collections.abc import Iterable
from typing import NamedTuple

from bccnd.relay.allowance import Allowance
from bccnd.relay.pattern import matcher, matches
from bccnd.uplink.options import SEPARATOR, Options, Rate

# Channels that stay in a host; heartbeats, which the status of a link replaces; those between daemons and uplinks.
NEVER = (b"local/", b"heartbeat/", b"bccnd/", b"!bccnd/")
# Channels whose route is cached, some 300 bytes each.
ROUTES_LIMIT = 8192


class Route(NamedTuple):
    """How messages on one channel are carried. ``host``: the one they are directed to, or empty."""

    host: bytes
    allowances: tuple[Allowance, ...]

    def granted(self, now: float) -> bool:
        """Whether the rates let a message pass; takes one of each rate."""
        for allowance in self.allowances:
            if not allowance.has(now):
                return False
        for allowance in self.allowances:
            allowance.take(now)
        return True


class Patterns:
    """A set of patterns, and which channels any of them names."""

    def __init__(self, patterns: Iterable[bytes]) -> None:
        given = list(patterns)
        self._plain = matcher([each for each in given if not each.startswith(b"!")], SEPARATOR)
        self._directed = matcher(
            [each[1:] for each in given if len(each) > 1 and each[:1] == b"!"], SEPARATOR
        )
        self._all = b"!" in given

    def name(self, channel: bytes) -> bool:
        if channel.startswith(NEVER):
            return False
        if channel[:1] != b"!":
            return self._plain(channel)
        return self._directed(channel[1:]) if len(channel) > 1 else self._all


class Routes:
    """The routes of one direction; ``find`` costs the same for any number of patterns."""

    def __init__(self, patterns: Iterable[bytes], rates: Iterable[Rate] = ()) -> None:
        self._patterns = Patterns(patterns)
        self._rates = [(rate, Allowance(rate.per_second, rate.burst)) for rate in rates]
        self._known: dict[bytes, Route | None] = {}

    def find(self, channel: bytes) -> Route | None:
        """The route of a channel; None if it is not carried."""
        try:
            return self._known[channel]
        except KeyError:
            if len(self._known) >= ROUTES_LIMIT:
                self._known.clear()
            route = self._known[channel] = self._made(channel)
            return route

    def _made(self, channel: bytes) -> Route | None:
        if not self._patterns.name(channel):
            return None
        host = channel[1:].partition(b"/")[0] if channel[:1] == b"!" else b""
        return Route(host, tuple(left for rate, left in self._rates if _means(rate.pattern, channel)))


def _means(pattern: bytes, channel: bytes) -> bool:
    if pattern[:1] != b"!" or pattern == b"!":
        return pattern == channel or (channel[:1] != b"!" and matches(pattern, SEPARATOR, channel))
    return channel[:1] == b"!" and len(channel) > 1 and matches(pattern[1:], SEPARATOR, channel[1:])


def exported(options: Options) -> Routes:
    return Routes(options.export, options.rates)


def imported(options: Options) -> Routes:
    return Routes(options.import_)
