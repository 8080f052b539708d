"""``bccnd-backbone``: from its arguments to a backbone that serves, afresh or as the successor of another."""

import asyncio
import faulthandler
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog
import uvloop

from bccnd import __version__
from bccnd.backbone.outlet import Outlet, open_socket, size_buffers
from bccnd.backbone.service import Service
from bccnd.backbone.settings import FILE_VARIABLE, BackboneSettings, effective, load
from bccnd.backbone.state_file import StateFile
from bccnd.errors import BccndError
from bccnd.process import fatal, logs
from bccnd.process.keys import read_keys
from bccnd.process.standard_streams import complain, guarded, say
from bccnd.process.systemd import take_watchdog
from bccnd.restart import EARLY_SIGNALS, STOP_SIGNALS, Predecessor

log = structlog.get_logger()


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    return guarded("bccnd-backbone", lambda: _start(sys.argv[1:] if argv is None else argv))


def _start(argv: Sequence[str]) -> int:
    predecessor = None
    try:
        predecessor = Predecessor.from_environment(os.environ)
        invocation = load(argv, os.environ)
        settings = invocation.settings
        if invocation.check_only:
            keys = _keys(settings)
            if not invocation.quiet:
                say(f"# bccnd-backbone {__version__}: these settings are sound. Keys: {len(keys)}.")
                say(effective(invocation))
            return 0
        if invocation.file:  # else a reload or a successor would run without the limits in the file
            os.environ[FILE_VARIABLE] = invocation.file
        signal.pthread_sigmask(signal.SIG_BLOCK, EARLY_SIGNALS)
        logs.configure(settings.log_level, settings.log_format)
        fatal.prepare(json=not logs.is_for_people(settings.log_format))
        # On the SIGABRT of the watchdog it prints where the backbone hangs.
        faulthandler.enable(2)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(argv, predecessor))
    except BccndError as error:
        if predecessor is not None:
            predecessor.report_failure(error)
        for line in str(error).split("\n"):
            complain("bccnd-backbone", line)
        return error.exit_code
    except (MemoryError, OSError) as error:
        fatal.unless_out_of_memory(error)
        raise
    return 0


def _read(argv: Sequence[str]) -> tuple[BackboneSettings, tuple[bytes, ...]]:
    settings = load(argv, os.environ).settings
    return settings, _keys(settings)


def _keys(settings: BackboneSettings) -> tuple[bytes, ...]:
    return read_keys(settings.key_file) if settings.key_file else ()


async def _run(argv: Sequence[str], predecessor: Predecessor | None) -> None:
    read = partial(_read, argv)
    settings, keys = read()
    loop = asyncio.get_running_loop()
    watchdog = take_watchdog(os.environ)
    if predecessor is None:
        outlet = Outlet(open_socket(settings.endpoint, settings.buffer_bytes))
        service = Service(settings, keys, outlet, StateFile(settings.state), loop, read, watchdog)
        service.begin()
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        state, descriptors = predecessor.receive()
        kept = {"listen": state["listen"], "state": state["state"] and Path(state["state"])}
        if changed := [name for name, value in kept.items() if getattr(settings, name) != value]:
            log.warning("needs a restart", settings=changed)
        settings = settings.model_copy(update=kept)
        inherited = socket.socket(fileno=descriptors["socket"])
        size_buffers(inherited, settings.buffer_bytes)
        state_file = StateFile(settings.state, descriptors.get("lock", -1))
        service = Service(settings, keys, Outlet(inherited), state_file, loop, read, watchdog)
        service.inherit(state, descriptors)
        predecessor.wait_for_go()
    await service.serve()


if __name__ == "__main__":
    sys.exit(main())
