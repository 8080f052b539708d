"""The parsers of ``bccn``: what its sub-commands, which are modules of this package, have in common.

To add a command, write its module and name it in COMMANDS.
"""

import argparse
import re
from importlib import import_module

from bccnd import __version__
from bccnd.commands.arguments import address
from bccnd.process.standard_streams import CommandLine

# Options that take a time, which may be one before now.
MOMENTS = ("--since", "--until")

COMMANDS = {
    "pub": "publish messages",
    "sub": "print messages as they come",
    "watch": "show whether anybody listens",
    "req": "send a request, and print the replies",
    "reply": "reply to requests with the output of a command",
    "dump": "show every datagram, and why it was rejected",
    "who": "show who is there, by host",
    "ping": "ask the daemon of a host for a reply",
    "status": "show the daemon, its clients, and the sources it hears",
    "top": "show live rates per second",
    "doctor": "find out what is wrong, and what to do",
    "links": "show the uplinks, and the segments they hear",
    "backbone": "speak to a fyrehose backbone",
    "completion": "print a script for completion in the shell",
    "manual": "write the manual pages",
}

DESCRIPTION = "Publish, subscribe and look around on the bccnd bus of this host."

EPILOG = f"""\
commands:
{"".join(f"  {name:<10}  {summary}{chr(10)}" for name, summary in COMMANDS.items())}
exit codes:
  0 done   1 internal fault   2 wrong usage   3 timed out
  4 refused by the daemon     5 no daemon     6 nobody listens

"bccn COMMAND --help" explains a command, with examples.
"""
SOCKET_HELP = "the daemon's socket, @NAME if abstract (default: $BCCN_SOCKET, or the first that exists of \
/run/bccnd/bus.sock and $XDG_RUNTIME_DIR/bccnd/bus.sock)"
CONNECT_HELP = "the door of a bus, instead of its socket: unix:PATH, or tls://HOST:PORT with the files that \
$BCCN_TLS_CA, $BCCN_TLS_CERT and $BCCN_TLS_KEY name (default: $BCCN_CONNECT, if $BCCN_SOCKET is not set)"


def main_parser() -> argparse.ArgumentParser:
    """The parser of everything before the command. It leaves the words after that alone."""
    parser = CommandLine(
        prog="bccn",
        usage="bccn [-h] [--version] [--socket PATH | --connect ADDRESS] COMMAND ...",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"bccn {__version__}")
    _add_place(parser)
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    words = parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    words.required = False  # or the message about a missing COMMAND would name them as well
    return parser


def _add_place(
    parser: argparse.ArgumentParser, socket: str | None = None, connect: str | None = None
) -> None:
    parser.add_argument("--socket", metavar="PATH", default=socket, help=SOCKET_HELP)
    parser.add_argument("--connect", metavar="ADDRESS", type=address, default=connect, help=CONNECT_HELP)


def command_parser(
    command: str, socket: str | None = None, connect: str | None = None
) -> argparse.ArgumentParser:
    """The parser of one command, whose module is loaded for it. ``socket``, ``connect``: as given before it."""
    module = import_module(f"bccnd.commands.{command}")
    parser = CommandLine(prog=f"bccn {command}", formatter_class=argparse.RawDescriptionHelpFormatter)
    _add_place(parser, socket, connect)
    module.add_arguments(parser)
    parser.set_defaults(
        run=module.run,
        takes_command=getattr(module, "TAKES_COMMAND", False),
        takes_door=getattr(module, "TAKES_DOOR", True),
    )
    return parser


def parse(argv: list[str]) -> argparse.Namespace:
    """Options may stand before, between and after the words of a command.

    What stands behind ``--`` is left alone if it is a command line of its own (TAKES_COMMAND in the module). The
    address of a door is given to a command as its ``socket``, unless it needs the daemon itself (TAKES_DOOR).
    """
    arguments = main_parser().parse_args(argv)
    words, command = arguments.words, []
    parser = command_parser(arguments.command, arguments.socket, arguments.connect)
    if "--" in words and parser.get_default("takes_command"):
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    parsed = parser.parse_intermixed_args(_joined(words))
    if parsed.connect:
        if parsed.socket:
            parser.error("--connect and --socket are two ways to a bus: give one of them")
        if not parsed.takes_door:
            parser.error("it looks at the daemon of this host: give --socket, not --connect")
        parsed.socket = parsed.connect
    if command:
        parsed.words += command
    return parsed


def _joined(words: list[str]) -> list[str]:
    """``--since -10m`` as ``--since=-10m``: argparse takes whatever begins with - for an option."""
    joined: list[str] = []
    for at, word in enumerate(words):
        if joined and joined[-1] in MOMENTS and re.match(r"-[0-9.]", word) and "--" not in words[:at]:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined
