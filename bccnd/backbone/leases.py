"""Who has sent a KEEPALIVE lately: the places of subscribers, which run out by themselves.

Rules
- A KEEPALIVE gives a place for LEASE_SECONDS, or keeps the one that its address has. Nothing else ends a place: a
  forged KEEPALIVE cannot send anybody away.
- Places are bounded: in all, for each network of 256 addresses, and for each address. Who finds no place gets none
  until others run out; who has one keeps it. So whoever forges addresses has the traffic sent to few of them.
- Each call costs the same, however many there are.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from bccnd.wire.fyrehose import Address

# What the protocol promises to who has sent a KEEPALIVE.
LEASE_SECONDS = 5.0

# Bytes of an address that are its network, as far as places go: a /24.
NETWORK_BYTES = 3


class Places(NamedTuple):
    """How many there are: in all, for a network, and for an address."""

    total: int
    network: int
    address: int


class Lease(NamedTuple):
    """``until``: monotonic seconds; ``journals``: whether FORWARDs may be sent there."""

    until: float
    journals: bool


class Leases:
    """``version`` changes whenever somebody comes or goes."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.version = 0
        # In the order in which they run out: each is put last when it is kept.
        self._leases: dict[Address, Lease] = {}
        self._held: Counter[bytes] = Counter()  # places of an address, and of a network
        self._journals: list[Address] = []
        self._where: dict[Address, int] = {}  # in the list of those that journal

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, address: Address) -> bool:
        return address in self._leases

    @property
    def addresses(self) -> Collection[Address]:
        return self._leases.keys()

    @property
    def journalling(self) -> int:
        return len(self._journals)

    def keep(self, address: Address, now: float, *, journals: bool) -> bool:
        """Give ``address`` a place from now on, or keep its own. False if there is none for it."""
        known = self._leases.pop(address, None)
        if known is None:
            if not self._has_room(address[0]):
                return False
            self._count(address[0], 1)
            self.version += 1
        self._put(address, Lease(now + LEASE_SECONDS, journals))
        return True

    def expire(self, now: float) -> None:
        """Take the places that have run out."""
        while self._leases:
            address = next(iter(self._leases))
            if self._leases[address].until > now:
                return
            del self._leases[address]
            self._count(address[0], -1)
            self._note(address, journals=False)
            self.version += 1

    def choose(self, others_than: Iterable[Address], chance: Callable[[int], int]) -> Address | None:
        """One of those that journal, each as likely as any other; None if there is none. ``chance(n)``: below n."""
        passed_over = sorted(self._where[each] for each in set(others_than) if each in self._where)
        count = len(self._journals) - len(passed_over)
        if not count:
            return None
        at = chance(count)
        for each in passed_over:
            at += at >= each
        return self._journals[at]

    def state(self) -> list[tuple[bytes, int, float, bool]]:
        """The leases in plain values, for ``restore``."""
        return [(*address, *lease) for address, lease in self._leases.items()]

    def restore(self, rows: Iterable[tuple[bytes, int, float, bool]]) -> None:
        """Who had a place has it again, also where there are fewer places now."""
        for addr, port, until, journals in rows:
            self._count(addr, 1)
            self._put((addr, port), Lease(until, journals))
        self.version += 1

    def _put(self, address: Address, lease: Lease) -> None:
        self._leases[address] = lease
        self._note(address, journals=lease.journals)

    def _has_room(self, addr: bytes) -> bool:
        held, places = self._held, self.places
        return (
            len(self._leases) < places.total
            and held[addr[:NETWORK_BYTES]] < places.network
            and held[addr] < places.address
        )

    def _count(self, addr: bytes, by: int) -> None:
        for key in addr, addr[:NETWORK_BYTES]:
            self._held[key] += by
            if not self._held[key]:
                del self._held[key]

    def _note(self, address: Address, *, journals: bool) -> None:
        at = self._where.get(address)
        if journals and at is None:
            self._where[address] = len(self._journals)
            self._journals.append(address)
        elif not journals and at is not None:
            last = self._journals.pop()
            if last != address:
                self._journals[at] = last
                self._where[last] = at
            del self._where[address]
