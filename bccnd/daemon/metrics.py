"""What the daemon says of itself to Prometheus (``bccnd/process/health.py`` serves it).

Rules
- Nothing is counted for it: a request reads the relay's own counters, at most every RENDER_SECONDS. A request that
  comes sooner gets the same answer again.
"""

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from typing import Any

from bccnd import __version__
from bccnd.daemon.kernel import Kernel
from bccnd.relay.core import Relay
from bccnd.wire.verdict import DROPPED

# Seconds between two looks at the counters: some percent of the loop's time, however many ask.
RENDER_SECONDS = 0.1

# Samples of the loop's lag, one a second.
LAG_SAMPLES = 60

# Every verdict and every right begins at 0: a rate needs a value from before the first count.
RIGHTS = ("publish", "subscribe", "tap", "bridge", "name", "block", "observe", "speak_for")


class Metrics:
    """``status`` returns what ``CMSG status`` says."""

    def __init__(
        self, loop: AbstractEventLoop, relay: Relay, kernel: Kernel, status: Callable[[], dict[str, Any]]
    ) -> None:
        self._loop = loop
        self._relay = relay
        self._kernel = kernel
        self._status = status
        self._seen: dict[str, Any] = {}
        self._seen_at = float("-inf")
        self._rendered: dict[bool, tuple[bytes, str]] = {}  # by accepted format
        self._lags: deque[float] = deque([0.0], maxlen=LAG_SAMPLES)
        self._ticked = 0.0
        self._reload = True, 0.0

    def tick(self, now: float, interval: float) -> None:
        """Call this every ``interval`` seconds."""
        if self._ticked:
            self._lags.append(max(0.0, now - self._ticked - interval))
        self._ticked = now

    def reloaded(self, unix_time: float | None) -> None:
        """Note when the settings were read, or with None that they were refused."""
        self._reload = unix_time is not None, unix_time or self._reload[1]
        self._seen_at = float("-inf")

    def text(self, accept: str) -> tuple[bytes, str]:
        """The text in the format that the Accept header asks for, and its content type."""
        from bccnd.process import exposition, metrics  # loaded only where they are used

        now = self._loop.time()
        if now - self._seen_at >= RENDER_SECONDS:
            self._rendered.clear()
            self._seen, self._seen_at = self._snapshot(), now
        kind = exposition.OPENMETRICS in accept
        if kind not in self._rendered:
            self._rendered[kind] = metrics.render(self._seen, accept)
        return self._rendered[kind]

    def _snapshot(self) -> dict[str, Any]:
        status, options, buffers = self._status(), self._relay.options, self._kernel.buffers()
        counters = status["counters"]
        return {
            **counters,
            **self._relay.figures(),
            **_of_repair(status["repair"]),
            "held_bytes_limit": options.repair.hold_bytes,
            "version": __version__,
            "routed": counters["delivered"] + counters["dropped"],
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


def _of_repair(repair: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: repair[name] for name in ("repaired", "asked", "gone", "given_up", "resent")},
        "resend_refused": repair["refused"],
        "resend_requests": repair["requests"],
        "resend_requests_heard": repair["heard"],
        "repairs": int(repair["on"]),
        "kept_sources": repair["kept"]["sources"],
        "kept_bytes": repair["kept"]["bytes"],
        "held_messages": repair["held"]["messages"],
        "held_bytes": repair["held"]["bytes"],
    }
