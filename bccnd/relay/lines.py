"""Things of several owners that wait in line: the owners take turns, one thing each.

Without this, an owner with many things in line keeps all others waiting.
"""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Lines(Generic[T]):
    def __init__(self) -> None:
        # In the order in which they have their turn.
        self._lines: OrderedDict[bytes, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def length(self, owner: bytes) -> int:
        return len(self._lines.get(owner, ()))

    def add(self, owner: bytes, thing: T) -> None:
        """To the end of the line of its owner."""
        self._lines.setdefault(owner, deque()).append(thing)
        self._count += 1

    def put_back(self, owner: bytes, thing: T) -> None:
        """Put back a thing that was taken: it waits before all others of its owner, for the owner's next turn."""
        self._lines.setdefault(owner, deque()).appendleft(thing)
        self._count += 1

    def take(self) -> tuple[bytes, T]:
        """The owner whose turn it is, and its first thing. LookupError when nothing waits."""
        owner, line = next(iter(self._lines.items()), (b"", None))
        if line is None:
            raise LookupError("nothing waits")
        self._count -= 1
        thing = line.popleft()
        if line:
            self._lines.move_to_end(owner)
        else:
            del self._lines[owner]
        return owner, thing

    def clear(self) -> None:
        self._lines.clear()
        self._count = 0
