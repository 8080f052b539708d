"""``bccn pub``: publish, and succeed only once the daemon has taken everything."""

import argparse
import os
import time
from collections.abc import Iterator

import bccn
from bccnd.commands import payload, protobuf_types
from bccnd.commands.arguments import count, seconds
from bccnd.commands.outcome import USAGE, Reporter, complain, exit_code
from bccnd.commands.payload import READ_LIMIT
from bccnd.commands.streams import reading
from bccnd.process.standard_streams import STDIN

# Bytes of stdin read at a time.
READ_SIZE = 65536
# The rejections of one run that are shown; the others are counted.
SHOWN_REJECTIONS = 10

DESCRIPTION = """\
Publish PAYLOAD on CHANNEL. Without PAYLOAD, and without an option that names
another source, all of stdin is one message.

Exits with 0 once the daemon has taken everything. Reports rejected messages on
stderr, with exit code 2 (wrong or too large) or 4 (refused).
"""

EPILOG = """\
examples:
  bccn pub door/front open
  date | bccn pub clock
  tail -f /var/log/syslog | bccn pub log/syslog -l
  bccn pub local/camera/door -f picture.jpg
  bccn pub load/test -t 'message {n} at {time}' --repeat 9 --repeat-delay 0.5
  bccn pub --proto robot.proto --json '{"speed": 2}' dndm/arm/left/Move
  bccn pub '!' 'to every program that listens'
  bccn pub '!kitchen/thermostat' 'to every thermostat on the host kitchen'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "channel", metavar="CHANNEL", help="such as door/front; '!' is for all, '!SRC' for one"
    )
    source = payload.add_arguments(parser, "the message")
    source.add_argument("-l", "--lines", action="store_true", help="each line of stdin, as soon as it comes")
    source.add_argument("--json", metavar="TEXT", help="with --proto: the message as JSON")
    protobuf_types.add_arguments(parser)
    parser.add_argument(
        "-t",
        "--template",
        action="store_true",
        help="replace {n} by 1, 2, ..., {time} by the time (ISO 8601), and {unix} by the time in seconds, in the "
        "message and in the channel",
    )
    parser.add_argument("--repeat", metavar="N", type=count, default=1, help="publish N times")
    parser.add_argument(
        "--repeat-delay", metavar="S", type=seconds, default=0.0, help="wait S seconds between two messages"
    )
    parser.add_argument("--name", metavar="SRC", help="publish as SRC, if the daemon allows it")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="report on stderr how much was published"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.lines and arguments.payload is not None:
        raise payload.chosen_twice("pub")
    if arguments.lines and arguments.repeat > 1:
        complain("pub: --repeat does not go with -l, which reads its lines once")
        return USAGE
    message = None if arguments.lines else _message(arguments)
    notices = Notices()
    many = arguments.lines or arguments.repeat > 1
    with bccn.Client(arguments.socket, name=arguments.name, pack=many, on_notice=notices) as bus:
        try:
            if message is None:
                published = _publish_lines(bus, arguments)
            else:
                published = _publish_repeatedly(bus, arguments, message)
            bus.barrier()
        except bccn.RejectedError as error:
            notices.summarise()
            return exit_code(error)
        if arguments.verbose:
            complain(f"published {published} {'message' if published == 1 else 'messages'} as {bus.name}")
    return 0


def _message(arguments: argparse.Namespace) -> bytes:
    """The payload, before ``--template`` is applied. Raises ``InvalidError``."""
    types = protobuf_types.chosen(arguments)
    if (types is None) is not (arguments.json is None):
        raise bccn.InvalidError("pub: --proto and --json go together")
    if types is None:
        return payload.read(arguments, "pub")
    if arguments.payload is not None:
        raise payload.chosen_twice("pub")
    if arguments.template:
        raise bccn.InvalidError("pub: --template does not go with --proto: a message of protobuf is no text")
    return types.of_json(arguments.channel, arguments.json)


class Notices(Reporter):
    """Counts rejected messages, and shows the first ones."""

    def __init__(self) -> None:
        super().__init__()
        self.rejected = self.shown = 0

    def __call__(self, notice: bccn.Notice) -> None:
        rejected = notice.count if notice.kind == "rejected" else 0
        self.rejected += rejected
        if not rejected or self.shown < SHOWN_REJECTIONS:
            self.shown += rejected  # equal ones are one notice
            super().__call__(notice)

    def summarise(self) -> None:
        if self.rejected > self.shown:
            complain(f"{self.rejected} messages were rejected; the first {self.shown} are shown above")


def _publish_repeatedly(bus: bccn.Client, arguments: argparse.Namespace, message: bytes) -> int:
    if not arguments.repeat_delay:
        with bus.batch():
            for n in range(1, arguments.repeat + 1):
                bus.publish(*_filled(arguments, message, n))
        return int(arguments.repeat)
    for n in range(1, arguments.repeat + 1):
        if n > 1:
            time.sleep(arguments.repeat_delay)
        bus.publish(*_filled(arguments, message, n))
    return int(arguments.repeat)


def _publish_lines(bus: bccn.Client, arguments: argparse.Namespace) -> int:
    """Publish what has been read before waiting for more. So a slow pipe delays nothing, and a fast one is packed."""
    n = 0
    for lines in _lines_of(STDIN):
        with bus.batch():
            for line in lines:
                n += 1
                bus.publish(*_filled(arguments, line, n))
    return n


def _lines_of(fd: int) -> Iterator[list[bytes]]:
    """Yields the lines that have come, without newlines, each time some have."""
    rest = b""
    while chunk := _read(fd):
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > READ_LIMIT:
            raise bccn.InvalidError(f"pub: a line is longer than {READ_LIMIT} bytes, which no daemon takes")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _read(fd: int) -> bytes:
    with reading("stdin"):
        return os.read(fd, READ_SIZE)


def _filled(arguments: argparse.Namespace, message: bytes, n: int) -> tuple[str, bytes]:
    """The channel and the payload of message number ``n``, with ``{n}`` and the like filled in."""
    if not arguments.template:
        return arguments.channel, message
    from bccnd.commands.terminal import iso_time

    now = time.time_ns()
    channel = arguments.channel
    for mark, value in ("{n}", str(n)), ("{time}", iso_time(now)), ("{unix}", f"{now / 1e9:.6f}"):
        channel = channel.replace(mark, value)
        message = message.replace(mark.encode(), value.encode())
    return channel, message
