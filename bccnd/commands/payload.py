"""Where the message of ``bccn pub`` and ``bccn req`` comes from: an argument, a file, or stdin."""

import argparse
import os

import bccn

# Bytes of a file, of stdin or of a line of it; no bus carries more in one message, and memory is for what one takes.
READ_LIMIT = 1024 * 1024
STDIN = 0


def add_arguments(parser: argparse.ArgumentParser, what: str) -> argparse._MutuallyExclusiveGroup:
    """The group of what can be given instead of PAYLOAD, which is ``what``."""
    parser.add_argument("payload", metavar="PAYLOAD", nargs="?", help=what)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("-m", "--message", metavar="TEXT", help=f"{what} (-m=TEXT if it begins with -)")
    source.add_argument("-f", "--file", metavar="FILE", help="the contents of FILE")
    source.add_argument("-s", "--stdin", action="store_true", help="all of stdin, one message")
    source.add_argument("-n", "--empty", action="store_true", help="an empty message")
    return source


def read(arguments: argparse.Namespace, command: str) -> bytes:
    """All of it. Raises ``InvalidError`` if there is none, or more than one, or too much."""
    if arguments.payload is not None:
        if arguments.message is not None or arguments.file or arguments.stdin or arguments.empty:
            raise chosen_twice(command)
        return os.fsencode(arguments.payload)
    if arguments.message is not None:
        return os.fsencode(arguments.message)
    if arguments.empty:
        return b""
    if not arguments.file and not arguments.stdin and os.isatty(STDIN):
        raise bccn.InvalidError(
            f"{command}: no message: give PAYLOAD, or say where it comes from, or pipe it in"
        )
    with open(arguments.file or STDIN, "rb", closefd=bool(arguments.file)) as file:
        payload = file.read(READ_LIMIT + 1)
    if len(payload) > READ_LIMIT:
        raise bccn.InvalidError(f"{command}: more than {READ_LIMIT} bytes are no message")
    return payload


def chosen_twice(command: str) -> bccn.InvalidError:
    return bccn.InvalidError(f"{command}: give PAYLOAD or where it comes from, not both")
