"""``bccn ping``: whether the daemon of a host answers, and how fast."""

import argparse
import os
import re
import time

import bccn
from bccnd.commands.arguments import count, seconds
from bccnd.commands.outcome import DONE, TIMED_OUT, Reporter
from bccnd.process.standard_streams import printable, say

# Seconds. A daemon replies to one asker at most 20 times a second.
SHORTEST_INTERVAL = 0.05
# One token of a name, without wildcards: a host is asked by its own name.
_HOST = re.compile(r"[^\s!*/:>|\x80-\U0010ffff\0]{1,64}")

DESCRIPTION = """\
Ask the daemon of HOST for a reply. A reply has passed both daemons, and the
segment in both directions. HOST may be this host.

Exits with 0 when there was a reply, with 3 when there was none.
"""

EPILOG = """\
examples:
  bccn ping relay01
  bccn ping -c 100 -i 0.1 relay01
  bccn ping -c 1 -W 0.5 relay01 > /dev/null || echo relay01 does not answer
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("host", metavar="HOST", help="the name of the host, the first part of its sources")
    parser.add_argument("-c", "--count", metavar="N", type=count, default=4, help="ask N times (default 4)")
    parser.add_argument(
        "-i", "--interval", metavar="S", type=seconds, default=1.0, help="ask every S seconds (default 1)"
    )
    parser.add_argument(
        "-W",
        "--wait",
        metavar="S",
        type=seconds,
        default=2.0,
        help="wait S seconds for the last reply (default 2)",
    )


def run(arguments: argparse.Namespace) -> int:
    if not _HOST.fullmatch(arguments.host):
        raise bccn.InvalidError("ping: HOST is the first part of a source, up to the /, such as relay01")
    if arguments.interval < SHORTEST_INTERVAL:
        raise bccn.InvalidError(f"ping: -i must be at least {SHORTEST_INTERVAL}")
    with bccn.Client(arguments.socket, format="full", on_notice=Reporter()) as bus:
        bus.listen()
        return _Pings(bus, arguments.host).ask(arguments.count, arguments.interval, arguments.wait)


class _Pings:
    """``took``: milliseconds of each reply."""

    def __init__(self, bus: bccn.Client, host: str) -> None:
        self._bus = bus
        self._host = host
        self._token = os.urandom(6).hex()
        self._sent: dict[int, float] = {}
        self._answered: set[int] = set()
        self.took: list[float] = []

    def ask(self, times: int, interval: float, wait: float) -> int:
        target = f"{self._host}/bccnd"
        _say(f"PING !{target}")
        began = time.monotonic()
        for number in range(1, times + 1):
            self._sent[number] = time.monotonic()
            self._bus.publish_to(target, f"{self._token}.{number}\nping")
            is_last = number == times
            self._listen(began + number * interval if not is_last else time.monotonic() + wait, is_last)
        return self._summary(times, time.monotonic() - began)

    def _listen(self, until: float, is_last: bool) -> None:
        """Take replies until then; after the last question only until all have come."""
        while not (is_last and len(self._answered) == len(self._sent)):
            left = until - time.monotonic()
            if left <= 0:
                return
            message = self._bus.receive(left)
            if message is not None:
                self._take(message, time.monotonic())

    def _take(self, message: bccn.Message, now: float) -> None:
        token, _, answer = message.payload.decode(errors="replace").partition("\n")
        own, _, digits = token.partition(".")
        word, _, version = answer.partition(" ")
        if own != self._token or word not in ("pong", "busy") or not (digits.isascii() and digits.isdigit()):
            return
        number = int(digits)
        if number not in self._sent:
            return
        took = (now - self._sent[number]) * 1000
        again = " (again)" if number in self._answered else ""
        if not again:
            self._answered.add(number)
            self.took.append(took)
        sender = "" if message.peer == "local" else f" ({message.peer})"
        said = f"version={version}" if word == "pong" else "busy"
        _say(f"{message.src}{sender}: seq={number} time={took:.3f} ms {said}{again}")

    def _summary(self, times: int, seconds_: float) -> int:
        answered = len(self._answered)
        lost = 100 * (times - answered) / times
        _say("")
        _say(f"{times} asked, {answered} answered, {lost:.3g}% lost, {seconds_:.3f} s")
        if not self.took:
            return TIMED_OUT
        mean = sum(self.took) / len(self.took)
        _say(f"round trip min/avg/max {min(self.took):.3f}/{mean:.3f}/{max(self.took):.3f} ms")
        return DONE


def _say(line: str) -> None:
    say(printable(line))
