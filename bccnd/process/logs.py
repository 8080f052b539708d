"""Logs: one line for each event on standard error, readable on a terminal and JSON elsewhere.

Rules
- Logging never stops the daemon. When standard error does not take a line at once (a full pipe, a stopped terminal,
  a reader that has gone), the line is lost and counted, and the next line that gets through gives the count.
- Nothing is set up on import. ``configure`` may be called again, as a reload does, and loggers that
  ``structlog.get_logger()`` made follow it.
- Values come from strangers. Control characters in them are escaped, so that an event stays one line and no terminal
  obeys them. Only tracebacks and texts of libraries take several lines, and only in the console format.
- Times are UTC, in the form of ISO 8601.
- What peers can cause is limited (``log_limit``), before anything is spent on the line.
"""

import logging
import os
import select
import threading
from typing import Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["auto", "console", "json"]

PIECE = select.PIPE_BUF  # bytes a pipe that polls writable takes without blocking


class LineWriter:
    """Writes lines to a descriptor without waiting. ``lost`` counts the lines lost since the last one written.

    Threads may share it: the recorder has three, and poll(2) of one object is for one thread at a time.
    """

    def __init__(self, descriptor: int) -> None:
        self.lost = 0
        self._descriptor = descriptor
        self._broken = False  # the last line was cut off: end it before the next
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._turn = threading.Lock()

    def write(self, line: str) -> None:
        with self._turn:
            self._write(line)

    def _write(self, line: str) -> None:
        data = memoryview(("\n" * self._broken + line + "\n").encode(errors="backslashreplace"))
        sent = 0
        try:
            while sent < len(data) and self._ready():
                sent += os.write(self._descriptor, data[sent : sent + PIECE])
        except OSError:
            pass  # closed, reader gone, disk full: counted below, as there is nowhere to report it
        self._broken = 0 < sent < len(data) or (self._broken and not sent)
        self.lost = 0 if sent == len(data) else self.lost + 1

    def _ready(self) -> bool:
        return any(events & select.POLLOUT for _, events in self._poll.poll(0))

    # The names by which a bound logger hands its rendered lines over.
    debug = info = warning = error = critical = exception = write


class _FromLogging(logging.Handler):
    """Gives the lines of libraries the same form, such as asyncio's about an exception that nobody fetched."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger()
        level = min(record.levelno // 10 * 10, logging.CRITICAL)
        try:
            text = record.getMessage()
        except (TypeError, ValueError, KeyError):  # arguments that do not fit their text are not our fault
            text = f"{record.msg!r} % {record.args!r}"
        logger.log(level, text, logger=record.name, exc_info=record.exc_info or None)


def configure(
    level: Level = "info",
    format: Format = "auto",  # noqa: A002
    descriptor: int = 2,
    limit: Processor | None = None,
) -> LineWriter:
    """Set up logging for the process; lines go to ``descriptor``. ``limit``: a ``LogLimit``, or None for none."""
    _occupy(descriptor)
    terminal = os.isatty(descriptor)
    writer = LineWriter(descriptor)
    render: list[Processor]
    if is_for_people(format, descriptor):
        render = [
            structlog.dev.ConsoleRenderer(
                colors=terminal and not os.environ.get("NO_COLOR"),
                repr_native_str=True,
                sort_keys=False,
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    else:
        render = [
            structlog.processors.format_exc_info,
            _event_first,
            structlog.processors.JSONRenderer(),
        ]
    structlog.configure(
        processors=[
            *([limit] if limit else []),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _lines_lost(writer),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: writer,
    )
    logging.root.handlers = [_FromLogging()]
    logging.root.setLevel(logging.WARNING)
    return writer


def is_for_people(format: Format, descriptor: int = 2) -> bool:  # noqa: A002
    """Whether lines are for people, or JSON."""
    return format == "console" or (format == "auto" and os.isatty(descriptor))


def _occupy(descriptor: int) -> None:
    """Open something in place of a missing standard error: a socket would get its number, and our lines."""
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)


def _lines_lost(writer: LineWriter) -> Processor:
    def add(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        if writer.lost:
            event["log_lines_lost"] = writer.lost
        return event

    return add


def _event_first(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {key: event.pop(key) for key in ("timestamp", "level", "event")} | dict(event)
