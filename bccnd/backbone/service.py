"""The backbone put together: socket, core, state file, signals, time.

Rules
- Everything happens in callbacks of one event loop. The loop blocks only on the state file, each time it stores a
  bound.
- SIGTERM and SIGINT end it, after it has stored the last number: the next start leaves no gap.
- SIGHUP reads settings and keys again; a fault in them changes nothing. SIGUSR2 starts a new process that takes over
  (``bccnd/restart.py``): socket, subscribers, numbers and counters. SIGUSR1 is ignored: there are no debug lines
  here.
- What strangers do is counted, with at most one line in the log each REPORT_SECONDS.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from bccnd import __version__
from bccnd.backbone.core import Backbone, Networks, Rules
from bccnd.backbone.leases import Places
from bccnd.backbone.numbers import Numbers
from bccnd.backbone.outlet import STALL_SECONDS, Outlet
from bccnd.backbone.settings import BackboneSettings, applicable
from bccnd.backbone.state_file import StateFile
from bccnd.errors import BccndError
from bccnd.process import logs
from bccnd.process.fatal import Faults
from bccnd.process.health import Health
from bccnd.process.supervision import Supervision
from bccnd.restart import Legacy, Replacement
from bccnd.wire.fyrehose import SEQ_LIMIT

# Batches of one callback: after these, signals, metrics and the watchdog have their turn. Looking for another batch
# costs less than being woken for it.
BATCHES = 16
# Datagrams sent in one callback, which ends it as well: a batch to a thousand subscribers is 64,000 of them.
DATAGRAMS = 16_384

# Seconds between two log lines about dropped packets.
REPORT_SECONDS = 30.0

log = structlog.get_logger()

ReadAgain = Callable[[], tuple[BackboneSettings, tuple[bytes, ...]]]


def rules_of(settings: BackboneSettings, keys: tuple[bytes, ...]) -> Rules:
    return Rules(
        Networks(settings.publish),
        Networks(settings.subscribe),
        Networks(settings.request),
        Networks(settings.redirect),
        Places(settings.subscribers, settings.network_subscribers, settings.address_subscribers),
        settings.range,
        settings.requests,
        settings.numbers,
        settings.pushes,
        settings.strangers,
        keys,
    )


class Service:
    """One backbone on ``loop``. ``serve`` returns when a signal stops it, or when a successor has taken over.

    ``read_again`` reads settings and keys for a reload; ``watchdog``: see ``Supervision``.
    """

    def __init__(
        self,
        settings: BackboneSettings,
        keys: tuple[bytes, ...],
        outlet: Outlet,
        state_file: StateFile,
        loop: asyncio.AbstractEventLoop,
        read_again: ReadAgain,
        watchdog: float = 0.0,
    ) -> None:
        self._settings = settings
        self._outlet = outlet
        self._state_file = state_file
        self._loop = loop
        self._read_again = read_again
        self._supervision = Supervision(loop, watchdog)
        self._health = Health(loop, self._metrics, self._unready)
        self.core = Backbone(rules_of(settings, keys), Numbers(), random.randrange)
        self._stop = asyncio.Event()
        self._replacement = Replacement(self._stop, self._reload, self._leave, self._resume)
        self._inherited = False
        self._stalled: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self._disk_fault = ""
        self._faults = Faults()
        self._reported_at = float("-inf")
        self._reported: Counter[str] = Counter()
        loop.set_exception_handler(self._faults.handle)

    def begin(self) -> None:
        """Begin with the number in the state file. Raises ``BccndError``."""
        numbers = self.core.numbers
        numbers.next = numbers.bound = self._state_file.read()
        self._store(numbers.wanted)

    def inherit(self, state: dict[str, Any], descriptors: Mapping[str, int]) -> None:
        """Take over from a predecessor."""
        self.core.restore(state["core"])
        self._outlet.delivered, self._outlet.unsent = state["datagrams"]
        self._health.inherit(state["health"], descriptors, self._settings.metrics)
        self._inherited = True
        self._reported = self._troubles()

    async def serve(self) -> None:
        """Serve until stopped or replaced. Raises ``BccndError`` if it cannot start."""
        loop = self._loop
        self._health.open(self._settings.metrics)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        self._replacement.watch()
        self._resume()
        self._ticking = loop.call_later(1.0, self._tick)
        log.info(
            "serving",
            address="{}:{}".format(*self._outlet.socket.getsockname()),
            next=self.core.numbers.next,
            version=__version__,
        )
        if self._settings.state is None:
            log.warning("no state file: after a restart numbers begin at 1 again", remedy="--state FILE")
        self._supervision.serving(self._summary(), succeeded=self._inherited)
        succeeded = await self._replacement.ended()
        self._ticking.cancel()
        if not succeeded:
            self._end()
        self._supervision.close()

    # -- traffic

    def _on_readable(self) -> None:
        outlet, core = self._outlet, self.core
        until = outlet.delivered + DATAGRAMS
        for _ in range(BATCHES):
            if outlet.delivered >= until:
                return
            starts, ends = outlet.read()
            if not starts:
                return
            work = core.receive(outlet.memory, starts, ends, outlet.senders(len(starts)), time.monotonic())
            for packet, address in work.replies:
                outlet.reply(packet, address)
            if work.starts:
                outlet.deliver(work.starts, work.ends, core.subscribers.addresses, core.subscribers.version)
                if outlet.pending:
                    self._stall()
                    return

    def _stall(self) -> None:
        """Read nothing until there is room for the rest of the batch, or its time is over."""
        self._loop.remove_reader(self._outlet.socket)
        self._loop.add_writer(self._outlet.socket, self._on_writable)
        self._stalled = self._loop.call_later(STALL_SECONDS, self._on_stall_over)

    def _on_writable(self) -> None:
        self._outlet.go_on()
        if not self._outlet.pending:
            self._end_stall()

    def _on_stall_over(self) -> None:
        self._outlet.give_up()
        self._end_stall()

    def _end_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
            self._loop.remove_writer(self._outlet.socket)
            if not self._replacement.paused:
                self._loop.add_reader(self._outlet.socket, self._on_readable)

    def _resume(self) -> None:
        self._loop.add_reader(self._outlet.socket, self._on_readable)
        self._health.resume()

    def _pause(self) -> None:
        if self._stalled is not None:
            self._on_stall_over()
        self._loop.remove_reader(self._outlet.socket)
        self._health.pause()

    # -- time

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(1.0, self._tick)  # first: a fault costs this tick alone
        if self._replacement.paused:
            return
        self._faults.tick()
        self.core.expire(time.monotonic())
        self._reserve()
        self._report()
        self._health.tick()
        self._supervision.ticked(self._summary())

    def _reserve(self) -> None:
        """Store a higher bound if it is time. If the disk fails, the next tick tries again."""
        wanted = self.core.numbers.wanted
        if not wanted:
            return
        try:
            self._store(wanted)
        except BccndError as error:
            if str(error) != self._disk_fault:
                left = self.core.numbers.bound - self.core.numbers.next
                log.error("sequence numbers not kept", reason=str(error), left=left)
            self._disk_fault = str(error)
        else:
            self._disk_fault = ""

    def _store(self, bound: int) -> None:
        if self._settings.state is None:
            bound = SEQ_LIMIT
        self._state_file.write(bound)
        self.core.numbers.bound = bound

    def _report(self, *, ending: bool = False) -> None:
        now, troubles = time.monotonic(), self._troubles()
        more = troubles - self._reported
        if more and (ending or now - self._reported_at >= REPORT_SECONDS):
            self._reported_at, self._reported = now, troubles
            log.warning("dropped", **more)
            if self.core.numbers.used_up:
                log.error("all sequence numbers are used up: nothing is delivered any more")

    def _troubles(self) -> Counter[str]:
        return self.core.counts.dropped + Counter(unsent=self._outlet.unsent)

    def _summary(self) -> str:
        """The line that ``systemctl status`` shows."""
        count = len(self.core.subscribers)
        return self._unready() or f"{count} subscriber{'s' * (count != 1)}"

    def _unready(self) -> str:
        """Why nothing is numbered; empty when all is well."""
        numbers = self.core.numbers
        if numbers.used_up:
            return "all sequence numbers are used up"
        if numbers.next >= numbers.bound:
            return f"sequence numbers not kept: {self._disk_fault}"
        return "stopping" if self._stop.is_set() else ""

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        from bccnd.backbone.metrics import render  # loaded only where it is used

        core, counts = self.core, self.core.counts
        snapshot = {
            "version": __version__,
            "pushed": counts.pushed,
            "keepalives": counts.keepalives,
            "requests": counts.requests,
            "forwarded": counts.forwarded,
            "delivered": self._outlet.delivered,
            "unsent": self._outlet.unsent,
            "dropped": counts.dropped,
            "subscribers": len(core.subscribers),
            "subscribers_limit": core.rules.places.total,
            "journalling": core.subscribers.journalling,
            "next": core.numbers.next,
            "bound": core.numbers.bound,
        }
        return render(snapshot, accept)

    # -- reload

    def _reload(self) -> None:
        self._supervision.reloading()
        try:
            wanted, keys = self._read_again()
            settings, changed, held = applicable(self._settings, wanted)
            self._health.open(settings.metrics)
        except BccndError as error:
            self._supervision.not_reloaded(error)
            return
        self._settings = settings
        logs.configure(settings.log_level, settings.log_format)
        self.core.reconfigure(rules_of(settings, keys))
        if held:
            log.warning("needs a restart", settings=held)
        log.info("reloaded", changed=changed, keys=len(keys))
        self._supervision.reloaded()

    # -- succession

    def _leave(self) -> Legacy:
        """Pause everything. Returns the state and the descriptors that a successor needs to go on."""
        self._pause()
        self._report(ending=True)
        state = {
            "listen": self._settings.listen,
            "state": self._settings.state and str(self._settings.state),
            "core": self.core.state(),
            "datagrams": (self._outlet.delivered, self._outlet.unsent),
            "health": self._health.state(),
        }
        lock = {"lock": self._state_file.lock} if self._state_file.lock >= 0 else {}
        return state, {"socket": self._outlet.socket.fileno()} | lock | self._health.descriptors

    # -- the end

    def _end(self) -> None:
        self._supervision.stopping()
        self._pause()
        self._report(ending=True)
        try:
            self._state_file.write(self.core.numbers.next)
        except BccndError as error:
            log.error("sequence numbers not kept, the next start leaves a gap", reason=str(error))
        self._state_file.close()
        self._health.close()
        self._outlet.close()
        log.info("stopped", next=self.core.numbers.next)
