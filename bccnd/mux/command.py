"""``bccnd-mux``: from its arguments to a door that serves."""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Sequence

import uvloop

from bccnd import __version__
from bccnd.errors import BccndError
from bccnd.mux.guests import Guests
from bccnd.mux.service import EARLY_SIGNALS, Service
from bccnd.mux.settings import PROGRAM, MuxSettings, effective, load
from bccnd.process import fatal, logs
from bccnd.process.standard_streams import complain, guarded, say
from bccnd.process.systemd import take_watchdog


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    return guarded("bccnd-mux", lambda: _start(sys.argv[1:] if argv is None else argv))


def _start(argv: Sequence[str]) -> int:
    try:
        invocation = load(argv, os.environ)
        settings = invocation.settings
        Guests.of(settings)
        if invocation.check_only:
            if not invocation.quiet:
                say(f"# bccnd-mux {__version__}: these settings are sound.")
                say(effective(invocation))
            return 0
        if invocation.file:  # without it, a reload would not find it
            os.environ[PROGRAM.file_variable] = invocation.file
        signal.pthread_sigmask(signal.SIG_BLOCK, EARLY_SIGNALS)
        logs.configure(settings.log_level, settings.log_format)
        fatal.prepare(json=not logs.is_for_people(settings.log_format))
        # On the SIGABRT of the watchdog it prints where the door hangs.
        faulthandler.enable(2)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings, argv))
    except BccndError as error:
        for line in str(error).split("\n"):
            complain("bccnd-mux", line)
        return error.exit_code
    except (MemoryError, OSError) as error:
        fatal.unless_out_of_memory(error)
        raise
    return 0


async def _run(settings: MuxSettings, argv: Sequence[str]) -> None:
    def read_again() -> MuxSettings:
        return load(argv, os.environ).settings

    await Service(settings, asyncio.get_running_loop(), read_again, take_watchdog(os.environ)).serve()


if __name__ == "__main__":
    sys.exit(main())
