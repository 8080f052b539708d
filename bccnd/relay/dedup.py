"""What has been heard from each source: duplicates, losses, restarts (``bccn.txt``, "SEQUENCE NUMBERS AND DEDUP").

Rules
- The document's: ``seq <= last`` and ``last - seq < sanity`` is a duplicate or stale and is dropped; a sharper
  fall is a restart of the source and is accepted; anything above ``last`` is accepted.
- A gap counts as lost. What arrives later than its successors moves from lost to late; it is dropped, unless a
  reorder window is configured and reaches back to it. So received + late + lost is the span that was seen.
- A jump forward of more than JUMP numbers, like a restart, begins a new span: it is not that many losses.
- What clients of this host sent comes back from the network after they left; however much it is, none of it is new.
- The table is bounded in sources and in time. It has two generations; when the young one holds half the limit, or
  has been young for the expiry time, the old one is forgotten and the young one grows old. A source that
  speaks moves to the young one. So what is forgotten has been silent longest, at no cost per message.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

JUMP = 2**20  # more numbers than a source can have lost and still be worth counting one by one
WINDOW = 64  # how far back duplicates are told from late ones


class Verdict(StrEnum):
    """How a datagram was judged; the first three are delivered."""

    ACCEPTED = "ok"
    NEW = "new"  # the first of its source
    RESTARTED = "restarted"  # the first after a sharp fall
    DUPLICATE = "duplicate"
    LATE = "late"


class Source:
    """One src and its account; ``heard`` is in the caller's monotonic seconds, ``peer`` what it last came from."""

    __slots__ = (
        "duplicates",
        "first",
        "heard",
        "last",
        "late",
        "lost",
        "ours",
        "peer",
        "received",
        "restarts",
        "seen",
    )

    def __init__(self, seq: int, now: float) -> None:
        self.received = 1
        self.lost = self.late = self.duplicates = self.restarts = 0
        self.first = self.last = seq
        self.seen = 1  # bit k: last - k was seen
        self.heard = now
        self.peer = ""
        self.ours = range(0)  # sent from this host, by a client that has left


class Sources:
    """The table of sources: src -> ``Source``."""

    def __init__(
        self, *, sanity: int = 1000, limit: int = 65536, seconds: float = 86400, reorder: int = 0
    ) -> None:
        self._sanity = sanity
        self._half = max(1, limit // 2)
        self._seconds = seconds
        self._reorder = reorder
        self._mask = (1 << max(WINDOW, reorder + 1)) - 1
        self._young: dict[bytes, Source] = {}
        self._old: dict[bytes, Source] = {}
        self._turned = 0.0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def __iter__(self) -> Iterator[tuple[bytes, Source]]:
        yield from self._young.items()
        yield from self._old.items()

    def get(self, src: bytes) -> Source | None:
        return self._young.get(src) or self._old.get(src)

    def observe(self, src: bytes, seq: int, now: float) -> Verdict:
        """Judge message ``seq`` of ``src`` and keep the account."""
        source = self._young.get(src) or self._recall(src, now)
        if source is None:
            self._young[src] = Source(seq, now)
            return Verdict.NEW
        source.heard = now
        step = seq - source.last
        if step <= 0:
            return self._behind(source, seq)
        if step > 1:
            if step > JUMP:
                source.first = seq
            else:
                source.lost += step - 1
        source.seen = (source.seen << step | 1) & self._mask if step <= WINDOW + self._reorder else 1
        source.last = seq
        source.received += 1
        return Verdict.ACCEPTED

    def place(self, src: bytes, peer: bytes) -> None:
        """Note where a source that was just observed sends from."""
        self._young[src].peer = peer.decode()

    def remember(self, src: bytes, sent: range, now: float) -> None:
        """Take the numbers ``sent`` (not empty) as seen: a client of this host has left, its datagrams may echo."""
        known = self._old.pop(src, None) or self._young.get(src)
        source = self._young[src] = Source(sent[-1], now)
        source.ours = range(known.ours.start, sent.stop) if known and known.ours else sent
        self._turn_if_full(now)

    def expire(self, now: float) -> None:
        """To be called now and then: forget sources that have been silent for one to two expiry times."""
        if now - self._turned > self._seconds:
            self._turn(now)

    def state(self) -> dict[str, Any]:
        """The table in plain values, for a successor of this daemon."""
        return {"turned": self._turned, "young": _rows(self._young), "old": _rows(self._old)}

    def restore(self, state: dict[str, Any]) -> None:
        self._turned = state["turned"]
        self._young = _table(state["young"])
        self._old = _table(state["old"])

    def _behind(self, source: Source, seq: int) -> Verdict:
        behind = source.last - seq
        if seq in source.ours:
            source.duplicates += 1
            return Verdict.DUPLICATE
        if behind >= self._sanity:
            source.restarts += 1
            source.received += 1
            source.first = source.last = seq
            source.seen = 1
            return Verdict.RESTARTED
        if source.seen >> behind & 1 or 1 << behind > self._mask:
            source.duplicates += 1
            return Verdict.DUPLICATE
        source.seen |= 1 << behind
        if seq > source.first:
            source.lost -= 1
        else:  # the span begins earlier than it seemed
            source.lost += source.first - seq - 1
            source.first = seq
        if behind <= self._reorder:
            source.received += 1
            return Verdict.ACCEPTED
        source.late += 1
        return Verdict.LATE

    def _recall(self, src: bytes, now: float) -> Source | None:
        """Look in the old generation; in any case there is room for ``src`` in the young one afterwards."""
        source = self._old.pop(src, None)
        self._turn_if_full(now)
        if source is not None:
            self._young[src] = source
        return source

    def _turn_if_full(self, now: float) -> None:
        if len(self._young) >= self._half:
            self._turn(now)

    def _turn(self, now: float) -> None:
        self._turned = now
        self._old = self._young
        self._young = {}


def _rows(table: dict[bytes, Source]) -> list[tuple[bytes, dict[str, Any]]]:
    return [
        (src, {name: _plain(getattr(source, name)) for name in Source.__slots__})
        for src, source in table.items()
    ]


def _table(rows: list[tuple[bytes, dict[str, Any]]]) -> dict[bytes, Source]:
    table: dict[bytes, Source] = {}
    for src, fields in rows:
        table[src] = source = Source(0, 0.0)
        for name, value in fields.items():
            setattr(source, name, range(*value) if name == "ours" else value)
    return table


def _plain(value: Any) -> Any:
    return (value.start, value.stop) if isinstance(value, range) else value
