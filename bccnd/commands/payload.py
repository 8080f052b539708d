"""Where the message of ``bccn pub`` and ``bccn req`` comes from: an argument, a file, or stdin."""

import argparse
import os

import bccn
from bccnd.commands.arguments import name
from bccnd.commands.streams import reading
from bccnd.process.standard_streams import STDIN

# Bytes of a file, of stdin, or of one line of it. No daemon takes a longer message.
READ_LIMIT = 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser, what: str) -> argparse._MutuallyExclusiveGroup:
    """Add the options that can stand in place of PAYLOAD; ``what`` that is, in words. Returns their group."""
    parser.add_argument("payload", metavar="PAYLOAD", nargs="?", help=what)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("-m", "--message", metavar="TEXT", help=f"{what}; write -m=TEXT if it begins with -")
    source.add_argument("-f", "--file", metavar="FILE", type=name, help="the contents of FILE")
    source.add_argument("-s", "--stdin", action="store_true", help="all of stdin, as one message")
    source.add_argument("-n", "--empty", action="store_true", help="an empty message")
    return source


def read(arguments: argparse.Namespace, command: str) -> bytes:
    """The payload. Raises ``InvalidError`` when none or several are given, or one that is too long."""
    if arguments.payload is not None:
        if arguments.message is not None or arguments.file is not None or arguments.stdin or arguments.empty:
            raise chosen_twice(command)
        return os.fsencode(arguments.payload)
    if arguments.message is not None:
        return os.fsencode(arguments.message)
    if arguments.empty:
        return b""
    if arguments.file is None and not arguments.stdin and os.isatty(STDIN):
        raise bccn.InvalidError(f"{command}: no message: give PAYLOAD, one of -m -f -s -n, or pipe it in")
    path = arguments.file
    with (
        reading("stdin" if path is None else path),
        open(STDIN if path is None else path, "rb", closefd=path is not None) as file,
    ):
        payload = file.read(READ_LIMIT + 1)
    if len(payload) > READ_LIMIT:
        raise bccn.InvalidError(
            f"{command}: the message is longer than {READ_LIMIT} bytes, which no daemon takes"
        )
    return payload


def chosen_twice(command: str) -> bccn.InvalidError:
    return bccn.InvalidError(f"{command}: give PAYLOAD or an option that says where it comes from, not both")
