"""Between the thread that reads and the one that writes: chunks of packets as they were read, and what happened.

Rules
- Bounded: there are so many chunks and no more. They go round: filled by the reader, emptied by the writer.
- The order of what is put is kept. Losses that follow each other are one.
"""

import mmap
from collections import deque
from dataclasses import dataclass
from threading import Condition

CHUNK_BYTES = 1 << 20
ROOM = 128 << 10  # for one packet: the longest a daemon sends is some 67 kB


class Chunk:
    """Packets as they were read, side by side; ``memory`` as ``bccnd.wire`` wants it."""

    __slots__ = ("ends", "memory", "starts", "view")

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, CHUNK_BYTES)
        self.view = memoryview(self.memory)
        self.starts: list[int] = []
        self.ends: list[int] = []

    @property
    def used(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def full(self) -> bool:
        return self.used + ROOM > CHUNK_BYTES

    def add(self, length: int) -> None:
        """A packet of this length was read to where ``used`` is."""
        start = self.used
        self.starts.append(start)
        self.ends.append(start + length)

    def clear(self) -> None:
        self.starts.clear()
        self.ends.clear()


@dataclass(slots=True)
class Lost:
    """So many messages were read here, and found no room."""

    messages: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The tap is on since this time (unix ns). ``local``: patterns of channels that stay on the ``host``."""

    time_ns: int
    host: str
    local: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """The tap is off. Everything before this time was read; None: before the last that was."""

    time_ns: int | None


@dataclass(frozen=True, slots=True)
class Finished:
    """There will be nothing more."""


Item = Chunk | Lost | Opened | Closed | Finished


class Inbox:
    def __init__(self, limit: int) -> None:
        """``limit``: bytes of all chunks; at least three, for who reads, who writes and one between."""
        self._free = max(3, limit // CHUNK_BYTES)  # not made yet
        self._cleared: list[Chunk] = []
        self._items: deque[Item] = deque()
        self._changed = Condition()

    @property
    def idle(self) -> bool:
        """Whether the writer has nothing to do."""
        return not self._items

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return sum([item.used for item in list(self._items) if isinstance(item, Chunk)])

    def chunk(self) -> Chunk | None:
        """An empty one; None when all are in use."""
        with self._changed:
            if self._cleared:
                return self._cleared.pop()
            if not self._free:
                return None
            self._free -= 1
        return Chunk()

    def give_back(self, chunk: Chunk) -> None:
        chunk.clear()
        with self._changed:
            self._cleared.append(chunk)

    def put(self, item: Item) -> None:
        with self._changed:
            last = self._items[-1] if self._items else None
            if isinstance(item, Lost) and isinstance(last, Lost):
                last.messages += item.messages
            else:
                self._items.append(item)
            self._changed.notify()

    def get(self, seconds: float) -> Item | None:
        """The next, or None if there is none within so many seconds."""
        with self._changed:
            if not self._items:
                self._changed.wait(seconds)
            return self._items.popleft() if self._items else None
