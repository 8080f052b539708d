"""``bccn watch``: print whether anybody listens, a line at each change."""

import argparse
import json
import select
import time

import bccn
from bccnd.commands.arguments import count, pattern, seconds
from bccnd.commands.outcome import TIMED_OUT, Reporter, complain, silent
from bccnd.process.standard_streams import STDOUT, write

DESCRIPTION = """\
Print whether anybody listens to a channel that matches a PATTERN, on this host
or on another one of the segment: one line at the start, and one at each change.
So a program can publish expensive data only while somebody wants it. Taps do
not count. Goes on after a restart of the daemon, which it reports on stderr.
"""

EPILOG = """\
examples:
  bccn watch 'camera/>'
  bccn watch -C 1 camera/1/frames
  bccn watch --json 'camera/>' | jq -r 'select(.wanted) | .pattern'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("patterns", metavar="PATTERN", type=pattern, nargs="+", help="the channels")
    parser.add_argument("-C", "--count", metavar="N", type=count, help="exit after N lines")
    parser.add_argument(
        "-W", "--wait", metavar="S", type=seconds, help="give up after S seconds, with exit code 3"
    )
    parser.add_argument("--json", action="store_true", help="print JSON: pattern, wanted and time")
    parser.add_argument("-q", "--quiet", action="store_true", help="report nothing on stderr")


def run(arguments: argparse.Namespace) -> int:
    deadline = None if arguments.wait is None else time.monotonic() + arguments.wait
    printed = 0

    def tell(what: str, wanted: bool) -> None:
        nonlocal printed
        if printed != arguments.count:
            printed += 1
            write(STDOUT, _line(what, wanted, as_json=arguments.json))

    with bccn.Client(arguments.socket, on_notice=silent if arguments.quiet else Reporter()) as bus:
        for each in dict.fromkeys(arguments.patterns):
            bus.watch(each, tell)
        while printed != arguments.count:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                complain(f"watch: timed out after {arguments.wait:g} s")
                return TIMED_OUT
            select.select([bus.fileno()], [], [], left)
            bus.dispatch()
    return 0


def _line(what: str, wanted: bool, *, as_json: bool) -> bytes:
    if as_json:
        return json.dumps({"pattern": what, "wanted": wanted, "time": round(time.time(), 3)}).encode() + b"\n"
    return f"{'yes' if wanted else 'no':3} {what}\n".encode()
