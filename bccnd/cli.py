"""The ``bccn`` command: what is common to its sub-commands, which are modules of ``bccnd.commands``.

To add one: write the module, and name it in COMMANDS.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import bccn
from bccnd import __version__
from bccnd.commands.outcome import FAULT, USAGE, complain, exit_code

COMMANDS = {
    "pub": "publish messages",
    "sub": "print messages as they come",
    "status": "show the daemon, its clients and the sources it hears",
    "top": "show what happens per second, live",
    "doctor": "find out what is wrong, and what to do",
}

EPILOG = f"""\
commands:
{"".join(f"  {name:<8}{summary}{chr(10)}" for name, summary in COMMANDS.items())}
exit codes:
  0 done   1 internal fault   2 wrong usage   3 timed out
  4 refused by the daemon     5 no daemon

"bccn COMMAND --help" tells more, with examples.
"""
SOCKET_HELP = "the daemon's socket, @NAME if abstract (default: $BCCN_SOCKET, else /run/bccnd/bus.sock, else \
$XDG_RUNTIME_DIR/bccnd/bus.sock)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command; returns the exit code."""
    # As any filter: Ctrl-C and a reader that has left end it at once and without a word.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    arguments = _parse(sys.argv[1:] if argv is None else argv)
    try:
        code: int = arguments.run(arguments)
    except bccn.BccnError as error:
        complain(str(error))
        if isinstance(error, bccn.UnavailableError) and not isinstance(error, bccn.UnconfirmedError):
            complain("is bccnd running? --socket PATH or $BCCN_SOCKET names another socket")
        return exit_code(error)
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        return USAGE if error.filename else FAULT
    return code


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    """Options may stand before, between and after the words of a command."""
    parser = argparse.ArgumentParser(
        prog="bccn",
        usage="bccn [-h] [--version] [--socket PATH] COMMAND ...",
        description="Talk to the bccnd bus of this host: publish, subscribe, look at it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"bccn {__version__}")
    parser.add_argument("--socket", metavar="PATH", help=SOCKET_HELP)
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    words = parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    words.required = False  # or the line about a missing COMMAND would name them, too
    arguments = parser.parse_args(argv)
    module = import_module(f"bccnd.commands.{arguments.command}")  # the others need not be loaded
    command = argparse.ArgumentParser(
        prog=f"bccn {arguments.command}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("--socket", metavar="PATH", default=arguments.socket, help=SOCKET_HELP)
    module.add_arguments(command)
    command.set_defaults(run=module.run)
    return command.parse_intermixed_args(arguments.words)


if __name__ == "__main__":
    sys.exit(main())
