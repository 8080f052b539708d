"""The command ``bccn``. Its sub-commands are modules of ``bccnd.commands``, where ``parsers`` lists them."""

import signal
import sys
from collections.abc import Sequence

import bccn
from bccnd.commands.outcome import FAULT, USAGE, complain, exit_code, remedy
from bccnd.commands.parsers import parse
from bccnd.process.standard_streams import OutputError, guarded


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command and return its exit code."""
    return guarded("bccn", lambda: _run(sys.argv[1:] if argv is None else list(argv)))


def _run(argv: list[str]) -> int:
    # Ctrl-C, and a reader that leaves, end it at once and silently, as they end any filter.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    arguments = parse(argv)
    try:
        code: int = arguments.run(arguments)
    except bccn.BccnError as error:
        complain(str(error))
        if advice := remedy(error):
            complain(advice)
        return exit_code(error)
    except OutputError:
        raise
    except OSError as error:
        if error.filename is None:
            complain(error.strerror or str(error))
            return FAULT
        complain(f"{error.filename or 'an empty name'}: {error.strerror}")
        return USAGE
    return code


if __name__ == "__main__":
    sys.exit(main())
