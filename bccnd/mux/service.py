"""The door put together: entrances, the daemon behind it, signals, time.

Rules
- Everything happens in callbacks of one event loop.
- SIGTERM and SIGINT end it: all peers are told why, and have FAREWELL_SECONDS to read that.
- SIGHUP reads settings and certificates again, and drops nobody. If they have a fault, nothing changes. SIGUSR1 and
  SIGUSR2 are ignored.
- What peers do is counted; at the usual level it writes no line to the log.
"""

import asyncio
import signal
from collections.abc import Callable
from functools import partial

import structlog

import bccn
from bccnd import __version__
from bccnd.errors import BccndError
from bccnd.mux import limits
from bccnd.mux.accounts import Accounts
from bccnd.mux.archive import Archive
from bccnd.mux.connection import House
from bccnd.mux.daemon import Daemon
from bccnd.mux.entrance import Entrance, far_entrance, local_entrance
from bccnd.mux.guests import Guests
from bccnd.mux.own_token import own_bearer
from bccnd.mux.settings import TLS, UNIX, MuxSettings, applicable
from bccnd.process import local_stream, logs
from bccnd.process.descriptors import allow_descriptors
from bccnd.process.fatal import Faults
from bccnd.process.health import Health
from bccnd.process.supervision import Supervision

STOP_SIGNALS = signal.SIGTERM, signal.SIGINT
# Blocked from the start until they are handled. Those for a replacement of the program mean nothing here.
IGNORED_SIGNALS = signal.SIGUSR1, signal.SIGUSR2
EARLY_SIGNALS = {signal.SIGHUP, *IGNORED_SIGNALS}

# Seconds between two looks at whether all have left.
LOOK_SECONDS = 0.01

STOPS = b"unavailable the door stops"

log = structlog.get_logger()


class Service:
    """One door on ``loop``. ``serve`` returns when a signal stops it.

    ``read_again`` reads the settings for a reload; ``watchdog``: see ``Supervision``.
    """

    def __init__(
        self,
        settings: MuxSettings,
        loop: asyncio.AbstractEventLoop,
        read_again: Callable[[], MuxSettings],
        watchdog: float = 0.0,
    ) -> None:
        self._settings = settings
        self._own = own_bearer(settings)
        self._guests = Guests.of(settings, self._own)  # for those that connect from now on
        self._loop = loop
        self._read_again = read_again
        self._supervision = Supervision(loop, watchdog)
        self._health = Health(loop, self._metrics, self._unready)
        daemon = Daemon(loop, bccn.socket_path(settings.socket or None), settings.sessions)
        accounts = Accounts(settings.connections, settings.user_connections)
        self._house = House(loop, daemon, accounts, Archive(loop, settings.recorded))
        self._entrances: list[Entrance] = []
        self._stop = asyncio.Event()
        self._ticking: asyncio.TimerHandle | None = None
        self._faults = Faults()
        loop.set_exception_handler(self._faults.handle)

    async def serve(self) -> None:
        """Serve until stopped. Raises ``BccndError`` if it cannot start."""
        for signum in STOP_SIGNALS:
            self._loop.add_signal_handler(signum, self._stop.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        for signum in IGNORED_SIGNALS:
            signal.signal(signum, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY_SIGNALS)
        try:
            allow_descriptors(self._settings.connections + self._settings.sessions, "bccnd-mux")
            self._open()
            self._health.open(self._settings.metrics)
            self._health.resume()
            log.info("serving", **self._places(), socket=self._house.daemon.path, version=__version__)
            self._look_at_the_certificate()
            self._supervision.serving(self._summary(), succeeded=False)
            self._tick()
            await self._stop.wait()
            self._supervision.stopping()
            await self._part()
        finally:
            self._end()

    def _open(self) -> None:
        mode = int(self._settings.socket_mode, 8)
        for where in self._settings.listen:
            place = where.removeprefix(UNIX).removeprefix(TLS)
            listen = partial(local_stream.listen, place, mode, "--listen")
            self._entrances.append(
                far_entrance(self._house, listen, lambda: self._guests.by_tls())
                if where.startswith(TLS)
                else local_entrance(self._house, listen)
            )
        if self._settings.web:
            listen = partial(local_stream.listen, self._settings.web, mode, "--web")
            self._entrances.append(far_entrance(self._house, listen, lambda: self._guests.by_web()))
        for entrance in self._entrances:
            entrance.open()

    def _places(self) -> dict[str, object]:
        """Where the door listens; and the file of its own token, if it has made one."""
        settings, places = self._settings, dict[str, object]()
        if settings.listen:
            places["listen"] = settings.listen
        if settings.web:
            scheme = "https" if self._guests.web_context else "http"
            places["web"] = f"{scheme}://{settings.web}/"
        if self._own:
            places["token_file"] = str(self._own.file)
        return places

    def _look_at_the_certificate(self) -> None:
        """Warn if peers reject the certificate. The door serves anyway: programs of this host can still connect."""
        if why := self._guests.out_of_date:
            log.warning(
                "no peer takes the certificate", certificate=str(self._settings.certificate), reason=why
            )

    # -- time

    def _tick(self) -> None:
        self._ticking = self._loop.call_later(1.0, self._tick)  # first: a fault costs this tick alone
        self._faults.tick()
        self._health.tick()
        for entrance in self._entrances:
            entrance.tick()
        self._supervision.ticked(self._summary())

    def _summary(self) -> str:
        """The line that ``systemctl status`` shows."""
        count = len(self._house.connections)
        return self._unready() or f"{count} connection{'s' * (count != 1)}"

    def _unready(self) -> str:
        return "stopping" if self._stop.is_set() else ""

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        from bccnd.mux.metrics import render  # loaded only where it is used

        house = self._house
        snapshot = {
            "version": __version__,
            "accepted": house.counts["connections"],
            "turned_away": house.counts["turned_away"],
            "packets_in": house.daemon.packets_in,
            "packets_out": house.daemon.packets_out,
            "connections": len(house.connections),
            "connections_limit": house.accounts.total,
            "links": house.daemon.links,
            "links_limit": house.daemon.most,
            "held": house.accounts.held,
            "replays": house.archive.replays,
            "ended": house.dropped,
        }
        return render(snapshot, accept)

    # -- reload

    def _reload(self) -> None:
        self._supervision.reloading()
        try:
            settings, changed, held = applicable(self._settings, self._read_again())
            own = own_bearer(settings)
            guests = Guests.of(settings, own)
            self._health.open(settings.metrics)
        except BccndError as error:
            self._supervision.not_reloaded(error)
            return
        self._settings, self._own, self._guests = settings, own, guests
        logs.configure(settings.log_level, settings.log_format)
        self._house.accounts.total = settings.connections
        self._house.accounts.each = settings.user_connections
        self._house.daemon.most = settings.sessions
        self._house.archive.folder = settings.recorded
        allow_descriptors(settings.connections + settings.sessions, "bccnd-mux")
        if held:
            log.warning("needs a restart", settings=held)
        log.info("reloaded", changed=changed)
        self._look_at_the_certificate()
        self._supervision.reloaded()

    # -- the end

    async def _part(self) -> None:
        """Let nobody in any more, and tell all peers the reason."""
        while self._entrances:
            self._entrances.pop().close()
        for connection in list(self._house.connections):
            connection.part(STOPS)
        until = self._loop.time() + limits.FAREWELL_SECONDS
        while (self._house.connections or self._house.daemon.links) and self._loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)

    def _end(self) -> None:
        if self._ticking:
            self._ticking.cancel()
        for entrance in self._entrances:
            entrance.close()
        for connection in list(self._house.connections):
            connection.drop("stopped")
        self._house.archive.close()
        self._health.close()
        self._supervision.close()
        log.info("stopped", accepted=self._house.counts["connections"])
