"""The door put together: entrances, and the daemon behind it (``bccnd/beside/program.py``).

Rules
- When it stops, all peers are told why, and have FAREWELL_SECONDS to read that.
- A reload also reads certificates again, and drops nobody.
- What peers do is counted; at the usual level it writes no line to the log.
"""

import asyncio
from functools import partial
from typing import Any

import structlog

import bccn
from bccnd import __version__
from bccnd.beside.program import Program, Start
from bccnd.mux import limits
from bccnd.mux.accounts import Accounts
from bccnd.mux.archive import Archive
from bccnd.mux.connection import House
from bccnd.mux.daemon import Daemon
from bccnd.mux.entrance import Entrance, far_entrance, local_entrance
from bccnd.mux.guests import Guests
from bccnd.mux.own_token import own_bearer
from bccnd.mux.settings import TLS, UNIX, MuxSettings, applicable
from bccnd.process import local_stream
from bccnd.process.descriptors import allow_descriptors

# Seconds between two looks at whether all have left.
LOOK_SECONDS = 0.01

STOPS = b"unavailable the door stops"

log = structlog.get_logger()


class Service(Program[MuxSettings]):
    """One door."""

    def __init__(self, start: Start[MuxSettings]) -> None:
        super().__init__(start)
        settings, loop = start.settings, self._loop
        self._own = own_bearer(settings)
        self._guests = Guests.of(settings, self._own)  # for those that connect from now on
        daemon = Daemon(loop, bccn.socket_path(settings.socket or None), settings.sessions)
        accounts = Accounts(settings.connections, settings.user_connections)
        self._house = House(loop, daemon, accounts, Archive(loop, settings.recorded))
        self._entrances: list[Entrance] = []

    async def _open(self) -> None:
        allow_descriptors(self._settings.connections + self._settings.sessions, "bccnd-mux")
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

    def _begin(self) -> None:
        self._look_at_the_certificate()

    def _about(self) -> dict[str, Any]:
        """Where the door listens; and the file of its own token, if it has made one."""
        settings, places = self._settings, dict[str, Any]()
        if settings.listen:
            places["listen"] = settings.listen
        if settings.web:
            scheme = "https" if self._guests.web_context else "http"
            places["web"] = f"{scheme}://{settings.web}/"
        if self._own:
            places["token_file"] = str(self._own.file)
        return places | {"socket": self._house.daemon.path}

    def _result(self) -> dict[str, Any]:
        return {"accepted": self._house.counts["connections"]}

    def _look_at_the_certificate(self) -> None:
        """Warn if peers reject the certificate. The door serves anyway: programs of this host can still connect."""
        if why := self._guests.out_of_date:
            log.warning(
                "no peer takes the certificate", certificate=str(self._settings.certificate), reason=why
            )

    # -- how it is

    def _look(self) -> None:
        for entrance in self._entrances:
            entrance.tick()

    def _summary(self) -> str:
        count = len(self._house.connections)
        return self._unready() or f"{count} connection{'s' * (count != 1)}"

    def _reason(self) -> str:
        return ""

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

    def _applicable(self, wanted: MuxSettings) -> tuple[MuxSettings, list[str], list[str]]:
        return applicable(self._settings, wanted)

    async def _change(self, settings: MuxSettings) -> dict[str, Any]:
        own = own_bearer(settings)
        guests = Guests.of(settings, own)
        allow_descriptors(settings.connections + settings.sessions, "bccnd-mux")
        self._health.open(settings.metrics)
        self._settings, self._own, self._guests = settings, own, guests
        self._house.accounts.total = settings.connections
        self._house.accounts.each = settings.user_connections
        self._house.daemon.most = settings.sessions
        self._house.archive.folder = settings.recorded
        self._look_at_the_certificate()
        return {}

    # -- the end

    async def _hand_over(self) -> None:
        """Let nobody in any more, and tell all peers the reason."""
        while self._entrances:
            self._entrances.pop().close()
        for connection in list(self._house.connections):
            connection.part(STOPS)
        until = self._loop.time() + limits.FAREWELL_SECONDS
        while (self._house.connections or self._house.daemon.links) and self._loop.time() < until:
            await asyncio.sleep(LOOK_SECONDS)

    async def _close(self) -> None:
        for entrance in self._entrances:
            entrance.close()
        for connection in list(self._house.connections):
            connection.drop("stopped")
        self._house.archive.close()
