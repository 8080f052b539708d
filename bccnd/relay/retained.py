"""The last value of a channel, for subscribers that come late: the newest message of each channel that is kept.

Rules
- Channels that match one of the patterns (setting ``retain.patterns``) are kept; never those that begin with "!".
- The newest message is the one taken last, from a client of this host or from the segment. It replaces the one
  before. An empty payload deletes the value, as users of MQTT expect; it is delivered like any other message.
- The table is bounded in channels and in bytes, bookkeeping included. The source that has most of what is scarce
  gives first, the channel that it updated longest ago: so none pushes out what others have said. It is known without
  a look at all: each change of its bytes is in a heap, where most have been overtaken by a later one. A message that
  is larger than the bound by itself is not kept, nor is the one before it: no value is better than an old one.
- Who subscribes is given the messages in the order of their channels, a row for each step: a ``Scan`` costs what is
  taken from it, and may be taken from a page at a time. A message that is updated or deleted meanwhile is left out:
  its subscriber was sent the newer one.
- The daemon keeps what it has heard. It does not ask other hosts, and what it keeps does not outlive it.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import takewhile
from typing import Any, NamedTuple

from bccnd.relay import pattern as patterns
from bccnd.relay.crowd import Owners
from bccnd.relay.options import Retain
from bccnd.relay.ordered import OrderedKeys
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

    @property
    def source(self) -> bytes:
        """Who said it."""
        return self.datagram[self.datagram.index(b"]") + 1 :].partition(b":")[0]

    def msg(self, chan: bytes) -> Msg:
        return Msg(chan, self.datagram[self.payload_at :])

    def recv(self) -> Recv:
        return Recv(self.peer, self.unix_ns, Verdict.RETAINED.encode(), self.datagram)


# Of a ``Scan``, in plain values: its pattern and separator, its place, and how many messages are newer than it.
ScanState = tuple[bytes, bytes, bytes | None, int]


class Scan:
    """What a pattern finds of last values as they were when it was begun, a step for each item.

    An item is None for a step that found nothing: a channel that begins as the pattern does and does not match, or
    whose message has been updated since. ``place``: no channel below it is left to look at; None, none at all.
    ``alone``: no other pattern of the subscriber can match any of these channels.
    """

    __slots__ = ("_begin", "_channels", "_messages", "_updates", "alone", "pattern", "place", "separator")

    def __init__(
        self,
        messages: OrderedDict[bytes, tuple[int, Kept]],
        channels: OrderedKeys,
        pattern: bytes,
        separator: bytes,
        updates: int,
    ) -> None:
        self._messages, self._channels = messages, channels
        self.pattern, self.separator = pattern, separator
        self._updates = updates  # those that there were when it was begun
        wide = patterns.has_wildcard(pattern, separator)
        self._begin = patterns.fixed_part(pattern) if wide else None
        self.place: bytes | None = self._begin if wide else pattern
        self.alone = False

    def __iter__(self) -> "Scan":
        return self

    def __next__(self) -> tuple[bytes, Kept] | None:
        chan = self.place
        if chan is not None and self._begin is not None:
            chan = self._channels.first(chan)
            if chan is not None and not chan.startswith(self._begin):
                chan = None
        if chan is None:
            self.place = None
            raise StopIteration
        self.place = None if self._begin is None else chan + b"\0"
        row = self._messages.get(chan)
        if row and row[0] <= self._updates and patterns.matches(self.pattern, self.separator, chan):
            return chan, row[1]
        return None

    def state(self) -> ScanState:
        """For a successor of this daemon, which is left the messages in the order of their updates."""
        newer = takewhile(lambda row: row[0] > self._updates, reversed(self._messages.values()))
        return self.pattern, self.separator, self.place, sum(1 for _ in newer)


class Retained:
    """channel -> ``Kept``, in the order of their updates. ``size``: bytes of all, with ENTRY_COST each."""

    def __init__(self, options: Retain) -> None:
        self._messages: OrderedDict[bytes, tuple[int, Kept]] = OrderedDict()  # with the number of its update
        self._channels = OrderedKeys()
        self._owners = Owners()  # the channels of each source
        self._sizes: Counter[bytes] = Counter()  # source -> bytes of its messages
        self._heaviest: list[tuple[int, bytes]] = []  # a heap of (-bytes, source)
        self._updates = 0  # so far
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
        self._updates += 1
        cost = _cost(chan, message)
        if message.payload_at < len(message.datagram) and cost <= self._max_size:
            self._messages[chan] = self._updates, message
            self._channels.add(chan)
            self._owners.add(message.source, chan)
            self._resize(message.source, cost)
            self._shrink()

    def matching(self, pattern: bytes, separator: bytes) -> "Scan":
        """The channels that a client's pattern matches, and their messages as they are now."""
        return Scan(self._messages, self._channels, pattern, separator, self._updates)

    def resume(self, state: ScanState) -> "Scan":
        """Go on with a scan of a predecessor, all of whose messages have been restored."""
        pattern, separator, place, newer = state
        scan = Scan(self._messages, self._channels, pattern, separator, self._updates - newer)
        scan.place = place
        return scan

    def state(self) -> list[tuple[bytes, bytes, int, bytes, int]]:
        """Everything in plain values, the oldest first, for a successor of this daemon."""
        return [(chan, *message) for chan, (_, message) in self._messages.items()]

    def restore(self, state: Iterable[Sequence[Any]]) -> None:
        """Take over what is allowed here."""
        for chan, *message in state:
            if self.wants(chan):
                self.keep(chan, Kept(*message))
            else:
                self._updates += 1  # it counts in ``ScanState``

    def _forget(self, chan: bytes) -> None:
        kept = self._messages.pop(chan, None)
        if kept:
            source, cost = kept[1].source, _cost(chan, kept[1])
            self._channels.remove(chan)
            self._owners.remove(source, chan)
            self._resize(source, -cost)

    def _resize(self, source: bytes, cost: int) -> None:
        """So many bytes more, or less, are of the source."""
        self.size += cost
        self._sizes[source] += cost
        if self._sizes[source]:
            heappush(self._heaviest, (-self._sizes[source], source))
        else:
            del self._sizes[source]
        if len(self._heaviest) > 64 + 4 * len(self._sizes):
            self._heaviest = [(-size, source) for source, size in self._sizes.items()]
            heapify(self._heaviest)

    def _shrink(self) -> None:
        while len(self._messages) > self._max_channels:
            self._forget_one_of(self._owners.greatest())
        while self.size > self._max_size:
            size, source = self._heaviest[0]
            if self._sizes[source] == -size:
                self._forget_one_of(source)
            else:
                heappop(self._heaviest)

    def _forget_one_of(self, source: bytes) -> None:
        self._forget(next(iter(self._owners.members(source))))


def _cost(chan: bytes, message: Kept) -> int:
    return ENTRY_COST + len(chan) + len(message.datagram)
