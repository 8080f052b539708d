"""The last values of channels, for subscribers that come late: the newest message of each retained channel.

Rules
- Channels that match one of the patterns (setting ``retain.patterns``) are kept; never those that begin with "!".
- The newest message is the one taken last, from a client of this host or from the segment. It replaces the one
  before. An empty payload deletes the value, as users of MQTT expect; it is delivered like any other message.
- The table is bounded in channels and in bytes, bookkeeping included. The owner with most gives up first
  (``shares``): the user of this host who published it, the address that it came from, or the host in the name of its
  source where far fewer came from any one address (``crowd``). So no owner pushes out the messages of others. A
  message that is larger than the bound by itself is not kept, nor is the one before it: no value is better than an
  old one.
- A subscriber gets the messages in the order of their channels, a row for each step. A ``Scan`` costs what is taken
  from it, and may be taken a page at a time. It leaves out a message that is updated or deleted meanwhile: the
  subscriber got the newer one.
- The daemon keeps what it has heard. It does not ask other hosts, and what it keeps does not outlive it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain, repeat, takewhile
from typing import Any, NamedTuple

from bccnd.relay import pattern as patterns
from bccnd.relay.crowd import SPOOFED, address_of, host_of
from bccnd.relay.options import Retain
from bccnd.relay.ordered import OrderedKeys
from bccnd.relay.shares import Shares
from bccnd.wire.sbus import Msg, Recv
from bccnd.wire.verdict import Verdict

# Bytes of memory that a kept message takes beside its datagram and channel, about.
ENTRY_COST = 512
# And what each owner and each source takes: dicts and heaps with few entries.
OWNER_COST = 768


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


class _Row(NamedTuple):
    """``update``: its number; ``user``: uid of the client of this host that said it, or None."""

    update: int
    message: Kept
    user: int | None

    def owners(self) -> tuple[bytes, bytes]:
        """Whose share it takes: by user or address, and by user or host."""
        if self.user is not None:
            return (b"%d" % self.user,) * 2
        return address_of(self.message.peer), host_of(self.message.source) + b"/"


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
        messages: OrderedDict[bytes, _Row],
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
        if row and row.update <= self._updates and patterns.matches(self.pattern, self.separator, chan):
            return chan, row.message
        return None

    def state(self) -> ScanState:
        """For a successor of this daemon, which is left the messages in the order of their updates."""
        newer = takewhile(lambda row: row.update > self._updates, reversed(self._messages.values()))
        return self.pattern, self.separator, self.place, sum(1 for _ in newer)


class Retained:
    """channel -> ``Kept``, in the order of their updates."""

    def __init__(self, options: Retain) -> None:
        self._messages: OrderedDict[bytes, _Row] = OrderedDict()
        self._channels = OrderedKeys()
        self._updates = 0  # so far
        self._bytes = 0
        self.limit(options)

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def size(self) -> int:
        """Bytes of all, with what the daemon needs to keep them."""
        return self._bytes + OWNER_COST * (len(self._by_owner) + len(self._by_host))

    def limit(self, options: Retain) -> None:
        """Keep to other patterns and bounds from now on; what they do not allow is forgotten."""
        self._is_wanted = patterns.matcher([pattern.encode() for pattern in options.patterns], b"/")
        self._max_channels = options.channels
        self._max_size = options.bytes
        for chan in [chan for chan in self._messages if not self.wants(chan)]:
            del self._messages[chan]
            self._channels.remove(chan)
        self._by_owner, self._by_host = Shares(), Shares()  # what weighs how much depends on the bounds
        self._bytes = 0
        for chan, row in self._messages.items():
            self._charge(chan, row)
        self._shrink()

    def wants(self, chan: bytes) -> bool:
        """Whether messages on this (valid) channel are to be kept."""
        return self._is_wanted(chan) and not chan.startswith(b"!")

    def keep(self, chan: bytes, message: Kept, user: int | None = None) -> None:
        """Take the newest message of a channel that is wanted; ``user``: the uid of the client that said it."""
        self._updates += 1
        row, before = _Row(self._updates, message, user), self._messages.get(chan)
        if message.payload_at >= len(message.datagram) or _cost(chan, message) > self._max_size:
            self._forget(chan)
            return
        if before and before.message.source == message.source and before.owners() == row.owners():
            self._messages[chan] = row
            self._messages.move_to_end(chan)
            self._charge(chan, row, before)
        else:
            self._forget(chan)
            self._messages[chan] = row
            self._channels.add(chan)
            self._charge(chan, row)
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
        return [(chan, *row.message) for chan, row in self._messages.items()]

    def users(self) -> list[int | None]:
        """Who said what is in ``state``."""
        return [row.user for row in self._messages.values()]

    def restore(self, state: Iterable[Sequence[Any]], users: Iterable[int | None] = ()) -> None:
        """Take over what is allowed here. A predecessor may not know the users."""
        for (chan, *message), user in zip(state, chain(users, repeat(None)), strict=False):
            if self.wants(chan):
                self.keep(chan, Kept(*message), user)
            else:
                self._updates += 1  # it counts in ``ScanState``

    def _forget(self, chan: bytes) -> None:
        row = self._messages.pop(chan, None)
        if row:
            self._channels.remove(chan)
            self._bytes -= _cost(chan, row.message)
            weight, (owner, host), source = self._weight(chan, row), row.owners(), row.message.source
            self._by_owner.remove(owner, source, chan, weight)
            self._by_host.remove(host, b"", chan, weight)

    def _charge(self, chan: bytes, row: _Row, before: _Row | None = None) -> None:
        """Count a message, or the change from the one before it, which was of the same owners."""
        weight, (owner, host), source = self._weight(chan, row), row.owners(), row.message.source
        self._bytes += _cost(chan, row.message)
        if before:
            weight -= self._weight(chan, before)
            self._bytes -= _cost(chan, before.message)
        self._by_owner.add(owner, source, chan, weight)
        self._by_host.add(host, b"", chan, weight)  # who invents addresses invents sources

    def _weight(self, chan: bytes, row: _Row) -> int:
        """The part of all channels that it takes and the part of all bytes together, in units that are whole."""
        return self._max_size + _cost(chan, row.message) * self._max_channels

    def _shrink(self) -> None:
        while len(self._messages) > self._max_channels or self.size > self._max_size:
            by_owner = self._by_owner.most * SPOOFED >= self._by_host.most
            self._forget((self._by_owner if by_owner else self._by_host).giver())


def _cost(chan: bytes, message: Kept) -> int:
    return ENTRY_COST + len(chan) + len(message.datagram)
