"""``bccnd-dndm``: from its arguments to a gateway that serves."""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import uvloop

from bccnd import __version__
from bccnd.dndm.settings import PROGRAM, DndmSettings, doubts, effective, load
from bccnd.errors import BccndError, ConfigError
from bccnd.process import fatal, logs
from bccnd.process.log_limit import LogLimit
from bccnd.process.standard_streams import complain, guarded, say
from bccnd.process.systemd import take_watchdog


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    return guarded("bccnd-dndm", lambda: _start(sys.argv[1:] if argv is None else argv))


def _start(argv: Sequence[str]) -> int:
    try:
        invocation = load(argv, os.environ)
        settings = invocation.settings
        check_libraries(settings)
        if invocation.check_only:
            if not invocation.quiet:
                say(f"# bccnd-dndm {__version__}: these settings are sound.")
                for doubt, remedy in doubts(settings):
                    say(f"# {doubt} ({remedy})")
                say(effective(invocation))
            return 0
        if invocation.file:  # without it, a reload would not find it
            os.environ[PROGRAM.file_variable] = invocation.file
        from bccnd.dndm.service import EARLY_SIGNALS, UNLIMITED  # with protobuf, which is an extra

        signal.pthread_sigmask(signal.SIG_BLOCK, EARLY_SIGNALS)
        limit = LogLimit(UNLIMITED)
        logs.configure(settings.log_level, settings.log_format, limit=limit)
        fatal.prepare(json=not logs.is_for_people(settings.log_format))
        # On the SIGABRT of the watchdog it prints where the gateway hangs.
        faulthandler.enable(2)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings, argv, limit))
    except BccndError as error:
        for line in str(error).split("\n"):
            complain("bccnd-dndm", line)
        return error.exit_code
    except (MemoryError, OSError) as error:
        fatal.unless_out_of_memory(error)
        raise
    return 0


async def _run(settings: DndmSettings, argv: Sequence[str], limit: LogLimit) -> None:
    from bccnd.dndm.service import Service

    def read_again() -> DndmSettings:
        settings = load(argv, os.environ).settings
        check_libraries(settings)
        return settings

    loop = asyncio.get_running_loop()
    await Service(settings, loop, read_again, limit, take_watchdog(os.environ)).serve()


def check_libraries(settings: DndmSettings) -> None:
    """Raises ``ConfigError`` if what it needs is not installed: both come with the extra ``dndm``."""
    needed = {"protobuf": "bccnd.wire.dndm.messages"} | ({"pyserial": "serial"} if settings.serial else {})
    for library, module in needed.items():
        try:
            import_module(module)
        except ImportError as error:
            raise ConfigError(
                f"{library} cannot be loaded ({error}); install it: pip install 'bccnd[dndm]'"
            ) from None


if __name__ == "__main__":
    sys.exit(main())
