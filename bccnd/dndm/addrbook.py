"""Which peers to dial, and when again.

Rules
- A configured peer is dialled for ever. One that another peer told of is forgotten after ``attempts`` failures in a
  row, when its teller takes it back, or when its teller goes; if it is busy then, once it is not.
- A link tells of TOLD_LIMIT peers at most, all links of ENTRIES_LIMIT. They tell of TCP alone, as a device is one of
  this host, and of addresses in certain networks, not of names. DIALS_LIMIT are dialled at a time.
- Between two attempts the wait grows from ``first`` seconds to ``longest``. To look for a device costs nothing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from bccnd.dndm.options import Network
from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.wire.dndm.messages_pb2 import AddrbookEntry
from bccnd.wire.dndm.peers import Peer

TOLD_LIMIT = 64
ENTRIES_LIMIT = 1024
DIALS_LIMIT = 16
ATTEMPTS, ATTEMPTS_LIMIT = 10, 100
FIRST, LONGEST, GROWTH = 1.0, 60.0, 1.5
LONGEST_OF_A_DEVICE = 2.0
# Bounds of what a peer may say of the waits, in seconds.
WAITS = 0.1, 3600.0
GROWTH_LIMIT = 10.0
# Of what peers tell.
TOLD_SCHEMES = {"tcp"}
# Among the numbers of links that tell of peers: of those that were configured.
NOBODY = -2

Place = tuple[str, str]


@dataclass(slots=True)
class Entry:
    """``teller``: the link that told of it; None if configured. ``growth``: by what part of itself a wait grows.

    ``busy``: being dialled, or ``up``.
    """

    peer: Peer
    teller: int | None
    attempts: int = ATTEMPTS
    first: float = FIRST
    longest: float = LONGEST
    growth: float = GROWTH
    wait: float = FIRST
    failed: int = 0
    busy: bool = False
    up: bool = False


class Addrbook:
    """``own``: the place of this gateway, which is never dialled; ``networks``: of peers that others tell of."""

    def __init__(self, own: Place, alarm: Alarm, networks: Sequence[Network]) -> None:
        self._own = own
        self.networks = networks
        self._entries: dict[Place, Entry] = {}
        # Of those that are not busy.
        self._due: Deadlines[Place] = Deadlines(alarm)
        # Entries of a teller; those being dialled.
        self._told: Counter[int] = Counter()
        self._dialled = 0

    def __contains__(self, peer: Peer) -> bool:
        return peer.place in self._entries

    def configure(self, peer: Peer) -> None:
        entry = self._entries.get(peer.place)
        if entry is not None:  # somebody told of it
            self._of_nobody(entry)
            entry.teller, entry.peer = None, peer
            return
        longest = LONGEST_OF_A_DEVICE if peer.scheme == "serial" else LONGEST
        self._entries[peer.place] = Entry(peer, None, longest=longest)
        self._due.set(peer.place, 0.0)

    def configured(self) -> list[Peer]:
        return [entry.peer for entry in self._entries.values() if entry.teller is None]

    def leave(self, gone: Iterable[Peer]) -> None:
        """These are configured no more: they are not dialled again."""
        for peer in gone:
            entry = self._entries[peer.place]
            entry.teller, entry.attempts = NOBODY, 0
            self._told[NOBODY] += 1
            if not entry.busy:
                self._remove(entry)

    def told(self, peer: Peer, teller: int, now: float, said: AddrbookEntry | None = None) -> bool:
        """Whether it is noted; ``said``: how to dial it."""
        host, _, port = peer.address.rpartition(":")
        if peer.scheme not in TOLD_SCHEMES or not port.isdecimal() or peer.place == self._own:
            return False
        if not self._is_near(host):
            return False
        if peer.place in self._entries:
            return True
        if self._told[teller] >= TOLD_LIMIT or self._told.total() >= ENTRIES_LIMIT:
            return False
        entry = Entry(peer, teller)
        if said is not None:
            _heed(entry, said)
        self._entries[peer.place] = entry
        self._told[teller] += 1
        self._due.set(peer.place, now)
        return True

    def taken_back(self, peer: Peer, teller: int) -> None:
        entry = self._entries.get(peer.place)
        if entry is not None and entry.teller == teller and not entry.busy:
            self._remove(entry)

    def teller_gone(self, teller: int) -> None:
        if not self._told[teller]:
            return
        for entry in [each for each in self._entries.values() if each.teller == teller]:
            entry.attempts = 0
            if not entry.busy:
                self._remove(entry)

    def to_dial(self, now: float) -> list[Peer]:
        """Those that are due; they are being dialled from now on."""
        peers = []
        while self._dialled < DIALS_LIMIT and (due := self._due.pop(now)):
            entry = self._entries[due[0]]
            entry.busy = True
            self._dialled += 1
            peers.append(entry.peer)
        return peers

    @property
    def next(self) -> float:
        """When somebody is due, and may be dialled."""
        return self._due.next if self._dialled < DIALS_LIMIT else math.inf

    def connected(self, place: Place) -> None:
        """The handshake with it is done, whoever dialled."""
        if entry := self._entries.get(place):
            self._dialled -= entry.busy and not entry.up
            entry.busy = entry.up = True
            entry.failed, entry.wait = 0, entry.first
            self._due.remove(place)

    def gone(self, place: Place, now: float) -> None:
        """It could not be dialled, refused the handshake, or is connected no more."""
        entry = self._entries.get(place)
        if entry is None:
            return
        self._dialled -= entry.busy and not entry.up
        entry.busy = entry.up = False
        entry.failed += 1
        if entry.teller is not None and entry.failed >= entry.attempts:
            self._remove(entry)
            return
        self._due.set(place, now + entry.wait)
        entry.wait = min(entry.longest, entry.wait * (1 + entry.growth))

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.peer.place]
        self._due.remove(entry.peer.place)
        self._of_nobody(entry)

    def _of_nobody(self, entry: Entry) -> None:
        if entry.teller is not None:
            self._told[entry.teller] -= 1
            if not self._told[entry.teller]:
                del self._told[entry.teller]

    def _is_near(self, host: str) -> bool:
        try:
            address = ip_address(host.strip("[]"))
        except ValueError:
            return False
        return any(address in network for network in self.networks)


def _heed(entry: Entry, said: AddrbookEntry) -> None:
    """Take over what a peer says of another, within bounds; 0 is the usual."""
    least, most = WAITS
    if said.max_attempts:
        entry.attempts = min(said.max_attempts, ATTEMPTS_LIMIT)
    if said.default_backoff:
        entry.first = min(max(said.default_backoff / 1e9, least), most)
    if said.max_backoff:
        entry.longest = said.max_backoff / 1e9
    entry.longest = min(max(entry.longest, entry.first), most)
    if math.isfinite(said.backoff_multiplier) and said.backoff_multiplier > 0:
        entry.growth = min(said.backoff_multiplier, GROWTH_LIMIT)
    entry.wait = min(max(said.backoff / 1e9, entry.first), entry.longest)
