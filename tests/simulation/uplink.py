"""An uplink of the simulation: the real core, its journal and the real client of a backbone.

    Host --RECV--> Ear --> core.offer --> journal --> Client --packets--> Lines
    Host <--datagrams-- _hand_over <-- core.take <-- came <-- Client <--packets-- Lines

It does what ``bccnd/uplink/service.py`` and the socket do around them: it hands over one batch after the other, each
once the daemon has answered the one before; sends a batch again to the daemon that comes after one that has not
answered; comes back when something is due. A journal that is a file is killed with what was committed.
"""

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from bccnd.relay.session import Session
from bccnd.uplink import core, fyrehose
from bccnd.uplink.bus import EXPECTED, LOOK_SECONDS, VERDICT
from bccnd.uplink.carrier import Facts
from bccnd.uplink.journal import Journal, Limits
from bccnd.uplink.options import Options
from bccnd.wire.fyrehose import Address
from tests.simulation.invariants import Broken
from tests.simulation.network import CLOCK, MASK, roll
from tests.simulation.scenario import UplinkPlan
from tests.uplink.segment import killed

if TYPE_CHECKING:
    from tests.simulation.world import World

# Seconds until the daemon answers a batch, and until a daemon that has started is found.
ANSWER_SECONDS, FIND_SECONDS = 0.0005, 0.1
LINK_KEYS = (b"a key that all uplinks have",)
# Bytes: of the archive, and of what is held back and what waits for the segment, where they are the least.
TIGHT_ARCHIVE, TIGHT_HELD = 8 << 10, 8 << 10
UPLINK_PORT = 5000
SPINS = 1000


class Ear:
    """What an uplink hears of the daemon, where a ``Watcher`` stands."""

    stuck = behind = slow = False

    def __init__(self, uplink: "UplinkProgram") -> None:
        self.session: Session
        self._uplink = uplink

    def wants(self, _chan: str) -> bool:
        return False

    def take(self, packet: bytes, _now: float) -> None:
        head, _, rest = packet.partition(b"\0")
        if head.startswith(b"RECV "):
            self._uplink.heard(rest)
        elif head.startswith(b"CMSG dropped") or (head == b"CMSG error" and not self._expects(rest)):
            raise Broken("bridge", f"{self._uplink.name} is told {packet!r}")

    def _expects(self, text: bytes) -> bool:
        """A daemon that has died knows nothing of what its programs have said before."""
        found = VERDICT.search(text.decode())
        restarted = self._uplink.host.lives > 1
        return found is not None and (found[1] in EXPECTED or (restarted and found[1] == "conflict"))


class UplinkProgram:
    """``up``: whether it runs; ``lives``: how many it has had. It is the core's carrier and the client's hearer."""

    def __init__(self, plan: UplinkPlan, world: "World") -> None:
        self.plan, self.world = plan, world
        self.number = self.line = plan.number
        self.name = f"u{plan.number}"
        self.host = world.hosts[plan.host]
        self.segment = self.host.plan.segment
        self.up = False
        self.lives = 0
        self.core: core.Uplink
        self._path = world.folder / self.name if plan.keeps else None
        self._ports = 5000
        self._wake = float("inf")
        self._spun = 0.0, 0
        self._ear: Ear | None = None
        self._sessions = 0
        self._batch: list[bytes] = []  # under way to the daemon
        self._given_to: Ear | None = None  # who has got it

    # -- its lives

    def start(self) -> None:
        if self.up:
            return
        world, plan = self.world, self.plan
        self.up = True
        self.lives += 1
        limits = Limits(archive_bytes=TIGHT_ARCHIVE) if plan.tight else Limits()
        self.journal = Journal(Path(self._path) if self._path else None, limits, self._now)
        forgets = 0 if plan.keeps else self.lives
        self.journal.instance = b"%08x" % roll(plan.number, forgets) * 2
        self.journal.open()
        self.core = core.Uplink(self._options(), self.journal, self._now, self._unix_ns)
        dice = roll(world.scenario.seed & MASK, 17, plan.number, self.lives)
        self.client = fyrehose.Client(
            fyrehose.Options(), self, self.journal, Random(dice).random, b"%016x" % dice
        )
        self.core.carrier = self
        world.story.tell(world.now, f"{self.name} starts, link {self.core.src.decode()}")
        world.crossings.starts(self)
        self._batch, self._given_to, self._wake = [], None, float("inf")
        self._run_carrier()
        self.find_daemon(self.lives)
        world.at(world.now, self._look, self.lives)
        self._went_on()

    def _options(self) -> Options:
        tight = {"hold_bytes": TIGHT_HELD, "ready_bytes": TIGHT_HELD} if self.plan.tight else {}
        exports = tuple(pattern.encode() for pattern in self.plan.exports)
        return Options(
            b"s%d" % self.segment,
            LINK_KEYS,
            exports,
            (b">",),
            batch_bytes=self.plan.batch_bytes,
            **tight,
        )

    def _run_carrier(self) -> None:
        """The socket is a new one each time."""
        self._ports += 1
        self.address: Address = bytes([10, 3, 0, self.number]), self._ports
        self.world.lines.join(self.address, self)
        self.client.begin(self.core.begin())
        self.client.move(self.world.backbones[self.plan.backbone].address, self.address, self._now())

    def kill(self) -> None:
        if self.up:
            self._end("is killed")
            killed(self.journal)

    def stop(self) -> None:
        if self.up:
            self.core.flush()
            self._send()
            self._end("stops")
            self.journal.close()

    def _end(self, how: str) -> None:
        self.world.story.tell(self.world.now, f"{self.name} {how}")
        self.world.crossings.ends(self, killed=how == "is killed")
        self.up = False
        self.world.lines.leave(self.address)
        if self._ear is not None:
            ear, self._ear = self._ear, None
            self.host.leave(ear)

    # -- the daemon

    def find_daemon(self, life: int) -> None:
        """Connect to it, if it is there."""
        if life != self.lives or not self.up or not self.host.up or self._ear is not None:
            return
        self._sessions += 1
        ear = self._ear = Ear(self)
        patterns = [b"SUB " + pattern.encode() for pattern in self.plan.exports]
        packets = [b"CMSG format\0full", b"CMSG echo/off", *patterns]
        self.host.join(ear, UPLINK_PORT + 100 * self._sessions + self.number, packets)
        self._look(self.lives)
        self.core.joined()
        self.world.story.tell(self.world.now, f"{self.name} has a daemon")
        self._went_on()

    def daemon_started(self) -> None:
        if self.up:
            self.world.at(self.world.now + FIND_SECONDS, self.find_daemon, self.lives)

    def daemon_ended(self) -> None:
        self._ear = None

    def heard(self, datagram: bytes) -> None:
        self.world.crossings.offered(self, datagram)
        self.core.offer(datagram)
        self._wake_at(self.world.now)

    def _look(self, life: int) -> None:
        """Which hosts there are."""
        if life != self.lives or not self.up:
            return
        hosts = [each for each in self.world.hosts.values() if each.up and each.plan.segment == self.segment]
        self.core.hosts(each.name.encode() for each in hosts)
        self.world.at(self.world.now + LOOK_SECONDS, self._look, life)

    def _hand_over(self) -> None:
        """One batch after the other."""
        if self._ear is None or self._given_to is self._ear:
            return
        if not self._batch:
            self._batch = self.core.take()
        if self._batch:
            self._given_to = self._ear
            self.world.crossings.injected(self, self._batch)
            self.world.at(self.world.now + ANSWER_SECONDS, self._answered, self._ear)
            self.host.read_client(self._ear.session, self._batch)
        elif self.core.full:
            self.client.leave()
            self.world.lines.leave(self.address)
            self._run_carrier()

    def _answered(self, ear: Ear) -> None:
        """The daemon has all of the batch, unless it went away."""
        if self.up and ear is self._ear and ear is self._given_to:
            self._batch, self._given_to = [], None
            self._went_on()

    # -- the carrier, as the core sees it

    @property
    def room(self) -> int:
        return self.client.room

    def publish(self, number: int, datagram: bytes, channel: bytes) -> None:
        del channel
        self.world.crossings.pushed(self, number, datagram)
        self.client.publish(number, datagram, self._now())
        self._wake_at(self.world.now)

    def say(self, datagram: bytes) -> None:
        self.client.say(datagram)
        self._wake_at(self.world.now)

    def taken(self, position: int) -> None: ...

    async def run(self, position: int) -> None: ...

    def facts(self) -> Facts:
        return self.client.facts()

    # -- the core, as the client sees it

    def came(self, position: int, datagram: bytes) -> None:
        self.world.crossings.came(self, position, datagram)
        self.core.came(position, datagram)

    def complete(self, position: int) -> None:
        self.core.complete(position)

    def published(self, number: int) -> None:
        self.world.crossings.published(self, number)
        self.core.published(number)

    def changed(self) -> None:
        self.world.story.tell(
            self.world.now, f"{self.name} is {'connected' if self.client.connected else 'cut off'}"
        )
        self.core.changed()

    # -- packets and time

    def receive(self, packet: bytes, source: Address) -> None:
        self.client.receive([(packet, source)], self._now())
        self._went_on()

    def _now(self) -> float:
        return self.world.now

    def _unix_ns(self) -> int:
        return (CLOCK + int(self.world.now * 1e6)) * 1000

    def _send(self) -> None:
        for packet, to in self.client.take():
            self.world.lines.send(packet, self.address, to)

    def _went_on(self) -> None:
        self._hand_over()
        self._send()
        self.world.crossings.check_memory(self)
        self._wake_at(min(self.core.next_deadline(), self.client.next_deadline()))

    def _wake_at(self, when: float) -> None:
        when = max(when, self.world.now)
        if when < self._wake:
            self._wake = when
            self.world.at(when, self._on_time, self.lives)

    def _on_time(self, life: int) -> None:
        if life != self.lives or not self.up or self.world.now < self._wake:
            return
        self._wake = float("inf")
        then, spins = self._spun
        self._spun = self.world.now, spins + 1 if then == self.world.now else 0
        if self._spun[1] > SPINS:
            raise Broken("spins", f"{self.name} is due again and again at one moment")
        if self.client.next_deadline() <= self._now():
            self.client.on_deadline(self._now())
        if self.core.next_deadline() <= self._now():
            self.core.on_deadline()
        self._went_on()
