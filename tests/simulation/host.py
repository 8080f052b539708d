"""A host of the simulation: a real relay, its clients, and the socket that the segment fills.

    Network --> inbox --> buffer (bounded) --> relay.from_segment --.
    Program --> relay.from_client ----------------------------------+--> settle: datagrams to the Network,
    World at alarm.due --> relay.on_deadline -----------------------'    packets to Watchers

It does what the daemon does around the relay, and nothing else: reads in batches, a moment after the first datagram
has come; carries out the effects after each call; comes back when the alarm is due. Its clock is its own.
"""

import mmap
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random
from typing import TYPE_CHECKING

from bccnd.relay.core import Regions, Relay
from bccnd.relay.effects import as_bytes
from bccnd.relay.identity import Peer
from bccnd.relay.moment import Moment
from bccnd.relay.rights import AccessList, unrestricted
from bccnd.relay.session import Session
from bccnd.relay.state import Rules
from bccnd.relay.succession import restore, state_of
from bccnd.wire.bccn1 import RECEIVE_LIMIT
from bccnd.wire.sbus import Memory
from tests.simulation.invariants import Broken, Publisher, Watcher, check_memory
from tests.simulation.network import CLOCK, Flight
from tests.simulation.scenario import HostPlan

if TYPE_CHECKING:
    from tests.simulation.uplink import Ear
    from tests.simulation.world import World

BATCH = 64
# Bytes: of packets of a client that are read together.
PACKETS = 1 << 17
# Of a client that is stuck for a while: it loses some, and others wait.
SLOW_QUEUE = b"CMSG queue\0packets=40 policy=drop-oldest"
# Calls of ``on_deadline`` at one moment of virtual time, beyond which the relay is said to spin.
SPINS = 1000
ACCESS = AccessList(unrestricted([0]))


class Sockets:
    """The relay's ``Transport``: what is sent to a port, its ``Watcher`` takes or refuses."""

    def __init__(self, memory: Memory, world: "World") -> None:
        self._memory = memory
        self._world = world
        self.watchers: dict[int, Watcher | Ear] = {}

    def unread(self, _port: int) -> int:
        return 0

    def unsaid(self, _port: int) -> int:
        return 0

    def send(self, port: int, packet: bytes) -> int:
        return self.send_each(port, [packet])

    def send_each(self, port: int, packets: Sequence[bytes]) -> int:
        watcher, now = self.watchers.get(port), self._world.now
        if watcher is None:
            return len(packets)
        for went, packet in enumerate(packets):
            if watcher.stuck:
                return went
            watcher.take(bytes(packet), now)
        return len(packets)

    def send_group(self, ports: Sequence[int], starts: list[int], ends: list[int]) -> dict[int, int]:
        packets = as_bytes(self._memory, starts, ends)
        went = {port: self.send_each(port, packets) for port in ports}
        return {port: count for port, count in went.items() if count != len(packets)}


class Host:
    """``up``: whether its daemon runs; ``busy_until``: the daemon does not get the processor before.

    ``lives``: how many daemons it has had; a replacement goes on with the life.
    """

    def __init__(self, plan: HostPlan, world: "World") -> None:
        self.plan = plan
        self.world = world
        self.number = plan.number
        self.segment = plan.segment
        self.name = f"h{plan.number}"
        self.peer = b"10.0.%d.1:5400" % plan.number
        self.truthful = True
        self.up = False
        self.lives = 0
        self.busy_until = 0.0
        self.replacements = 0
        # No two hosts have a clock in common.
        self._boot = 1000.0 + 64 * plan.number
        self._clock = CLOCK + 12345 * plan.number
        self.inbox: list[Flight] = []
        self._buffer: deque[Flight] = deque()
        self._wake = self._read_at = float("inf")
        self._spun = 0.0, 0
        self.programs: dict[int, tuple[Session, Publisher]] = {}
        self.overflowed = 0
        # Publishers of which this host once missed so many at a time that it took the next for a stray.
        self.jumped: set[int] = set()
        # When it first heard each address.
        self.heard_of: dict[bytes, float] = {}

    # -- its lives

    def start(self) -> None:
        """A daemon starts, and its programs connect."""
        if self.up:
            return
        self.lives += 1
        self.up = True
        self.heard_of = {}
        self._began = self.world.now
        self.relay = self._new_relay()
        self.relay.begin(self.moment, self.world.share(self.number, self.lives))
        self._wake = self._read_at = float("inf")
        # What came while nobody had the socket open, nobody has.
        self.inbox.clear()
        self._buffer.clear()
        ports = count(10)
        self.witness = self._watch(next(ports), ">")
        for pattern in self.plan.patterns[1:]:
            self._watch(next(ports), pattern)
        self.slow = None
        if self.number in self.world.slow_hosts:
            self.slow = self._watch(next(ports), ">", SLOW_QUEUE)
            self.slow.slow = True
        self.programs = {}
        for program in self.world.programs_of(self.number):
            session = self._connect(next(ports), program)
            publisher = self.world.ledger.publisher(session.name, self, session.seq)
            self.programs[program] = session, publisher
        self._settle()
        for uplink in self.world.uplinks_of(self.number):
            uplink.daemon_started()

    def _new_relay(self) -> Relay:
        free = PACKETS + BATCH * RECEIVE_LIMIT
        *regions, size = accumulate(Regions.sizes(BATCH), initial=free)
        self.memory = mmap.mmap(-1, size)
        self.sockets = Sockets(self.memory, self.world)
        rules = Rules(self.world.options(self.plan), self.world.integrity, ACCESS)
        relay = Relay(
            self.memory,
            Regions(*regions),
            self.sockets,
            rules,
            batch=BATCH,
            host=self.name.encode(),
            pid=10 * self.lives + self.replacements,
            version=b"1",
            chance=Random(self._seed_of_chance()).random,
        )
        relay.state.addresses = frozenset([self.peer.partition(b":")[0]])
        return relay

    def _seed_of_chance(self) -> int:
        return int(self.world.share(7, self.number, self.lives, self.replacements) * 2**32)

    def _connect(self, port: int, program: int, uid: int = 1000) -> Session:
        pid = 100 + program + (0 if self.plan.keeps_pids else 1000 * self.lives)
        session = self.relay.connect(port, Peer(pid, uid, 100, b"prog", resident=True), self.moment)
        assert session is not None
        return session

    def join(self, ear: "Ear", port: int, packets: list[bytes]) -> None:
        """An uplink connects, and may bridge."""
        ear.session = self._connect(port, port, uid=0)
        self.sockets.watchers[port] = ear
        self.read_client(ear.session, packets)

    def leave(self, ear: "Ear") -> None:
        del self.sockets.watchers[ear.session.port]
        self.relay.disconnect(ear.session, self.moment)
        self._settle()

    def _watch(self, port: int, pattern: str, *packets: bytes) -> Watcher:
        session = self._connect(port, 400 + port)
        watcher = self.world.ledger.watcher(self, session, pattern)
        self.sockets.watchers[port] = watcher
        self.read_client(session, [b"SUB " + pattern.encode(), *packets])
        return watcher

    def stop(self) -> None:
        """The daemon ends in order."""
        if self.up:
            self.relay.end(self.moment)
            self._settle()
            self._end("stops")

    def kill(self) -> None:
        if self.up:
            self._end("is killed")

    def _end(self, how: str) -> None:
        self.world.story.tell(self.world.now, f"{self.name} {how}")
        self.up = False
        self.inbox.clear()
        self._buffer.clear()
        for uplink in self.world.uplinks_of(self.number):
            uplink.daemon_ended()

    def replace(self) -> None:
        """Another program takes over, with the state of this one."""
        if not self.up:
            return
        self.world.story.tell(self.world.now, f"the daemon of {self.name} is replaced")
        self.replacements += 1
        state, watchers = state_of(self.relay), self.sockets.watchers
        ports = {session.number: session.port for session in self.relay.sessions.values()}
        publishers = {
            session.number: (program, publisher) for program, (session, publisher) in self.programs.items()
        }
        self.relay = self._new_relay()
        self.relay.begin(self.moment, self.world.share(self.number, self.replacements))
        restore(self.relay, state, ports)
        self.sockets.watchers = watchers
        sessions = self.relay.sessions
        self.programs = {program: (sessions[number], each) for number, (program, each) in publishers.items()}
        for watcher in watchers.values():
            watcher.session = sessions[watcher.session.number]
        self.relay.apply_rights(self.moment)
        self._settle()

    def reload(self, repairs: bool) -> None:
        """New settings."""
        self.world.story.tell(self.world.now, f"{self.name} switches repair {'on' if repairs else 'off'}")
        self.plan = replace(self.plan, repairs=repairs)
        if self.up:
            self.relay.reconfigure(self.world.options(self.plan), self.world.integrity, ACCESS, self.moment)
            self._settle()

    # -- what happens to it

    @property
    def moment(self) -> Moment:
        now = self.world.now
        return Moment(self._boot + now, (self._clock + int(now * 1e6)) * 1000)

    def publish(self, program: int, messages: int, chan: str, size: int) -> None:
        """A program says so many messages at once. Nobody does while the daemon is away."""
        if not self.up:
            return
        session, publisher = self.programs[program]
        said = publisher.say(messages, chan, self.world.now, size)
        self.world.story.tell(self.world.now, f"{self.name} sends {publisher.about(-messages)}")
        for first in range(0, messages, BATCH):
            self.read_client(session, said[first : first + BATCH])
        for watcher in self.sockets.watchers.values():
            if not watcher.stuck and not watcher.behind and watcher.wants(chan):
                watcher.must_have(publisher, len(publisher.times) - 1, "a local delivery was delayed")

    def read_client(self, session: Session, packets: list[bytes]) -> None:
        *starts, end = accumulate((len(packet) + 8 for packet in packets), initial=0)
        assert end <= PACKETS
        ends = [start + len(packet) for start, packet in zip(starts, packets, strict=True)]
        for start, after, packet in zip(starts, ends, packets, strict=True):
            self.memory[start:after] = packet
        left = self.relay.from_client(session, self.moment, (starts, ends))
        while left is not None:
            self._settle()
            left = self.relay.from_client(session, self.moment, *left)
        self._settle()

    def stand_still(self, until: float) -> None:
        """Its daemon does not get the processor."""
        self.world.story.tell(self.world.now, f"the daemon of {self.name} stands still until {until:.6f}")
        self.busy_until = max(self.busy_until, until)

    def hold_up(self, until: float) -> None:
        """Its slow client reads nothing."""
        if self.up and self.slow is not None:
            self.world.story.tell(self.world.now, f"{self.slow} reads nothing until {until:.6f}")
            self.slow.stuck = True
            self.world.at(until, self._release, self.slow)

    def _release(self, slow: Watcher) -> None:
        slow.stuck = False
        if self.up and slow is self.slow:
            while self.relay.is_backlogged(slow.session):
                self.relay.writable(slow.session, self.moment)
                self._settle()
            slow.behind = False

    def hear(self, flight: Flight) -> None:
        """A datagram arrives, some time from now."""
        if self.up:
            heappush(self.inbox, flight)
            self._read_by(flight[0] + self.plan.wakes)

    def _read_by(self, when: float) -> None:
        when = max(when, self.busy_until)
        if when < self._read_at:
            self._read_at = when
            self.world.at(when, self._read, self.lives)

    def _read(self, life: int) -> None:
        """Read what has arrived, up to a batch."""
        now = self.world.now
        if now < self._read_at or not self.up or life != self.lives:
            return
        if now < self.busy_until:
            self._read_at = float("inf")
            self._read_by(self.busy_until)
            return
        self._arrive(now)
        buffer = self._buffer
        flights = [buffer.popleft() for _ in range(min(len(buffer), BATCH))]
        self._read_at = float("inf")
        if flights:
            self._read_batch(flights)
        if buffer:
            self._read_by(now + len(flights) * self.plan.read_seconds)
        elif self.inbox:
            self._read_by(
                max(now + len(flights) * self.plan.read_seconds, self.inbox[0][0] + self.plan.wakes)
            )

    def _arrive(self, now: float) -> None:
        """What was on its way is in the buffer, or lost where that was full."""
        inbox, buffer = self.inbox, self._buffer
        while inbox and inbox[0][0] <= now:
            flight = heappop(inbox)
            if len(buffer) < self.plan.buffer:
                buffer.append(flight)
            else:
                self.overflowed += 1
                self.world.story.fate(
                    flight[0], flight[2], "{who} does not hear {what}: its buffer is full", self.name
                )

    def _read_batch(self, flights: list[Flight]) -> None:
        datagrams = [flight[2].datagram for flight in flights]
        starts = list(accumulate(map(len, datagrams), initial=PACKETS))
        self.memory[PACKETS : starts[-1]] = b"".join(datagrams)
        peers = [flight[2].peer for flight in flights]
        for peer in peers:
            self.heard_of.setdefault(peer, self.world.now)
        ends = starts[1:]
        del starts[-1]
        expected = [
            said
            for flight in flights
            if (said := flight[2].said) and self.witness.follows(*said, self.world.now)
        ]
        self.relay.from_segment(starts, ends, peers.__getitem__, self.moment, b"eth0")
        self._settle()
        check_memory(self)
        for publisher, index in expected:
            gap = self.relay.state.gaps.get(publisher.src)
            if gap is not None and not gap.missing:
                continue  # what was held before it goes in several turns
            self.witness.must_have(publisher, index, "a source without a gap was delayed")

    def _settle(self) -> None:
        """Carry out what the relay wants."""
        relay, world = self.relay, self.world
        while (effects := relay.take_effects()) is not None:
            if effects.starts:
                world.network.send(self, as_bytes(self.memory, effects.starts, effects.ends))
            if effects.beyond:
                world.network.send(self, effects.beyond)
            if clients := effects.clients:
                for session in clients.watch:
                    self.sockets.watchers[session.port].behind = True
                for session in clients.close:
                    raise Broken("clients", f"{self.name} closes {session.name.decode()}: {session.closing}")
        due = max(relay.alarm.due - self._boot, self.busy_until)
        if due < self._wake:
            self._wake = due
            world.at(due, self._deadline, self.lives)

    def _deadline(self, life: int) -> None:
        now = self.world.now
        if not self.up or life != self.lives or now < self._wake:  # it was set back meanwhile
            return
        self._wake = float("inf")
        if now < self.busy_until:
            self._settle()
            return
        moment = self.moment
        # The sum of two floats may fall short of what it was taken from.
        moment.monotonic = max(moment.monotonic, min(self.relay.alarm.due, moment.monotonic + 1e-9))
        if self.relay.alarm.due <= moment.monotonic:
            then, spins = self._spun
            self._spun = now, spins + 1 if then == now else 0
            if self._spun[1] > SPINS:
                raise Broken("spins", f"{self.name} is due again and again at one moment")
            self.relay.on_deadline(moment)
        self._settle()
