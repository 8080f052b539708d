"""How much each owner holds of a shared table: weights by owner, and within an owner by source.

Without this, an owner that invents sources fills a shared table, and pushes out what the others keep there.

Rules
- The owner with most gives up first: the oldest thing of its greatest source. So an owner with less than an equal
  part never gives up anything.
- The greatest is found without a search: each change is in a heap, where later changes have replaced most.
"""

from heapq import heapify, heappop, heappush


class Heaviest:
    """Weights by name, and the greatest of them; of equal ones the first by name."""

    __slots__ = ("_changes", "_weights")

    def __init__(self) -> None:
        self._weights: dict[bytes, int] = {}
        self._changes: list[tuple[int, bytes]] = []  # a heap of (-weight, name)

    def __len__(self) -> int:
        return len(self._weights)

    def add(self, name: bytes, weight: int) -> None:
        """Add ``weight``, which may be negative, to a name; a name with nothing left is forgotten."""
        if not weight:
            return
        now = self._weights.get(name, 0) + weight
        if now:
            self._weights[name] = now
            heappush(self._changes, (-now, name))
        else:
            del self._weights[name]
        if len(self._changes) > 2 * len(self._weights) + 2:
            self._changes = [(-each, name) for name, each in self._weights.items()]
            heapify(self._changes)

    def weight(self, name: bytes) -> int:
        return self._weights.get(name, 0)

    def greatest(self) -> tuple[bytes, int]:
        """The name with most, and its weight; empty and 0 if there is none."""
        while self._changes:
            weight, name = self._changes[0]
            if self._weights.get(name) == -weight:
                return name, -weight
            heappop(self._changes)
        return b"", 0


class Shares:
    """Things of sources, each with a weight above 0, for which an owner is accountable."""

    def __init__(self) -> None:
        self._owners = Heaviest()
        self._sources: dict[bytes, Heaviest] = {}
        self._things: dict[tuple[bytes, bytes], dict[bytes, None]] = {}  # the oldest first

    def add(self, owner: bytes, source: bytes, thing: bytes, weight: int) -> None:
        """Add ``weight``, which may be negative, to a thing, which is the youngest from now on."""
        things = self._things.setdefault((owner, source), {})
        things.pop(thing, None)
        things[thing] = None
        self._owners.add(owner, weight)
        sources = self._sources.get(owner)
        if sources is None:
            sources = self._sources[owner] = Heaviest()
        sources.add(source, weight)

    def remove(self, owner: bytes, source: bytes, thing: bytes, weight: int) -> None:
        things, sources = self._things[owner, source], self._sources[owner]
        del things[thing]
        if not things:
            del self._things[owner, source]
        self._owners.add(owner, -weight)
        sources.add(source, -weight)
        if not sources:
            del self._sources[owner]

    def __len__(self) -> int:
        """The number of owners and sources."""
        return len(self._sources) + len(self._things)

    def of(self, owner: bytes) -> int:
        """The weight of this owner."""
        return self._owners.weight(owner)

    @property
    def most(self) -> int:
        """The weight of the greatest owner."""
        return self._owners.greatest()[1]

    def giver(self) -> bytes:
        """The thing that is given up first."""
        owner = self._owners.greatest()[0]
        source = self._sources[owner].greatest()[0]
        return next(iter(self._things[owner, source]))
