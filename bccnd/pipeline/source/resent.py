"""Tells in a capture which datagrams were sent again, because somebody had missed them (``bccnd/wire/REPAIR.md``).

    8 ---> 10 ---> resend 9 ---> 9       repaired: it came after it had been asked for, and not before
    8 ---> 9 ---> 10 ---> resend 9 ---> 9    a duplicate, which another host had asked for

Without that, a message that came again is one that others overtook, and one that was sent again counts twice.

Rules
- All hear who asks for what. A number that anybody asked for less than ASKED_NS ago is sent again if it comes.
- What is below the first number of its source in the capture may have come before it: that is not judged.
- Memory holds so many datagrams (REMEMBERED), numbers that were asked for, and sources: of these the first ones, of
  the others the newest.
"""

import re
from typing import Any

from bccnd.pipeline.source.rows import Parts
from bccnd.pipeline.times import SECOND_NS
from bccnd.recorder.layout import Direction
from bccnd.wire import repair
from bccnd.wire.verdict import Verdict

# A daemon waits ten times 0.1 seconds at most for a number (repair.hold_seconds).
ASKED_NS = SECOND_NS
# A second of the fastest senders; 20 MB.
REMEMBERED = 1 << 17
# Numbers of one range that are looked at: no daemon keeps more of a source by default.
RANGE_LIMIT = 4096

_DAEMON = re.compile(rf"[^/]+/bccnd/[^/]+/{repair.SOURCE_END.decode()}")
_CHANNEL = repair.CHANNEL.decode()


class Resent:
    """What a capture has shown so far."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._seen: dict[tuple[str, int], None] = {}
        self._asked: dict[tuple[str, int], int] = {}

    def judge(self, time_ns: int, direction: str, parts: Parts) -> Verdict:
        """The verdict on a sound datagram: OK, or, if it came again, REPAIRED or DUPLICATE; OWN if the host's."""
        _, src, seq, channel, payload = parts
        if src is None or seq is None:
            return Verdict.OK
        if channel == _CHANNEL and payload and _DAEMON.fullmatch(src):
            self._hear(time_ns, payload)
        if len(self._first) < REMEMBERED:
            self._first.setdefault(src, seq)
        message = (src, seq)
        before = message in self._seen
        _remember(self._seen, message, None)
        asked = self._asked.get(message)
        if asked is None or time_ns - asked > ASKED_NS or seq <= self._first.get(src, seq):
            return Verdict.OK
        if direction == Direction.OUT:
            return Verdict.OWN if before else Verdict.OK
        return Verdict.DUPLICATE if before else Verdict.REPAIRED

    def _hear(self, time_ns: int, payload: bytes) -> None:
        """A daemon may ask for numbers."""
        said = repair.parse(payload)
        if isinstance(said, repair.Resend):
            for name, ranges in said.numbers:
                missed = name.decode()
                for numbers in ranges:
                    for number in numbers[:RANGE_LIMIT]:
                        _remember(self._asked, (missed, number), time_ns)


def _remember(memory: dict[tuple[str, int], Any], key: tuple[str, int], value: int | None) -> None:
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > REMEMBERED:
        del memory[next(iter(memory))]
