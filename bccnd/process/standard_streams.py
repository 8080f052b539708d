"""Stdin, stdout and stderr of the programs: nothing else gets their numbers, and what fails there is said once.

A program that is started with one of them closed (``bccn sub '>' >&-``) would get its number for the next file it
opens. That is the socket to the daemon, and what is printed would be sent as packets, with the rights of who ran it.

Rules
- ``guarded`` runs each program. It occupies what is closed before anything else is opened.
- A closed stdin is at its end. A closed stdout takes nothing, as a full disk does. A closed stderr takes everything.
- What stdout does not take ends the program with one line on stderr and exit code 1. A pipe whose reader has left
  ends it silently, by SIGPIPE, as it ends any filter.
- A complaint is one line. Arguments, names, channels and payloads in it come from strangers, so whatever would move
  the cursor, change a colour or hide a letter is escaped. A complaint that stderr does not take is lost.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import select
import signal
import sys
from collections.abc import Callable

# Type checkers take this name for true. Importing ``typing`` would take longer than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

STDIN, STDOUT, STDERR = range(3)
# How /dev/null stands in for each: reading gives the end of the file, and what is open for reading takes no output.
_IN_PLACE = {STDIN: os.O_RDONLY, STDOUT: os.O_RDONLY, STDERR: os.O_WRONLY}
# Exit codes, the same for all programs.
FAULT, USAGE = 1, 2

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0", "\x1b": "\\e"}


class OutputError(OSError):
    """Stdout does not take what is printed; ``guarded`` reports it."""


def guarded(program: str, run: Callable[[], int]) -> int:
    """Run a program and return its exit code. ``program``: the name before its complaints."""
    try:
        _occupy()
        return run()
    except OutputError as error:
        complain(program, "stdout is closed" if error.errno == errno.EBADF else f"stdout: {error.strerror}")
        return FAULT


def say(text: str) -> None:
    """Print lines on stdout at once. Raises ``OutputError``."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError as error:
        _refused(error)


def write(descriptor: int, data: bytes) -> None:
    """Write all of it, waiting where it must. Raises ``OutputError`` for stdout, and OSError for anything else."""
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:  # another program has made a shared terminal or pipe non-blocking
            select.select([], [descriptor], [])
        except OSError as error:
            if descriptor != STDOUT:
                raise
            _refused(error)


def complain(program: str, text: str) -> None:
    """Write one line to stderr, or lose it."""
    _to_stderr(f"{program}: {printable(text)}\n")


def printable(text: str | bytes) -> str:
    """The text without anything that moves the cursor or hides a letter; what is not UTF-8 becomes \\xNN."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def counted(count: int, noun: str) -> str:
    """``1 client``, ``2 clients``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class CommandLine(argparse.ArgumentParser):
    """A parser that prints as the programs do: argparse itself passes over what stdout does not take."""

    def error(self, message: str) -> NoReturn:
        _to_stderr(self.format_usage())
        complain(self.prog, f"error: {message}")
        raise SystemExit(USAGE)

    def _print_message(self, message: str, file: Any = None) -> None:
        if file is sys.stdout:
            say(message.removesuffix("\n"))
        else:
            _to_stderr(message)


def _escaped(char: str) -> str:
    return _NAMED.get(char) or char.encode("unicode_escape").decode()


def _occupy() -> None:
    """Open /dev/null in place of each that is closed; programs that are started inherit it."""
    for descriptor, flags in _IN_PLACE.items():
        try:
            os.fstat(descriptor)
        except OSError:
            # It gets the lowest number, which is this one.
            os.set_inheritable(os.open(os.devnull, flags), True)
    # What the interpreter found closed is None.
    for descriptor, name, mode in (STDIN, "stdin", "r"), (STDOUT, "stdout", "w"), (STDERR, "stderr", "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))
    if isinstance(sys.stdout, io.TextIOWrapper):  # of a locale without UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")


def _refused(error: OSError) -> NoReturn:
    """Report what stdout does not take as ``OutputError``, or end the process if its reader has left."""
    # The interpreter would report what is left in its buffer once more.
    with contextlib.suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, STDOUT)
        os.close(null)
    if isinstance(error, BrokenPipeError):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    raise OutputError(error.errno, error.strerror) from None


def _to_stderr(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(STDERR, text.encode("utf-8", "backslashreplace"))
