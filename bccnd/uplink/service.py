"""The uplink put together: bus, core, journal, carrier; signals, time, and what it reports about itself.

    daemon -- Bus --> core.offer --> journal --> carrier.publish
    daemon <-- Bus.send <-- core.take <-- core.came <-- carrier

Rules
- Everything happens in callbacks and tasks of one event loop.
- Messages for the carrier wait in the journal, and messages for the daemon in the core: no publisher waits.
- When more comes than the daemon takes, the core takes no more. Once the daemon has everything, the carrier is run
  again from where it was.
- SIGTERM and SIGINT end it: it hands the daemon what has come, for STOP_SECONDS at most, and closes the journal.
- SIGHUP reads settings and keys again; a fault in them changes nothing. New patterns are in force before old ones
  end. A newer program needs a restart: with a journal it goes on where this one ended. - The log says when the
  carrier is cut off and when it is back. What peers and losses cause is counted, with at most one line each
  REPORT_SECONDS.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import structlog

from bccnd import __version__
from bccnd.errors import BccndError
from bccnd.process import logs
from bccnd.process.fatal import Faults, unless_out_of_memory
from bccnd.process.health import Health
from bccnd.process.log_limit import LogLimit
from bccnd.process.supervision import Supervision
from bccnd.uplink.account import (
    CHANNEL,
    FACTS_CHANNEL,
    Answering,
    Losses,
    Reasons,
    answers,
    counted,
    lost,
    mistaken,
    shown,
)
from bccnd.uplink.assembly import carrier_of, limits_of, options_of
from bccnd.uplink.bus import LOOK_SECONDS, Bus
from bccnd.uplink.core import Uplink
from bccnd.uplink.journal import Journal
from bccnd.uplink.options import Options
from bccnd.uplink.settings import UplinkSettings, applicable, doubts

# Seconds to hand over what has come, when the uplink stops.
STOP_SECONDS = 2.0
# Seconds between two log lines about what was lost, given up or refused.
REPORT_SECONDS = 30.0
# Seconds until hosts are looked at again while there is no daemon: directed messages need to know them.
AWAY_SECONDS = 0.5
# Seconds between two checks whether that is done.
LOOK_AGAIN_SECONDS = 0.01
# A timer of the loop may be early by this.
TICK = 0.001
STOP_SIGNALS = signal.SIGTERM, signal.SIGINT
# Blocked from the start until they are handled. Those for a replacement of the program mean nothing here.
IGNORED_SIGNALS = signal.SIGUSR1, signal.SIGUSR2
EARLY_SIGNALS = {signal.SIGHUP, *IGNORED_SIGNALS}
# Lines that no peer can cause, and no carrier that comes and goes (``LogLimit``).
UNLIMITED = frozenset(
    {"serving", "stopped", "reloaded", "needs a restart", "not reloaded, the old settings stay", "lost"}
)

log = structlog.get_logger()

ReadAgain = Callable[[], tuple[UplinkSettings, tuple[bytes, ...]]]


class Service:
    """One uplink on ``loop``. ``serve`` returns when a signal stops it. Raises ``BccndError`` without its journal.

    ``read_again`` reads settings and keys for a reload; ``log_limit``: of its log; ``watchdog``: see ``Supervision``.
    """

    def __init__(
        self,
        settings: UplinkSettings,
        keys: tuple[bytes, ...],
        loop: asyncio.AbstractEventLoop,
        read_again: ReadAgain,
        log_limit: LogLimit,
        watchdog: float = 0.0,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._read_again = read_again
        self._log_limit = log_limit
        self._supervision = Supervision(loop, watchdog)
        self._health = Health(loop, self._metrics, self._unready)
        self._journal = Journal(settings.journal, limits_of(settings))
        self._journal.open()
        self.core = Uplink(options_of(settings, keys), self._journal, time.monotonic, time.time_ns)
        self.core.carrier = self.carrier = carrier_of(settings, self.core.src, self, self._journal)
        self.bus = Bus(
            settings.socket,
            self._heard,
            CHANNEL,
            self._answer,
            joined=self.core.joined,
            retained=settings.retained,
        )
        self._answering = Answering()
        self._losses = Losses()
        self._reported_at = float("-inf")
        self._stop = asyncio.Event()
        self._incoming = asyncio.Event()
        self._timer: asyncio.Handle | None = None
        self._due = float("inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading: asyncio.Task[None]
        self._carrying: asyncio.Task[None]
        self._idle = False  # the daemon has what came
        self._ticking: asyncio.TimerHandle | None = None
        self._reloading = asyncio.Lock()
        self._faults = Faults()
        self._fault: BaseException | None = None
        self._cut_off: str | None = None
        self._reasons = Reasons()
        self._journal_fault = self._journal_replaced = ""
        self._mistake = ""
        self._claims = 0  # of the core that were logged
        self._state_since = loop.time()
        loop.set_exception_handler(self._faults.handle)

    async def serve(self) -> None:
        """Serve until stopped. Raises ``BccndError`` if it cannot start."""
        loop, settings = self._loop, self._settings
        for signum in STOP_SIGNALS:
            loop.add_signal_handler(signum, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        for signum in IGNORED_SIGNALS:
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY_SIGNALS)
        try:
            self._health.open(settings.metrics)
            await self.bus.begin(settings.export, bridges=bool(settings.import_))
            self._health.resume()
            self._log_start()
            self._supervision.serving(self._summary(), succeeded=False)
            self._reading = self._start(self.bus.run())
            self._carrying = self._start(self.carrier.run(self.core.begin()))
            self._start(self._send())
            self._start(self._look())
            self._schedule()
            self._ticking = self._loop.call_later(1.0, self._tick)
            await self._stop.wait()
            self._supervision.stopping()
            await self._hand_over()
        finally:
            await self._end()
        if self._fault is not None:
            raise self._fault

    def _log_start(self) -> None:
        settings = self._settings
        log.info(
            "serving",
            segment=settings.name,
            carrier=settings.carrier,
            export=len(settings.export),
            imports=len(settings.import_),
            version=__version__,
        )
        for doubt, remedy in doubts(settings):
            log.warning(doubt, remedy=remedy)

    # -- what the carrier says: the Hearer

    def came(self, position: int, datagram: bytes) -> None:
        self.core.came(position, datagram)
        self._advance()

    def complete(self, position: int) -> None:
        self.core.complete(position)
        self._advance()

    def published(self, number: int) -> None:
        self.core.published(number)
        self._schedule()

    def changed(self) -> None:
        self.core.changed()
        self._look_at_carrier()
        self._schedule()

    # -- what the daemon says

    def _heard(self, datagram: bytes, retained: bool) -> None:
        self.core.offer(datagram, retained=retained)
        self._schedule()

    def _answer(self) -> list[bytes]:
        if not self._answering.may(self._loop.time()):
            return []
        parts = answers(self._facts())
        self._answering.took(len(parts))
        return parts

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

    async def _look(self) -> None:
        """Tell other uplinks the hosts of this segment, and recorders the facts of this uplink."""
        while True:
            names = await self.bus.hosts()
            self.core.hosts([name.encode() for name in names])
            self._schedule()
            await self.bus.say(FACTS_CHANNEL, answers(self._facts()))
            await asyncio.sleep(LOOK_SECONDS if names else AWAY_SECONDS)

    def _advance(self) -> None:
        self._incoming.set()
        self._schedule()

    def _schedule(self) -> None:
        """Call the core at its deadline. A deadline that moves later is checked at the old time."""
        due = self.core.next_deadline()
        if self._timer is not None:
            if due >= self._due:
                return
            self._timer.cancel()
        self._due, wait = due, due - time.monotonic()
        if wait <= 0:
            self._timer = self._loop.call_soon(self._on_time)
        else:
            self._timer = self._loop.call_later(wait + TICK, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.core.next_deadline() <= time.monotonic():  # in this order: what is due at once is due by then
            self.core.on_deadline()
            self._incoming.set()
        self._schedule()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_ended)
        return task

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        """A task has ended, which none does by itself: its exception ends the uplink."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            unless_out_of_memory(error)
            self._fault = self._fault or error
            self._stop.set()

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(1.0, self._tick)  # first: a fault costs this tick alone
        self._faults.tick()
        self._look_at_carrier()
        self._look_at_journal()
        self._look_at_others()
        self._report()
        self._health.tick()
        self._supervision.ticked(self._summary())

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
        for left_out in self._log_limit.left_out(ending=ending):
            log.warning("more like this", **left_out)

    # -- what it says of itself

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
        """The line that ``systemctl status`` shows."""
        state, reason = self._state()
        return f"{state}: {reason}" if reason else state

    def _unready(self) -> str:
        state, reason = self._state()
        if self._stop.is_set():
            return "stopping"
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

    def _on_hangup(self) -> None:
        self._start(self._reload())

    async def _reload(self) -> None:
        async with self._reloading:
            self._supervision.reloading()
            try:
                wanted, keys = self._read_again()
                settings, changed, held = applicable(self._settings, wanted)
                options = options_of(settings, keys)
                await self._change(settings, options)
            except BccndError as error:
                self._supervision.not_reloaded(error)
                return
            self._health.resume()
            self._settings = settings
            self._journal.limits = limits_of(settings)
            self.bus.retained = settings.retained
            logs.configure(settings.log_level, settings.log_format, limit=self._log_limit)
            if held:
                log.warning("needs a restart", settings=held)
            log.info("reloaded", changed=changed, keys=len(keys))
            self._supervision.reloaded()

    async def _change(self, settings: UplinkSettings, options: Options) -> None:
        """Subscribe to new patterns, then carry them, then end old ones. Raises ``BccndError`` before anything has
        changed.
        """
        before = self._settings
        await self.bus.want({*before.export, *settings.export}, bridges=bool(settings.import_))
        try:
            self._health.open(settings.metrics)
        except BccndError:
            await self.bus.want(before.export, bridges=bool(before.import_))
            raise
        self.core.reconfigure(options)
        await self.bus.want(settings.export, bridges=bool(settings.import_))

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

    async def _end(self) -> None:
        for timer in (self._ticking, self._timer):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.bus.close()
        if self._timer is not None:  # what was cancelled may have called the core
            self._timer.cancel()
        self._report(ending=True)
        self._journal.close()
        self._health.close()
        self._supervision.close()
        log.info("stopped", segment=self._settings.name)
