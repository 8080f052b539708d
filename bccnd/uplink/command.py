"""``bccnd-uplink``: from its arguments to an uplink that serves."""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial

import uvloop

from bccnd import __version__
from bccnd.errors import BccndError
from bccnd.process import fatal, logs
from bccnd.process.keys import read_keys
from bccnd.process.log_limit import LogLimit
from bccnd.process.standard_streams import complain, guarded, say
from bccnd.process.systemd import take_watchdog
from bccnd.uplink.assembly import check_carrier
from bccnd.uplink.service import EARLY_SIGNALS, UNLIMITED, Service
from bccnd.uplink.settings import PROGRAM, UplinkSettings, doubts, effective, load


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until stopped and return the exit code."""
    return guarded("bccnd-uplink", lambda: _start(sys.argv[1:] if argv is None else argv))


def _start(argv: Sequence[str]) -> int:
    try:
        invocation = load(argv, os.environ)
        settings = invocation.settings
        keys = _keys(settings)
        if invocation.check_only:
            check_carrier(settings)
            if not invocation.quiet:
                say(f"# bccnd-uplink {__version__}: these settings are sound. Keys of the link: {len(keys)}.")
                for doubt, remedy in doubts(settings):
                    say(f"# {doubt} ({remedy})")
                say(effective(invocation))
            return 0
        if invocation.file:  # else a reload would run without the limits in the file
            os.environ[PROGRAM.file_variable] = invocation.file
        signal.pthread_sigmask(signal.SIG_BLOCK, EARLY_SIGNALS)
        limit = LogLimit(UNLIMITED)
        logs.configure(settings.log_level, settings.log_format, limit=limit)
        fatal.prepare(json=not logs.is_for_people(settings.log_format))
        # On the SIGABRT of the watchdog it prints where the uplink hangs.
        faulthandler.enable(2)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings, keys, argv, limit))
    except BccndError as error:
        for line in str(error).split("\n"):
            complain("bccnd-uplink", line)
        return error.exit_code
    except (MemoryError, OSError) as error:
        fatal.unless_out_of_memory(error)
        raise
    return 0


async def _run(
    settings: UplinkSettings, keys: tuple[bytes, ...], argv: Sequence[str], limit: LogLimit
) -> None:
    loop = asyncio.get_running_loop()
    await Service(settings, keys, loop, partial(_read, argv), limit, take_watchdog(os.environ)).serve()


def _read(argv: Sequence[str]) -> tuple[UplinkSettings, tuple[bytes, ...]]:
    settings = load(argv, os.environ).settings
    return settings, _keys(settings)


def _keys(settings: UplinkSettings) -> tuple[bytes, ...]:
    if settings.backbone_key_file:  # the carrier reads it; a fault in it is to be seen now
        read_keys(settings.backbone_key_file)
    return read_keys(settings.key_file) if settings.key_file else ()


if __name__ == "__main__":
    sys.exit(main())
