"""``bccnd-record``: the command line, before anything of Arrow is loaded."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from bccnd import __version__
from bccnd.errors import BccndError, ConfigError
from bccnd.process import logs
from bccnd.recorder.settings import effective, load


def main(argv: Sequence[str] | None = None) -> int:
    try:
        invocation = load(sys.argv[1:] if argv is None else argv, os.environ, default_socket())
        _require_arrow()
        if invocation.check_only:
            sys.stdout.write(f"# bccnd-record {__version__}: sound.\n{effective(invocation.settings)}\n")
            return 0
        logs.configure(invocation.settings.log_level, invocation.settings.log_format)
        from bccnd.recorder.service import serve  # only now: it loads Arrow

        serve(invocation.settings)
    except BccndError as error:
        sys.stderr.writelines(f"bccnd-record: {line}\n" for line in str(error).splitlines())
        return error.exit_code
    return 0


def default_socket() -> str:
    """Where the clients look: $BCCN_SOCKET, then the system's daemon, then the user's own."""
    if named := os.environ.get("BCCN_SOCKET"):
        return named
    system, runtime = "/run/bccnd/bus.sock", os.environ.get("XDG_RUNTIME_DIR", "")
    own = f"{runtime}/bccnd/bus.sock"
    return own if runtime and not Path(system).exists() and Path(own).exists() else system


def _require_arrow() -> None:
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"pyarrow cannot be loaded ({error}); it comes with: pip install 'bccnd[record]'"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
