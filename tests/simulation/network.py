"""The segment: who hears which datagram, when, and how often.

Rules
- The dice for a datagram depend on its bytes, on how often it was sent, on who hears it and on the seed, and on
  nothing else. So what is left out of a scenario changes nothing for the rest, and a failing history can be shrunk.
- A datagram is lost for everybody on the link of its sender, or for one on the link of a receiver. What a bad spell,
  a cut or a one-way link loses, it loses beside that.
- Datagrams of a host leave one after the other, at the rate of its link. They arrive in order, however much the delay
  varies; only those that are late come behind others, and so do copies.
- It counts what was sent, by kind, as any host on the segment could: nothing here asks a relay.
"""

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, Protocol
from zlib import crc32

from tests.simulation.invariants import Publisher
from tests.simulation.scenario import BadSpell, Cut, OneWay

if TYPE_CHECKING:
    from tests.simulation.world import World

# Microseconds since the epoch, when virtual time begins.
CLOCK = 1_800_000_000_000_000
# Bytes a second: a gigabit.
RATE = 125e6
# Beside its payload a datagram has this on the wire.
FRAME = 66
MASK = (1 << 32) - 1

REPAIR = b"!bccnd/repair"


class Sent(NamedTuple):
    """A datagram that was sent. ``said``: the publisher and the index of its message, if it is one of a program.

    ``times``: how often the same sender had sent the same bytes before.
    """

    datagram: bytes
    peer: bytes
    sender: str
    src: bytes
    chan: bytes
    said: tuple[Publisher, int] | None
    times: int


# When it arrives, a number for order, and what it is.
Flight = tuple[float, int, Sent]


class Listener(Protocol):
    """``segment``: on which it is; nothing comes from one to another but by uplinks."""

    number: int
    segment: int
    name: str
    peer: bytes
    truthful: bool

    def hear(self, flight: Flight) -> None: ...


def roll(*numbers: int, after: int = 0) -> int:
    """32 bits that depend on all numbers, and look like chance.

    ``after``: what the first of them rolled, so ``roll(2, after=roll(1))`` is ``roll(1, 2)``.
    """
    x = after
    for number in numbers:
        x = (x ^ number) * 0x9E3779B1 & MASK
        x ^= x >> 16
        x = x * 0x7FEB352D & MASK
        x ^= x >> 15
        x = x * 0x846CA68B & MASK
        x ^= x >> 16
    return x


class Link:
    """What may befall a datagram between the segment and one host."""

    def __init__(self, loss: float, uplink_loss: float) -> None:
        self.loss = loss
        self.uplink_loss = uplink_loss
        self.spells: list[BadSpell] = []
        self.deaf_to: list[OneWay] = []
        self.free_at = 0.0  # towards the segment
        self.clear_at = 0.0  # from it

    def loses(self, now: float, *, up: bool) -> float:
        loss = self.uplink_loss if up else self.loss
        for spell in self.spells:
            if spell.up == up and spell.at <= now < spell.until:
                loss = max(loss, spell.loss)
        return loss


class Network:
    def __init__(self, world: "World") -> None:
        scenario = world.scenario
        self._world = world
        self._plan = scenario.network
        self._seed = roll(scenario.seed & MASK, scenario.dice)
        self.links = {host.number: Link(host.loss, host.uplink_loss) for host in scenario.hosts}
        self._cuts: list[Cut] = []
        for each in scenario.elements:
            if isinstance(each, Cut):
                self._cuts.append(each)
            elif isinstance(each, OneWay):
                self.links[each.host].deaf_to.append(each)
            elif isinstance(each, BadSpell):
                self.links[each.host].spells.append(each)
        self._listeners: defaultdict[int, list[Listener]] = defaultdict(list)
        self._sent: dict[tuple[int, bytes], int] = {}
        self._order = 0
        # By kind: message, again, heartbeat, repair/<verb>, other.
        self.counts: Counter[str] = Counter()
        # When each listener sent datagrams of a kind.
        self.times: defaultdict[tuple[int, str], list[float]] = defaultdict(list)

    def join(self, listener: Listener) -> None:
        self._listeners[listener.segment].append(listener)
        self.links.setdefault(listener.number, Link(0.0, 0.0))

    def send(self, sender: Listener, datagrams: list[bytes]) -> None:
        now, link = self._world.now, self.links[sender.number]
        for datagram in datagrams:
            link.free_at = max(link.free_at, now) + (len(datagram) + FRAME) / RATE
            self._broadcast(sender, link, self._recognized(sender, datagram), link.free_at)

    def _recognized(self, sender: Listener, datagram: bytes) -> Sent:
        """What anybody can see of it."""
        body = datagram[datagram.find(b"]") + 1 :]
        src, _, rest = body.partition(b":")
        digits, _, rest = rest.partition(b":")
        chan, _, payload = rest.partition(b"|")
        key = sender.number, datagram
        times = self._sent.get(key, 0)
        self._sent[key] = times + 1
        said = self._world.ledger.said(src, int(digits)) if sender.truthful else None
        if said:
            self._world.ledger.spread[sender.segment].add((said[0].number, said[1]))
        sent = Sent(datagram, sender.peer, sender.name, src, chan, said, times)
        kind = self._kind(sent, payload)
        self.counts[kind] += 1
        self.times[sender.number, kind].append(self._world.now)
        if kind == "repair/resend":
            self._world.crossings.asked(sender, payload)
        self._world.sees(sender, sent, kind, payload)
        return sent

    def _kind(self, sent: Sent, payload: bytes) -> str:
        if sent.chan == REPAIR:
            return "repair/" + payload.partition(b"\n")[0].decode(errors="replace")
        if sent.chan.startswith(b"heartbeat/"):
            return "heartbeat"
        if sent.said:
            return "again" if sent.times else "message"
        return "other"

    def _broadcast(self, sender: Listener, link: Link, sent: Sent, leaves: float) -> None:
        plan, story = self._plan, self._world.story
        key = roll(crc32(sent.datagram), sent.times, self._seed)
        loss = link.loses(leaves, up=True)
        if loss and roll(key, 1, sender.number) < loss * MASK:
            story.fate(leaves, sent, "nobody hears {what}: the link of {who}", sender.name)
            return
        plain = not (plan.jitter or plan.late or plan.doubled)
        of_listeners = roll(key, 2)
        for listener in self._listeners[sender.segment]:
            if listener is sender and not plan.echo:
                continue
            loss = self.links[listener.number].loses(leaves, up=False)
            dice = 0 if plain and not loss else roll(listener.number, after=of_listeners)
            if loss and dice < loss * MASK:
                story.fate(leaves, sent, "{who} does not hear {what}: its link", listener.name)
            elif not self._connected(sender.number, listener.number, leaves):
                story.fate(leaves, sent, "{who} does not hear {what}: cut off", listener.name)
            elif plain:
                self._arrive(listener, sent, leaves + plan.delay)
            else:
                self._disturbed(listener, sent, leaves + plan.delay, dice)

    def _disturbed(self, listener: Listener, sent: Sent, arrives: float, dice: int) -> None:
        plan, dice = self._plan, roll(dice)
        then = arrives + plan.jitter * roll(3, after=dice) / MASK
        if plan.late and roll(4, after=dice) < plan.late * MASK:
            then += plan.late_seconds * roll(5, after=dice) / MASK
            self._world.story.fate(then, sent, "{what} comes late to {who}", listener.name)
        else:
            link = self.links[listener.number]
            then = link.clear_at = max(then, link.clear_at)
        self._arrive(listener, sent, then)
        if plan.doubled and roll(6, after=dice) < plan.doubled * MASK:
            then += (plan.jitter + 0.001) * roll(7, after=dice) / MASK
            self._world.story.fate(then, sent, "a copy of {what} comes to {who}", listener.name)
            self._arrive(listener, sent, then)

    def _arrive(self, listener: Listener, sent: Sent, when: float) -> None:
        self._order += 1
        listener.hear((when, self._order, sent))

    def _connected(self, speaker: int, listener: int, now: float) -> bool:
        for one_way in self.links[listener].deaf_to:
            if one_way.speaker == speaker and one_way.at <= now < one_way.until:
                return False
        for cut in self._cuts:
            if cut.at <= now < cut.until and (speaker in cut.side) is not (listener in cut.side):
                return False
        return True
