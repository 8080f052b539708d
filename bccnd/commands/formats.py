"""How ``bccn sub`` and ``bccn req`` print a message: ``-v``, ``-F``, ``--json``, and what ends each."""

import argparse
import json
import os
from collections.abc import Callable

import bccn
from bccnd.commands.terminal import iso_time, unix_time
from bccnd.process.standard_streams import STDOUT, printable

FORMAT_HELP = """\
in FORMAT:
  %c channel   %p payload   %x payload in hex   %l length of the payload
  %s source    %n sequence number   %m mode: plain, all or directed
  %a address of the sender: ip:port, or local
  %r 1 for the last value from before the subscription, else 0
  %I time of receipt (ISO 8601, UTC)    %U the same in Unix seconds
  %j everything as a JSON object        %% a percent sign
  \\n newline   \\t tab   \\0 NUL   \\\\ backslash
"""

_ESCAPES = {"n": b"\n", "t": b"\t", "0": b"\0", "\\": b"\\"}
# What a message has without the format ``full``.
_PLAIN = "cpxlm%"

Field = Callable[[bccn.Message], str | bytes]


def to_json(message: bccn.Message) -> str:
    """One object on one line. A payload that is not UTF-8 is ``payload_hex`` instead of ``payload``."""
    fields: dict[str, object] = {"channel": message.channel, "mode": message.mode}
    if message.time_ns is not None:
        fields = {
            "time": iso_time(message.time_ns),
            "src": message.src,
            "seq": message.seq,
            "peer": message.peer,
            **fields,
        }
    if message.retained:
        fields["retained"] = True
    if message.lost:
        fields["lost"] = message.lost
    try:
        fields["payload"] = message.text
    except UnicodeDecodeError:
        fields["payload_hex"] = message.payload.hex()
    return json.dumps(fields)


_FIELDS: dict[str, Field] = {
    "c": lambda message: message.channel,
    "p": lambda message: message.payload,
    "x": lambda message: message.payload.hex(),
    "l": lambda message: str(len(message.payload)),
    "s": lambda message: message.src or "",
    "n": lambda message: str(message.seq),
    "m": lambda message: message.mode,
    "a": lambda message: message.peer or "",
    "r": lambda message: str(int(message.retained)),
    "I": lambda message: iso_time(message.time_ns or 0),
    "U": lambda message: unix_time(message.time_ns or 0),
    "j": to_json,
}


def add_arguments(parser: argparse.ArgumentParser, verbose: str) -> None:
    """``verbose``: the help text of ``-v``."""
    output = parser.add_mutually_exclusive_group()
    output.add_argument("-v", "--verbose", action="store_true", help=verbose)
    output.add_argument("-F", "--format", metavar="FORMAT", help="print in this format, see below")
    output.add_argument("--json", action="store_true", help="print a JSON object for each message, as %%j")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("-N", "--no-newline", action="store_true", help="end a message without a newline")
    end.add_argument("-0", "--null", action="store_true", help="end a message with a NUL, for xargs -0")
    parser.add_argument("--raw", action="store_true", help="print the bytes themselves on a terminal, too")


def chosen(arguments: argparse.Namespace, verbose: str, *, text: bool = False) -> "Formatter":
    """The formatter that the options ask for. ``verbose``: the format of ``-v``; ``text``: as for ``Formatter``."""
    return Formatter(
        "%j" if arguments.json else arguments.format or (verbose if arguments.verbose else "%p"),
        end=b"" if arguments.no_newline else b"\0" if arguments.null else b"\n",
        raw=arguments.raw or not os.isatty(STDOUT),
        text=text,
    )


class Formatter:
    """``line(message)`` is what to print for it. Raises ``InvalidError`` for a format it does not know.

    ``text``: payloads may be texts of several lines; one that ends in a newline gets no second one.
    """

    def __init__(self, format_: str, *, end: bytes, raw: bool, text: bool = False) -> None:
        self.needs_full = False
        self._text = text
        self._raw = raw
        self._end = end
        self._parts: list[bytes | Field] = []
        rest = format_
        while rest:
            literal = rest[: min(f"{rest}{mark}".index(mark) for mark in "%\\")]
            mark = rest[len(literal) : len(literal) + 2]
            rest = rest[len(literal) + len(mark) :]
            self._parts.append(literal.encode("utf-8", "surrogateescape"))
            if mark:
                self._add_mark(mark)

    def _add_mark(self, mark: str) -> None:
        kind, letter = mark[0], mark[1:]
        if kind == "%" and letter in _FIELDS:
            self.needs_full = self.needs_full or letter not in _PLAIN
            self._parts.append(_FIELDS[letter])
        elif mark == "%%":
            self._parts.append(b"%")
        elif kind == "\\" and letter in _ESCAPES:
            self._parts.append(_ESCAPES[letter])
        else:
            raise bccn.InvalidError(f"format: {mark!r} means nothing; see bccn sub --help")

    def line(self, message: bccn.Message) -> bytes:
        line = b"".join([self._shown(part, message) for part in self._parts])
        return line if self._text and self._end == b"\n" == line[-1:] else line + self._end

    def _shown(self, part: bytes | Field, message: bccn.Message) -> bytes:
        if isinstance(part, bytes):
            return part
        value = part(message)
        if not self._raw:
            lines = value.split(b"\n") if self._text and isinstance(value, bytes) else [value]
            value = "\n".join(map(printable, lines))
        return value if isinstance(value, bytes) else value.encode("utf-8", "backslashreplace")
