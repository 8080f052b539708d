"""Who holds how much of what all share: weights by owner and, of each owner, by source.

Without this, one who invents sources fills a table that all share, and pushes out what the others keep there.

Rules
- The owner that has most gives first, of that what its greatest source has, and of that the oldest. So no owner gives
  while it has less than an equal part of all.
- The greatest is known without a search: each change is in a heap, where most have been overtaken by a later one.
"""

from heapq import heapify, heappop, heappush


class Heaviest:
    """Weights by name; the greatest of them, of several the first by name."""

    __slots__ = ("_changes", "_weights")

    def __init__(self) -> None:
        self._weights: dict[bytes, int] = {}
        self._changes: list[tuple[int, bytes]] = []  # a heap of (-weight, name)

    def __len__(self) -> int:
        return len(self._weights)

    def add(self, name: bytes, weight: int) -> None:
        """So much more, or less, is of this name; who has nothing left is forgotten."""
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
        """The name that has most, and its weight; nothing for nobody."""
        while self._changes:
            weight, name = self._changes[0]
            if self._weights.get(name) == -weight:
                return name, -weight
            heappop(self._changes)
        return b"", 0


class Shares:
    """Things of a source that an owner is accountable for, each with a weight above 0."""

    def __init__(self) -> None:
        self._owners = Heaviest()
        self._sources: dict[bytes, Heaviest] = {}
        self._things: dict[tuple[bytes, bytes], dict[bytes, None]] = {}  # the oldest first

    def add(self, owner: bytes, source: bytes, thing: bytes, weight: int) -> None:
        """So much more, or less, is of this thing, which is the youngest from now on."""
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
        """How many owners and sources there are."""
        return len(self._sources) + len(self._things)

    def of(self, owner: bytes) -> int:
        """What this owner has."""
        return self._owners.weight(owner)

    @property
    def most(self) -> int:
        """What the greatest owner has."""
        return self._owners.greatest()[1]

    def giver(self) -> bytes:
        """The thing that is given up first."""
        owner = self._owners.greatest()[0]
        source = self._sources[owner].greatest()[0]
        return next(iter(self._things[owner, source]))
