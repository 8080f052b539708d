"""``bccnd-record``: the command line. Wrong settings and ``--help`` need no Arrow, so it is loaded late."""

import os
import sys
from collections.abc import Sequence

from bccnd import __version__
from bccnd.errors import BccndError, ConfigError
from bccnd.process import logs
from bccnd.process.standard_streams import complain, guarded, say
from bccnd.recorder.settings import effective, load


def main(argv: Sequence[str] | None = None) -> int:
    """Record until stopped and return the exit code."""
    return guarded("bccnd-record", lambda: _start(sys.argv[1:] if argv is None else argv))


def _start(argv: Sequence[str]) -> int:
    try:
        invocation = load(argv, os.environ)
        _require_arrow()
        if invocation.check_only:
            if not invocation.quiet:
                say(f"# bccnd-record {__version__}: these settings are sound.")
                say(effective(invocation))
            return 0
        logs.configure(invocation.settings.log_level, invocation.settings.log_format)
        from bccnd.recorder.service import serve

        serve(invocation.settings)
    except BccndError as error:
        for line in str(error).split("\n"):
            complain("bccnd-record", line)
        return error.exit_code
    return 0


def _require_arrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"pyarrow cannot be loaded ({error}); install it: pip install 'bccnd[record]'"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
