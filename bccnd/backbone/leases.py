"""The places of addresses that have sent a KEEPALIVE lately. Places run out by themselves.

Rules
- A KEEPALIVE gives a place for LEASE_SECONDS, or keeps the one that its address has. Nothing else ends a place: a
  forged KEEPALIVE cannot send anybody away.
- Places are bounded: in all, for each network of 256 addresses, and for each address. When all are taken, a newcomer
  gets none until others run out; a place that is taken stays. So forged addresses direct the traffic to few victims.
- Of the addresses that journal, each is chosen equally often, however many places it has. So an address with many
  places that answers nothing loses few FORWARDs.
- Each call costs the same, however many places there are.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from typing import Generic, NamedTuple, TypeVar

from bccnd.wire.fyrehose import Address

# Seconds that the protocol promises to the sender of a KEEPALIVE.
LEASE_SECONDS = 5.0

# Bytes of an address that count as its network: a /24.
NETWORK_BYTES = 3


T = TypeVar("T")


class Places(NamedTuple):
    """Bounds of places: in all, for a network, and for an address."""

    total: int
    network: int
    address: int


class Lease(NamedTuple):
    """``until``: monotonic seconds; ``journals``: whether FORWARDs may be sent there."""

    until: float
    journals: bool


class _Bag(Generic[T]):
    """A set from which one member is chosen at random."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._where: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, item: T) -> bool:
        return item in self._where

    def add(self, item: T) -> None:
        if item not in self._where:
            self._where[item] = len(self._items)
            self._items.append(item)

    def discard(self, item: T) -> None:
        at = self._where.pop(item, None)
        if at is not None:
            last = self._items.pop()
            if last != item:
                self._items[at] = last
                self._where[last] = at

    def choose(self, others_than: Iterable[T], chance: Callable[[int], int]) -> T | None:
        """A member, each as likely as any other; None if there is none."""
        passed_over = sorted(self._where[each] for each in others_than)
        count = len(self._items) - len(passed_over)
        if not count:
            return None
        at = chance(count) if count > 1 else 0
        for each in passed_over:
            at += at >= each
        return self._items[at]


class Leases:
    """``version`` changes whenever a place is taken or runs out. ``journalling``: how many clients journal."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.version = 0
        # In the order in which they run out: a place that is renewed is put last.
        self._leases: dict[Address, Lease] = {}
        self._held: Counter[bytes] = Counter()  # places of an address, and of a network
        # Those that journal: their addresses, and the ports of each.
        self._journals: _Bag[bytes] = _Bag()
        self._ports: defaultdict[bytes, _Bag[int]] = defaultdict(_Bag)
        self.journalling = 0

    def __len__(self) -> int:
        return len(self._leases)

    def __contains__(self, address: Address) -> bool:
        return address in self._leases

    @property
    def addresses(self) -> Collection[Address]:
        return self._leases.keys()

    def keep(self, address: Address, now: float, *, journals: bool) -> bool:
        """Give ``address`` a place, or renew the one it has. False if there is none for it."""
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
        """An address that journals; None if there is none. ``chance(n)`` returns a random number below n."""
        passed_over: dict[bytes, set[int]] = {}
        for addr, port in others_than:
            if addr in self._journals and port in self._ports[addr]:
                passed_over.setdefault(addr, set()).add(port)
        whole = [addr for addr, ports in passed_over.items() if len(ports) == len(self._ports[addr])]
        chosen = self._journals.choose(whole, chance)
        if chosen is None:
            return None
        at = self._ports[chosen].choose(passed_over.get(chosen, ()), chance)
        return None if at is None else (chosen, at)

    def state(self) -> list[tuple[bytes, int, float, bool]]:
        """The leases in plain values, for ``restore``."""
        return [(*address, *lease) for address, lease in self._leases.items()]

    def restore(self, rows: Iterable[tuple[bytes, int, float, bool]]) -> None:
        """Restore the places of a predecessor, even if the bounds are lower now."""
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
        addr, port = address
        ports = self._ports[addr]
        before = len(ports)
        if journals:
            ports.add(port)
            self._journals.add(addr)
        else:
            ports.discard(port)
        self.journalling += len(ports) - before
        if not ports:
            self._journals.discard(addr)
            del self._ports[addr]
