"""Those on the segment that are no hosts of ours: programs that speak BCCN1 themselves, and liars.

Both are written from the documents alone (``bccnd/wire/BCCN1.md``): nothing here comes from the code under test but
the seal of a key.
"""

from typing import TYPE_CHECKING

from bccnd.wire.bccn1 import Integrity
from tests.simulation.invariants import FORGED, Broken
from tests.simulation.network import CLOCK, REPAIR, Flight
from tests.simulation.scenario import FOREVER, Liar, Stranger

if TYPE_CHECKING:
    from tests.simulation.world import World

# The public rule: so far below the last a number is a duplicate, further down a restart.
SANITY = 1000
# For so long a daemon believes what it last found of the others.
BELIEVED_SECONDS = 1.0
# Sources that a liar asks for in one datagram.
ASKED = 20


class PlainProgram:
    """Speaks with numbers from 1 or from a clock, and listens by the public rule."""

    def __init__(self, plan: Stranger, world: "World") -> None:
        self.world = world
        self.number = 100 + plan.number
        self.name = f"p{plan.number}"
        self.segment = 0
        self.truthful = True
        self.peer = b"10.1.0.%d:5400" % plan.number
        first = CLOCK + 77 if plan.clocked else 1
        self.publisher = world.ledger.publisher(b"%b/plain/7" % self.name.encode(), self, first)
        self._last: dict[bytes, int] = {}
        self._seen: set[tuple[int, int]] = set()

    def speak(self) -> None:
        """One message more."""
        (packet,) = self.publisher.say(1, "a", self.world.now, 20)
        payload = packet.partition(b"\0")[2]
        index = len(self.publisher.times) - 1
        self.world.story.tell(self.world.now, f"{self.name} sends {self.publisher.about(index)}")
        body = b"%b:%d:a|%b" % (self.publisher.src, self.publisher.first + index, payload)
        self.world.network.send(self, [self.world.integrity.seal(body)])

    def hear(self, flight: Flight) -> None:
        self.world.at(flight[0], self._read, flight)

    def _read(self, flight: Flight) -> None:
        sent = flight[2]
        if sent.said is None or sent.said[0] is self.publisher:
            return
        publisher, index = sent.said
        seq, last = publisher.first + index, self._last.get(sent.src)
        if last is not None and seq <= last:
            if last - seq < SANITY:
                return
            if sent.times and not self._knows_of_us(publisher.host):
                return  # nobody can: who never speaks has this to fear
            if sent.times:
                raise Broken("plain", f"{self.name} takes a resend of {publisher.about(index)} for a restart")
        self._last[sent.src] = seq
        if (publisher.number, index) in self._seen:
            raise Broken("plain", f"{self.name} takes {publisher.about(index)} twice")
        self._seen.add((publisher.number, index))

    def _knows_of_us(self, host: object) -> bool:
        """Whether the host has known for long that not all of the segment repair."""
        return self.world.now - getattr(host, "heard_of", {}).get(self.peer, FOREVER) > BELIEVED_SECONDS


class LiarProgram:
    """Says what is not so about every source that it has heard."""

    def __init__(self, plan: Liar, world: "World") -> None:
        self.world = world
        self.number = 200 + plan.number
        self.name = f"liar{plan.number}"
        self.segment = 0
        self.truthful = False
        self.peer = b"10.2.0.%d:5400" % plan.number
        self._integrity = (
            world.integrity if plan.knows_key else Integrity([b"not the key"], world.integrity.required)
        )
        self._seq = CLOCK
        self._heard: dict[bytes, int] = {}

    def hear(self, flight: Flight) -> None:
        if flight[2].said:
            publisher, index = flight[2].said
            self._heard[publisher.src] = publisher.first + index

    def lie(self, what: str) -> None:
        self.world.story.tell(self.world.now, f"{self.name} lies: {what}")
        heard = list(self._heard.items())[-ASKED:]
        if what == "everything":
            self._repair(b"resend", [b"%b %d 0-4095" % (src, max(0, seq - 4095)) for src, seq in heard])
        elif what == "far":
            self._repair(b"last", [b"%b %d" % (src, 1 << 63) for src, _ in heard])
            self._repair(b"last", [b"%b 1-%d" % (src, 1 << 63) for src, _ in heard])
        elif what == "unknown":
            names = [b"h%d/nobody/%d" % (at % 3, at) for at in range(ASKED)]
            self._repair(b"resend", [b"%b %d 0-99" % (name, CLOCK) for name in names])
            self._repair(b"last", [b"%b 1-50" % name for name in names])
        else:
            bodies = [b"%b:%d:a|%b" % (src, seq + 1, FORGED) for src, seq in heard]
            self.world.network.send(self, list(map(self._integrity.seal, bodies)))

    def _repair(self, verb: bytes, lines: list[bytes]) -> None:
        self._seq += 1
        body = b"%b/bccnd/9/repair:%d:%b|%b" % (
            self.name.encode(),
            self._seq,
            REPAIR,
            b"\n".join([verb, *lines]),
        )
        self.world.network.send(self, [self._integrity.seal(body)])
