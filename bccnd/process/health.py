"""Metrics and health of a program over HTTP: ``/metrics``, ``/healthz``, ``/readyz``.

Rules
- When it is off it costs nothing, and the Prometheus library is not loaded.
- ``/healthz`` answers as long as the loop turns, ``/readyz`` with 503 and the reason while the program does not work.
- A successor gets the listening socket, and who connects meanwhile waits: no scrape fails because of a replacement.
  Where its settings name another address it has that before it takes over, or does not take over.
- A reload opens the new socket before it closes the old one. If it cannot open it, nothing changes.
- A socket file that goes while the program serves is made again.
"""

import importlib
from asyncio import AbstractEventLoop
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import structlog

from bccnd.errors import BccndError
from bccnd.process import local_stream
from bccnd.process.http import HttpServer, Response, plain
from bccnd.process.local_stream import Listening

# Of the file of a Unix socket, where no setting says another.
MODE = 0o660

log = structlog.get_logger()


class Health:
    """``metrics``: their text and its content type, for an Accept header; ``unready``: why the program does not
    work, or an empty string.
    """

    def __init__(
        self,
        loop: AbstractEventLoop,
        metrics: Callable[[str], tuple[bytes, str]],
        unready: Callable[[], str],
    ) -> None:
        self._loop = loop
        self._metrics = metrics
        self._unready = unready
        self._where, self._mode = "", MODE
        self._listening: Listening | None = None
        self._server: HttpServer | None = None
        self._left: Listening | None = None  # a predecessor's, no longer wanted
        self._serves = self._gone_told = False

    def open(self, where: str, mode: int = MODE) -> None:
        """Listen there, or nowhere. It serves from ``resume`` to ``pause``.

        Raises ``BccndError`` when that is impossible; nothing has changed then.
        """
        self._mode = mode
        if where == self._where and not self._is_gone:
            return
        listening = local_stream.listen(where, mode) if where else None
        self.close()
        self._adopt(where, listening)

    def _adopt(self, where: str, listening: Listening | None) -> None:
        self._where, self._listening, self._gone_told = where, listening, False
        if listening is not None:
            # The Prometheus library takes its time to load: not when somebody asks.
            importlib.import_module("bccnd.process.exposition")
            self._server = HttpServer(self._loop, listening, self._handle)
            if self._serves:
                self._server.resume()

    def resume(self) -> None:
        self._serves = True
        if self._left:  # until now the predecessor might have gone on with it
            local_stream.close(self._left)
            self._left = None
        if self._server:
            self._server.resume()

    def pause(self) -> None:
        self._serves = False
        if self._server:
            self._server.pause()

    def close(self) -> None:
        if self._server and self._listening:
            self._server.close()
            local_stream.close(self._listening)
        self._where, self._listening, self._server = "", None, None

    def tick(self) -> None:
        """Make a socket file that has gone again. Call this each second."""
        if not self._serves or not self._is_gone:
            return
        where = self._where
        try:
            self.open(where, self._mode)
        except BccndError as error:
            if not self._gone_told:
                log.warning("socket file gone: nobody can connect", socket=where, reason=str(error))
            self._gone_told = True
            return
        log.warning("socket file made again", socket=where)

    @property
    def _is_gone(self) -> bool:
        return self._listening is not None and local_stream.is_gone(self._listening)

    # -- succession

    @property
    def descriptors(self) -> dict[str, int]:
        return {"metrics": self._listening.fileno()} if self._listening else {}

    def state(self) -> dict[str, Any]:
        """What a successor needs besides the ``descriptors``, in plain values."""
        return {"listen": self._where, "made": self._listening and self._listening.made}

    def inherit(
        self, state: dict[str, Any], descriptors: Mapping[str, int], where: str, mode: int = MODE
    ) -> None:
        """As ``open``, with the socket of a predecessor if it is there."""
        if state.get("listen"):
            listening = Listening.succeed(descriptors["metrics"], state.get("made"))
            if state["listen"] == where:
                self._adopt(where, listening)
            else:
                self._left = listening
        self.open(where, mode)

    def _handle(self, path: str, headers: dict[str, str]) -> Response | None:
        match path:
            case "/metrics":
                return Response(HTTPStatus.OK, *self._metrics(headers.get("accept", "")))
            case "/healthz":
                return plain(HTTPStatus.OK, "alive")
            case "/readyz":
                why = self._unready()
                return plain(HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK, why or "ready")
        return None
