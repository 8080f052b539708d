"""The address book: which peers to dial, and when to try again.

Rules
- A configured peer is dialled again and again. A peer that another one named is forgotten after ``attempts`` failures
  in a row, when its teller takes it back, or when its teller goes; if it is busy then, as soon as it is not.
- A link may name TOLD_LIMIT peers, and all links together ENTRIES_LIMIT. Only TCP addresses in certain networks
  count: a device belongs to its host, and host names are not taken. DIALS_LIMIT are dialled at a time.
- The wait between two attempts grows from ``first`` seconds to ``longest``. Looking for a device costs nothing.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from bccnd.dndm.options import Network
from bccnd.errors import DndmError
from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.peers import Peer, parse

TOLD_LIMIT = 64
ENTRIES_LIMIT = 1024
DIALS_LIMIT = 16
ATTEMPTS, ATTEMPTS_LIMIT = 10, 100
FIRST, LONGEST, GROWTH = 1.0, 60.0, 1.5
LONGEST_OF_A_DEVICE = 2.0
# Bounds, in seconds, of the waits that a peer may ask for.
WAITS = 0.1, 3600.0
GROWTH_LIMIT = 10.0
# Bounds of what peers may name.
TOLD_SCHEMES = {"tcp"}
# The number that stands for the settings, among those of links that name peers.
NOBODY = -2

Place = tuple[str, str]


@dataclass(slots=True)
class Entry:
    """``teller``: the link that named it; None if configured. ``growth``: the part of itself by which a wait grows.

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
    """``own``: this gateway's address, which is never dialled; ``networks``: where named peers are dialled."""

    def __init__(self, own: Place, alarm: Alarm, networks: Sequence[Network]) -> None:
        self._own = own
        self.networks = networks
        self._entries: dict[Place, Entry] = {}
        # When to dial each entry that is not busy.
        self._due: Deadlines[Place] = Deadlines(alarm)
        # Entries of a teller; those being dialled.
        self._told: Counter[int] = Counter()
        self._dialled = 0

    def __contains__(self, peer: Peer) -> bool:
        return peer.place in self._entries

    def configure(self, peer: Peer) -> None:
        entry = self._entries.get(peer.place)
        if entry is not None:  # a peer has named it
            self._of_nobody(entry)
            entry.teller, entry.peer = None, peer
            return
        longest = LONGEST_OF_A_DEVICE if peer.scheme == "serial" else LONGEST
        self._entries[peer.place] = Entry(peer, None, longest=longest)
        self._due.set(peer.place, 0.0)

    def configured(self) -> list[Peer]:
        return [entry.peer for entry in self._entries.values() if entry.teller is None]

    def leave(self, gone: Iterable[Peer]) -> None:
        """These peers are not configured any more: do not dial them again."""
        for peer in gone:
            entry = self._entries[peer.place]
            entry.teller, entry.attempts = NOBODY, 0
            self._told[NOBODY] += 1
            if not entry.busy:
                self._remove(entry)

    def told(self, peer: Peer, teller: int, now: float, said: pb.AddrbookEntry | None = None) -> bool:
        """A peer has named another one. Whether that is noted; ``said``: how to dial it."""
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

    def heard(
        self, message: pb.Peers | pb.Addrbook, teller: int, now: float, *, strict: bool
    ) -> tuple[str, int]:
        """A peer has named others. Returns what is wrong with one of them, and how many are not noted.

        ``strict``: none is noted, and none counts as not noted.
        """
        entries = [*message.entries] if isinstance(message, pb.Addrbook) else [None] * len(message.ids)
        texts = message.ids if isinstance(message, pb.Peers) else [each.peer for each in message.entries]
        wrong, not_noted = "", 0
        for text, entry in zip(texts, entries, strict=True):
            try:
                peer = parse(text)
            except DndmError:
                wrong = "peer"
                continue
            if isinstance(message, pb.Peers) and message.remove:
                self.taken_back(peer, teller)
            elif not strict:
                not_noted += not self.told(peer, teller, now, entry)
        return wrong, not_noted

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
        """The peers that are due; they count as being dialled from now on."""
        peers = []
        while self._dialled < DIALS_LIMIT and (due := self._due.pop(now)):
            entry = self._entries[due[0]]
            entry.busy = True
            self._dialled += 1
            peers.append(entry.peer)
        return peers

    @property
    def next(self) -> float:
        """When the next peer is due, and may be dialled."""
        return self._due.next if self._dialled < DIALS_LIMIT else math.inf

    def connected(self, place: Place) -> None:
        """The handshake with a peer is done, whichever end dialled."""
        if entry := self._entries.get(place):
            self._dialled -= entry.busy and not entry.up
            entry.busy = entry.up = True
            entry.failed, entry.wait = 0, entry.first
            self._due.remove(place)

    def gone(self, place: Place, now: float) -> None:
        """A peer could not be dialled, refused the handshake, or is not connected any more."""
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


def _heed(entry: Entry, said: pb.AddrbookEntry) -> None:
    """Take over how to dial a peer, as another one says, within bounds; 0 means the default."""
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
