"""The uplink put together: bus, core, journal, carrier, and what it reports about itself
(``bccnd/beside/program.py``).

    daemon -- Bus --> core.offer --> journal --> carrier.publish
    daemon <-- Bus.send <-- core.take <-- core.came <-- carrier

Rules
- Messages for the carrier wait in the journal, and messages for the daemon in the core: no publisher waits.
- When more comes than the daemon takes, the core takes no more. Once the daemon has everything, the carrier is run
  again from where it was.
- When it stops, it hands the daemon what has come, for STOP_SECONDS at most, and closes the journal.
- A reload reads keys, too. New patterns are in force before old ones end. A newer program needs a restart: with a
  journal it goes on where this one ended.
- The log says when the carrier is cut off and when it is back. What peers and losses cause is counted, with at most
  one line each REPORT_SECONDS.
"""

import asyncio
import time
from contextlib import suppress
from typing import Any

import structlog

from bccnd import __version__
from bccnd.beside.program import Program, Start
from bccnd.errors import BccndError
from bccnd.uplink.account import (
    CHANNEL,
    FACTS_CHANNEL,
    Losses,
    Reasons,
    answers,
    counted,
    lost,
    mistaken,
    shown,
)
from bccnd.uplink.assembly import carrier_of, keys_of, limits_of, options_of
from bccnd.uplink.bus import LOOK_SECONDS, Bus
from bccnd.uplink.core import Uplink
from bccnd.uplink.journal import Journal
from bccnd.uplink.settings import UplinkSettings, applicable

# Seconds to hand over what has come, when the uplink stops.
STOP_SECONDS = 2.0
# Seconds between two log lines about what was lost, given up or refused.
REPORT_SECONDS = 30.0
# Seconds until hosts are looked at again while there is no daemon: directed messages need to know them.
AWAY_SECONDS = 0.5
# Seconds between two checks whether that is done.
LOOK_AGAIN_SECONDS = 0.01
log = structlog.get_logger()


class Service(Program[UplinkSettings]):
    """One uplink. Raises ``BccndError`` without its journal or its keys."""

    def __init__(self, start: Start[UplinkSettings]) -> None:
        super().__init__(start)
        settings = start.settings
        keys = keys_of(settings)
        self._journal = Journal(settings.journal, limits_of(settings))
        self._journal.open()
        self.core = Uplink(options_of(settings, keys), self._journal, time.monotonic, time.time_ns)
        self.core.carrier = self.carrier = carrier_of(settings, self.core.src, self, self._journal)
        self.bus = Bus(
            settings.socket,
            self._heard,
            CHANNEL,
            lambda: answers(self._facts()),
            joined=self.core.joined,
            retained=settings.retained,
        )
        self._losses = Losses()
        self._reported_at = float("-inf")
        self._incoming = asyncio.Event()
        self._reading: asyncio.Task[None]
        self._carrying: asyncio.Task[None]
        self._idle = False  # the daemon has what came
        self._cut_off: str | None = None
        self._reasons = Reasons()
        self._journal_fault = self._journal_replaced = ""
        self._mistake = ""
        self._claims = 0  # of the core that were logged
        self._state_since = self._loop.time()

    async def _open(self) -> None:
        settings = self._settings
        await self.bus.begin(settings.export, bridges=bool(settings.import_))

    def _begin(self) -> None:
        self._reading = self._start(self.bus.run())
        self._carrying = self._start(self.carrier.run(self.core.begin()))
        self._start(self._send())
        self._start(self._tell())
        self._waking.schedule()

    # -- what the carrier says: the Hearer

    def came(self, position: int, datagram: bytes) -> None:
        self.core.came(position, datagram)
        self._advance()

    def complete(self, position: int) -> None:
        self.core.complete(position)
        self._advance()

    def published(self, number: int) -> None:
        self.core.published(number)
        self._waking.schedule()

    def changed(self) -> None:
        self.core.changed()
        self._look_at_carrier()
        self._waking.schedule()

    # -- what the daemon says

    def _heard(self, datagram: bytes, retained: bool) -> None:
        self.core.offer(datagram, retained=retained)
        self._waking.schedule()

    # -- what goes on

    async def _send(self) -> None:
        """Hand the daemon what other segments sent."""
        while True:
            self._idle = True
            await self._incoming.wait()
            self._incoming.clear()
            self._idle = False
            while datagrams := self.core.take():
                await self.bus.send(datagrams)
            if self.core.full:
                log.warning("more came than the daemon takes: it is asked for again")
                self._carrying.cancel()
                await asyncio.wait({self._carrying})
                self._carrying = self._start(self.carrier.run(self.core.begin()))

    async def _tell(self) -> None:
        """Tell other uplinks the hosts of this segment, and recorders the facts of this uplink."""
        while True:
            names = await self.bus.hosts()
            self.core.hosts([name.encode() for name in names])
            self._waking.schedule()
            await self.bus.say(FACTS_CHANNEL, answers(self._facts()))
            await asyncio.sleep(LOOK_SECONDS if names else AWAY_SECONDS)

    def _advance(self) -> None:
        self._incoming.set()
        self._waking.schedule()

    def _due(self) -> float:
        return self.core.next_deadline()

    def _on_time(self) -> None:
        self.core.on_deadline()
        self._incoming.set()

    def _look(self) -> None:
        self._look_at_carrier()
        self._look_at_journal()
        self._look_at_others()

    def _look_at_carrier(self) -> None:
        reason = self.carrier.facts().reason
        if self._stop.is_set() or (not reason and self._cut_off == ""):
            return
        now, carrier = self._loop.time(), self._settings.carrier
        if reason:
            if self._reasons.is_new(reason):
                kept = "memory" if self._settings.journal is None or self._journal.fault else "the journal"
                log.warning("cut off", carrier=carrier, reason=reason, waits=f"in {kept}")
        elif self._cut_off:
            log.info("back", carrier=carrier, seconds=round(now - self._state_since, 1))
        else:
            log.info("connected to the carrier", carrier=carrier)
        if not self._cut_off or not reason:
            self._state_since = now
        if not reason:
            self._reasons = Reasons()
        self._cut_off = reason

    def _look_at_journal(self) -> None:
        fault = self._journal.fault
        if fault and fault != self._journal_fault:
            log.error("journal not written: what comes is kept in memory", reason=fault)
        elif self._journal_fault and not fault:
            log.info("journal written again")
        self._journal_fault = fault
        if self._journal.replaced != self._journal_replaced:
            self._journal_replaced = self._journal.replaced
            log.error("journal was damaged", reason=self._journal.replaced)

    def _look_at_others(self) -> None:
        mistake = mistaken(self.core.facts())
        if mistake and mistake != self._mistake:
            log.error("in each other's way", reason=mistake)
        self._mistake = mistake
        for src, segment in list(self.core.claims.items())[self._claims :]:
            log.warning("name of a host of this segment", src=src.decode(), by=segment.decode())
        self._claims = len(self.core.claims)

    def _report(self, *, ending: bool = False) -> None:
        now = self._loop.time()
        due = ending or now - self._reported_at >= REPORT_SECONDS
        counts = self.core.facts(), self.carrier.facts(), self.bus.counts
        if due and (more := self._losses.new(lost(*counts))):
            self._reported_at = now
            log.warning("lost", **more)

    # -- what it says of itself

    def _about(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "segment": settings.name,
            "carrier": settings.carrier,
            "export": len(settings.export),
            "imports": len(settings.import_),
        }

    def _result(self) -> dict[str, Any]:
        return {"segment": self._settings.name}

    def _state(self) -> tuple[str, str]:
        """The state in one word, and the reason, which may be empty."""
        if self.bus.reason:
            return "no daemon", self.bus.reason
        reason = self.carrier.facts().reason
        if reason:
            return "cut off", reason
        fault = self._journal.fault
        return "up", self._mistake or (f"journal not written: {fault}" if fault else "")

    def _summary(self) -> str:
        state, reason = self._state()
        return f"{state}: {reason}" if reason else state

    def _reason(self) -> str:
        state, reason = self._state()
        if self.core.copied:
            return mistaken(self.core.facts())
        return "" if state == "up" else f"{state}: {reason}"

    def _facts(self) -> dict[str, Any]:
        """The facts for people and for ``bccn links``."""
        state, reason = self._state()
        about = {
            "uplink": self.bus.name,
            "version": __version__,
            "carrier": self._settings.carrier,
            "state": state,
            "reason": reason,
            "seconds": round(self._loop.time() - self._state_since, 1),
            "directed": self._settings.directed,
        }
        return about | shown(self.core.facts(), self.carrier.facts(), self.bus.counts)

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        from bccnd.uplink.metrics import render  # loaded only where it is used

        facts, carrier, bus = self.core.facts(), self.carrier.facts(), self.bus.counts
        about = {"version": __version__, "connected": int(not self.bus.reason)}
        snapshot = about | counted(facts, carrier, bus) | {"lost": lost(facts, carrier, bus)}
        return render(snapshot, accept)

    # -- reload

    def _applicable(self, wanted: UplinkSettings) -> tuple[UplinkSettings, list[str], list[str]]:
        return applicable(self._settings, wanted)

    async def _change(self, settings: UplinkSettings) -> dict[str, Any]:
        """Subscribe to new patterns, then carry them, then end old ones."""
        before, keys = self._settings, keys_of(settings)
        await self.bus.want({*before.export, *settings.export}, bridges=bool(settings.import_))
        try:
            self._health.open(settings.metrics)
        except BccndError:
            await self.bus.want(before.export, bridges=bool(before.import_))
            raise
        self.core.reconfigure(options_of(settings, keys))
        await self.bus.want(settings.export, bridges=bool(settings.import_))
        self._journal.limits = limits_of(settings)
        self.bus.retained = settings.retained
        return {"keys": len(keys)}

    # -- the end

    async def _hand_over(self) -> None:
        """Give the carrier what was heard, and the daemon what has come, as far as they take it in time."""
        self._reading.cancel()
        self.core.flush()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while not self._is_done():
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)
                await self.bus.say(FACTS_CHANNEL, answers(self._facts()))

    def _is_done(self) -> bool:
        sent = self.bus.reason or (self._idle and not self._incoming.is_set())
        return bool(sent and (self.carrier.facts().reason or not self.core.outbound.waiting))

    async def _close(self) -> None:
        await self.bus.close()

    async def _end(self) -> None:
        await super()._end()  # its last report knows the journal
        self._journal.close()
