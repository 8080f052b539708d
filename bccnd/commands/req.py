"""``bccn req``: send a request, and print the replies."""

import argparse

import bccn
from bccnd.commands import formats, payload
from bccnd.commands.arguments import count, seconds
from bccnd.commands.outcome import DONE, TIMED_OUT, Reporter, complain
from bccnd.process.standard_streams import STDOUT, write

DESCRIPTION = """\
Publish PAYLOAD on CHANNEL as a request and print the replies. Without PAYLOAD,
and without an option that names another source, all of stdin is the request.
It is sent once, and may be carried out even if no reply comes.

Exits with 0 as soon as there are enough replies, with 3 when time runs out
first, and with 6, at once or within a third of a second, when nobody listens
to CHANNEL: no program of this host, or of any other host with a daemon.
"""

EPILOG = f"""\
{formats.FORMAT_HELP}
examples:
  bccn req math/square 12
  bccn req --json --replies all --timeout 1 services/who ''
  bccn req --replies 3 -F '%s: %p' quorum/vote 'txn 4711?'
  bccn req '!relay01/printer' status
  bccn req '!relay01/bccnd' ping
  bccn req door/open now; [ $? = 6 ] && echo 'no door listens'
"""


def replies(text: str) -> int | None:
    return None if text == "all" else count(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "channel", metavar="CHANNEL", help="such as math/square; '!' is for all, '!SRC' for one"
    )
    payload.add_arguments(parser, "the request")
    parser.add_argument(
        "-W", "--timeout", metavar="S", type=seconds, default=5.0, help="wait for S seconds (default 5)"
    )
    parser.add_argument(
        "-C",
        "--replies",
        metavar="N|all",
        type=replies,
        default=1,
        help="how many to wait for; all: print those that come in time (default 1)",
    )
    parser.add_argument(
        "--wait-anyway",
        action="store_true",
        help="wait even if nobody listens: a program without a daemon may",
    )
    formats.add_arguments(parser, verbose="print the source before the reply")
    parser.add_argument("--name", metavar="SRC", help="ask as SRC, if the daemon allows it")


def run(arguments: argparse.Namespace) -> int:
    formatter = formats.chosen(arguments, verbose="%s %p", text=True)
    request = payload.read(arguments, "req")
    with bccn.Client(
        arguments.socket,
        name=arguments.name,
        format="full" if formatter.needs_full else "plain",
        on_notice=Reporter(),
    ) as bus:
        came = 0
        for reply in bus.request_many(
            arguments.channel,
            request,
            arguments.timeout,
            arguments.replies,
            wait_anyway=arguments.wait_anyway,
        ):
            write(STDOUT, formatter.line(reply))
            came += 1
    if came < (arguments.replies or 1):
        some = f"{came} of {arguments.replies} replies" if came else "no reply"
        complain(f"{some} on {arguments.channel} within {arguments.timeout:g} s")
        return TIMED_OUT
    return DONE
