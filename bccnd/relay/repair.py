"""Asks for lost messages, and sends messages again that others ask for (``bccnd/wire/REPAIR.md``).

    gaps ----------> resend ---> segment ---> the daemon that keeps it ---> the datagram, again
    announcements -> last  --->          '--> others that miss it wait      '--> gone, plain

Rules
- A request names no daemon. Each daemon that keeps the source sends again, and a receiver that misses the same number
  need not ask. A datagram that is sent again goes to all; those that have it drop it as a duplicate.
- Messages about repair have their own source, whose numbers nobody asks for. Nothing answers an answer, so two
  daemons never keep each other busy.
- A number is sent again once in AGAIN_SECONDS at most. While plain programs are heard, it goes no further back than
  they bear (PLAIN_REACH). One call sends RESENT_AT_ONCE datagrams; the rest waits for the next call, so that a
  receiver that was flooded is not flooded again.
- Each host that asks has a share of what is sent again (``allowance``), and of the requests that are looked at.
  Requests beyond it are silently dropped, and counted.
- A host that announces numbers that were never sent causes one round of requests: its daemon says that they are gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice
from math import inf
from typing import Any

from bccnd.relay.allowance import Allowance, Shares
from bccnd.relay.arrivals import Arrivals
from bccnd.relay.askers import Asker, Askers
from bccnd.relay.crowd import address_of, host_of
from bccnd.relay.dedup import CLOCKED, JUMP
from bccnd.relay.gaps import PLAIN, RELEASED_AT_ONCE, Gap
from bccnd.relay.identity import PROGRAM
from bccnd.relay.lines import Lines
from bccnd.relay.moment import Moment
from bccnd.relay.options import Repair as Options
from bccnd.relay.publisher import Publisher
from bccnd.relay.sent import Record, Resent
from bccnd.relay.state import State
from bccnd.wire import repair as wire
from bccnd.wire.verdict import Verdict

# Seconds before a number may be sent again once more: the requests of all who miss it have come by then.
AGAIN_SECONDS = 0.01
# Seconds between two batches of datagrams that are sent again, and datagrams in a batch.
RESENT_EVERY = 0.001
RESENT_AT_ONCE = 32
# Datagrams of a batch that one host gets before the next host that asks has its turn.
RESENT_IN_TURN = 8
# Ranges of numbers that wait to be sent again: those of some sixteen full requests. A host may have at most as many
# as there is room left, so there is always some room.
QUEUE_LIMIT = 4096
# A plain program takes a number further back for a restart of the source (``BCCN1.md``, "Duplicates and restarts").
PLAIN_REACH = 900
# Seconds for which the answer to "do all programs of the segment repair?" holds, and the sources that it looks at.
BELIEVED_SECONDS, KNOWN_SOURCES = 1.0, 4096
# Lines and ranges of repair messages that are looked at in a second if a single host sends any, a microsecond each.
# Each message counts as MESSAGE_LINES more. A daemon in trouble sends a hundred messages with some ten lines each. A
# segment of 64 hosts, all of them in trouble, takes an eighth of the time.
LINES_PER_SECOND = 1 << 14
MESSAGE_LINES = 8
# Sources of one host, in a second, that may begin with an announcement, because none of their messages has come. Few
# of the new sources of a host do. Each is asked for.
BEGUN_PER_SECOND = 64
# Requests of this daemon in a second, and at once.
ASKED_PER_SECOND, ASKED_AT_ONCE = 100.0, 20.0
# Typical bytes of a line without its source, and of a range: an estimate, so that a call makes one request.
LINE_BYTES, RANGE_BYTES = 24, 5
# Ranges of a request that one gap gets before the next address has its turn.
ASKED_IN_TURN = 8
# Numbers that fall due within so many seconds go into one request, however many requests are left.
SLACK = 0.002
# Things that one call looks at, a few microseconds each: gaps, parts of them that another host asks for, and numbers
# to be sent again. A gap counts once more for each PARTS_A_LOOK of its parts.
LOOKED_AT_ONCE = 256
PARTS_A_LOOK = 16
# Daemons whose last number is remembered, to recognise copies.
DAEMONS_LIMIT = 4096

# The ranges that a message names, for each source.
Numbers = tuple[tuple[bytes, tuple[range, ...]], ...]


@dataclass(slots=True)
class Counters:
    """Since the start; numbers of messages, but for ``requests`` and ``heard``, which are datagrams."""

    requests: int = 0  # that this daemon sent
    asked: int = 0  # that it asked for, each time it did
    heard: int = 0  # requests of others
    resent: int = 0
    refused: int = 0  # asked for beyond the share of the host that asks
    gone: int = 0  # of those that this daemon missed, nobody keeps them


class Repair:
    def __init__(self, state: State, publisher: Publisher, arrivals: Arrivals) -> None:
        self._state = state
        self._names = state.names
        self._gaps, self._sent, self._announcements = state.gaps, state.sent, state.announcements
        self._sources, self._presence = state.sources, state.presence
        self._outgoing = state.outgoing
        self._publisher = publisher
        self._arrivals = arrivals
        self._alarm = state.alarm
        self.source = state.repair_source
        self.counters = Counters()
        self._askers = Askers()
        self._heard: dict[bytes, int] = {}  # the last number of each daemon, the one heard longest ago first
        # What is to be sent again, by the address that asks for it, and when that goes on.
        self._queue: Lines[tuple[Record, range]] = Lines()
        self._next = inf
        self._recent: dict[tuple[bytes, int], float] = {}  # what was sent again, and when, the oldest first
        self._asks = Allowance(ASKED_PER_SECOND, ASKED_AT_ONCE)
        # Gaps of which numbers are to be asked for, by the address of their source, and when the next request leaves.
        self._line: Lines[Gap] = Lines()
        self._ask_at = inf
        self._believed = -BELIEVED_SECONDS, False
        self._gaps.guess, self._gaps.wanted = self._is_likely_kept, self._anybody_listens
        self.configure(state.rules.options.repair)

    def configure(self, options: Options) -> None:
        """``state.gaps`` and ``state.sent`` have theirs already."""
        self.on = options.on
        self._numbers = options.numbers
        self._rate = options.rate
        self._shares, self._overheard = Shares(max(1, self._rate // 8)), Shares(max(1, self._rate // 8))
        self._hearing = Shares(LINES_PER_SECOND)
        self._begun = Shares(BEGUN_PER_SECOND)
        if not self.on:
            self._queue.clear()

    def next_deadline(self) -> float:
        gaps, announcements = self._gaps.next_deadline(), self._announcements.next_deadline()
        return min(self._next, self._ask_at, gaps, announcements)

    def on_deadline(self, moment: Moment) -> None:
        """Ask, give up, announce, and send again what is due."""
        self._ask(moment)
        self._announce(moment)
        if moment.monotonic >= self._next:
            self._send_again(moment)

    def is_from_daemon(self, src: bytes) -> bool:
        """Whether a source on the channel of repair is one of a daemon, ``<host>/bccnd/<pid>/repair``."""
        parts = src.split(b"/")
        return len(parts) == 4 and parts[1] == PROGRAM and parts[3] == wire.SOURCE_END

    def hear(self, src: bytes, seq: int, payload: bytes, moment: Moment, peer: bytes) -> Verdict:
        """A message of another daemon (``is_from_daemon``)."""
        now, last = moment.monotonic, self._heard.pop(src, -1)
        is_old = seq <= last < seq + JUMP
        self._heard[src] = last if is_old else seq
        if len(self._heard) > DAEMONS_LIMIT:
            del self._heard[next(iter(self._heard))]
        if is_old:
            return Verdict.DUPLICATE
        # What is gone and was waited for costs its sender nothing: of a relayed source that may be much.
        ranges = payload.count(b",") if not payload.startswith(b"gone") else 0
        lines = MESSAGE_LINES + payload.count(b"\n") + ranges
        if self._hearing.take(address_of(peer), b"", now, lines):
            self._outgoing.steps += 4 * lines
            self._take_in(src, payload, moment, peer)
        return Verdict.OK

    def _take_in(self, src: bytes, payload: bytes, moment: Moment, peer: bytes) -> None:
        released = 0
        match wire.parse(payload):
            case wire.Relayed(names):
                self._are_relayed(names, host_of(src), address_of(peer))
            case _ if not self.on:
                pass
            case wire.Last(sources):
                for name, first, number in sources:
                    if host_of(name) == host_of(src):
                        self._sources.is_direct(name)
                    if self._may_begin(name, peer, moment.monotonic):
                        self._sources.expect(name, first, number, moment.monotonic, peer)
                        # What may have waited for numbers before the first need not.
                        if first is not None and (gap := self._gaps.get(name)):
                            released += self._release(gap, released, moment)
            case wire.Resend(numbers):
                self._requested(numbers, src, address_of(peer), moment)
            case wire.Gone(numbers):
                self._are_gone(numbers, address_of(peer), moment)
            case wire.Plain(names):
                self._are_plain([name for name in names if host_of(name) == host_of(src)], moment)

    # -- what is missing here

    def _ask(self, moment: Moment) -> None:
        """Ask with one request for all numbers that are due before the next request may leave, so that none of the
        few requests is spent on the latest numbers while others wait.
        """
        now = moment.monotonic
        if now < min(self._gaps.next_deadline(), self._ask_at):
            return
        self._gaps.group = self._presence.repairers
        may_ask = self._asks.has(now)
        until = max(now + SLACK, self._asks.when(now, 2)) if may_ask else now
        released = 0
        for gap in self._due(until):
            if released < RELEASED_AT_ONCE:  # else the next call goes on with it
                self._gaps.expire(gap, now)
                released += self._arrivals.release(gap, moment)
                if gap.missing and not gap.in_line:
                    gap.in_line = True
                    self._line.add(gap.address, gap)
            self._gaps.plan(gap)
        if may_ask:
            self._request(until, moment)
        self._ask_at = self._asks.when(now, 1) if self._line else inf

    def _due(self, until: float) -> list[Gap]:
        """As many of the gaps that are due until then as one call looks at."""
        due, looked = [], 0
        for gap in self._gaps.due(until):
            due.append(gap)
            looked += _looks(gap)
            if looked >= LOOKED_AT_ONCE:
                break
        return due

    def _request(self, until: float, moment: Moment) -> None:
        """Ask for missing numbers of the gaps in line, as far as there is room: some of each address, in turn."""
        due: dict[Gap, Iterator[range]] = {}
        wanted: dict[bytes, list[range]] = {}
        room, looked = wire.RANGES_LIMIT, 0
        while self._line and room > 0 and looked < LOOKED_AT_ONCE:
            address, gap = self._line.take()
            looked += 1 if gap in due else _looks(gap)
            if gap not in due:
                due[gap] = self._gaps.ask(gap, moment.monotonic, until)
            most = min(ASKED_IN_TURN, room)
            if numbers := list(islice(due[gap], most)):
                if gap.src not in wanted:
                    wanted[gap.src] = []
                    room -= (len(gap.src) + LINE_BYTES) // RANGE_BYTES
                wanted[gap.src] += numbers
                room -= len(numbers)
            if len(numbers) == most:
                self._line.put_back(address, gap)
            else:
                gap.in_line = False
                self._gaps.plan(gap)
        for payload in wire.number_payloads(b"resend", wanted.items()):
            self._asks.take(moment.monotonic)
            self.counters.requests += 1
            self.say(payload, moment)
        self.counters.asked += sum([len(part) for ranges in wanted.values() for part in ranges])

    def _may_begin(self, src: bytes, peer: bytes, now: float) -> bool:
        """Whether a source is known, or may begin without a message; not one of a program of this host."""
        known = self._sources.get(src) is not None or self._begun.take(address_of(peer), b"", now)
        return known and src not in self._names.holders

    def _are_gone(self, numbers: Numbers, host: bytes, moment: Moment) -> None:
        released = in_vain = 0
        for name, ranges in numbers:
            gap = self._gaps.get(name)
            for part in ranges:
                in_vain += gap is None or gap.find(part.start) < 0
                if gap is not None:
                    self.counters.gone += self._gaps.write_off(gap, part)
            if gap is not None:
                released += self._release(gap, released, moment)
        self._hearing.take_some(host, b"", moment.monotonic, in_vain)

    def _release(self, gap: Gap, released: int, moment: Moment) -> int:
        """Pass on what a gap held, or leave it to the next call if enough was ``released``. Returns how many."""
        if gap.held and released >= RELEASED_AT_ONCE:
            self._gaps.plan(gap)
            return 0
        return self._arrivals.release(gap, moment)

    def _are_plain(self, names: list[bytes], moment: Moment) -> None:
        """The daemon of their host does not keep what these sources send."""
        released = 0
        for name in names:
            if source := self._sources.get(name):
                source.kept = PLAIN
                if gap := self._gaps.get(name):
                    self._gaps.abandon(gap)
                    released += self._release(gap, released, moment)

    def _are_relayed(self, names: tuple[bytes, ...], host: bytes, address: bytes) -> None:
        """Not those of this host, nor of one whose daemon speaks here for itself."""
        by = host.decode(), address.decode()
        for name in names:
            own = self._presence.repairer(host_of(name))
            if not self._is_of_this_host(name) and (own is None or own.address == address):
                self._sources.relayed(name, by)

    def _is_of_this_host(self, name: bytes) -> bool:
        return host_of(name) == self._names.host or name in self._names.holders

    def _is_likely_kept(self, src: bytes, peer: str) -> bool:
        """Whether the daemon of its host repairs, and speaks from the same address; or the one that relays it."""
        if (source := self._sources.get(src)) and source.relay:
            host, address = map(str.encode, source.relay)
        else:
            host, address = host_of(src), address_of(peer.encode())
        life = self._presence.repairer(host)
        return life is not None and life.address == address and src.split(b"/", 2)[1:2] != [PROGRAM]

    def _anybody_listens(self) -> bool:
        state = self._state
        listening = state.router.route(b"!").size  # whoever subscribes does
        return bool(listening or state.taps or state.rules.options.retain.patterns)

    # -- what others miss

    def _requested(self, numbers: Numbers, src: bytes, host: bytes, moment: Moment) -> None:
        """``src`` asks for these numbers, from the address ``host``."""
        now = moment.monotonic
        self.counters.heard += 1
        asked = 0
        gone: list[tuple[bytes, list[range]]] = []
        plain: list[bytes] = []
        self._overhear(numbers, host, now)
        for name, ranges in numbers:
            record = self._sent.get(name)
            if record is None:
                if host_of(name) == self._names.host:
                    plain.append(name)
                continue
            if not self._is_of_this_host(name):  # another bridge may have brought what is missing
                ranges = record.within(ranges)
            lost = self._line_up(record, ranges, host, now)
            asked += sum(map(len, ranges)) - sum(map(len, lost))
            if lost := record.gone(lost):
                gone.append((name, lost))
        if asked:
            self._askers.count(host, host_of(src), asked, self._sent.numbers, now)
        for payload in (*wire.number_payloads(b"gone", gone), *wire.plain_payloads(plain)):
            self.say(payload, moment)

    def _overhear(self, numbers: Numbers, host: bytes, now: float) -> None:
        """Another host asks for numbers that may be missing here as well. Then this host need not ask, unless the
        other one has used up its share: the daemon that keeps them counts the same way, and then sends nothing.
        """
        count = min(self._rate, sum(len(part) for _, ranges in numbers for part in ranges))
        if self._overheard.take_some(host, b"", now, count) < count:
            return
        left = LOOKED_AT_ONCE
        for name, ranges in numbers:
            if left > 0 and (gap := self._gaps.get(name)):
                left -= self._gaps.overhear(gap, ranges, now, left)

    def _line_up(self, record: Record, ranges: tuple[range, ...], host: bytes, now: float) -> list[range]:
        """Have the numbers that are kept sent again; returns those that are not."""
        after = record.last + 1
        oldest, gone = self._oldest(record, now), []
        for numbers in ranges:
            low, high = (
                min(max(numbers.start, oldest), numbers.stop),
                max(min(numbers.stop, after), numbers.start),
            )
            gone += [
                part for part in (range(numbers.start, low), range(max(low, high), numbers.stop)) if part
            ]
            if low < high:
                if self._queue.length(host) >= QUEUE_LIMIT - len(self._queue):
                    self.counters.refused += high - low
                    continue
                self._queue.add(host, (record, range(low, high)))
        if self._queue and self._next > now + RESENT_EVERY:
            self._plan(now)
        return gone

    def _send_again(self, moment: Moment) -> None:
        """A batch of what was asked for: some of each host that asks, in turn."""
        now, queue = moment.monotonic, self._queue
        self._forget_recent(now)
        batch = Resent()
        while queue and batch.sent < RESENT_AT_ONCE and batch.looked < LOOKED_AT_ONCE:
            host, (record, numbers) = queue.take()
            batch.looked += 1
            if numbers.start < (oldest := self._oldest(record, now)):  # it was given up meanwhile
                kept = min(oldest, numbers.stop)
                batch.gone.append((record.name, record.gone([range(numbers.start, kept)])))
                numbers = range(kept, numbers.stop)
            count = min(RESENT_IN_TURN, RESENT_AT_ONCE - batch.sent)
            some, rest = numbers[:count], numbers[count:]
            if self._send_some(record, some, host, batch, now):
                if rest:
                    queue.put_back(host, (record, rest))
            else:
                self.counters.refused += len(rest)
        self.counters.resent += batch.sent
        for payload in wire.number_payloads(b"gone", batch.gone):
            self.say(payload, moment)
        self._next = inf
        if queue:
            self._plan(now + RESENT_EVERY)

    def _send_some(self, record: Record, numbers: range, host: bytes, batch: Resent, now: float) -> bool:
        """Whether the host has a share left."""
        for number in numbers:
            batch.looked += 1
            if (record.name, number) in self._recent:
                continue
            datagram = record.find(number)
            if datagram is None:
                batch.add_gone(record, number)
            elif self._shares.take(host, b"", now):
                self._outgoing.add(datagram)
                self._recent[record.name, number] = now
                batch.sent += 1
            else:
                self.counters.refused += numbers.stop - number
                return False
        return True

    def _oldest(self, record: Record, now: float) -> int:
        """The lowest number that may be sent again; one above the last if none may."""
        plain = record.last < CLOCKED or not self._all_repair(now)
        reach = PLAIN_REACH if plain else self._numbers
        return min(record.last + 1, max(record.oldest, record.last + 1 - reach))

    def _all_repair(self, now: float) -> bool:
        """Whether each source that is heard is on a host whose daemon repairs, as far as that is known."""
        at, believed = self._believed
        if now - at >= BELIEVED_SECONDS:
            sources = self._sources
            believed = len(sources) <= KNOWN_SOURCES and all(
                source.ours
                or source.kept not in (None, PLAIN)
                or ((life := self._presence.get(src)) and life.repair)
                for src, source in sources
            )
            self._believed = now, believed
        return believed

    def _forget_recent(self, now: float) -> None:
        recent = self._recent
        while recent:
            first = next(iter(recent))
            if 0.0 <= now - recent[first] < AGAIN_SECONDS:
                return
            del recent[first]

    # -- the last numbers

    def _announce(self, moment: Moment) -> None:
        payload = self._announcements.take(moment.monotonic)
        if payload:
            self._sent.forget_silent(moment.monotonic)
            self.say(payload, moment)

    def say(self, payload: bytes, moment: Moment) -> None:
        """Say it to the other daemons."""
        self._publisher.say(self.source, wire.CHANNEL, payload, moment)

    def _plan(self, due: float) -> None:
        self._next = min(self._next, due)
        self._alarm.due = min(self._alarm.due, due)

    # -- status and state

    def take_askers(self, now: float) -> list[Asker]:
        """Hosts that ask for much, to be reported."""
        return self._askers.take(self._sent.numbers, now)

    def status(self) -> dict[str, Any]:
        """For ``CMSG status``."""
        return {
            "on": self.on,
            "numbers": self._numbers if self.on else 0,
            **{field.name: getattr(self.counters, field.name) for field in fields(Counters)},
            "repaired": self._sources.repaired,
            "given_up": self._gaps.given_up,
            "held": {"messages": self._gaps.held, "bytes": self._gaps.size},
            "kept": {"sources": len(self._sent), "bytes": self._sent.size},
            "askers": self._askers.rows(),
        }

    def state(self) -> dict[str, Any]:
        """In plain values, for a successor of this daemon."""
        return {
            "counters": {field.name: getattr(self.counters, field.name) for field in fields(Counters)},
            "given_up": self._gaps.given_up,
            "missed": self._gaps.missed,
            "heard": list(self._heard.items()),
            "gaps": self._gaps.state(),
            "sent": self._sent.state(),
            "passed": self._sent.passed(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        for name, value in state.get("counters", {}).items():
            if name in Counters.__slots__:
                setattr(self.counters, name, value)
        self._gaps.given_up, self._gaps.missed = state.get("given_up", 0), state.get("missed", 0)
        self._heard = dict(state.get("heard", ()))
        self._sent.restore(state.get("sent", ()), state.get("passed", {}))
        self._gaps.restore(state.get("gaps", ()), self._sources.get)


def _looks(gap: Gap) -> int:
    """What it counts for among what one call looks at."""
    return 1 + len(gap.missing) // PARTS_A_LOOK
