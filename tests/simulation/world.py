"""The event loop of virtual time: runs a scenario to its end, and checks what must hold.

    World(scenario).run()        returns when everything held, or raises ``Broken``

Time passes from one event to the next; nothing here waits. Events of one time happen in the order in which they were
set, so a scenario has one history.
"""

import tempfile
import traceback
from collections.abc import Callable
from functools import singledispatchmethod
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any

from bccnd.relay.options import KIB, Heartbeat, Options, Repair
from bccnd.wire.bccn1 import Integrity, Level
from tests.simulation.crossings import Crossings
from tests.simulation.host import Host
from tests.simulation.invariants import Broken, Ledger
from tests.simulation.lines import BackboneProgram, Lines, in_words
from tests.simulation.network import MASK, Listener, Network, Sent, roll
from tests.simulation.scenario import (
    FOREVER,
    QUIET,
    Burst,
    Busy,
    CutLine,
    Element,
    HostPlan,
    Kill,
    KillBackbone,
    KillUplink,
    Lie,
    Reload,
    Replace,
    ReplaceBackbone,
    Scenario,
    Stop,
    StopUplink,
    StrangerSpeaks,
    Stuck,
)
from tests.simulation.story import Silence, plan_in_words
from tests.simulation.strangers import LiarProgram, PlainProgram
from tests.simulation.uplink import UplinkProgram
from tests.uplink.segment import IN_MEMORY

KEY = b"a key that all hosts of the segment have"
# Bounds that a history meets: the least that the settings take.
TIGHT = {
    "numbers": 64,
    "source_bytes": 64 * KIB,
    "bytes": 128 * KIB,
    "hold_messages": 16,
    "hold_bytes": 128 * KIB,
    "rate": 64,
}


class World:
    def __init__(self, scenario: Scenario, story: Silence | None = None) -> None:
        self.scenario = scenario
        self.story = story or Silence()
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._quiet_from = scenario.end - QUIET
        self.integrity = Integrity([KEY], Level.HMAC) if scenario.key else Integrity()
        self.ledger = Ledger()
        self.slow_hosts = {each.host for each in scenario.elements if isinstance(each, Stuck)}
        self.hosts = {plan.number: Host(plan, self) for plan in scenario.hosts}
        self.network = Network(self)
        self.strangers = {plan.number: PlainProgram(plan, self) for plan in scenario.strangers}
        self.liars = {plan.number: LiarProgram(plan, self) for plan in scenario.liars}
        for listener in (*self.hosts.values(), *self.strangers.values(), *self.liars.values()):
            self.network.join(listener)
        self._folder = tempfile.TemporaryDirectory(dir=IN_MEMORY) if scenario.uplinks else None
        self.folder = Path(self._folder.name if self._folder else "")
        self.crossings = Crossings(self)
        self.lines = Lines(self)
        self.backbones = {
            number: BackboneProgram(number, self)
            for number in sorted({plan.backbone for plan in scenario.uplinks})
        }
        self.uplinks = {plan.number: UplinkProgram(plan, self) for plan in scenario.uplinks}
        for host in self.hosts.values():
            self.at(host.plan.start, host.start)
        for program in (*self.backbones.values(), *self.uplinks.values()):
            self.at(0.0, program.start)
        for each in scenario.elements:
            self._schedule(each)

    def at(self, when: float, act: Callable[..., None], *arguments: Any) -> None:
        heappush(self._events, (when, next(self._order), act, arguments))

    def run(self) -> None:
        """Let everything happen. Raises ``Broken`` when a rule does not hold."""
        events, end = self._events, self.scenario.end
        try:
            while events and events[0][0] <= end:
                when, _, act, arguments = heappop(events)
                self.now = max(self.now, when)
                act(*arguments)
            self.now = end
            self.ledger.check(self)
            self.crossings.check()
        except Broken as broken:
            self.story.tell(self.now, f"BROKEN: {broken}")
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            broken = Broken("fault", f"{error!r} in {where.name}, {Path(where.filename).name}:{where.lineno}")
            self.story.tell(self.now, f"BROKEN: {broken}")
            raise broken from error
        finally:
            self._close()

    def _close(self) -> None:
        for uplink in self.uplinks.values():
            if uplink.up:
                uplink.journal.close()
        if self._folder is not None:
            self._folder.cleanup()

    def options(self, plan: HostPlan) -> Options:
        """The settings of a host."""
        repair = Repair(on=plan.repairs, **TIGHT) if plan.tight else Repair(on=plan.repairs)
        return Options(heartbeat=Heartbeat(seconds=self.scenario.heartbeat), repair=repair)

    def share(self, *numbers: int) -> float:
        """A number between 0 and 1 that only these numbers and the seed decide."""
        return roll(self.scenario.seed & MASK, *numbers) / (MASK + 1)

    def programs_of(self, host: int) -> list[int]:
        """The programs that say something at some time."""
        bursts = (each for each in self.scenario.elements if isinstance(each, Burst) and each.host == host)
        return sorted({each.program for each in bursts})

    def uplinks_of(self, host: int) -> list[UplinkProgram]:
        return [each for each in self.uplinks.values() if each.plan.host == host]

    def at_rest(self, name: str, kind: str, packet: bytes, *, known: bool) -> None:
        """Somebody sends a packet on a line; ``known``: of a kind that never ends."""
        if not known:
            if self.now > self._quiet_from:
                raise Broken("quiet", f"{name} still sends a {kind}: {in_words(packet)}")
            if kind in ("request", "forward"):
                self.story.tell(self.now, f"{name} sends a {kind}: {in_words(packet)}")

    def sees(self, sender: Listener, sent: Sent, kind: str, payload: bytes) -> None:
        """Somebody sends a datagram."""
        if kind.startswith("repair/"):
            self.story.tell(self.now, f"{sender.name} says {payload.decode(errors='replace')!r}")
        elif kind == "again":
            assert sent.said
            self.story.tell(self.now, f"{sender.name} sends {sent.said[0].about(sent.said[1])} again")
        if kind != "heartbeat" and self.now > self._quiet_from:
            raise Broken(
                "quiet", f"{sender.name} still sends {kind}: {payload[:100].decode(errors='replace')!r}"
            )

    # -- elements

    @singledispatchmethod
    def _schedule(self, each: Element) -> None:
        """Have an element happen. What the network does of itself begins without it."""
        self.story.tell(each.at, f"begins, until {each.until:.6f}: {plan_in_words(each)}")

    @_schedule.register
    def _(self, each: Burst) -> None:
        host = self.hosts[each.host]
        if each.gap:
            for at in range(each.count):
                self.at(each.at + at * each.gap, host.publish, each.program, 1, each.chan, each.size)
        else:
            self.at(each.at, host.publish, each.program, each.count, each.chan, each.size)

    @_schedule.register
    def _(self, each: StrangerSpeaks) -> None:
        for at in range(each.count):
            self.at(each.at + at * each.gap, self.strangers[each.stranger].speak)

    @_schedule.register
    def _(self, each: Lie) -> None:
        for at in range(int((each.until - each.at) / each.gap) + 1):
            self.at(each.at + at * each.gap, self.liars[each.liar].lie, each.what)

    @_schedule.register
    def _(self, each: Busy) -> None:
        self.at(each.at, self.hosts[each.host].stand_still, each.until)

    @_schedule.register
    def _(self, each: Stuck) -> None:
        self.at(each.at, self.hosts[each.host].hold_up, each.until)

    @_schedule.register
    def _(self, each: Stop) -> None:
        self._end(each, self.hosts[each.host].stop)

    @_schedule.register
    def _(self, each: Kill) -> None:
        self._end(each, self.hosts[each.host].kill)

    @_schedule.register
    def _(self, each: Replace) -> None:
        self.at(each.at, self.hosts[each.host].replace)

    @_schedule.register
    def _(self, each: Reload) -> None:
        self.at(each.at, self.hosts[each.host].reload, each.repairs)

    @_schedule.register
    def _(self, each: CutLine) -> None:
        self.story.tell(each.at, f"the line of u{each.of} is cut, until {each.until:.6f}")

    @_schedule.register
    def _(self, each: StopUplink) -> None:
        self.at(each.at, self.uplinks[each.of].stop)
        self.at(each.until, self.uplinks[each.of].start)

    @_schedule.register
    def _(self, each: KillUplink) -> None:
        self.at(each.at, self.uplinks[each.of].kill)
        self.at(each.until, self.uplinks[each.of].start)

    @_schedule.register
    def _(self, each: KillBackbone) -> None:
        if each.backbone in self.backbones:
            self.at(each.at, self.backbones[each.backbone].kill)
            self.at(each.until, self.backbones[each.backbone].start)

    @_schedule.register
    def _(self, each: ReplaceBackbone) -> None:
        if each.backbone in self.backbones:
            self.at(each.at, self.backbones[each.backbone].replace)

    def _end(self, each: Stop | Kill, end: Callable[[], None]) -> None:
        self.at(each.at, end)
        if each.until < FOREVER:
            self.at(each.until, self.hosts[each.host].start)
