"""What has been heard from each source: duplicates, losses, restarts
(``bccnd/wire/BCCN1.md``, "Duplicates and restarts").

Rules
- The document's: ``seq <= last`` and ``last - seq < sanity`` is a duplicate or stale and is dropped; a sharper
  fall is a restart of the source and is accepted; anything above ``last`` is accepted.
- A gap counts as lost. What arrives later than its successors moves from lost to late; it is dropped, unless a
  reorder window is configured and reaches back to it. So received + late + lost is the span that was seen.
- A jump forward of more than JUMP numbers, like a restart, begins a new span: it is not that many losses.
- What clients of this host sent comes back from the network after they left; however much it is, none of it is new.
- A recording played again looks like a restart to the document's rule. Numbers from CLOCKED on are a clock's, as ours
  are, and never go back; so with ``drop_replays`` a sharp fall between two of them is ``replayed`` and dropped. A
  source that counts from 1 or from epoch seconds keeps the document's rule. What is dropped so does not count as
  heard: a source whose numbers did fall, against the rule, is silent for ``seconds`` at most.
- The table is bounded in sources and in time. A source is a newcomer until PROOF_MESSAGES were accepted from it over
  PROOF_SECONDS. Newcomers displace each other only, so that a flood of forged sources costs no proven one its
  account; they have the room that the proven ones leave, which is a quarter of the table or more.
- Each part of the table has two generations. When the young one holds half of the part, or has been young for the
  expiry time, the old one is forgotten and the young one grows old. A source that speaks moves to the young one.
  So what is forgotten has been silent longest, at no cost per message.
"""

from collections.abc import Iterator
from typing import Any

from bccnd.relay.options import Dedup
from bccnd.wire.verdict import Verdict

# More numbers than a source can have lost and still be worth counting one by one.
JUMP = 2**20
# How far back duplicates are distinguished from late datagrams.
WINDOW = 64
# No counter and no clock of seconds or milliseconds has come so far; a clock of microseconds passed it in 2001.
CLOCKED = 10**15
PROOF_MESSAGES = 3
# A flood of more than limit / 8 sources a minute pushes its own out before they are proven.
PROOF_SECONDS = 60.0


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
        "replayed",
        "restarts",
        "seen",
        "since",
    )

    def __init__(self, seq: int, now: float) -> None:
        self.received = 1
        self.lost = self.late = self.duplicates = self.restarts = self.replayed = 0
        self.first = self.last = seq
        self.seen = 1  # bit k: last - k was seen
        self.heard = self.since = now
        self.peer = ""
        self.ours = range(0)  # sent from this host, by a client that has left


class _Part:
    """One part of the table: src -> ``Source`` in two generations."""

    __slots__ = ("old", "turned", "young")

    def __init__(self) -> None:
        self.young: dict[bytes, Source] = {}
        self.old: dict[bytes, Source] = {}
        self.turned = 0.0

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def __iter__(self) -> Iterator[tuple[bytes, Source]]:
        yield from self.young.items()
        yield from self.old.items()

    def take(self, src: bytes) -> Source | None:
        return self.young.pop(src, None) or self.old.pop(src, None)

    def turn(self, now: float) -> None:
        self.turned = now
        self.old, self.young = self.young, {}

    def shrink(self, limit: int) -> None:
        """To half of the limit, those heard last, if there are more than the limit."""
        if len(self) > limit:
            latest = sorted(self, key=lambda item: item[1].heard)[-max(1, limit // 2) :]
            self.young, self.old = dict(latest), {}

    def state(self) -> dict[str, Any]:
        return {"turned": self.turned, "young": _rows(self.young), "old": _rows(self.old)}

    def restore(self, state: dict[str, Any]) -> None:
        self.turned = state["turned"]
        self.young = _table(state["young"])
        self.old = _table(state["old"])


class Sources:
    """The table of sources: src -> ``Source``. ``seconds``: of silence, after which a source is forgotten."""

    def __init__(self, options: Dedup, *, authenticated: bool) -> None:
        self._proven, self._newcomers = _Part(), _Part()
        # Of all sources, the forgotten ones too, so that these only grow: numbers that were missing when a later one
        # came; of those, come after all; restarts.
        self.missed = self.found = self.restarted = 0
        self.configure(options, authenticated=authenticated)

    def configure(self, options: Dedup, *, authenticated: bool) -> None:
        """Use other rules from now on, for known sources too. ``authenticated``: whether hmac is required."""
        self._sanity = options.sanity
        self._seconds = options.seconds
        self._reorder = options.reorder
        self._drop_replays = options.drops_replays(authenticated=authenticated)
        self._mask = (1 << max(WINDOW, options.reorder + 1)) - 1
        self._limit = options.sources
        self._fit()

    def next_deadline(self) -> float:
        """When silent sources are next forgotten."""
        return min(self._proven.turned, self._newcomers.turned) + self._seconds

    def __len__(self) -> int:
        return len(self._proven) + len(self._newcomers)

    def __iter__(self) -> Iterator[tuple[bytes, Source]]:
        yield from self._proven
        yield from self._newcomers

    def get(self, src: bytes) -> Source | None:
        proven, newcomers = self._proven, self._newcomers
        return (
            proven.young.get(src) or newcomers.young.get(src) or proven.old.get(src) or newcomers.old.get(src)
        )

    def heard(self, src: bytes) -> float | None:
        """When the source was last heard, in the caller's monotonic seconds; None when it is not known."""
        source = self.get(src)
        return source.heard if source else None

    def observe(self, src: bytes, seq: int, now: float) -> Verdict:
        """Judge message ``seq`` of ``src`` and keep the account."""
        return self.observe_run(src, seq, 1, now)[0]

    def observe_run(self, src: bytes, seq: int, count: int, now: float) -> tuple[Verdict, int]:
        """Judge messages of ``src`` with the ``count`` numbers from ``seq`` on: the verdict on the first, and on how
        many it is the same and done with; the others are for the next call.
        """
        source = self._proven.young.get(src) or self._find(src, now)
        if source is None:
            self._enter(src, Source(seq, now), now)
            return Verdict.NEW, 1
        step = seq - source.last
        if step <= 0:
            return self._behind(source, seq, now), 1
        source.heard = now
        if step > 1:
            if step > JUMP:
                source.first = seq
            else:
                source.lost += step - 1
                self.missed += step - 1
        step += count - 1
        if step <= WINDOW + self._reorder:
            source.seen = (source.seen << step | (1 << count) - 1) & self._mask
        else:
            source.seen = (1 << count) - 1 & self._mask
        source.last = seq + count - 1
        source.received += count
        return Verdict.OK, count

    def note_peer(self, src: bytes, peer: bytes) -> None:
        """Note where a source that was just observed sends from."""
        source = self.get(src)
        if source is not None:
            source.peer = peer.decode()

    def remember(self, src: bytes, sent: range, now: float) -> None:
        """Take the numbers ``sent`` (not empty) as seen: a client of this host has left, its datagrams may echo."""
        known = self._proven.take(src) or self._newcomers.take(src)
        source = Source(sent[-1], now)
        source.ours = range(known.ours.start, sent.stop) if known and known.ours else sent
        self._enter(src, source, now)

    def on_deadline(self, now: float) -> None:
        """Forget sources that have been silent for one to two expiry times."""
        for part in (self._proven, self._newcomers):
            if now >= part.turned + self._seconds:
                part.turn(now)

    def state(self) -> dict[str, Any]:
        """The table in plain values, for a successor of this daemon."""
        return {
            "proven": self._proven.state(),
            "newcomers": self._newcomers.state(),
            "totals": (self.missed, self.found, self.restarted),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._proven.restore(state["proven"])
        self._newcomers.restore(state["newcomers"])
        self.missed, self.found, self.restarted = state.get("totals", (0, 0, 0))
        self._fit()

    def _fit(self) -> None:
        self._proven.shrink(self._limit - self._limit // 4)
        self._newcomers.shrink(self._limit - len(self._proven))

    def _enter(self, src: bytes, source: Source, now: float) -> None:
        """Somebody new, to whom other newcomers may have to give way."""
        proven, newcomers = self._proven, self._newcomers
        room = self._limit - len(proven.young) - len(proven.old)
        young = len(newcomers.young)
        if young * 2 >= room or young + len(newcomers.old) >= room:
            newcomers.turn(now)
        newcomers.young[src] = source

    def _find(self, src: bytes, now: float) -> Source | None:
        """A source that is not among the young proven ones, where it may belong from now on."""
        proven, newcomers = self._proven, self._newcomers
        source = newcomers.young.get(src)
        if source is None:
            source = proven.old.pop(src, None)
            if source is not None:
                self._protect(src, source, now)
                return source
            source = newcomers.old.pop(src, None)
            if source is None:
                return None
            newcomers.young[src] = source
        if source.received >= PROOF_MESSAGES and now - source.since >= PROOF_SECONDS:
            del newcomers.young[src]
            self._protect(src, source, now)
        return source

    def _protect(self, src: bytes, source: Source, now: float) -> None:
        """Put a source among the young proven ones; the old ones may have to give way."""
        proven = self._proven
        if len(proven.young) * 2 >= self._limit - self._limit // 4:
            proven.turn(now)
        proven.young[src] = source

    def _behind(self, source: Source, seq: int, now: float) -> Verdict:
        behind = source.last - seq
        if behind >= self._sanity and self._is_replay(source, seq, now):
            source.replayed += 1
            return Verdict.REPLAYED
        source.heard = now
        if seq in source.ours:
            source.duplicates += 1
            return Verdict.DUPLICATE
        if behind >= self._sanity:
            source.restarts += 1
            self.restarted += 1
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
            self.found += 1
        else:  # the span begins earlier than it seemed
            source.lost += source.first - seq - 1
            self.missed += source.first - seq - 1
            source.first = seq
        if behind <= self._reorder:
            source.received += 1
            return Verdict.OK
        source.late += 1
        return Verdict.LATE

    def _is_replay(self, source: Source, seq: int, now: float) -> bool:
        return (
            self._drop_replays
            and seq >= CLOCKED
            and seq not in source.ours  # an echo, however late
            and now - source.heard <= self._seconds
        )


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
