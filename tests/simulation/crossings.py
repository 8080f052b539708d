"""What must hold between segments: what uplinks were given, what backbones numbered, and what came out elsewhere.

The rules, by the name that a ``Broken`` has. Those of each segment (``invariants``) hold beside them: nobody gets a
message twice or out of order, wherever it is from.

    number   a backbone gives no number twice, an uplink no link number to two datagrams
    loop     an uplink carries a message once, whichever daemons give it; and none back to where it had it from, if
             that came first, or came while the message was to wait for it (``Life.waits``)
    kept     what an uplink was given to export is on its backbone in the end, unless it died with it
    told     what is on a backbone is handed to the daemon of each other segment, or counted as lost
    both     what was handed over is not counted as lost as well
    bridge   a daemon refuses nothing that an uplink brings, but what it has had
    memory   what is held and what waits for the segment is within its bounds
    rest     in the end nothing is held, waits, or is missing
    hole     what was not carried is no loss in the segment, and asked for there by nobody; but for what stands before
             the first number that a second bridge brings of a source: the other may have brought it, so it is asked
             for, and lost when nobody answers (``bccnd/wire/REPAIR.md``, "Relayed sources")

Nothing here asks an uplink what it did, but for what it counts as lost and what it still keeps.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from bccnd.relay.pattern import matches
from bccnd.uplink.core import EARLY_SECONDS, ECHO_BYTES, ECHO_SECONDS
from bccnd.wire.link import Numbered, Seal, Status, inner, messages, segment_of
from bccnd.wire.repair import Resend, parse
from tests.simulation.invariants import Broken, Ledger
from tests.simulation.network import Listener
from tests.simulation.scenario import Burst, HostPlan, KillBackbone, OfUplink, ReplaceBackbone, Scenario

if TYPE_CHECKING:
    from tests.simulation.lines import BackboneProgram
    from tests.simulation.uplink import UplinkProgram
    from tests.simulation.world import World

# A message of a program: who said it, and which of its messages it is.
Said = tuple[int, int]

# Seconds after which what an uplink was given survives a kill: its journal is written each 20 ms.
WRITTEN_SECONDS = 0.1
# The same where it may be kept back, as it may come by the carrier.
KEPT_BACK_SECONDS = max(EARLY_SECONDS, ECHO_SECONDS) + WRITTEN_SECONDS


@cache
def _names(pattern: str, chan: str) -> bool:
    return matches(pattern.encode(), b"/", chan.encode())


def _loses_nothing(scenario: Scenario) -> bool:
    """Whether what is sent on a segment comes to all its hosts, at once and in order."""
    network, usual = scenario.network, HostPlan(0)
    return (
        network.jitter == network.late == 0.0
        and all(
            isinstance(each, OfUplink | KillBackbone | ReplaceBackbone | Burst) for each in scenario.elements
        )
        and all(
            replace(each, number=0, segment=0, patterns=usual.patterns) == usual for each in scenario.hosts
        )
    )


@dataclass
class Life:
    """One life of an uplink. ``given``: what it was to export, and when; ``handed``: what it handed to the daemon;
    ``pushed``: the link datagram that has a message; ``away``: hosts of which the carrier had said or brought
    something; ``waiting``: of these, what waits whether it comes by the carrier, each with its end and its bytes,
    ``waiting_bytes`` in all; ``came_in_time``: what came first, or while it waited; ``begun``: when it heard of each
    link first.
    """

    ended: float = 0.0
    killed: bool = False
    given: dict[Said, float] = field(default_factory=dict)
    handed: set[Said] = field(default_factory=set)
    pushed: dict[Said, int] = field(default_factory=dict)
    away: set[int] = field(default_factory=set)
    waiting: dict[Said, tuple[float, int]] = field(default_factory=dict)
    waiting_bytes: int = 0
    came_in_time: set[Said] = field(default_factory=set)
    begun: dict[bytes, float] = field(default_factory=dict)

    def waits(self, said: Said, size: int, now: float, room: int) -> None:
        """A message of a host beyond the carrier waits for ECHO_SECONDS, or until what waits takes more than ``room``
        bytes: then what has waited for the longest time waits no more.
        """
        self.waiting[said] = now + ECHO_SECONDS, size
        self.waiting_bytes += size
        for first, (end, bytes_) in list(self.waiting.items()):
            if end > now and self.waiting_bytes <= room:
                return
            del self.waiting[first]
            self.waiting_bytes -= bytes_

    def hands(self, said: Said, now: float) -> None:
        """What came by the carrier is handed to the daemon."""
        self.handed.add(said)
        if said not in self.given or self.waiting.get(said, (0.0,))[0] > now:
            self.came_in_time.add(said)


@dataclass
class Past:
    """Of an uplink since its journal began. ``begun``: of each link, the first number that counts; ``lost``: of each,
    ``late``: of all, in lives that are over; ``killed``: whether any of them was ended by a kill.
    """

    begun: dict[bytes, int] = field(default_factory=dict)
    handed: set[Said] = field(default_factory=set)
    lost: Counter[bytes] = field(default_factory=Counter)
    late: int = 0
    killed: bool = False


@dataclass
class Carried:
    """A link: link number -> what is in the datagram; ``published``: numbers that it knows to be on the backbone."""

    uplink: "UplinkProgram"
    datagrams: dict[int, tuple[Said, ...]] = field(default_factory=dict)
    published: dict[int, float] = field(default_factory=dict)


class Crossings:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._lives: dict[int, Life] = {}
        self._over: defaultdict[int, list[Life]] = defaultdict(list)
        self._pasts: dict[int, Past] = {}
        self._links: dict[bytes, Carried] = {}
        # By the number of a backbone.
        self._numbered: defaultdict[int, set[Said]] = defaultdict(set)
        # Hosts and publishers: what the bridge of the one brought first of the other. And the highest of these in a
        # segment: on holes behind it every bridge can speak.
        self._first: dict[tuple[int, int], int] = {}
        self._spoken_of: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._is_calm = bool(world.scenario.uplinks) and _loses_nothing(world.scenario)

    @property
    def _ledger(self) -> Ledger:
        return self._world.ledger

    def _said(self, src: bytes, seq: int) -> Said | None:
        found = self._ledger.said(src, seq)
        return (found[0].number, found[1]) if found else None

    def _inside(self, datagram: bytes) -> tuple[bytes, int, int, tuple[Said, ...]]:
        """The source of a link datagram, its number, which one it says that it is or that comes next, and what is in
        it. The number of a status is 0.
        """
        header = Seal().open(datagram)
        if not isinstance(header, Numbered):
            return header.src, 0, header.next, ()
        inside = (self._said(each[1], each[2]) for each in messages(datagram, header.at))
        return header.src, header.number, header.number, tuple(each for each in inside if each)

    @staticmethod
    def _hosts_of(status: bytes) -> tuple[bytes, ...]:
        """The hosts that the status of a link names."""
        header = Seal().open(status)
        return header.hosts if isinstance(header, Status) else ()

    # -- what happens

    def starts(self, uplink: "UplinkProgram") -> None:
        self._lives[uplink.number] = Life()
        if not uplink.plan.keeps or uplink.number not in self._pasts:
            self._pasts[uplink.number] = Past()
        self._links.setdefault(uplink.core.src, Carried(uplink))

    def ends(self, uplink: "UplinkProgram", *, killed: bool) -> None:
        past = self._pasts[uplink.number]
        past.killed = past.killed or killed
        for src, link in uplink.core.inbound.links.items():
            past.lost[src] += link.lost
        past.late += uplink.core.inbound.received.late
        life = self._lives[uplink.number]
        life.ended, life.killed = self._world.now, killed
        for src, at in life.begun.items():  # what it had not written yet it does not know any more
            if life.ended - at < WRITTEN_SECONDS:
                del past.begun[src]
        self._over[uplink.number].append(life)

    def offered(self, uplink: "UplinkProgram", datagram: bytes) -> None:
        message = inner(datagram)
        said = self._said(message[1], message[2]) if message else None
        if message is None or said is None:
            return
        chan = self._ledger.publishers[said[0]].chans[said[1]]
        if any(_names(pattern, chan) for pattern in uplink.plan.exports):
            life = self._lives[uplink.number]
            if said in life.handed or said in life.given:
                return
            life.given[said] = self._world.now
            if self._ledger.publishers[said[0]].host.number in life.away:
                size = ECHO_BYTES + len(message[4])
                life.waits(said, size, self._world.now, uplink.core.options.hold_bytes)

    def pushed(self, uplink: "UplinkProgram", number: int, datagram: bytes) -> None:
        src, _, _, inside = self._inside(datagram)
        known = self._links[src].datagrams.setdefault(number, inside)
        if known != inside:
            raise Broken("number", f"{uplink.name} gives the link number {number} a second time")
        life = self._lives[uplink.number]
        for each in inside:
            if life.pushed.setdefault(each, number) != number:
                raise Broken("loop", f"{uplink.name} carries {self._about(each)} a second time")
            if each in life.came_in_time:
                raise Broken("loop", f"{uplink.name} carries {self._about(each)} back")
        self._tell(f"{uplink.name} carries {self._about(*inside)} as link number {number}")

    def numbered(self, backbone: "BackboneProgram", number: int, datagram: bytes) -> None:
        _, link_number, _, inside = self._inside(datagram)
        self._numbered[backbone.number].update(inside)
        if link_number:
            self._tell(f"{backbone.name} gives {self._about(*inside)} the number {number}")

    def published(self, uplink: "UplinkProgram", number: int) -> None:
        self._links[uplink.core.src].published.setdefault(number, self._world.now)

    def came(self, uplink: "UplinkProgram", position: int, datagram: bytes) -> None:
        src, number, following, inside = self._inside(datagram)
        begun = self._pasts[uplink.number].begun
        if segment_of(src) != uplink.core.options.name and src not in begun:
            begun[src] = following
            self._lives[uplink.number].begun[src] = self._world.now
        if not number and segment_of(src) != uplink.core.options.name:
            self._lives[uplink.number].away.update(int(host[1:]) for host in self._hosts_of(datagram))
        if number:
            self._tell(f"{uplink.name} gets {self._about(*inside)} at position {position}")

    def injected(self, uplink: "UplinkProgram", datagrams: list[bytes]) -> None:
        for datagram in datagrams:
            message = inner(datagram)
            if message and (said := self._said(message[1], message[2])):
                life = self._lives[uplink.number]
                life.hands(said, self._world.now)
                self._note_first(uplink, *said)
                life.away.add(self._ledger.publishers[said[0]].host.number)
                self._pasts[uplink.number].handed.add(said)
                self._tell(f"{uplink.name} hands {self._about(said)} to {uplink.host.name}")

    def asked(self, sender: Listener, payload: bytes) -> None:
        """A daemon asks its segment for what it misses."""
        if not self._is_calm or not isinstance(found := parse(payload), Resend):
            return
        for src, ranges in found.numbers:
            for said in (self._said(src, seq) for numbers in ranges for seq in numbers):
                if said and self._is_hole(sender.segment, *said):
                    raise Broken("hole", f"{sender.name} asks for {self._about(said)}, which was not carried")

    def _note_first(self, uplink: "UplinkProgram", publisher: int, index: int) -> None:
        """A daemon that dies forgets it; in a history that is calm none does."""
        if self._first.setdefault((uplink.host.number, publisher), index) == index:
            key = uplink.segment, publisher
            self._spoken_of[key] = max(self._spoken_of[key], index)

    def _is_hole(self, segment: int, publisher: int, index: int) -> bool:
        """Whether a message was not carried to the segment, and a bridge there is to say so."""
        there = (publisher, index) in self._ledger.spread[segment]
        return not there and index >= self._spoken_of[segment, publisher]

    def _tell(self, text: str) -> None:
        self._world.story.tell(self._world.now, text)

    def _about(self, *those: Said) -> str:
        return ", ".join(self._ledger.publishers[number].about(index) for number, index in those)

    # -- what must hold at any time

    def check_memory(self, uplink: "UplinkProgram") -> None:
        core, options = uplink.core, uplink.core.options
        held = sum(link.held_bytes for link in core.inbound.links.values())
        if held != core.inbound._held_bytes or held > options.hold_bytes:
            raise Broken("memory", f"{uplink.name} holds {held} bytes, as {core.inbound._held_bytes}")
        if core._echo_bytes > options.hold_bytes or core._early_bytes > options.hold_bytes:
            raise Broken(
                "memory", f"{uplink.name} keeps back {core._echo_bytes} and {core._early_bytes} bytes"
            )
        if core._ready_bytes > options.ready_bytes + options.hold_bytes + (1 << 16):
            raise Broken("memory", f"{core._ready_bytes} bytes wait for {uplink.host.name} at {uplink.name}")

    # -- at the end

    def check(self) -> None:
        world = self._world
        for host in world.hosts.values() if self._is_calm else ():
            there = self._ledger.spread[host.plan.segment]
            for publisher in self._ledger.publishers:
                account = host.relay.state.sources.get(publisher.src)
                told = self._spoken_of[host.plan.segment, publisher.number]
                unspoken = sum((publisher.number, index) not in there for index in range(told))
                if account is not None and account.lost > unspoken:
                    raise Broken(
                        "hole", f"{host.name} counts {account.lost} of {publisher.src.decode()} as lost"
                    )
        for uplink in world.uplinks.values():
            if uplink.up and uplink.host.up:
                self._check_rest(uplink)
                life = self._lives[uplink.number]
                life.ended = world.now
                for each in (life, *(self._over[uplink.number] if uplink.plan.keeps else ())):
                    self._check_given(uplink, each)
                for src, link in self._links.items():
                    same = link.uplink.plan.backbone == uplink.plan.backbone
                    if same and link.uplink.segment != uplink.segment:
                        self._check_link(uplink, src, link)

    def _check_rest(self, uplink: "UplinkProgram") -> None:
        core, facts = uplink.core, uplink.client.facts()
        alive = [each.core.src for each in self._world.uplinks.values() if each.up]
        left = {
            "reason": facts.reason,
            "missing": facts.behind,
            "waiting": core.outbound.waiting,
            "under way": len(core.outbound._in_flight),
            "held": sum(len(core.inbound.links[each].held) for each in alive if each in core.inbound.links),
            "kept back": len(core._echoes) + len(core._early),
            "ready": len(core._ready) + len(uplink._batch),
            "journal": core._journal.fault,
        }
        if any(left.values()):
            raise Broken("rest", f"{uplink.name} still has {left}")

    def _check_given(self, uplink: "UplinkProgram", life: Life) -> None:
        """What was given to it early enough is on its backbone."""
        plan, numbered = uplink.plan, self._numbered[uplink.plan.backbone]
        siblings = [
            each
            for each in self._world.uplinks.values()
            if each.segment == uplink.segment and each.plan.backbone == plan.backbone
        ]
        for said, at in life.given.items():
            home = self._ledger.publishers[said[0]].host.segment
            may_wait = len(siblings) > 1 or home != uplink.segment
            if said not in numbered and at < life.ended - (
                KEPT_BACK_SECONDS if may_wait else WRITTEN_SECONDS
            ):
                raise Broken(
                    "kept", f"{uplink.name} got {self._about(said)} at {at:.6f}, and never carried it"
                )

    def _check_link(self, uplink: "UplinkProgram", src: bytes, link: Carried) -> None:
        """All that is on the backbone by this link is in this segment, or told."""
        past, inbound = self._pasts[uplink.number], uplink.core.inbound
        begun = past.begun.get(src)
        is_over = not link.uplink.up or link.uplink.core.src != src
        if begun is None:
            if not is_over:
                raise Broken("told", f"{uplink.name} never hears of {src.decode()}")
            return
        there = self._ledger.spread[uplink.segment]
        missing = [
            number
            for number in link.published
            if number >= begun
            and not all(each in there or each in past.handed for each in link.datagrams[number])
        ]
        lost = past.lost[src] + (inbound.links[src].lost if src in inbound.links else 0)
        told = lost + past.late + inbound.received.late
        # Nobody says any more what is missing at its end, and what is held waits for that (``OVER_SECONDS``).
        if is_over:
            told += uplink.client.facts().lost
            told += len(inbound.links[src].held) if src in inbound.links else 0
        if len(missing) > told:
            told += min(uplink.client.facts().lost, sum(self._is_forgotten(link, each) for each in missing))
        if len(missing) > told:
            raise Broken(
                "told", f"{uplink.name} has not got {missing} of {src.decode()}, and tells of {told} lost"
            )
        others = {
            each
            for other in self._links.values()
            if other is not link and other.uplink.plan.backbone == uplink.plan.backbone
            for inside in other.datagrams.values()
            for each in inside
        }
        unhanded = [
            number
            for number, inside in link.datagrams.items()
            if number >= begun and past.handed.isdisjoint(set(inside) - others)
        ]
        if not past.killed and lost > len(unhanded):
            raise Broken("both", f"{uplink.name} counts {lost} of {src.decode()} as lost, {unhanded} are")

    def _is_forgotten(self, link: Carried, number: int) -> bool:
        """Whether its sender was killed before it had written it: then only its position tells that it is lost."""
        lives = self._over[link.uplink.number]
        return any(
            life.killed and 0 <= life.ended - link.published[number] < WRITTEN_SECONDS for life in lives
        )
