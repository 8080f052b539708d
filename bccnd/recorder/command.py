"""``bccnd-record``: the command line. Wrong settings and ``--help`` need no Arrow, so it is loaded late."""

import os
import sys
from collections.abc import Sequence

import bccn
from bccnd import __version__
from bccnd.errors import BccndError, ConfigError
from bccnd.process import logs
from bccnd.recorder.settings import effective, load


def main(argv: Sequence[str] | None = None) -> int:
    try:
        invocation = load(sys.argv[1:] if argv is None else argv, os.environ, bccn.socket_path())
        _require_arrow()
        if invocation.check_only:
            sys.stdout.write(f"# bccnd-record {__version__}: sound.\n{effective(invocation.settings)}\n")
            return 0
        logs.configure(invocation.settings.log_level, invocation.settings.log_format)
        from bccnd.recorder.service import serve

        serve(invocation.settings)
    except BccndError as error:
        sys.stderr.writelines(f"bccnd-record: {line}\n" for line in str(error).splitlines())
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
