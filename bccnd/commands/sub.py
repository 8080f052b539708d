"""``bccn sub``: print messages as they come, one a line.

On a terminal no message moves the cursor or changes a colour. A pipe or a file gets the bytes themselves.
"""

import argparse
import os
import time
from collections.abc import Iterable

import bccn
from bccnd.commands import formats, protobuf_types
from bccnd.commands.arguments import count, moment, pattern, seconds
from bccnd.commands.formats import FORMAT_HELP, Formatter
from bccnd.commands.outcome import TIMED_OUT, Reporter, complain, silent
from bccnd.commands.protobuf_types import Types
from bccnd.commands.streams import batches
from bccnd.process.standard_streams import STDERR, STDOUT, write

# Different complaints to remember: others publish what they are about.
SAID = 1000

DESCRIPTION = """\
Print the messages of every channel that matches a PATTERN, and those sent to
all programs ('!') or to this one. Each is a line, written at once. Goes on
after a restart of the daemon, which it reports on stderr.

patterns:
  a/b      this channel                    a/*/c   any one token between
  a/b*     any token that begins with b    a/>     everything below a/
"""

EPILOG = f"""\
{FORMAT_HELP}
examples:
  bccn sub 'sensors/>'
  bccn sub -v -x 'heartbeat/>' '>'
  bccn sub -C 1 -W 5 door/front || echo 'nobody came'
  bccn sub -F '%I %s #%n %c %p' '>'
  bccn sub --json 'orders/>' | jq .payload
  bccn sub --since 10m 'orders/>'
  bccn sub -v --proto robot.proto 'dndm/>'
  bccn sub -0 files/new | xargs -0 -n 1 process
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("patterns", metavar="PATTERN", nargs="+", help="the channels, see below")
    parser.add_argument(
        "-x",
        "--exclude",
        metavar="PATTERN",
        type=pattern,
        action="append",
        default=[],
        help="leave out channels that match (may be repeated)",
    )
    parser.add_argument("-C", "--count", metavar="N", type=count, help="exit after N messages")
    parser.add_argument(
        "-W", "--wait", metavar="S", type=seconds, help="give up after S seconds, with exit code 3"
    )
    parser.add_argument("-E", "--exit", action="store_true", help="exit as soon as it has subscribed")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=moment,
        help="begin with what the host's recorder has since then, through its door: ISO 8601, seconds "
        "since 1970, or before now as in 10m",
    )
    parser.add_argument(
        "--until", metavar="TIME", type=moment, help="with --since: end there, and do not follow"
    )
    formats.add_arguments(parser, verbose="print the channel before the payload")
    protobuf_types.add_arguments(parser)
    parser.add_argument(
        "--separator",
        choices=["/", "."],
        default="/",
        help="what separates the tokens of patterns (default /)",
    )
    parser.add_argument("--name", metavar="SRC", help="listen as SRC, if the daemon allows it")
    parser.add_argument("-q", "--quiet", action="store_true", help="report nothing on stderr")


def run(arguments: argparse.Namespace) -> int:
    formatter = formats.chosen(arguments, verbose="%c %p")
    types = protobuf_types.chosen(arguments)
    deadline = None if arguments.wait is None else time.monotonic() + arguments.wait
    if arguments.since:
        return _replay(arguments, formatter, types, deadline)
    if arguments.until:
        raise bccn.InvalidError("--until needs --since")
    with bccn.Client(
        arguments.socket,
        name=arguments.name,
        format="full" if formatter.needs_full else "plain",
        pack=True,
        separator=arguments.separator,
        on_notice=silent if arguments.quiet else Reporter(),
    ) as bus:
        for pattern in arguments.patterns:
            bus.subscribe(pattern)
        if arguments.exit:
            return 0
        if os.isatty(STDERR) and not arguments.quiet:
            complain(f"subscribed to {' '.join(arguments.patterns)} as {bus.name}; Ctrl-C ends it")
        return _print_messages(batches(bus, deadline), arguments, formatter, types, deadline)


def _replay(
    arguments: argparse.Namespace, formatter: Formatter, types: Types | None, deadline: float | None
) -> int:
    if len(arguments.patterns) > 1 or arguments.name or arguments.exit or arguments.separator != "/":
        raise bccn.InvalidError("--since takes one PATTERN, and neither --name, --exit nor --separator")
    from bccnd.commands.replayed import replayed  # loaded only where it is used

    asked = f"{arguments.since} {arguments.until or ''} {arguments.patterns[0]}"
    replay = replayed(arguments.connect, asked, deadline, quiet=arguments.quiet)
    return _print_messages(replay, arguments, formatter, types, deadline)


def _print_messages(
    all_of_them: Iterable[list[bccn.Message]],
    arguments: argparse.Namespace,
    formatter: Formatter,
    types: Types | None,
    deadline: float | None,
) -> int:
    printed = 0
    said: set[str] = set()
    for received in all_of_them:
        messages = [message for message in received if not _excluded(message, arguments)]
        if arguments.count is not None:
            del messages[arguments.count - printed :]
        if types is not None:
            for message in messages:
                _translate(message, types, said)
        write(STDOUT, b"".join(map(formatter.line, messages)))
        printed += len(messages)
        if printed == arguments.count:
            return 0
    if deadline is None or time.monotonic() < deadline:  # a replay has an end
        return 0
    wanted = "" if arguments.count is None else f" of {arguments.count}"
    complain(f"sub: timed out after {arguments.wait:g} s and {printed}{wanted} messages")
    return TIMED_OUT


def _translate(message: bccn.Message, types: Types, said: set[str]) -> None:
    """Translate payloads to JSON. One that is no such message stays as it is; each reason is reported once."""
    try:
        message.payload = types.to_json(message.channel, message.payload)
    except bccn.InvalidError as error:
        if (line := f"sub: {error}") not in said:
            if len(said) == SAID:
                said.clear()
            said.add(line)
            complain(line)


def _excluded(message: bccn.Message, arguments: argparse.Namespace) -> bool:
    return any(bccn.matches(pattern, message.channel, arguments.separator) for pattern in arguments.exclude)
