"""The program ``bccnd``: from its arguments to a daemon that serves, afresh or as the successor of another.

Rules
- A wrong setting or flag ends it with one line and the exit code of its error, before anything is opened.
- A successor takes everything over, and serves only once its predecessor lets it (``restart``).
"""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial

import structlog
import uvloop

from bccnd.daemon import log_events
from bccnd.daemon.links import bindings_of, choice_of
from bccnd.daemon.service import Daemon
from bccnd.errors import BccndError
from bccnd.net.endpoints import Endpoints
from bccnd.net.links import LinkWatch
from bccnd.net.listener import Listener
from bccnd.process import fatal, logs
from bccnd.process.configuration import PREFIX, check, load
from bccnd.process.descriptors import allow_descriptors
from bccnd.process.keys import read_keys
from bccnd.process.log_limit import LogLimit
from bccnd.process.settings import Settings
from bccnd.process.standard_streams import complain, guarded, say
from bccnd.process.systemd import take_listening_socket, take_watchdog
from bccnd.restart import EARLY_SIGNALS, STOP_SIGNALS, Predecessor

log = structlog.get_logger()

# After so many collections of what is young comes one of everything: 10 to 30 ms for everybody, with some ten
# thousand sources, clients and last values. One of 700 new objects takes 0.3 ms, one of 7,000 some 2 ms. With
# Python's own 10 one comes whenever all has grown by a quarter; and it finds next to nothing, as what the relay lets
# go is in no cycle (``Outbox.clear``). With 100 it comes after 700,000 new objects, more than the tables of a daemon
# hold by default. If all of these were garbage it would be about 100 MB.
FULL_COLLECTION = 100


def _read(argv: Sequence[str]) -> tuple[Settings, Sequence[bytes]]:
    settings = load(argv, os.environ).settings
    return settings, read_keys(settings.key_file) if settings.key_file else ()


def collect_seldom() -> None:
    """Collect what is garbage now. Later the collector seldom looks at more than what is young.

    It need not look again at objects that live as long as the process. A collection takes longer than all that
    follows, so it comes before anybody waits for this process.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTION)


async def _run(
    argv: Sequence[str], predecessor: Predecessor | None, passed: str, log_limit: LogLimit
) -> None:
    """Serve until stopped. ``passed``: a listening socket that the service manager made, as ``fd:N``, or empty."""
    read = partial(_read, argv)
    settings, keys = read()
    loop = asyncio.get_running_loop()
    link_watch = LinkWatch.open()
    bindings = bindings_of(choice_of(settings), link_watch)
    receive_bytes = settings.buffers.receive_bytes
    watchdog = take_watchdog(os.environ)
    collect_seldom()
    if predecessor is None:
        explicit = settings.socket.startswith("fd:")
        where = passed if passed and not explicit else settings.socket
        endpoints = Endpoints.open(
            bindings,
            receive_bytes,
            lambda: Listener.open(
                where, settings.socket_permissions, settings.socket_owner, settings.socket_group
            ),
        )
        daemon = Daemon(settings, keys, endpoints, link_watch, loop, read, watchdog, log_limit)
        if settings.socket not in (where, daemon.name):
            log.warning(
                "the socket passed takes the place of the setting",
                socket=daemon.name,
                setting=settings.socket,
            )
        if where == "@":
            say(daemon.name)
    else:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        state, descriptors = predecessor.receive()
        endpoints = Endpoints.succeed(bindings, receive_bytes, state["endpoints"], descriptors)
        daemon = Daemon(settings, keys, endpoints, link_watch, loop, read, watchdog, log_limit)
        daemon.inherit(state, descriptors)
        predecessor.wait_for_go()
    gc.freeze()
    await daemon.serve()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon until it is stopped and return its exit code."""
    return guarded("bccnd", lambda: _start(sys.argv[1:] if argv is None else argv))


def _start(argv: Sequence[str]) -> int:
    predecessor = None
    try:
        predecessor = Predecessor.from_environment(os.environ)
        descriptor = take_listening_socket(os.environ)
        invocation = load(argv, os.environ)
        if invocation.check_only:
            checked = check(invocation)
            if not invocation.quiet:
                say(checked)
            return 0
        if invocation.file:  # without it, a reload or a successor would have no key and no rights
            os.environ[PREFIX + "CONFIG"] = invocation.file
        signal.pthread_sigmask(signal.SIG_BLOCK, EARLY_SIGNALS)
        wanted, log_limit = invocation.settings.log, LogLimit(log_events.NO_PEER)
        logs.configure(wanted.level, wanted.format, limit=log_limit)
        fatal.prepare(json=not logs.is_for_people(wanted.format))
        # On the SIGABRT of the watchdog it prints where the daemon hangs.
        faulthandler.enable(2)
        allow_descriptors(invocation.settings.limits.clients)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            passed = "" if descriptor is None else f"fd:{descriptor}"
            runner.run(_run(argv, predecessor, passed, log_limit))
    except BccndError as error:
        if predecessor is not None:
            predecessor.report_failure(error)
        for line in str(error).split("\n"):
            complain("bccnd", line)
        return error.exit_code
    except (MemoryError, OSError) as error:
        fatal.unless_out_of_memory(error)
        raise
    return 0
