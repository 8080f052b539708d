"""Starts a program beside the daemon: from its arguments to serving."""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import uvloop

from bccnd import __version__
from bccnd.beside.program import EARLY_SIGNALS, UNLIMITED, S, Start
from bccnd.errors import BccndError
from bccnd.process import fatal, logs
from bccnd.process.log_limit import LogLimit
from bccnd.process.one_table import OneTable
from bccnd.process.standard_streams import complain, guarded, say
from bccnd.process.systemd import take_watchdog


def run(
    table: OneTable[S],
    argv: Sequence[str] | None,
    serve: Callable[[Start[S]], Coroutine[Any, Any, None]],
    sound: Callable[[S], str],
    doubts: Callable[[S], Iterable[tuple[str, str]]] = lambda _: (),
) -> int:
    """Serve until stopped and return the exit code.

    ``sound``: raises ``BccndError`` if the settings name something that cannot be used; returns what --check adds, or
    nothing. ``doubts``: as in ``Start``.
    """
    return guarded(
        table.program, lambda: _start(table, sys.argv[1:] if argv is None else argv, serve, sound, doubts)
    )


def _start(
    table: OneTable[S],
    argv: Sequence[str],
    serve: Callable[[Start[S]], Coroutine[Any, Any, None]],
    sound: Callable[[S], str],
    doubts: Callable[[S], Iterable[tuple[str, str]]],
) -> int:
    def read_again() -> S:
        settings = table.load(argv, os.environ).settings
        sound(settings)
        return settings

    try:
        invocation = table.load(argv, os.environ)
        settings, about = invocation.settings, sound(invocation.settings)
        doubted = tuple(doubts(settings))
        if invocation.check_only:
            if not invocation.quiet:
                say(
                    " ".join(
                        filter(None, [f"# {table.program} {__version__}: these settings are sound.", about])
                    )
                )
                for doubt, remedy in doubted:
                    say(f"# {doubt} ({remedy})")
                say(table.effective(invocation))
            return 0
        if invocation.file:  # without it, a reload would not find it
            os.environ[table.file_variable] = invocation.file
        signal.pthread_sigmask(signal.SIG_BLOCK, EARLY_SIGNALS)
        limit = LogLimit(UNLIMITED)
        logs.configure(settings.log_level, settings.log_format, limit=limit)
        fatal.prepare(json=not logs.is_for_people(settings.log_format))
        # On the SIGABRT of the watchdog it prints where the program hangs.
        faulthandler.enable(2)
        start = Start(settings, read_again, limit, take_watchdog(os.environ), doubted)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(start))
    except BccndError as error:
        for line in str(error).split("\n"):
            complain(table.program, line)
        return error.exit_code
    except (MemoryError, OSError) as error:
        fatal.unless_out_of_memory(error)
        raise
    return 0
