"""What has been heard from each source: duplicates, losses, restarts
(``bccnd/wire/BCCN1.md``, "Duplicates and restarts").

Rules
- A number at or below ``last`` is a duplicate or late if ``last - seq < sanity``, and is dropped. A number further
  below means that the source has restarted, and is accepted. Every number above ``last`` is accepted.
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
- The table is bounded (``accounts``). A source is a newcomer until PROOF_MESSAGES were accepted from it over
  PROOF_SECONDS. Newcomers displace only each other: a flood of forged sources costs no proven one its account. They
  have the room that the proven ones leave, a quarter of the table or more.
- A source is relayed when a bridge brings it from elsewhere (``bccnd/wire/REPAIR.md``, "Relayed sources"). Some of
  its numbers may be left out on purpose. They are no losses, unless they were asked for and nobody answered. A
  number far below the last that a bridge of this host brings is no restart of a clock.
- A bridge may bring two lives of a source at once. Then datagrams that this host sent of the first come back after
  those of the second: they are ours, and no restart.
- A key proves nothing about a relayed source: it may have been forged where it comes from. So there a jump of more
  than FILTERED is a stray, with or without a key. Left-out numbers jump, too. So the number that agrees must be less
  than LIKE times as far from the stray as the stray is from the last.
- Where a daemon keeps what a source sends (``Gaps``), a message with missing numbers before it waits, and so does a
  stray. A missing number that comes is not late. A clock's number is a restart only if it is further down than the
  daemon may send again.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

from bccnd.relay.accounts import Part, Source
from bccnd.relay.gaps import PARTS_LIMIT, Gap, Gaps
from bccnd.relay.options import Dedup
from bccnd.wire.verdict import Verdict

# More numbers than a source can have lost and still be worth counting one by one.
JUMP = 2**20
# How far back duplicates are distinguished from late datagrams.
WINDOW = 64
# A jump of more numbers has to be agreed with, where there is no key. A network that disorders moves fewer.
NEAR = 16
# The same of a source that is relayed, of which a bridge may leave out what its segment does not want.
FILTERED = 2**12
LIKE = 16
# Strays of a source that are remembered. More than a few are forged, and what is forged may come twice.
STRAYS = 8
# Above every number there is.
MOST = 1 << 65
# No counter and no clock of seconds or milliseconds has come so far; a clock of microseconds passed it in 2001.
CLOCKED = 10**15
# How far back a daemon may send a number again, and what comes meanwhile: 16 ms of a clock, so that no restart falls
# short of it.
REACH = 2**14
PROOF_MESSAGES = 3
# A flood of more than limit / 4 sources a minute pushes its own out before they are proven.
PROOF_SECONDS = 60.0
# Looked up once: a member of an enumeration takes a call.
OK = Verdict.OK


def _nobody(_index: int) -> bytes:
    return b""


class Sources:
    """The table of sources: src -> ``Source``."""

    def __init__(self, options: Dedup, gaps: Gaps | None = None, *, authenticated: bool) -> None:
        self._gaps = gaps
        # Whether this host sent from an address, if somebody knows.
        self.is_here: Callable[[bytes], bool] = lambda _: False
        self._proven, self._newcomers = Part(), Part()
        # Names for listings, with some of sources that are forgotten, and twice of those that came back.
        self._names: list[bytes] = []
        self._authenticated = authenticated
        self._fresh: list[bytes] = []
        # Of all sources, the forgotten ones too, so that these only grow: numbers that were missing when a later one
        # came; of those, come after all; restarts.
        self.missed = self.found = self.restarted = self.repaired = 0
        self.configure(options, authenticated=authenticated)

    def configure(self, options: Dedup, *, authenticated: bool) -> None:
        """Use other rules from now on, for known sources too. ``authenticated``: whether hmac is required."""
        self._sanity = options.sanity
        # Whether it repairs or not: others believe it does until they hear that it does not.
        self._reach = options.sanity if self._gaps is None else max(options.sanity, REACH)
        self._seconds = options.seconds
        self._reorder = options.reorder
        self._drop_replays = options.drops_replays(authenticated=authenticated)
        if authenticated and not self._authenticated:
            self._forget_unproven()
        self._authenticated = authenticated
        self._window = max(WINDOW, options.reorder + 1)
        self._near = MOST if authenticated else max(NEAR, options.reorder + 1)
        self._filtered = max(FILTERED, options.reorder + 1)
        self._least_near = min(self._near, self._filtered)
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

    def observe(self, src: bytes, seq: int, now: float, peer: bytes = b"") -> Verdict | None:
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
        bridge: tuple[str, str] | None = None,
    ) -> tuple[Verdict | None, int]:
        """Judge messages of ``src`` with the ``count`` numbers from ``seq`` on: the verdict on the first, and on how
        many it is the same and done with; the others are for the next call. ``peer(index)`` sent the first.
        ``bridge``: a bridge brings them here, so they are relayed by this host.

        None: new, and to wait for its turn in the gap of the source. So is what is REPAIRED.
        """
        source = self._proven.young.get(src) or self._find(src, now)
        if source is None:
            source = Source(seq, now)
            source.peer = peer(index).decode()
            source.relay = bridge
            self._enter(src, source)
            return Verdict.NEW, 1
        step = seq - source.last
        if bridge is not None:
            self._bring(source, step, bridge)
        elif source.before is not None and source.is_past(seq, now) and self.is_here(peer(index)):
            return Verdict.OWN, 1
        if source.strays or step > self._least_near:
            count = min([stray - seq for stray in source.strays if stray > seq] + [count])
            stray = self._judge_stray(src, source, seq, count, now, bridge)
            if stray:
                return stray
        if step <= 0:
            verdict = self._behind(source, seq, now, bridge)
            if verdict is Verdict.RESTARTED:
                source.peer = peer(index).decode()
            return verdict, 1
        source.heard = now
        count = 1 if source.gap is not None and source.gap.after > seq else count  # as its daemon said
        if step > 1 and (missing := self._leave_out(source, seq, step, now)) and bridge is None:
            self._miss(src, source, range(seq - missing, seq), now)
        step += count - 1
        if step <= self._window:
            source.seen = (source.seen << step | (1 << count) - 1) & self._mask
        else:
            source.seen = (1 << count) - 1 & self._mask
        source.last = seq + count - 1
        source.received += count
        if source.strays:
            self._overtake(source)
        if source.gap is not None:
            return self._in_turn(source, range(seq, seq + count), now), count
        return OK, count

    def expect(self, src: bytes, first: int | None, last: int, now: float, peer: bytes) -> None:
        """A daemon that keeps what the source sends says which number was its last, and the first of a new one."""
        source = self.get(src)
        if source is None:
            if first is None or last - first >= JUMP:
                return
            source = Source(first - 1, now)
            source.received = source.seen = 0
            source.first = first
            source.peer = peer.decode()
            self._enter(src, source)
        source.kept = now
        if first is not None and source.gap is not None:
            self._begin_anew(source, source.gap, first, now)
        if source.last < last <= source.last + JUMP:
            seen = source.last
            if source.relay:  # what stands below a stray was looked at when it came, and may be left out
                seen = max([seen, *(stray for stray in source.strays if stray <= last)])
            self._foresee(src, source, range(max(first or 0, seen + 1), last + 1), now)

    def relayed(self, src: bytes, by: tuple[str, str]) -> None:
        """A daemon, ``by`` its host and its address, says that it relays the source."""
        if source := self.get(src):
            self._begin_relay(source, by)

    def is_direct(self, src: bytes) -> None:
        """The daemon of its host says that the source is on this segment."""
        if source := self.get(src):
            source.relay = None

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
            "totals": (self.missed, self.found, self.restarted, self.repaired),
            "authenticated": self._authenticated,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._proven.restore(state["proven"])
        self._newcomers.restore(state["newcomers"])
        totals = [*state.get("totals", ()), 0, 0, 0, 0]
        self.missed, self.found, self.restarted, self.repaired = totals[:4]
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

    def _judge_stray(
        self, src: bytes, source: Source, seq: int, count: int, now: float, bridge: tuple[str, str] | None
    ) -> tuple[Verdict | None, int] | None:
        """As ``observe_run``, for a stray, or one that comes again; None: no stray, or a jump that is agreed with."""
        if seq in source.strays:
            source.duplicates += 1
            return Verdict.DUPLICATE, 1
        near = self._near if source.relay is None else self._filtered if bridge else self._least_near
        is_jump = seq - source.last > near
        is_new = seq > source.last  # a further copy says nothing about where the source is
        if is_new and (not is_jump or source.lone > seq):
            source.lone = -1
        if source.relay and source.lone != -1 and seq - source.lone > LIKE * (source.lone - source.last):
            source.lone = -1
        if not is_jump or count > 1 or source.lone != -1:
            return None
        source.heard = now
        source.received += 1
        source.strays = *source.strays[1 - STRAYS :], seq
        source.lone = seq
        if bridge is None:
            self._foresee(src, source, range(source.last + 1, seq), now)
        return self._in_turn(source, range(seq, seq + 1), now), 1

    def _miss(self, src: bytes, source: Source, numbers: range, now: float) -> None:
        """Have numbers of a source asked for, but for its strays, if that is of use: then what is above waits."""
        gaps = self._gaps
        if gaps is None or numbers.stop - numbers.start >= JUMP:
            return
        if gaps.repairable(src, source, now):
            gaps.open(src, source, numbers, now, source.strays)

    def _foresee(self, src: bytes, source: Source, numbers: range, now: float) -> None:
        """``_miss`` numbers above the last one. What stands below others that are missing was looked at before: so it
        costs the same however much is missing, and what was given up is not asked for again.
        """
        if gap := source.gap:
            if len(gap.missing) >= PARTS_LIMIT:
                return
            numbers = range(max(numbers.start, gap.after), numbers.stop)
        if numbers:
            self._miss(src, source, numbers, now)

    def _begin_anew(self, source: Source, gap: Gap, first: int, now: float) -> None:
        """Numbers that jumped begin at ``first``, says the daemon: so those before it were never sent. It is believed
        of a hole that is too wide to be filled, and once a message has come from beyond.
        """
        at = gap.find(first - 1)
        if at < 0 or (hole := gap.missing[at]).after - hole.first <= REACH:
            return
        if first <= source.last:
            self._take_back(source, gap.cut(range(hole.first, first)))
            source.first = first
        elif source.strays and source.strays[-1] >= first:
            gap.cut(range(hole.first, first))
            source.end_life(now)
            source.first, source.last, source.seen = first, first - 1, 0

    def _in_turn(self, source: Source, numbers: range, now: float) -> Verdict | None:
        """New numbers of a source, which wait where it has a gap. Of several, none was missing."""
        if source.gap is None:
            return Verdict.OK
        if not source.gap.take(numbers.start, now):
            return None
        self.missed += 1  # as its daemon said
        self.found += 1
        source.repaired += 1
        self.repaired += 1
        return Verdict.REPAIRED

    def _leave_out(self, source: Source, seq: int, step: int, now: float) -> int:
        """Numbers are missing before ``seq``, strays are not. How many of those before it are to be looked for."""
        last = source.last
        if step >= self._sanity:
            source.end_life(now)
        if step > JUMP:
            if self._gaps is not None and source.gap is not None:
                self._gaps.abandon(source.gap)
            source.first = source.lone if source.lone != -1 and seq - source.lone <= JUMP else seq
            last = source.first - 1
        missing = seq - last - 1 - sum(last < stray < seq for stray in source.strays)
        if source.relay is None:
            source.lost += missing
            self.missed += missing
        else:
            source.left_out += missing
            if source.strays:  # what stands below a stray was looked at when that came
                last = max([last, *(stray for stray in source.strays if stray < seq)])
        return missing and seq - last - 1

    def _bring(self, source: Source, step: int, bridge: tuple[str, str]) -> None:
        """A bridge of this host brings something of the source, which may have come by another way before."""
        if step > 0 and source.relay is not bridge:
            self._begin_relay(source, bridge)

    def _begin_relay(self, source: Source, by: tuple[str, str]) -> None:
        """What was missing before this was known may have been left out as well."""
        if source.relay is None:
            self.found += source.lost
            source.left_out += source.lost
            source.lost = 0
        source.relay = by

    def _take_back(self, source: Source, count: int) -> None:
        """So many numbers that were missing have come, or were never sent."""
        left_out = min(count, source.left_out) if source.relay else max(0, count - source.lost)
        source.left_out -= left_out
        source.lost -= count - left_out
        self.found += count - left_out

    def _overtake(self, source: Source) -> None:
        """Take strays that are not above the source any more for what they are: numbers that have come."""
        for stray in source.strays:
            if 0 <= source.last - stray < self._window:  # a shift by more would take memory without bound
                source.seen |= 1 << source.last - stray
        source.strays = tuple(stray for stray in source.strays if stray > source.last)
        source.lone = -1

    def _fill(self, source: Source, behind: int, asks: int, now: float) -> Verdict | None:
        """A missing number has come."""
        source.heard = now
        if behind < self._window:
            source.seen |= 1 << behind
        self._take_back(source, 1)
        source.received += 1
        if not asks:  # it was overtaken
            return None
        source.repaired += 1
        self.repaired += 1
        return Verdict.REPAIRED

    def _behind(self, source: Source, seq: int, now: float, bridge: tuple[str, str] | None) -> Verdict | None:
        behind = source.last - seq
        if source.gap is not None and (asks := source.gap.take(seq, now)) is not None:
            return self._fill(source, behind, asks, now)
        sanity = self._reach if seq >= CLOCKED else self._sanity
        if behind >= sanity and self._is_replay(source, seq, now, bridge):
            source.replayed += 1
            return Verdict.REPLAYED
        source.heard = now
        if seq in source.ours:
            return Verdict.OWN
        if behind >= sanity:
            if self._gaps is not None and source.gap is not None:
                self._gaps.abandon(source.gap)
            self.restarted += 1
            source.restart(seq, now)
            return Verdict.RESTARTED
        if source.seen >> behind & 1 or behind >= self._window:
            source.duplicates += 1
            return Verdict.DUPLICATE
        source.seen |= 1 << behind
        if seq > source.first:
            self._take_back(source, 1)
        else:  # the span begins earlier than it seemed
            missing = source.first - seq - 1
            if source.relay:
                source.left_out += missing
            else:
                source.lost += missing
                self.missed += missing
            source.first = seq
        if behind <= self._reorder:
            source.received += 1
            return Verdict.OK
        source.late += 1
        return Verdict.LATE

    def _is_replay(self, source: Source, seq: int, now: float, bridge: tuple[str, str] | None) -> bool:
        return (
            (self._drop_replays or bridge is not None)
            and seq >= CLOCKED
            and seq not in source.ours  # an echo, however late
            and now - source.heard <= self._seconds
        )
