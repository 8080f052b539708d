"""The gateway put together: connections to peers, the bus, the core between them; signals and time.

    peers -- Stream --> core.received --> effects --> Stream.send, Bus.publish, Bus.want ...
    daemon -- Bus --> core.came, core.listened ----^

Rules
- Everything happens in callbacks and tasks of one event loop. After each call of the core its effects are done.
- A link is read again when the core has worked on what came, and the daemon has taken what it published.
- What a peer does has a line in the log within limits (``LogLimit``), and is counted. A peer that cannot be reached
  has one for each new reason.
- SIGTERM and SIGINT end it: peers learn it at once, as TCP ends, or what they were told is taken back. What waits for
  them and for the daemon is handed over, for STOP_SECONDS at most. SIGHUP reads the settings again; a fault in them
  changes nothing.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import structlog

from bccnd import __version__
from bccnd.beside.asked import Asked
from bccnd.dndm import account
from bccnd.dndm.asking import Kind
from bccnd.dndm.bus import Bus
from bccnd.dndm.carriers import Carriers
from bccnd.dndm.core import Gateway
from bccnd.dndm.effects import (
    Close,
    Dial,
    Effect,
    Met,
    Publish,
    Send,
    Silent,
    Subscribe,
    Unsubscribe,
    Unwatch,
    Watch,
)
from bccnd.dndm.settings import DndmSettings, applicable, doubts, expected, options_of
from bccnd.dndm.troubles import FORM, Troubles
from bccnd.errors import BccndError
from bccnd.process import logs
from bccnd.process.descriptors import allow_descriptors
from bccnd.process.fatal import Faults, unless_out_of_memory
from bccnd.process.health import Health
from bccnd.process.log_limit import LogLimit
from bccnd.process.supervision import Supervision
from bccnd.relay.moment import Moment
from bccnd.wire.dndm.peers import Peer

# Seconds to hand over what came, once the gateway is to stop.
STOP_SECONDS = 2.0
# Seconds between two log lines about what was lost.
REPORT_SECONDS = 30.0
# Seconds between two looks whether it is done.
LOOK_AGAIN_SECONDS = 0.01
# A timer of the loop may be early by this.
TICK = 0.001
STOP_SIGNALS = signal.SIGTERM, signal.SIGINT
# Blocked from the start until they are handled. Those that have another program take over mean nothing here.
IGNORED_SIGNALS = signal.SIGUSR1, signal.SIGUSR2
EARLY_SIGNALS = {signal.SIGHUP, *IGNORED_SIGNALS}
# Lines that no peer can cause.
UNLIMITED = frozenset(
    {"serving", "stopped", "reloaded", "needs a restart", "not reloaded, the old settings stay", "lost"}
)
TOO_LARGE = "too large for the segment"

log = structlog.get_logger()


class Service:
    """One gateway on ``loop``. ``serve`` returns when a signal stops it.

    ``read_again`` reads the settings for a reload; ``log_limit``: of its log; ``watchdog``: see ``Supervision``.
    """

    def __init__(
        self,
        settings: DndmSettings,
        loop: asyncio.AbstractEventLoop,
        read_again: Callable[[], DndmSettings],
        log_limit: LogLimit,
        watchdog: float = 0.0,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._read_again = read_again
        self._log_limit = log_limit
        self._supervision = Supervision(loop, watchdog)
        self._health = Health(loop, self._metrics, self._unready)
        self.core = Gateway(options_of(settings))
        self.bus = Bus(settings.socket, self)
        self.carriers = Carriers(loop, self, settings.accept, settings.bus)
        # Links that are not read; of these, those that wait for the daemon to take what they brought.
        self._held: set[int] = set()
        self._publishing: set[int] = set()
        # Who is at the other end of a link, as far as is known, and where that is.
        self._names: dict[int, str] = {}
        self._whence: dict[int, Peer] = {}
        self._troubles = Troubles()
        self._troubles.expect(expected(settings))
        self._asked = Asked(
            self.bus.path, lambda: not self.bus.reason, lambda name: FORM.answers(self._facts(name))
        )
        self._sent = 0
        self._timer: asyncio.Handle | None = None
        self._due = float("inf")
        self._ticking: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._faults = Faults()
        self._fault: BaseException | None = None
        self._lost: dict[str, int] = {}
        self._reported_at = float("-inf")
        self._too_large_told = self._serves = False
        loop.set_exception_handler(self._faults.handle)

    async def serve(self) -> None:
        """Serve until stopped. Raises ``BccndError`` when it cannot begin."""
        loop, settings = self._loop, self._settings
        for signum in STOP_SIGNALS:
            loop.add_signal_handler(signum, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        for signum in IGNORED_SIGNALS:
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY_SIGNALS)
        try:
            allow_descriptors(2 * settings.links, "bccnd-dndm")
            self._health.open(settings.metrics)
            self.carriers.open(settings.listen)
            await self.bus.begin()
            self._health.resume()
            log.info(
                "serving", listen=settings.listen, dial=settings.dial, me=settings.me, version=__version__
            )
            for doubt, remedy in doubts(settings):
                log.warning(doubt, remedy=remedy)
            self._serves = True
            self._supervision.serving(self._summary(), succeeded=False)
            self._start(self.bus.run())
            self._start(self._asked.run())
            self._on_time()
            self._tick()
            await self._stop.wait()
            self._supervision.stopping()
            await self._hand_over()
        finally:
            await self._end()
        if self._fault is not None:
            raise self._fault

    # -- what peers do: the owner of carriers

    def opened(
        self, number: int, scheme: str, dialled: Peer | None, whence: Peer, *, broadcast: bool = False
    ) -> None:
        self._names[number], self._whence[number] = str(whence), whence
        if scheme == "serial" and not dialled:
            self._troubles.over(whence.place)
        self.core.connected(number, scheme, self._now(), dialled, broadcast=broadcast)
        self._act()

    def wants(self, number: int, route: str) -> bool:
        return self.core.wants(number, route)

    def not_reached(self, peer: Peer, reason: str, *, dialled: bool = True) -> None:
        if self._troubles.away(peer, reason, self._loop.time()):
            log.warning("peer not reached, trying again", peer=str(peer), reason=reason)
        if dialled:
            self.core.dial_failed(peer, self._now())
            self._act()

    def heard(self, number: int, data: bytes) -> None:
        self.core.received(number, data, self._now())
        self._act(number)

    def wrote(self, number: int) -> None:
        self.core.backlog(number, self.carriers.waiting(number), self._now())
        self._act()

    def ended(self, number: int, reason: str) -> None:
        self._release("peer gone", number, reason)
        self.core.closed(number, self._now())
        self._act()

    # -- what the bus says: its hearer

    def came(self, channel: str, payload: bytes) -> None:
        self.core.came(channel, payload, self._now())
        self._act(schedules=False)

    def listened(self, channel: str, somebody: bool) -> None:
        self.core.listened(channel, somebody, self._now())
        self._act()

    def crowded(self, kind: Kind, channel: str) -> None:
        self.core.crowded(kind, channel, self._now())
        self._act()

    def roomy(self) -> None:
        self.core.roomy()
        self._act(schedules=False)

    def published(self) -> None:
        if not self.bus.full:
            self._publishing.clear()
            self._read_on()

    # -- what follows

    def _now(self) -> Moment:
        return Moment(time.monotonic(), time.time_ns())

    def _act(self, source: int = 0, *, schedules: bool = True) -> None:
        """``source``: the link whose bytes the core was given. ``schedules``: whether something may be due sooner."""
        publishes = False
        while effects := self.core.take():
            written = set()
            for effect in effects:
                if isinstance(effect, Send):
                    self._sent += 1
                    self.carriers.send(effect.link, effect.data)
                    written.add(effect.link)
                else:
                    publishes |= isinstance(effect, Publish)
                    self._do(effect)
            now = self._now()
            for number in written:
                self.core.backlog(number, self.carriers.waiting(number), now)
        if source and publishes and self.bus.full:
            self._publishing.add(source)
        if source in self._publishing or self.core.busy(source):
            self._held.add(source)
            self.carriers.hold(source)
        if schedules:
            self._schedule()

    def _do(self, effect: Effect) -> None:
        match effect:
            case Publish(channel, payload):
                self.bus.publish(channel, payload)
            case Watch(channel):
                self.bus.want("watch", channel)
            case Unwatch(channel):
                self.bus.leave("watch", channel)
            case Subscribe(channel):
                self.bus.want("subscribe", channel)
            case Unsubscribe(channel):
                self.bus.leave("subscribe", channel)
            case Dial(peer):
                self._start(self.carriers.dial(peer))
            case Met(link, peer):
                self._names[link] = str(peer)
                log.info("peer connected", link=link, peer=str(peer))
                self._troubles.over(peer.place, self._whence[link].place)
            case Silent(link, reason):
                self.not_reached(self._whence[link], reason, dialled=False)
            case Close(link, reason):
                self._release("peer let go", link, reason)
                self.carriers.close(link)

    def _read_on(self) -> None:
        """Of the links that are not read, those again that nothing keeps."""
        for number in list(self._held):
            if number not in self._publishing and not self.core.busy(number):
                self._held.discard(number)
                self.carriers.read_on(number)

    def _release(self, event: str, number: int, reason: str) -> None:
        """Forget a link, and say so."""
        self._held.discard(number)
        self._publishing.discard(number)
        name, whence = self._names.pop(number), self._whence.pop(number)
        log.info(event, link=number, peer=name, reason=reason)
        self._troubles.ended(whence, name, reason, self._loop.time(), let_go=event == "peer let go")

    # -- time

    def _schedule(self) -> None:
        """Call the core when it wants that. A deadline that has moved away is looked at when it would have been."""
        due = self.core.due
        if self._timer is not None:
            if due >= self._due:
                return
            self._timer.cancel()
        self._due, wait = due, due - time.monotonic()
        if wait <= 0:
            self._timer = self._loop.call_soon(self._on_time)
        elif wait < float("inf"):
            self._timer = self._loop.call_later(wait + TICK, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.core.due <= time.monotonic():
            self.core.tick(self._now())
            self._act()
            self._read_on()
        self._schedule()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_ended)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        """What one of them raised ends the gateway."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            unless_out_of_memory(error)
            self._fault = self._fault or error
            self._stop.set()

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(1.0, self._tick)  # first: a fault costs this tick alone
        self._faults.tick()
        self._report()
        self._health.tick()
        self._supervision.ticked(self._summary())

    def _report(self, *, ending: bool = False) -> None:
        now, lost = self._loop.time(), account.lost(self._counts(), self.bus.counts)
        if lost[TOO_LARGE] and not self._too_large_told:
            self._too_large_told = True
            log.warning(
                "messages do not fit a datagram: programs of this host and peers get them", see="local/dndm/"
            )
        more = {name: n - self._lost.get(name, 0) for name, n in lost.items() if n > self._lost.get(name, 0)}
        more.pop(TOO_LARGE, None)
        if more and (ending or now - self._reported_at >= REPORT_SECONDS):
            self._reported_at, self._lost = now, lost
            log.warning("lost", **more)
        for left_out in self._log_limit.left_out(ending=ending):
            log.warning("more like this", **left_out)

    # -- what it says of itself

    def _counts(self) -> Any:
        return account.counted(self.core.counts, self.core.links)

    def _summary(self) -> str:
        """The line that ``systemctl status`` shows."""
        peers = sum(link.peer is not None for link in self.core.links)
        return self._unready() or f"{peers} peer{'s' * (peers != 1)}"

    def _unready(self) -> str:
        if self._stop.is_set():
            return "stopping"
        return f"no daemon: {self.bus.reason}" if self.bus.reason else ""

    def _facts(self, name: str) -> dict[str, Any]:
        """For ``bccn doctor``; ``name``: of who says it."""
        links, lost = self.core.links, account.lost(self._counts(), self.bus.counts)
        return {
            "gateway": name,
            "version": __version__,
            "state": "up",
            "bus": self._settings.bus,
            "peers": sum(link.peer is not None for link in links),
            "unheard": self.core.waiting["subscribe"],
            "unwatched": self.core.waiting["watch"],
            "not_accepted": self.carriers.refused,
            "lost": {kind: count for kind, count in lost.items() if count},
            "troubles": self._troubles.rows(links, self._loop.time()),
        }

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        from bccnd.dndm.metrics import render  # loaded only where it is used

        counts, links = self._counts(), self.core.links
        intents, interests = self.core.adverts
        snapshot = {
            "version": __version__,
            "heard": self.bus.counts["heard"],
            "published": self.bus.counts["published"],
            "sent": self._sent,
            "again": counts["again"],
            "connected": int(not self.bus.reason),
            "peers": sum(link.peer is not None for link in links),
            "links": len(links),
            "intents": intents,
            "interests": interests,
            "unheard": self.core.waiting["subscribe"],
            "unwatched": self.core.waiting["watch"],
            "waiting": sum(self.carriers.waiting(link.number) for link in links),
            "unpublished": self.bus.waiting,
            "lost": account.lost(counts, self.bus.counts),
            "closed": account.closed(counts),
            "faults": account.faults(counts),
        }
        return render(snapshot, accept)

    # -- reload

    def _reload(self) -> None:
        self._supervision.reloading()
        try:
            settings, changed, held = applicable(self._settings, self._read_again())
            self._health.open(settings.metrics)
        except BccndError as error:
            self._supervision.not_reloaded(error)
            return
        self._health.resume()
        self._settings, self.carriers.accept = settings, settings.accept
        self.core.reconfigure(options_of(settings))
        self._troubles.expect(expected(settings))
        self.core.roomy()
        logs.configure(settings.log_level, settings.log_format, limit=self._log_limit)
        self._act()
        if held:
            log.warning("needs a restart", settings=held)
        log.info("reloaded", changed=changed)
        self._supervision.reloaded()

    # -- the end

    async def _hand_over(self) -> None:
        """Let peers know, and them and the daemon take what waits, as far as they do so soon."""
        self.carriers.stop()
        self.core.farewell(self._now())
        self._act()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                while not self.carriers.part() or (self.bus.waiting and not self.bus.reason):
                    await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _end(self) -> None:
        for timer in (self._ticking, self._timer):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.bus.close()
        self.carriers.end()
        if self._timer is not None:  # what was cancelled may have called the core
            self._timer.cancel()
        self._report(ending=True)
        self._health.close()
        self._supervision.close()
        if self._serves:
            log.info("stopped")
