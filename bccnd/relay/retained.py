"""The last value of a channel, for subscribers that come late: the newest message of each channel that is kept.

Rules
- Channels that match one of the patterns (setting ``retain.patterns``) are kept; never those that begin with "!".
- The newest message is the one taken last, from a client of this host or from the segment. It replaces the one
  before. An empty payload deletes the value, as users of MQTT expect; it is delivered like any other message.
- The table is bounded in channels and in bytes, bookkeeping included; the channel that was updated longest ago goes
  first. A message that is larger than the bound by itself is not kept, nor is the one before it: no value is better
  than an old one.
- The daemon keeps what it has heard. It does not ask other hosts, and what it keeps does not outlive it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bccnd.relay import pattern as patterns
from bccnd.relay.options import Retain
from bccnd.wire.sbus import Msg, Recv
from bccnd.wire.verdict import Verdict

# Bytes of memory that a kept message takes beside its datagram and channel, about.
ENTRY_COST = 512


class Kept(NamedTuple):
    """A message as it was heard: ``peer`` and ``unix_ns`` as in RECV; ``payload_at``: where its payload begins."""

    peer: bytes
    unix_ns: int
    datagram: bytes
    payload_at: int

    def msg(self, chan: bytes) -> Msg:
        return Msg(chan, self.datagram[self.payload_at :])

    def recv(self) -> Recv:
        return Recv(self.peer, self.unix_ns, Verdict.RETAINED.encode(), self.datagram)


class Retained:
    """channel -> ``Kept``, in the order of their updates. ``size``: bytes of all, with ENTRY_COST each."""

    def __init__(self, options: Retain) -> None:
        self._messages: OrderedDict[bytes, Kept] = OrderedDict()
        self.size = 0
        self.limit(options)

    def __len__(self) -> int:
        return len(self._messages)

    def limit(self, options: Retain) -> None:
        """Keep to other patterns and bounds from now on; what they do not allow is forgotten."""
        self._is_wanted = patterns.matcher([pattern.encode() for pattern in options.patterns], b"/")
        self._max_channels = options.channels
        self._max_size = options.bytes
        for chan in [chan for chan in self._messages if not self.wants(chan)]:
            self._forget(chan)
        self._shrink()

    def wants(self, chan: bytes) -> bool:
        """Whether messages on this (valid) channel are to be kept."""
        return self._is_wanted(chan) and not chan.startswith(b"!")

    def keep(self, chan: bytes, message: Kept) -> None:
        """Take the newest message of a channel that is wanted."""
        self._forget(chan)
        cost = _cost(chan, message)
        if message.payload_at < len(message.datagram) and cost <= self._max_size:
            self._messages[chan] = message
            self.size += cost
            self._shrink()

    def matching(self, pattern: bytes, separator: bytes) -> list[tuple[bytes, Kept]]:
        """The channels that a client's pattern matches, and their messages, the oldest first."""
        if not patterns.has_wildcard(pattern, separator):
            message = self._messages.get(pattern)
            return [(pattern, message)] if message else []
        fixed = patterns.fixed_part(pattern)
        return [
            (chan, message)
            for chan, message in self._messages.items()
            if chan.startswith(fixed) and patterns.matches(pattern, separator, chan)
        ]

    def state(self) -> list[tuple[bytes, bytes, int, bytes, int]]:
        """Everything in plain values, the oldest first, for a successor of this daemon."""
        return [(chan, *message) for chan, message in self._messages.items()]

    def restore(self, state: Iterable[Sequence[Any]]) -> None:
        """Take over what is allowed here."""
        for chan, *message in state:
            if self.wants(chan):
                self.keep(chan, Kept(*message))

    def _forget(self, chan: bytes) -> None:
        message = self._messages.pop(chan, None)
        if message:
            self.size -= _cost(chan, message)

    def _shrink(self) -> None:
        while len(self._messages) > self._max_channels or self.size > self._max_size:
            self._forget(next(iter(self._messages)))


def _cost(chan: bytes, message: Kept) -> int:
    return ENTRY_COST + len(chan) + len(message.datagram)
