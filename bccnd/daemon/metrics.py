"""Metrics and health over HTTP: ``/metrics``, ``/healthz``, ``/readyz``.

Rules
- Off, it costs nothing, and the Prometheus library is not loaded. On, nothing is counted for it: the relay's own
  counters are read when somebody asks, at most every RENDER_SECONDS; who asks sooner gets the same again.
- ``/healthz`` answers as long as the loop turns. ``/readyz`` says 503 and why while the daemon does not serve.
- The listening socket goes over to a successor, and who connects meanwhile waits: no scrape fails by a replacement.
- A reload opens the new socket before it closes the old one; if it cannot, it is refused as a whole.
"""

import socket
from asyncio import AbstractEventLoop
from collections import Counter, deque
from collections.abc import Callable
from http import HTTPStatus
from itertools import chain
from typing import Any

from bccnd import __version__
from bccnd.daemon.kernel import Kernel
from bccnd.process import local_stream
from bccnd.process.http import HttpServer, Response, plain
from bccnd.process.settings import Settings
from bccnd.relay.core import Relay
from bccnd.relay.dedup import Verdict
from bccnd.wire.bccn1 import Reason

RENDER_SECONDS = 0.1  # between two looks at the counters: at most some percent of the loop, however many ask
LAG_SAMPLES = 60  # of the loop, one a second

# Every reason there is begins at 0: a rate needs a value from before the first.
REASONS = tuple(
    chain(
        (reason.value for reason in Reason),
        (
            verdict.value
            for verdict in Verdict
            if verdict in (Verdict.DUPLICATE, Verdict.LATE, Verdict.REPLAYED)
        ),
        ("own", "conflict", "local-channel", "unknown-source", "refused"),
    )
)
RIGHTS = ("publish", "subscribe", "tap", "bridge", "name")


class Metrics:
    """``about``: what the daemon says of itself in ``status``; ``unready``: why it does not serve, or nothing."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        relay: Relay,
        kernel: Kernel,
        about: Callable[[], dict[str, Any]],
        unready: Callable[[], str],
    ) -> None:
        self._loop = loop
        self._relay = relay
        self._kernel = kernel
        self._about = about
        self._unready = unready
        self._where = ""
        self._listening: socket.socket | None = None
        self._server: HttpServer | None = None
        self._left: socket.socket | None = None  # a predecessor's, wanted no more
        self._rendered: dict[str, Response] = {}  # by what was accepted
        self._rendered_at = float("-inf")
        self._lags: deque[float] = deque([0.0], maxlen=LAG_SAMPLES)
        self._ticked = 0.0
        self._reload = True, 0.0

    def open(self, settings: Settings) -> None:
        """Listen where the settings say, if not there already, and serve once ``resume`` is called.

        Raises ``BccndError`` if that cannot be; nothing has changed then.
        """
        where = settings.metrics.listen
        if where == self._where:
            return
        listening = local_stream.listen(where, settings.socket_permissions or 0o660) if where else None
        self.close()
        self._adopt(where, listening)

    def _adopt(self, where: str, listening: socket.socket | None) -> None:
        self._where, self._listening = where, listening
        if listening is not None:
            from bccnd.process import metrics  # loaded only where it is used

            self._render = metrics.render
            self._server = HttpServer(self._loop, listening, self._handle)

    def resume(self) -> None:
        if self._left:  # not before: the predecessor may have gone on with it
            local_stream.close(self._left)
            self._left = None
        if self._server:
            self._server.resume()

    def pause(self) -> None:
        if self._server:
            self._server.pause()

    def close(self) -> None:
        if self._server and self._listening:
            self._server.close()
            local_stream.close(self._listening)
        self._where, self._listening, self._server = "", None, None

    def tick(self, now: float, interval: float) -> None:
        """To be called by a timer of this interval."""
        if self._ticked:
            self._lags.append(max(0.0, now - self._ticked - interval))
        self._ticked = now

    def reloaded(self, unix_time: float | None) -> None:
        """The settings were read at that time, or, with None, not taken."""
        self._reload = unix_time is not None, unix_time or self._reload[1]
        self._rendered_at = float("-inf")

    # -- succession

    @property
    def descriptors(self) -> list[int]:
        return [self._listening.fileno()] if self._listening else []

    def state(self) -> dict[str, Any]:
        """What goes with ``descriptors``, in plain values."""
        return {"listen": self._where}

    def inherit(self, state: dict[str, Any], descriptors: list[int], settings: Settings) -> None:
        """Takes its ``descriptors`` from the end of the list. As ``open``, with the socket of a predecessor."""
        if state.get("listen"):
            listening = socket.socket(fileno=descriptors.pop())
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
        relay, about = self._relay, self._about()
        delivery, counters, limits, sources = relay.delivery, relay.counters, relay.limits, relay.sources
        buffers = self._kernel.buffers()
        return {
            "version": __version__,
            "published": counters.published,
            "routed": delivery.delivered,
            "dropped": delivery.ledger.dropped,
            "errors": counters.errors,
            "received": counters.received,
            "accepted": counters.accepted,
            "unwanted": counters.unwanted,
            "sent": counters.sent,
            "unsent": counters.unsent,
            "missed": sources.missed,
            "found": sources.found,
            "restarted": sources.restarted,
            "kernel_dropped": about["kernel"]["dropped"],
            "kernel_filtered": about["kernel"]["filtered"],
            "clients": len(relay.sessions),
            "clients_limit": limits.clients,
            "subscriptions": relay.router.subscriptions,
            "slow": len(delivery.slow),
            "queued_packets": delivery.ledger.packets,
            "queued_bytes": delivery.ledger.bytes,
            "queued_bytes_limit": limits.queue_total,
            "retained_channels": len(relay.retained),
            "retained_bytes": relay.retained.size,
            "sources": len(sources),
            "source_states": about.get("source_states"),
            "taps": len(delivery.taps),
            "segments": about["segments"],
            "segment_sockets": len(buffers),
            "buffer_size": min((buffer.size for buffer in buffers), default=0),
            "buffer_used": max((buffer.used for buffer in buffers), default=0),
            "uptime": about["uptime"],
            "loop_lag": max(self._lags),
            "reload_successful": int(self._reload[0]),
            "reload_time": self._reload[1],
            "rejected": _plain(REASONS, relay.rejected),
            "refused": _plain(RIGHTS, relay.refusals.counts),
        }


def _plain(known: tuple[str, ...], counts: Counter[str]) -> dict[str, int]:
    return dict.fromkeys(known, 0) | {str(name): count for name, count in counts.items()}
