"""Metrics and health over HTTP: ``/metrics``, ``/healthz``, ``/readyz``.

Rules
- When it is off, it costs nothing, and the Prometheus library is not loaded. When it is on, nothing is counted for
  it: a request reads the relay's own counters, at most every RENDER_SECONDS. A request that comes sooner gets the
  same answer again.
- ``/healthz`` answers as long as the loop turns. ``/readyz`` answers 503, with the reason, while the daemon does not
  serve.
- A successor gets the listening socket, and whoever connects meanwhile waits. No scrape fails because of a
  replacement.
- A reload opens the new socket before it closes the old one. If it cannot open it, the whole reload is refused.
- The file of a Unix socket that goes while the daemon runs is made again, as that of the bus is (``net.listener``).
"""

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

import structlog

from bccnd import __version__
from bccnd.daemon.kernel import Kernel
from bccnd.errors import BccndError
from bccnd.process import local_stream
from bccnd.process.http import HttpServer, Response, plain
from bccnd.process.local_stream import Listening
from bccnd.process.settings import Settings
from bccnd.relay.core import Relay
from bccnd.wire.verdict import DROPPED

# Seconds between two looks at the counters: some percent of the loop's time, however many ask.
RENDER_SECONDS = 0.1

# Samples of the loop's lag, one a second.
LAG_SAMPLES = 60

# Every verdict and every right begins at 0: a rate needs a value from before the first count.
RIGHTS = ("publish", "subscribe", "tap", "bridge", "name", "block", "observe")

log = structlog.get_logger()


class Metrics:
    """``status`` returns what ``CMSG status`` says; ``unready`` why it does not serve, or an empty string."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        relay: Relay,
        kernel: Kernel,
        status: Callable[[], dict[str, Any]],
        unready: Callable[[], str],
    ) -> None:
        self._loop = loop
        self._relay = relay
        self._kernel = kernel
        self._status = status
        self._unready = unready
        self._where = ""
        self._mode = 0o660
        self._listening: Listening | None = None
        self._server: HttpServer | None = None
        self._left: Listening | None = None  # a predecessor's, no longer wanted
        self._serves = False
        self._gone_told = False
        self._rendered: dict[str, Response] = {}  # by accepted format
        self._rendered_at = float("-inf")
        self._lags: deque[float] = deque([0.0], maxlen=LAG_SAMPLES)
        self._ticked = 0.0
        self._reload = True, 0.0

    def open(self, settings: Settings) -> None:
        """Listen where the settings say, and serve once ``resume`` is called.

        Raises ``BccndError`` when that is impossible; nothing has changed then.
        """
        where, self._mode = settings.metrics.listen, settings.socket_permissions or 0o660
        if where == self._where and not self._is_gone:
            return
        listening = local_stream.listen(where, self._mode) if where else None
        self.close()
        self._adopt(where, listening)

    def _adopt(self, where: str, listening: Listening | None) -> None:
        self._where, self._listening, self._gone_told = where, listening, False
        if listening is not None:
            from bccnd.process import metrics  # loaded only where it is used

            self._render = metrics.render
            self._server = HttpServer(self._loop, listening, self._handle)

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

    def tick(self, now: float, interval: float) -> None:
        """Call this every ``interval`` seconds."""
        if self._ticked:
            self._lags.append(max(0.0, now - self._ticked - interval))
        self._ticked = now
        if self._serves and self._is_gone:
            self._make_again()

    @property
    def _is_gone(self) -> bool:
        return self._listening is not None and local_stream.is_gone(self._listening)

    def _make_again(self) -> None:
        where = self._where
        try:
            listening = local_stream.listen(where, self._mode)
        except BccndError as error:
            if not self._gone_told:
                log.warning("socket file gone: nobody can connect", socket=where, reason=str(error))
            self._gone_told = True
            return
        self.close()
        self._adopt(where, listening)
        self.resume()
        log.warning("socket file made again", socket=where)

    def reloaded(self, unix_time: float | None) -> None:
        """Note when the settings were read, or with None that they were refused."""
        self._reload = unix_time is not None, unix_time or self._reload[1]
        self._rendered_at = float("-inf")

    # -- succession

    @property
    def descriptors(self) -> dict[str, int]:
        return {"metrics": self._listening.fileno()} if self._listening else {}

    def state(self) -> dict[str, Any]:
        """What a successor needs besides the ``descriptors``, in plain values."""
        return {"listen": self._where, "made": self._listening and self._listening.made}

    def inherit(self, state: dict[str, Any], descriptors: Mapping[str, int], settings: Settings) -> None:
        """As ``open``, with the socket of a predecessor where the settings have not changed."""
        if state.get("listen"):
            listening = Listening.succeed(descriptors["metrics"], state.get("made"))
            if settings.metrics.listen == state["listen"]:
                self._adopt(state["listen"], listening)
            else:
                self._left = listening
        self.open(settings)

    # -- requests

    def _handle(self, path: str, headers: dict[str, str]) -> Response | None:
        if path == "/metrics":
            return self._metrics(headers.get("accept", ""))
        if path == "/healthz":
            return plain(HTTPStatus.OK, "alive")
        if path == "/readyz":
            why = self._unready()
            return plain(HTTPStatus.SERVICE_UNAVAILABLE if why else HTTPStatus.OK, why or "ready")
        return None

    def _metrics(self, accept: str) -> Response:
        now = self._loop.time()
        if now - self._rendered_at >= RENDER_SECONDS:
            self._rendered.clear()
            self._rendered_at = now
            self._snapshot_now = self._snapshot()
        kind = "openmetrics" if "application/openmetrics-text" in accept else "text"
        if kind not in self._rendered:
            text, content_type = self._render(self._snapshot_now, accept)
            self._rendered[kind] = Response(HTTPStatus.OK, text, content_type)
        return self._rendered[kind]

    def _snapshot(self) -> dict[str, Any]:
        state, status = self._relay.state, self._status()
        counters, options, buffers = status["counters"], state.rules.options, self._kernel.buffers()
        return {
            **counters,
            "version": __version__,
            "routed": counters["delivered"] + counters["dropped"],
            "missed": state.sources.missed,
            "found": state.sources.found,
            "restarted": state.sources.restarted,
            "kernel_dropped": status["kernel"]["dropped"],
            "kernel_filtered": status["kernel"]["filtered"],
            "clients": status["clients"],
            "clients_limit": options.limits.clients,
            "subscriptions": status["subscriptions"],
            "slow": status["slow"],
            "queued_packets": status["queued"]["packets"],
            "queued_bytes": status["queued"]["bytes"],
            "queued_bytes_limit": options.queue.total_bytes,
            "retained_channels": status["retained"]["channels"],
            "retained_bytes": status["retained"]["bytes"],
            "sources": status["sources"],
            "taps": len(state.taps),
            "segments": status["segments"],
            "segment_sockets": len(buffers),
            "buffer_size": min((buffer.size for buffer in buffers), default=0),
            "buffer_used": max((buffer.used for buffer in buffers), default=0),
            "uptime": status["uptime"],
            "loop_lag": max(self._lags),
            "reload_successful": int(self._reload[0]),
            "reload_time": self._reload[1],
            "rejected": dict.fromkeys(map(str, DROPPED), 0) | status["rejected"],
            "refused": dict.fromkeys(RIGHTS, 0) | status["refused"],
        }
