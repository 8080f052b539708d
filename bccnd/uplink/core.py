"""Every decision of an uplink; no socket, no clock, no log. To a carrier it is the ``Hearer``.

    offer --> what is exported --> outbound --> carrier.publish
    take  <-- what is imported <-- inbound  <-- came, complete

Rules
- A message that came by the carrier does not go back to it. A message from a host whose home is a link of this
  carrier is kept back for ECHO_SECONDS, since it should also come by the carrier: by then it has, or it came another
  way.
- A message without a name of its own (``?``) is not carried: nobody could tell when it comes back around.
- A link must not bring messages under the name of a host of this segment: they are refused, unless the options allow
  them. If the segment had such a message before, it is an echo, as in a ring.
- Messages of another uplink of this segment are not for this segment. If there is one, an uplink that has just begun
  to hear the segment keeps everything back for EARLY_SECONDS. By then the carrier has what only the other uplink
  heard before.
- A message that a daemon has given is not carried again when the next daemon gives it: that one was restarted, and
  cannot know.
- A restart goes on where the service was: what ``take`` returned is on the segment once ``take`` is called again.
- Time comes from the two clocks that are given.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from bccnd.errors import LinkError
from bccnd.uplink.carrier import Carrier, Facts
from bccnd.uplink.exports import Route, exported, imported
from bccnd.uplink.given import Given, is_late
from bccnd.uplink.heard import Heard
from bccnd.uplink.homes import Homes
from bccnd.uplink.inbound import Inbound, Lasts
from bccnd.uplink.journal import RESTART_JUMP, Journal
from bccnd.uplink.options import Options
from bccnd.uplink.outbound import Outbound
from bccnd.wire.link import (
    Inner,
    Numbered,
    Seal,
    Status,
    inner,
    segment_of,
    source,
    status_hosts,
    valid_host,
)

# Seconds between two commits of the journal.
COMMIT_SECONDS = 0.02
# Seconds between two statuses; and after the last message: soon, so that others notice if it is lost.
STATUS_SECONDS = 1.0
LAST_SECONDS = (0.05, 0.2)
# Seconds for which a message of a host beyond the carrier is kept back: longer than its way by the carrier.
ECHO_SECONDS = 1.0
# The same after ``joined``: longer than a lost datagram of a sibling takes to come after all.
EARLY_SECONDS = 1.0
# Bytes that a message that is kept back takes in addition to its own.
ECHO_BYTES = 256
# The same of one that waits for the segment.
READY_BYTES = 64

# Why messages were not carried, by the names in ``counts``. The text completes "messages ...".
DROPPED = {
    "unsound": "from the segment that are no datagrams, or have no name",
    "not-exported": "from the segment that no pattern of export names",
    "came-by-carrier": "from the segment that came from the carrier",
    "again": "from the segment that another daemon had given before",
    "no-home": "directed to hosts that are not known to be elsewhere",
    "rate": "from the segment beyond a rate",
    "not-imported": "from links that no pattern of import names",
    "elsewhere": "from links that are directed to hosts of other segments",
    "echo": "from links that this segment had before",
    "claimed": "from links under the names of hosts of this segment",
}

# Sources of this segment whose last number is remembered, to recognize an echo; twice as many at most.
SAID_LIMIT = 1 << 14
# Sources, since the start, that are named when a link brings something under their name.
CLAIMS_LIMIT = 64


# Other uplinks of this segment that are remembered, and hosts of one; and for how long a silent one is shown.
SIBLINGS_LIMIT, SIBLING_HOSTS, SIBLING_SECONDS = 16, 64, 60.0
# Seconds for which one may name only hosts that are not here: both sides look at their hosts every 10 seconds.
NAMESAKE_SECONDS = 30.0


@dataclass(slots=True)
class Sibling:
    """Another link with the name of this segment."""

    since: float
    heard: float
    hosts: set[bytes] = field(default_factory=set)


class _Away:
    """The carrier before there is one: no room, and nobody hears."""

    room = 0

    def publish(self, number: int, datagram: bytes, channel: bytes) -> None: ...

    def say(self, datagram: bytes) -> None: ...

    def taken(self, position: int) -> None: ...

    async def run(self, position: int) -> None: ...

    def facts(self) -> Facts:
        return Facts("no carrier yet")


class Uplink:
    """``now``: monotonic seconds; ``unix_ns``: the time of day. The journal is open. ``carrier`` is set once."""

    def __init__(
        self, options: Options, journal: Journal, now: Callable[[], float], unix_ns: Callable[[], int]
    ) -> None:
        self.carrier: Carrier = _Away()
        self.options = options
        self.counts: Counter[str] = Counter(dict.fromkeys(DROPPED, 0))
        # Link datagrams that break a rule, by the rule.
        self.refused: Counter[str] = Counter()
        # Whether another uplink numbers datagrams as this one: the journal was copied.
        self.copied = False
        self.siblings: dict[bytes, Sibling] = {}  # other uplinks of this segment, by source
        # Sources of this segment under whose names a link has brought something, each with the segment of that.
        self.claims: dict[bytes, bytes] = {}
        self._said = Lasts()
        self._journal = journal
        self._now, self._unix_ns = now, unix_ns
        self._seal = Seal(options.keys)
        self.src = source(options.name, journal.instance)
        self._export, self._import = exported(options), imported(options)
        self._heard, self._given = Heard(), Given()
        self._homes = Homes()
        self._hosts: list[bytes] = []
        self._host_at = 0  # the next host to name in a status
        self._echoes: deque[tuple[float, Inner, Route]] = deque()
        self._echo_bytes = 0
        self._early: deque[tuple[Inner, Route]] = deque()
        self._early_bytes = 0
        self._early_until: float | None = None
        self.outbound = Outbound(journal, self.src, self._seal, options.batch_bytes)
        self.inbound = Inbound(journal.position, journal.links, options.hold_bytes, self._homes.forget)
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._too_much_at: int | None = None  # the first position that found no room in what is ready
        self._handed = False  # whether what ``take`` gave may still be on its way to the segment
        self._confirm: tuple[int, dict[bytes, int], int] | None = None
        self._confirm_at = float("-inf")
        self._commit_at = float("inf")
        self._status_at = now()
        self._last_at: tuple[float, ...] = ()
        self._clock = 0
        self.joined()

    # -- from the segment

    def joined(self) -> None:
        """The segment is heard from now on, after a pause, and maybe from another daemon."""
        self._given.joined()
        if self.siblings or self._journal.siblings:
            self._early_until = self._now() + EARLY_SECONDS

    def offer(self, datagram: bytes, *, retained: bool = False) -> None:
        """Take a datagram of the segment, as in a RECV; ``retained``: a last value, which each connection gives
        again. Call ``flush`` once everything that has come was offered.
        """
        message = inner(datagram)
        if message is None:
            self.counts["unsound"] += 1
            return
        if not is_late(message[2], self._said.get(message[1])):
            self._said.set(message[1], message[2], SAID_LIMIT)
        elif not retained and self._given.before(message[0]):
            self.counts["again"] += 1
            return
        route = self._export.find(message[3])
        if route is None:
            self.counts["not-exported"] += 1
        elif message[0] in self._heard:
            self.counts["came-by-carrier"] += 1
        elif route.host and not self._homes.away(route.host, self._now()):
            self.counts["no-home"] += 1
        else:
            self._given.add(message[0])
            if self._homes.any and self._homes.away(message[1].partition(b"/")[0], self._now()):
                self._keep_back(message, route)
            elif self._early_until is not None:
                self._keep_early(message, route)
            else:
                self._export_one(message, route)

    def flush(self) -> None:
        """Give the carrier what was offered."""
        if self.outbound.batched:
            self.outbound.flush(self.carrier)
            now = self._now()
            self._commit_soon(now)
            self._last_at = tuple(now + after for after in LAST_SECONDS)

    def hosts(self, names: Iterable[bytes]) -> None:
        """Set this segment's hosts, without names that a status cannot hold: others would drop all of it."""
        self._hosts = sorted({name for name in names if valid_host(name)})
        self._homes.set_here(self._hosts)

    def _export_one(self, message: Inner, route: Route) -> None:
        if route.allowances and not route.granted(self._now()):
            self.counts["rate"] += 1
        else:
            self.outbound.add(message[3], message[4], self.carrier)

    def _keep_back(self, message: Inner, route: Route) -> None:
        self._echoes.append((self._now() + ECHO_SECONDS, message, route))
        self._echo_bytes += ECHO_BYTES + len(message[4])
        while self._echo_bytes > self.options.hold_bytes:
            self._let_go()

    def _keep_early(self, message: Inner, route: Route) -> None:
        self._early.append((message, route))
        self._early_bytes += ECHO_BYTES + len(message[4])
        if self._early_bytes > self.options.hold_bytes:
            self._end_early()

    def _end_early(self) -> None:
        self._early_until = None
        while self._early:
            self._export_unless_heard(*self._early.popleft())
        self._early_bytes = 0

    def _let_go(self) -> None:
        """Export the message that was kept back longest, unless it came by the carrier."""
        _, message, route = self._echoes.popleft()
        self._echo_bytes -= ECHO_BYTES + len(message[4])
        self._export_unless_heard(message, route)

    def _export_unless_heard(self, message: Inner, route: Route) -> None:
        """Export a message that was kept back, unless it has come by the carrier."""
        if message[0] in self._heard:
            self.counts["came-by-carrier"] += 1
        else:
            self._export_one(message, route)

    # -- from the carrier

    def came(self, position: int, datagram: bytes) -> None:
        try:
            header = self._seal.open(datagram)
        except LinkError as error:
            self.refused[error.rule] += 1
            return
        now = self._now()
        if not self._journal.position:  # a restart must begin here, whatever comes next
            self._journal.note(position, {})
            self._commit_soon(now)
        links = len(self.inbound.links)
        if segment_of(header.src) == self.options.name:
            self._hear_sibling(header, now)
        elif isinstance(header, Status):
            if self.inbound.said(position, header, now):
                for host in header.hosts:
                    self._homes.name(header.src, host, now)
        elif self._too_much_at is None and self._ready_bytes <= self.options.ready_bytes:
            self.inbound.came(position, datagram, header, now)
        elif position >= self.inbound.complete:
            self._too_much_at = min(position, self._too_much_at or position)
        if len(self.inbound.links) > links:  # a restart must know where the link begins
            self._commit_soon(now)
        if self.inbound.out:
            self._import_all(now)

    def complete(self, position: int) -> None:
        if self._too_much_at is not None:
            position = min(position, self._too_much_at)
        self.inbound.completed(position)
        if self.inbound.out:
            self._import_all(self._now())

    def published(self, number: int) -> None:
        self.outbound.published(number)
        self._commit_soon(self._now())

    def changed(self) -> None:
        self.outbound.push(self.carrier)

    def _hear_sibling(self, header: Numbered | Status, now: float) -> None:
        if header.src == self.src:
            number = header.number if isinstance(header, Numbered) else header.next - 1
            self.copied = self.copied or number >= self.outbound.next
        elif header.src in self.siblings or len(self.siblings) < SIBLINGS_LIMIT:
            if header.src not in self._journal.siblings:
                self._journal.siblings = (*self.siblings, header.src)
            sibling = self.siblings.setdefault(header.src, Sibling(now, now))
            sibling.heard = now
            if isinstance(header, Status) and len(sibling.hosts) < SIBLING_HOSTS:
                sibling.hosts.update(header.hosts)

    def _import_all(self, now: float) -> None:
        out, self.inbound.out = self.inbound.out, []
        heard, find = self._heard.add, self._import.find
        for link, (identity, src, number, channel, datagram) in out:
            host = src.partition(b"/")[0]
            if self._homes.is_here(host) and not self.options.local_names:
                self._refuse(link.segment, src, number)
                continue
            heard(identity)
            self._homes.heard(link.src, host, now)
            route = find(channel)
            if route is None:
                self.counts["not-imported"] += 1
            elif route.host and self._homes.away(route.host, now):
                self.counts["elsewhere"] += 1
            else:
                self._ready.append(datagram)
                self._ready_bytes += READY_BYTES + len(datagram)
        self._commit_soon(now)

    def _refuse(self, segment: bytes, src: bytes, number: int) -> None:
        """Refuse a message that a link brought under the name of a host of this segment."""
        if number <= self._said.get(src):
            self.counts["echo"] += 1
            return
        self.counts["claimed"] += 1
        if len(self.claims) < CLAIMS_LIMIT:
            self.claims.setdefault(src, segment)

    # -- to the segment

    def take(self) -> list[bytes]:
        """Datagrams for the segment, in order. Call it again once they are sent, until there are none: the next call
        confirms them.
        """
        self._handed = False
        if self._confirm is not None:
            self._note(*self._confirm)
            self._confirm = None
        ready, self._ready, self._ready_bytes = self._ready, [], 0
        if ready:
            self._handed = True
            now = self._now()
            if now >= self._confirm_at:
                self._confirm_at = now + COMMIT_SECONDS
                self._confirm = self.inbound.taken(), self.inbound.numbers(), self.inbound.complete
        return ready

    @property
    def full(self) -> bool:
        """Whether more came than the segment takes. Nothing is lost: once ``take`` has returned everything, run the
        carrier again from ``begin``.
        """
        return self._too_much_at is not None

    def begin(self) -> int:
        """The position to run the carrier from. Everything that ``take`` returned is on the segment."""
        self._note_all()
        self._too_much_at = None
        return self._journal.position

    def _note_all(self) -> None:
        """Note the position, unless something is still on its way to the segment."""
        if not self._handed and not self._ready:
            self._note(self.inbound.taken(), self.inbound.numbers(), self.inbound.complete)

    def _note(self, position: int, numbers: dict[bytes, int], passed: int) -> None:
        """Note the position. Below ``passed`` all is on the segment or held; a link that waits stops no other."""
        position = position or self._journal.position  # before anything is complete
        if (position, numbers) != (self._journal.position, self._journal.links):
            self._journal.note(position, numbers)
        self.carrier.taken(passed)

    # -- time

    def next_deadline(self) -> float:
        """When ``on_deadline`` is due, monotonic seconds."""
        if self.outbound.batched:
            return self._now()
        due = min(self._status_at, self._commit_at, *self._last_at)
        if self._early_until is not None:
            due = min(due, self._early_until)
        return min(due, self._echoes[0][0]) if self._echoes else due

    def on_deadline(self) -> None:
        """Do what is due."""
        now = self._now()
        while self._echoes and self._echoes[0][0] <= now:
            self._let_go()
        if self._early_until is not None and self._early_until <= now:
            self._end_early()
        self.flush()
        if now >= self._commit_at:
            self._commit_at = float("inf")
            self._note_all()
            self._journal.commit()
        if now >= self._status_at:
            self._status_at = now + STATUS_SECONDS
            self.outbound.age(now)
            self.outbound.push(self.carrier)  # for what waits for a failed disk, not for the carrier
            if self.carrier.room > 0:
                self.inbound.age()
            if self.inbound.out:
                self._import_all(now)
            self._commit_soon(now)
            self._say()
        elif self._last_at and now >= self._last_at[0]:
            self._last_at = self._last_at[1:]
            self._say()

    def _commit_soon(self, now: float) -> None:
        self._commit_at = min(self._commit_at, now + COMMIT_SECONDS)

    def _say(self) -> None:
        """Send the status of this link."""
        hosts, self._host_at = status_hosts(self._hosts, self._host_at)
        self._clock = max(self._clock + 1, self._unix_ns() // 1000)
        outbound = self.outbound
        self.carrier.say(self._seal.status(self.src, self._clock, outbound.floor, outbound.next, hosts))

    # -- the rest

    def reconfigure(self, options: Options) -> None:
        """Use other options from now on. The name stays: another name would be another link."""
        self.options = options
        self._seal = self.outbound.seal = Seal(options.keys)
        self.outbound.batch_bytes = options.batch_bytes
        self.inbound.hold_bytes = options.hold_bytes
        self._export, self._import = exported(options), imported(options)

    def _is_namesake(self, sibling: Sibling, now: float) -> bool:
        """Whether it seems to belong to another segment with the same name: the two have no host in common."""
        known = bool(self._hosts and sibling.hosts) and now - sibling.since >= NAMESAKE_SECONDS
        return known and sibling.hosts.isdisjoint(self._hosts)

    def facts(self) -> dict[str, Any]:
        """The state in plain values, for people and for ``bccn links``."""
        now = self._now()
        sent, received = self.outbound.sent, self.inbound.received
        return {
            "segment": self.options.name.decode(),
            "instance": self._journal.instance.decode(),
            "links": [
                {
                    "segment": link.segment.decode(),
                    "instance": link.src.rpartition(b"/")[2].decode(),
                    "heard": round(now - link.heard, 3),
                    "next": link.next,
                    "behind": max(0, link.said_next - link.next) % RESTART_JUMP,
                    "held": len(link.held),
                    "datagrams": link.datagrams,
                    "messages": link.messages,
                    "duplicates": link.duplicates,
                    "missed": link.missed,
                    "lost": link.lost,
                    "hosts": [host.decode() for host in self._homes.of(link.src, now)],
                }
                for link in self.inbound.links.values()
            ],
            "outbox": {
                "datagrams": self.outbound.waiting,
                "bytes": self.outbound.waiting_bytes,
                "next": self.outbound.next,
                "floor": self.outbound.floor,
                "given_up": sent.given_up,
            },
            "journal": {"fault": self._journal.fault, "replaced": self._journal.replaced},
            "siblings": [
                {
                    "instance": src.rpartition(b"/")[2].decode(),
                    "heard": round(now - sibling.heard, 3),
                    "hosts": sorted(host.decode() for host in sibling.hosts),
                    "namesake": self._is_namesake(sibling, now),
                }
                for src, sibling in self.siblings.items()
                if now - sibling.heard < SIBLING_SECONDS
            ],
            "copied": self.copied,
            "exported": sent.messages,
            "published": sent.published,
            "imported": received.messages,
            "lost": received.lost,
            "late": received.late,
            "crowded": received.crowded,
            "wrong": received.wrong,
            "dropped": dict(self.counts),
            "refused": dict(self.refused),
        }
