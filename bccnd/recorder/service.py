"""The recorder put together: a thread that reads, one that writes, and a loop for signals, metrics and supervision.

    daemon --> Tap (a thread) --> Inbox --> Writer (a thread) --> Recording --> disk

Rules
- On SIGTERM and SIGINT the tap is turned off, what was read until then is written, and the file is finished.
- A fault in a thread ends the process, after saving what can be saved.
- The watchdog is fed as long as the reader gets on: a slow disk is no reason to be killed.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from bccnd import __version__
from bccnd.errors import BccndError
from bccnd.process.health import Health
from bccnd.process.systemd import notify, take_watchdog
from bccnd.recorder.files import GROUP_BYTES, Counts, Limits, Recording
from bccnd.recorder.folders import recorded
from bccnd.recorder.inbox import Inbox
from bccnd.recorder.settings import RecorderSettings
from bccnd.recorder.tap import Tap
from bccnd.recorder.writer import Writer
from bccnd.wire import native

# A thread that computes gives way to the reader after this many seconds.
SWITCH_SECONDS = 0.001
# A reader whose loop has not turned for this many seconds is stuck.
STUCK_SECONDS = 5.0
# How often the watchdog is fed in the time that it allows.
FEEDINGS = 3
# Seconds between two log lines about messages that were not recorded.
REPORT_SECONDS = 10.0
# Seconds that the threads have to end; a disk may hold them for good.
STOP_SECONDS = 10.0

log = structlog.get_logger()


class Recorder:
    """Runs from ``start`` to ``stop``. A thread that cannot go on calls ``on_fault``.

    ``socket``: the daemon's; ``patterns``: the channels to record, all if there are none; ``recording``: begins the
    recording of a host; ``buffer_bytes``: memory, half for what was read, half for what the disk has not taken;
    ``payloads``: whether they are recorded.
    """

    def __init__(
        self,
        socket: str | None,
        patterns: Sequence[str],
        recording: Callable[[str, Counts], Recording],
        buffer_bytes: int,
        on_fault: Callable[[BaseException], None],
        *,
        payloads: bool = True,
    ) -> None:
        self.inbox = Inbox(buffer_bytes // 2)
        self.tap = Tap(socket, self.inbox, on_fault, patterns)
        self.writer = Writer(
            recording,
            self.inbox,
            buffer_bytes // 2,
            self.tap.ended,
            self.tap.ask,
            on_fault,
            payloads=payloads,
        )
        self._threads = [
            threading.Thread(target=self.tap.run, name="tap", daemon=True),
            threading.Thread(target=self.writer.run, name="writer", daemon=True),
        ]

    def start(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        for thread in self._threads:
            thread.start()

    def stop(self) -> bool:
        """Stop; whether everything that was read is on the disk, or reported as lost."""
        self.tap.stop()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    @property
    def unrecorded(self) -> int:
        """Messages that the daemon dropped, or that the tap had no block for."""
        return self.writer.dropped + self.tap.unrecorded

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """Their text in the format that the Accept header asks for, and its content type."""
        from bccnd.recorder.metrics import render  # loaded only where it is used

        return render(self.snapshot(), accept)

    def snapshot(self) -> dict[str, Any]:
        """The values for the metrics."""
        counts, writer = self.writer.counts, self.writer
        return {
            "version": __version__,
            "rows": counts.rows,
            "bytes": counts.size,
            "files": counts.files,
            "removed": counts.removed,
            "lost": counts.lost,
            "unrecorded": self.unrecorded,
            "disk_errors": counts.disk_errors,
            "kept": writer.kept,
            "buffered": self.inbox.size + writer.backlog,
            "connected": int(self.tap.connected),
            "lag": max(0.0, time.time() - writer.until / 1e9) if writer.until else 0.0,
        }


def of_settings(settings: RecorderSettings, on_fault: Callable[[BaseException], None]) -> Recorder:
    """The recorder that the settings ask for."""
    limits = Limits(
        settings.rotate_seconds,
        settings.rotate_bytes,
        settings.keep_bytes,
        settings.keep_days,
        group_bytes=min(GROUP_BYTES, settings.buffer_bytes // 4),
    )
    return Recorder(
        settings.socket,
        (),
        lambda host, counts: recorded(settings.output, host, limits, counts),
        settings.buffer_bytes,
        on_fault,
        payloads=settings.payloads == "all",
    )


def serve(settings: RecorderSettings) -> None:
    """Record until a signal ends it. Raises ``BccndError``."""
    faulthandler.enable(2)
    asyncio.run(_serve(settings))


async def _serve(settings: RecorderSettings) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    faults: list[BaseException] = []

    def fault(error: BaseException) -> None:
        faults.append(error)
        loop.call_soon_threadsafe(stop.set)

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    recorder = of_settings(settings, fault)
    health = Health(loop, recorder.metrics, lambda: _unready(recorder))
    health.open(settings.metrics)
    health.resume()
    watch = asyncio.create_task(_watch(recorder, health, take_watchdog(os.environ)))
    log.info("starting", socket=recorder.tap.path, version=__version__, compiled=native.COMPILED)
    recorder.start()
    await stop.wait()
    notify("STOPPING=1", "STATUS=finishing the last file")
    watch.cancel()
    health.close()
    finished = await asyncio.to_thread(recorder.stop)
    counts = recorder.writer.counts
    about = {"rows": counts.rows, "files": counts.files, "unrecorded": recorder.unrecorded}
    if faults:
        if isinstance(faults[0], BccndError):
            raise faults[0]
        log.error("fault", exc_info=faults[0])
    if faults or not finished:
        log.error("stopped, not everything is on the disk", **about)
        sys.stderr.flush()
        # A thread that the disk holds would keep the interpreter from ending.
        os._exit(1)
    log.info("stopped", **about)


async def _watch(recorder: Recorder, health: Health, watchdog: float) -> None:
    """Report to the service manager and in the log how the recorder gets on."""
    interval = min(1.0, watchdog / FEEDINGS) if watchdog else 1.0
    status, reported_at, unrecorded, lost = "", 0.0, 0, 0
    while True:
        writer, now = recorder.writer, time.monotonic()
        health.tick()
        if watchdog and now - recorder.tap.turned_at < STUCK_SECONDS:
            notify("WATCHDOG=1")
        new = _status(recorder)
        if new != status:
            ready = ["READY=1"] if not status and writer.until else []
            if ready or status:
                status = new
                notify(*ready, f"STATUS={status}")
        if (
            recorder.unrecorded + writer.counts.lost > unrecorded + lost
            and now - reported_at > REPORT_SECONDS
        ):
            reported_at = now
            log.warning(
                "not recorded",
                messages=recorder.unrecorded - unrecorded,
                rows_of_lost_files=writer.counts.lost - lost,
                remedy="a faster disk, a larger --buffer-bytes, or more CPU",
            )
            unrecorded, lost = recorder.unrecorded, writer.counts.lost
        await asyncio.sleep(interval)


def _unready(recorder: Recorder) -> str:
    """Why nothing is recorded; empty when all is well."""
    sound = recorder.tap.connected and not recorder.writer.disk_error
    return "" if sound else _status(recorder)


def _status(recorder: Recorder) -> str:
    writer = recorder.writer
    if writer.disk_error:
        return f"the disk takes nothing: {writer.disk_error}"
    return f"recording {writer.host}" if recorder.tap.connected else f"no daemon at {recorder.tap.path}"
