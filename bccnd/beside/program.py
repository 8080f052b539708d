"""A program beside the daemon while it serves: signals, time, tasks, reload, what it reports, its end.

    _open --> _begin --> tasks, _on_time, _look ... --> _hand_over --> _close

Rules
- Everything happens in callbacks and tasks of one event loop. An exception in a task ends the program.
- SIGTERM and SIGINT end it. SIGHUP reads the settings again; if they have a fault, nothing changes. One that comes
  before it serves waits until it does, one that comes during a reload until that is over, however often; one that
  comes after SIGTERM does nothing. SIGUSR1 and SIGUSR2, which mean debug lines and a replacement in the daemon, are
  ignored.
- Each second it checks itself, and reports its state to systemd and the log.
"""

import asyncio
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from math import inf
from typing import Any, Generic, TypeVar

import structlog

from bccnd import __version__
from bccnd.beside.waking import Waking
from bccnd.errors import BccndError
from bccnd.process import logs
from bccnd.process.fatal import Faults, unless_out_of_memory
from bccnd.process.health import Health
from bccnd.process.log_limit import LogLimit
from bccnd.process.settings import ProgramSettings
from bccnd.process.supervision import Supervision

STOP_SIGNALS = signal.SIGTERM, signal.SIGINT
IGNORED_SIGNALS = signal.SIGUSR1, signal.SIGUSR2
# Blocked from the start until they are handled.
EARLY_SIGNALS = {signal.SIGHUP, *IGNORED_SIGNALS}
# Lines that no peer can cause (``LogLimit``).
UNLIMITED = frozenset(
    {"serving", "stopped", "reloaded", "needs a restart", "not reloaded, the old settings stay", "lost"}
)

log = structlog.get_logger()


S = TypeVar("S", bound=ProgramSettings)


@dataclass(frozen=True, slots=True)
class Start(Generic[S]):
    """``read_again``: reads the settings for a reload; ``log_limit``: of its log; ``watchdog``: see ``Supervision``;
    ``doubts``: settings that are sound but perhaps not intended, each with what to do.
    """

    settings: S
    read_again: Callable[[], S]
    log_limit: LogLimit
    watchdog: float = 0.0
    doubts: tuple[tuple[str, str], ...] = ()


class Program(ABC, Generic[S]):
    """One program on the running loop. ``serve`` returns when a signal stops it."""

    def __init__(self, start: Start[S]) -> None:
        self._start_with, self._settings = start, start.settings
        self._loop = loop = asyncio.get_running_loop()
        self._supervision = Supervision(loop, start.watchdog)
        self._health = Health(loop, self._metrics, self._unready)
        self._waking = Waking(loop, self._due, self._on_time)
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.TimerHandle | None = None
        self._reload_wanted = asyncio.Event()
        self._faults = Faults()
        self._fault: BaseException | None = None
        self._serves = False
        loop.set_exception_handler(self._faults.handle)

    # -- what each program is

    @abstractmethod
    async def _open(self) -> None:
        """Open what it needs. Raises ``BccndError``."""

    def _begin(self) -> None:
        """Start the tasks that run while it serves."""

    def _due(self) -> float:
        """When to call ``_on_time``, in monotonic seconds. If that may become sooner, tell ``self._waking``."""
        return inf

    def _on_time(self) -> None:
        """Do what is due."""

    def _look(self) -> None:
        """Do the work of each second."""

    def _report(self, *, ending: bool = False) -> None:
        """Log what was lost, if it is time, or if the program is ``ending``."""

    @abstractmethod
    def _applicable(self, wanted: S) -> tuple[S, list[str], list[str]]:
        """As ``OneTable.applicable``, with the settings that are in force."""

    @abstractmethod
    async def _change(self, settings: S) -> dict[str, Any]:
        """Use these settings. Returns fields for the log. Raises ``BccndError`` before anything has changed."""

    async def _hand_over(self) -> None:
        """Do the rest of the work, in a bounded time."""

    @abstractmethod
    async def _close(self) -> None:
        """Close what is open, even if the program could not start."""

    @abstractmethod
    def _about(self) -> dict[str, Any]:
        """The fields of the log line ``serving``."""

    def _result(self) -> dict[str, Any]:
        """The fields of the log line ``stopped``."""
        return {}

    @abstractmethod
    def _summary(self) -> str:
        """The line that ``systemctl status`` shows."""

    @abstractmethod
    def _reason(self) -> str:
        """Why it does not work; empty if it works."""

    @abstractmethod
    def _metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics in the format that the Accept header asks for, and their content type."""

    # -- what all of them do

    async def serve(self) -> None:
        """Serve until stopped. Raises ``BccndError`` if it cannot start, and what a task raised."""
        for signum in STOP_SIGNALS:
            self._loop.add_signal_handler(signum, self._stop.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload_wanted.set)
        for signum in IGNORED_SIGNALS:
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY_SIGNALS)
        try:
            self._health.open(self._settings.metrics)
            await self._open()
            self._health.resume()
            log.info("serving", **self._about(), version=__version__)
            for doubt, remedy in self._start_with.doubts:
                log.warning(doubt, remedy=remedy)
            self._serves = True
            self._supervision.serving(self._summary(), succeeded=False)
            self._begin()
            self._start(self._reload_on())
            self._ticking = self._loop.call_later(1.0, self._tick)
            await self._stop.wait()
            self._supervision.stopping()
            await self._hand_over()
        finally:
            await self._end()
        if self._fault is not None:
            raise self._fault

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_ended)
        return task

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            unless_out_of_memory(error)
            self._fault = self._fault or error
            self._stop.set()

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(1.0, self._tick)  # first: a fault costs this tick alone
        self._faults.tick()
        self._look()
        self._report()
        self._report_left_out()
        self._health.tick()
        self._supervision.ticked(self._summary())

    def _report_left_out(self, *, ending: bool = False) -> None:
        for left_out in self._start_with.log_limit.left_out(ending=ending):
            log.warning("more like this", **left_out)

    def _unready(self) -> str:
        return "stopping" if self._stop.is_set() else self._reason()

    async def _reload_on(self) -> None:
        """Reload whenever it is wanted, until the program stops."""
        while not self._stop.is_set():
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            if not self._stop.is_set():
                await self._reload()

    async def _reload(self) -> None:
        self._supervision.reloading()
        try:
            settings, changed, held = self._applicable(self._start_with.read_again())
            more = await self._change(settings)
        except BccndError as error:
            self._supervision.not_reloaded(error)
            return
        self._health.resume()
        self._settings = settings
        logs.configure(settings.log_level, settings.log_format, limit=self._start_with.log_limit)
        if held:
            log.warning("needs a restart", settings=held)
        log.info("reloaded", changed=changed, **more)
        self._supervision.reloaded()

    async def _end(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._close()
        self._waking.cancel()  # last, since what was cancelled may have set it
        self._report(ending=True)
        self._report_left_out(ending=True)
        self._health.close()
        self._supervision.close()
        if self._serves:
            log.info("stopped", **self._result())
