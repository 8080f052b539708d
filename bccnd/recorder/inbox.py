"""What the thread that reads hands to the thread that writes: blocks of packets, and events between them.

    Tap ── put(Opened) put(Block) put(Block) put(Lost) put(Closed) ──> Writer
     ^                                                                   │
     └───────────────── block() <── empty blocks <── give_back(block) ───┘

Rules
- Memory is bounded: a fixed number of blocks goes round, filled by the reader, emptied by the writer.
- The writer gets everything in the order in which it was put. Losses that follow each other become one.
"""

from collections import deque
from dataclasses import dataclass
from threading import Condition

from bccnd.recorder.feed import Block

BLOCK_BYTES = 1 << 20


@dataclass(slots=True)
class Lost:
    """The reader read this many messages and had no block to keep them in."""

    messages: int


@dataclass(frozen=True, slots=True)
class Opened:
    """The tap is on since ``time_ns`` (Unix). ``local``: patterns of channels that stay on the ``host``.

    ``status``: what the daemon said of itself right before (JSON).
    """

    time_ns: int
    host: str
    local: tuple[str, ...]
    status: str = ""


@dataclass(frozen=True, slots=True)
class Closed:
    """The tap is off. All up to ``time_ns`` was read; with None, all up to the last message that was.

    ``gone_ns``: when the connection ended by itself; None if the tap was turned off. ``reason``: the daemon's, if it
    stood in a packet that found no block.
    """

    time_ns: int | None
    gone_ns: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """Nothing follows."""


Item = Block | Lost | Opened | Closed | Finished


class Inbox:
    def __init__(self, limit: int) -> None:
        """``limit``: bytes of all blocks; at least three: one to read into, one to write from, one between."""
        self._unused = max(3, limit // BLOCK_BYTES)  # allocated when they are needed
        self._empty: list[Block] = []
        self._items: deque[Item] = deque()
        self._changed = Condition()

    @property
    def idle(self) -> bool:
        """Whether the writer has nothing to do."""
        return not self._items

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return sum([item.used for item in list(self._items) if isinstance(item, Block)])

    def block(self) -> Block | None:
        """An empty block; None when all are in use."""
        with self._changed:
            if self._empty:
                return self._empty.pop()
            if not self._unused:
                return None
            self._unused -= 1
        return Block(BLOCK_BYTES)

    def give_back(self, block: Block) -> None:
        block.clear()
        with self._changed:
            self._empty.append(block)

    def put(self, item: Item) -> None:
        with self._changed:
            last = self._items[-1] if self._items else None
            if isinstance(item, Lost) and isinstance(last, Lost):
                last.messages += item.messages
            else:
                self._items.append(item)
            self._changed.notify()

    def get(self, seconds: float) -> Item | None:
        """The next item, or None if none comes within this time."""
        with self._changed:
            if not self._items:
                self._changed.wait(seconds)
            return self._items.popleft() if self._items else None
