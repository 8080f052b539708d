"""The sources of a bounded table by their owners, so that the owner with most gives up first.

Without this, one host that invents names fills a table that all hosts share, and pushes out what the others announce.

Rules
- A source counts against its host, the first part of its name, and against the address that it came from. Anybody can
  invent hosts, even where a key is required, since all hosts have the same key. The address decides, unless far fewer
  sources came from any one address than have the name of one host.
- If the owner of the newcomer would then have most, it gives up a source of its own.
- The owner with most is known at any time, without a search: a flood costs no more than it brings.
"""

from collections.abc import Iterator
from typing import NamedTuple

# The name of one host counts before the addresses only where it has so many times more sources: invented addresses.
SPOOFED = 2


class Owners:
    """Members by owner. ``most``: the number of members of the owner that has most."""

    def __init__(self) -> None:
        self._members: dict[bytes, dict[bytes, None]] = {}
        self._ranks: dict[int, dict[bytes, None]] = {}  # number of members -> owners
        self.most = 0

    def members(self, owner: bytes) -> dict[bytes, None]:
        return self._members.get(owner, {})

    def add(self, owner: bytes, member: bytes) -> None:
        members = self._members.setdefault(owner, {})
        members[member] = None
        count = len(members)
        self._rank(owner, count - 1, count)
        self.most = max(self.most, count)

    def remove(self, owner: bytes, member: bytes) -> None:
        members = self._members[owner]
        del members[member]
        count = len(members)
        self._rank(owner, count + 1, count)
        if not members:
            del self._members[owner]
        if self.most not in self._ranks:
            self.most = count  # the one that had most alone has one less

    def greatest(self) -> bytes:
        """The owner that has most; of several the one that has come to it first."""
        return next(iter(self._ranks[self.most]))

    def _rank(self, owner: bytes, before: int, now: int) -> None:
        if before:
            del self._ranks[before][owner]
            if not self._ranks[before]:
                del self._ranks[before]
        if now:
            self._ranks.setdefault(now, {})[owner] = None


class Crowd:
    """Sources by owner. ``address``: of the sender; empty for this host itself."""

    def __init__(self) -> None:
        self._hosts, self._addresses = Owners(), Owners()
        self._from: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._from)

    def add(self, src: bytes, address: bytes) -> None:
        """Take in a source that is not in it yet."""
        self._from[src] = address
        self._hosts.add(host_of(src), src)
        self._addresses.add(address, src)

    def remove(self, src: bytes) -> None:
        address = self._from.pop(src)
        self._hosts.remove(host_of(src), src)
        self._addresses.remove(address, src)

    def __iter__(self) -> Iterator[bytes]:
        """In the order in which they came."""
        yield from self._from

    def __contains__(self, src: bytes) -> bool:
        return src in self._from

    def giver(self, src: bytes, address: bytes) -> "Owner":
        """Who gives when ``src`` comes."""
        by_address = self._addresses.most * SPOOFED >= self._hosts.most
        owners, owner = (self._addresses, address) if by_address else (self._hosts, host_of(src))
        if (own := len(owners.members(owner))) and own + 1 >= owners.most:
            return Owner(owner, by_address, True)
        return Owner(owners.greatest(), by_address, False)

    def members(self, owner: "Owner") -> dict[bytes, None]:
        """The sources of an owner, those that came first before the others."""
        return (self._addresses if owner.by_address else self._hosts).members(owner.name)


class Owner(NamedTuple):
    """A host or, ``by_address``, an address; ``newcomer``: it is the newcomer's own."""

    name: bytes
    by_address: bool
    newcomer: bool


def host_of(src: bytes) -> bytes:
    """The part of a source that names its host (``bccnd/wire/BCCN1.md``, "Sources")."""
    return src.partition(b"/")[0]


def address_of(peer: bytes) -> bytes:
    """The address in ``ip:port`` or ``[ip%interface]:port``, without what is only known here."""
    return peer.rpartition(b":")[0].strip(b"[]").partition(b"%")[0]
