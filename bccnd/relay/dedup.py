"""What has been heard from each source: duplicates, losses, restarts
(``bccnd/wire/BCCN1.md``, "Duplicates and restarts").

Rules
- A number at or below ``last`` is a duplicate or late as long as ``last - seq < sanity``, and is dropped; a number
  further below is a restart of the source, and is accepted; any number above ``last`` is accepted.
- Numbers that are left out count as lost. A message that comes after its successors moves from lost to late. It is
  dropped, unless a reorder window is configured and reaches back to it. So received + late + lost is the range of
  numbers that was seen.
- A jump forward of more than JUMP numbers, like a restart, begins a new range: it is not that many losses.
- Datagrams of clients that have left may still come back from the network; they are ours (``own``), however many.
- Without a key anybody can send a high number under any name. So a jump of more than NEAR is a stray: it is taken,
  and the source stays where it was until the very next new number from it is above the stray. A forged number hides
  at most the NEAR - 1 messages below it and the one of its own; a jump that is real loses nothing.
- What was heard without a key proves nothing once one is required: sources are forgotten then, but for clients that
  have left. A number forged before would make all that its source sends ``replayed``.
- A replayed recording looks like a restart. Numbers from CLOCKED on are a clock's, as ours are, and never go back; so
  where replays are dropped (``dedup.replays``), a fall between two of them is ``replayed``. A source that counts from
  1 or from epoch seconds may restart. A replayed datagram does not count as heard: a source whose clock did go back
  is silent for ``seconds`` at most.
- The table is bounded in sources and in time. A source is a newcomer until PROOF_MESSAGES were accepted from it over
  PROOF_SECONDS. Newcomers displace only each other: a flood of forged sources costs no proven one its account. They
  have the room that the proven ones leave, a quarter of the table or more.
- In each part of a full table the host with most sources gives one up (``crowd``): one that has not spoken since it
  was last looked at for this, among the LOOKS that were looked at longest ago.
- Each part has two generations in time. When the young one has been young for ``seconds``, the old one is forgotten
  and the young one grows old. A source that speaks moves to the young one. So a message costs nothing.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from bccnd.relay.crowd import Crowd, address_of
from bccnd.relay.options import Dedup
from bccnd.wire.verdict import Verdict

# More numbers than a source can have lost and still be worth counting one by one.
JUMP = 2**20
# How far back duplicates are distinguished from late datagrams.
WINDOW = 64
# A jump of more numbers has to be agreed with, where there is no key. A network that disorders moves fewer.
NEAR = 16
# Strays of a source that are remembered. More than a few are forged, and what is forged may come twice.
STRAYS = 8
# Above every number there is.
MOST = 1 << 65
# No counter and no clock of seconds or milliseconds has come so far; a clock of microseconds passed it in 2001.
CLOCKED = 10**15
PROOF_MESSAGES = 3
# A flood of more than limit / 4 sources a minute pushes its own out before they are proven.
PROOF_SECONDS = 60.0
# Sources looked at for one that has fallen silent, when one has to go.
LOOKS = 8


def _nobody(_index: int) -> bytes:
    return b""


class Source:
    """One src and its account; ``heard`` is in the caller's monotonic seconds, ``peer`` what it last came from.

    ``strays``: numbers above ``last`` that were not agreed with; ``lone``: the one that came last of all, or -1.
    """

    __slots__ = (
        "duplicates",
        "first",
        "heard",
        "last",
        "late",
        "lone",
        "lost",
        "ours",
        "peer",
        "received",
        "replayed",
        "restarts",
        "seen",
        "since",
        "strays",
        "told",
    )

    def __init__(self, seq: int, now: float) -> None:
        self.received = 1
        self.lost = self.late = self.duplicates = self.restarts = self.replayed = 0
        self.first = self.last = seq
        self.seen = 1  # bit k: last - k was seen
        self.heard = self.since = now
        self.peer = ""
        self.ours = range(0)  # sent from this host, by a client that has left
        self.lone = -1
        self.strays: tuple[int, ...] = ()
        self.told = 0  # ``received`` when it was last looked at whether it still speaks


class _Part:
    """One part of the table: src -> ``Source`` in two generations, and whose they are."""

    __slots__ = ("crowd", "old", "turned", "young")

    def __init__(self) -> None:
        self.young: dict[bytes, Source] = {}
        self.old: dict[bytes, Source] = {}
        self.turned = 0.0
        self.crowd = Crowd()

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def __iter__(self) -> Iterator[tuple[bytes, Source]]:
        yield from self.young.items()
        yield from self.old.items()

    def put(self, src: bytes, source: Source) -> None:
        """Take in a source that is not in it yet."""
        self.young[src] = source
        self.crowd.add(src, _address(source))

    def take(self, src: bytes) -> Source | None:
        source = self.young.pop(src, None) or self.old.pop(src, None)
        if source:
            self.crowd.remove(src)
        return source

    def make_room(self, src: bytes, source: Source, limit: int) -> None:
        """Have no more than ``limit`` when ``src`` is in: whoever has most gives."""
        while len(self) >= max(1, limit):
            giver = self.crowd.giver(src, _address(source))
            self.take(self._silent_one(self.crowd.members(giver)))

    def turn(self, now: float) -> None:
        self.turned = now
        for src in self.old:
            self.crowd.remove(src)
        self.old, self.young = self.young, {}

    def shrink(self, limit: int) -> None:
        """To half of the limit, those heard last, if there are more than the limit."""
        if len(self) > limit:
            latest = sorted(self, key=lambda item: item[1].heard)[-max(1, limit // 2) :]
            self.young, self.old = dict(latest), {}

    def count_anew(self) -> None:
        """Whose the sources are, from what is known of them."""
        self.crowd = Crowd()
        for src, source in self:
            self.crowd.add(src, _address(source))

    def state(self) -> dict[str, Any]:
        return {"turned": self.turned, "young": _rows(self.young), "old": _rows(self.old)}

    def restore(self, state: dict[str, Any]) -> None:
        self.turned = state["turned"]
        self.young = _table(state["young"])
        self.old = _table(state["old"])

    def _silent_one(self, givers: dict[bytes, None]) -> bytes:
        for _ in range(LOOKS):
            src = next(iter(givers))
            source = self.young.get(src)
            if source is None or source.received == source.told:
                return src
            source.told = source.received
            del givers[src]
            givers[src] = None
        return next(iter(givers))


class Sources:
    """The table of sources: src -> ``Source``. ``seconds``: of silence, after which a source is forgotten."""

    def __init__(self, options: Dedup, *, authenticated: bool) -> None:
        self._proven, self._newcomers = _Part(), _Part()
        # Names for listings, with some of sources that are forgotten, and twice of those that came back.
        self._names: list[bytes] = []
        self._authenticated = authenticated
        self._fresh: list[bytes] = []
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
        if authenticated and not self._authenticated:
            self._forget_unproven()
        self._authenticated = authenticated
        self._window = max(WINDOW, options.reorder + 1)
        self._near = MOST if authenticated else max(NEAR, options.reorder + 1)
        self._mask = (1 << self._window) - 1
        self._limit = options.sources
        self._fit()

    def sort_names(self) -> int:
        """Take new sources into the order of their names, for ``after``. Returns how many names that concerned."""
        if self._fresh:
            self._names += self._fresh
            self._fresh = []
            if len(self._names) > len(self) * 5 // 4 + 1000:
                self._names = list({src for src in self._names if self.get(src)})
            self._names.sort()  # mostly two runs that are sorted already
            return len(self._names)
        return 0

    def after(self, cursor: bytes) -> Iterator[tuple[bytes, Source]]:
        """The sources behind ``cursor`` by name, as ``sort_names`` has left them."""
        last = cursor
        for at in range(bisect_right(self._names, cursor), len(self._names)):
            src = self._names[at]
            source = self.get(src) if src != last else None
            last = src
            if source:
                yield src, source

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

    def observe(self, src: bytes, seq: int, now: float, peer: bytes = b"") -> Verdict:
        """Judge message ``seq`` of ``src`` and keep the account."""
        return self.observe_run(src, seq, 1, now, lambda _: peer)[0]

    def observe_run(
        self,
        src: bytes,
        seq: int,
        count: int,
        now: float,
        peer: Callable[[int], bytes] = _nobody,
        index: int = 0,
    ) -> tuple[Verdict, int]:
        """Judge messages of ``src`` with the ``count`` numbers from ``seq`` on: the verdict on the first, and on how
        many it is the same and done with; the others are for the next call. ``peer(index)`` sent the first.
        """
        source = self._proven.young.get(src) or self._find(src, now)
        if source is None:
            source = Source(seq, now)
            source.peer = peer(index).decode()
            self._enter(src, source)
            return Verdict.NEW, 1
        step = seq - source.last
        if source.strays or step > self._near:
            verdict = self._judge_stray(source, seq, count, now)
            if verdict:
                return verdict, 1
            count = min([stray - seq for stray in source.strays if stray > seq] + [count])
        if step <= 0:
            verdict = self._behind(source, seq, now)
            if verdict is Verdict.RESTARTED:
                source.peer = peer(index).decode()
            return verdict, 1
        source.heard = now
        if step > 1:
            self._leave_out(source, seq, step)
        step += count - 1
        if step <= self._window:
            source.seen = (source.seen << step | (1 << count) - 1) & self._mask
        else:
            source.seen = (1 << count) - 1 & self._mask
        source.last = seq + count - 1
        source.received += count
        if source.strays:
            self._overtake(source)
        return Verdict.OK, count

    def remember(self, src: bytes, sent: range, now: float) -> None:
        """Take the numbers ``sent`` (not empty) as seen: a client of this host has left, its datagrams may echo."""
        known = self._proven.take(src) or self._newcomers.take(src)
        source = Source(sent[-1], now)
        source.ours = range(known.ours.start, sent.stop) if known and known.ours else sent
        self._enter(src, source)

    def has_sent(self, src: bytes, seq: int) -> bool:
        """Whether a client of this host that has left sent this number."""
        source = self.get(src)
        return source is not None and seq in source.ours

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
            "authenticated": self._authenticated,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._proven.restore(state["proven"])
        self._newcomers.restore(state["newcomers"])
        self.missed, self.found, self.restarted = state.get("totals", (0, 0, 0))
        if self._authenticated and not state.get("authenticated", True):
            self._forget_unproven()
        self._fresh = [src for src, _ in self]
        self._fit()

    def _forget_unproven(self) -> None:
        for part in (self._proven, self._newcomers):
            for table in (part.young, part.old):
                for src in [src for src, source in table.items() if not source.ours]:
                    del table[src]

    def _fit(self) -> None:
        self._proven.shrink(self._proven_limit)
        self._newcomers.shrink(self._limit - len(self._proven))
        for part in (self._proven, self._newcomers):
            part.count_anew()

    @property
    def _proven_limit(self) -> int:
        return self._limit - self._limit // 4

    def _enter(self, src: bytes, source: Source) -> None:
        """Somebody new, to whom another newcomer may have to give way."""
        self._newcomers.make_room(src, source, self._limit - len(self._proven))
        self._newcomers.put(src, source)
        if len(self._fresh) > self._limit:  # nobody lists them
            self.sort_names()
        self._fresh.append(src)

    def _find(self, src: bytes, now: float) -> Source | None:
        """A source that is not among the young proven ones, where it may belong from now on."""
        proven, newcomers = self._proven, self._newcomers
        source = newcomers.young.get(src)
        if source is None:
            source = proven.old.pop(src, None)
            if source is not None:
                proven.young[src] = source
                return source
            source = newcomers.old.pop(src, None)
            if source is None:
                return None
            newcomers.young[src] = source
        if source.received >= PROOF_MESSAGES and now - source.since >= PROOF_SECONDS:
            newcomers.take(src)
            proven.make_room(src, source, self._proven_limit)
            proven.put(src, source)
        return source

    def _judge_stray(self, source: Source, seq: int, count: int, now: float) -> Verdict | None:
        """The verdict on a stray, and on one that comes again; None: no stray, or a jump that is agreed with."""
        if seq in source.strays:
            source.duplicates += 1
            return Verdict.DUPLICATE
        is_jump = seq - source.last > self._near
        is_new = seq > source.last  # a further copy says nothing about where the source is
        if is_new and (not is_jump or source.lone > seq):
            source.lone = -1
        if not is_jump or count > 1 or source.lone != -1:
            return None
        source.heard = now
        source.received += 1
        source.strays = *source.strays[1 - STRAYS :], seq
        source.lone = seq
        return Verdict.OK

    def _leave_out(self, source: Source, seq: int, step: int) -> None:
        """Numbers are missing before ``seq``; strays are not."""
        last = source.last
        if step > JUMP:
            source.first = source.lone if source.lone != -1 and seq - source.lone <= JUMP else seq
            last = source.first - 1
        missing = seq - last - 1 - sum(last < stray < seq for stray in source.strays)
        source.lost += missing
        self.missed += missing

    def _overtake(self, source: Source) -> None:
        """Take strays that are not above the source any more for what they are: numbers that have come."""
        for stray in source.strays:
            if 0 <= source.last - stray < self._window:  # a shift by more would take memory without bound
                source.seen |= 1 << source.last - stray
        source.strays = tuple(stray for stray in source.strays if stray > source.last)
        source.lone = -1

    def _behind(self, source: Source, seq: int, now: float) -> Verdict:
        behind = source.last - seq
        if behind >= self._sanity and self._is_replay(source, seq, now):
            source.replayed += 1
            return Verdict.REPLAYED
        source.heard = now
        if seq in source.ours:
            return Verdict.OWN
        if behind >= self._sanity:
            source.restarts += 1
            self.restarted += 1
            source.received += 1
            source.first = source.last = seq
            source.seen = 1
            source.strays, source.lone = (), -1
            return Verdict.RESTARTED
        if source.seen >> behind & 1 or behind >= self._window:
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


def _address(source: Source) -> bytes:
    return address_of(source.peer.encode())


def _rows(table: dict[bytes, Source]) -> list[tuple[bytes, dict[str, Any]]]:
    return [
        (src, {name: _plain(getattr(source, name)) for name in Source.__slots__})
        for src, source in table.items()
    ]


def _table(rows: list[tuple[bytes, dict[str, Any]]]) -> dict[bytes, Source]:
    table: dict[bytes, Source] = {}
    for src, fields in rows:
        table[src] = source = Source(0, 0.0)
        for name in fields.keys() & set(Source.__slots__):  # other code may have more of them
            setattr(source, name, range(*fields[name]) if name == "ours" else fields[name])
    return table


def _plain(value: Any) -> Any:
    return (value.start, value.stop) if isinstance(value, range) else value
