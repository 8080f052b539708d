"""What is left of a client's packets when its turn is over, and the order of the turns.

A client can ask for more with one read than the others can wait for. Its turn ends after TURN_SECONDS, and its next
one comes when everybody else has had theirs:

    read --> turn --> packets left? --> copied out of the arena --> next turn --> ... --> read again
                                        (others are read into it)

Rules
- A client with packets left is not read, so it has one read's worth left at most. Its own socket holds the rest.
- They are in its account and in that of all (``relay.delivery``): where too many wait, who has most is closed.
- The loop gives one turn at a time to those in line, and looks after all sockets between two: however many clients
  have packets left, nobody waits for more than one of them.
- A client that had a long turn lately (LONG_NS, LATELY_NS) is read in one round of the loop with others like it only
  if it is the first of them: the others get in line. So a round has one long turn, however many clients are busy, and
  who asks for little waits for that one.
- The packets keep their distances inside a PACK, so that they can be passed on as one slice of it.
"""

import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from operator import sub
from typing import Any, Self

from bccnd.relay.client_input import Left
from bccnd.relay.session import Session
from bccnd.wire.sbus import LENGTH, Memory

# What a client may keep the others waiting for: far below what people or services notice, and long enough for some
# thousand messages, so that busy publishers seldom have packets left.
TURN_SECONDS = 0.002

TURN_NS = int(TURN_SECONDS * 1e9)

# A turn of so many nanoseconds is long. Shorter ones, such as those of a client that waits for answers, or that sends
# a few messages, can come one after the other.
LONG_NS = 500_000

# For so many nanoseconds after a long turn a client is expected to want another. Who means well hardly notices.
LATELY_NS = 10_000_000_000

# Bytes left of all clients from which on one packet is read of a client, so that little is left of it: what some
# forty leave that send as much as they can. It is below what ``queue.total_bytes`` allows, as these are soon done.
MUCH = 8 << 20

# Bytes between packets that were not read as one: more than lie between two of a PACK, and fewer than between slots.
_APART = 64


@dataclass(slots=True)
class Leftover:
    """Packets copied out of the memory: its pieces, and where in them, laid side by side, the packets begin and end;
    ``flat``: of ``Left``.
    """

    pieces: list[bytes]
    starts: "array[int]"
    ends: "array[int]"
    flat: int

    @classmethod
    def of(cls, memory: Memory, left: Left) -> Self:
        packets, first, flat = left
        starts, ends = packets[0][first:], packets[1][first:]
        copied = cls([], array("I"), array("I"), max(flat - first, 0))
        apart = [index for index, gap in enumerate(map(sub, starts[1:], ends), 1) if gap >= _APART]
        first, at = 0, 0
        for after in [*apart, len(starts)] if starts else []:
            # The length in a PACK stands before its first packet.
            begin = max(starts[first] - LENGTH.size, 0)
            copied.pieces.append(memory[begin : ends[after - 1]])
            copied.starts.extend([start - begin + at for start in starts[first:after]])
            copied.ends.extend([end - begin + at for end in ends[first:after]])
            at += len(copied.pieces[-1]) + _APART
            first = after
        return copied

    def __len__(self) -> int:
        """Bytes, with those of the spans: a packet may have none itself."""
        return sum(map(len, self.pieces)) + len(self.starts) * 2 * self.starts.itemsize

    def lay_out(self, memory: Memory, region: int) -> Left:
        """The packets again, in a region that has room for one read."""
        at = region
        for piece in self.pieces:
            memory[at : at + len(piece)] = piece
            at += len(piece) + _APART
        spans = [region + start for start in self.starts], [region + end for end in self.ends]
        return spans, 0, self.flat


class Turns:
    """The clients with packets left, and the line for the next turn: of these, and of others that are busy."""

    def __init__(self, memory: Memory, region: int) -> None:
        """``region``: of the memory, with room for one read."""
        self._memory = memory
        self._region = region
        self._left: dict[Session, Leftover] = {}
        self._size = 0
        self._line: dict[Session, None] = {}
        self._long: dict[Session, int] = {}  # when they had a long turn, in nanoseconds
        # Whether this round of the loop has had its long turn.
        self._round_is_spent = False

    def __contains__(self, session: Session) -> bool:
        return session in self._left

    @property
    def are_many(self) -> bool:
        """Whether no more than one packet of a client is to be read."""
        return self._size > MUCH

    def __len__(self) -> int:
        """How many are in line."""
        return len(self._line)

    def begin_round(self) -> None:
        self._round_is_spent = False

    def took(self, session: Session, begun: int, now: int) -> bool:
        """Note how long a turn was, by the clock, in nanoseconds. True when it was long, and the round is spent."""
        if 0 <= now - begun <= LONG_NS:
            return False
        self._long[session] = now
        self._round_is_spent = True
        return True

    def must_wait(self, session: Session) -> bool:
        """Whether a client is busy as others are who come first."""
        if session not in self._long or not (self._round_is_spent or self._line):
            return False
        if 0 <= time.time_ns() - self._long[session] < LATELY_NS:
            return True
        del self._long[session]
        return False

    def put_aside(self, session: Session, left: Left) -> int:
        """Returns how many bytes that takes."""
        self._left[session] = leftover = Leftover.of(self._memory, left)
        self._size += len(leftover)
        return len(leftover)

    def line_up(self, session: Session) -> None:
        """At the end, if it is not in line yet."""
        self._line[session] = None

    def next(self) -> Session | None:
        """Who is first in line, and no longer from now on."""
        session = next(iter(self._line), None)
        if session is not None:
            del self._line[session]
        return session

    def take(self, session: Session) -> Left:
        """The packets of a client, laid out in the region."""
        left = self._left.pop(session)
        self._size -= len(left)
        return left.lay_out(self._memory, self._region)

    def state(self) -> dict[int, Any]:
        """What is left, in plain values, by the number of the session, for a successor of this daemon."""
        return {
            session.number: (left.pieces, left.starts.tolist(), left.ends.tolist(), left.flat)
            for session, left in self._left.items()
        }

    def sizes(self) -> list[tuple[Session, int]]:
        """How many bytes are left of whom."""
        return [(session, len(left)) for session, left in self._left.items()]

    def restore(self, state: Mapping[int, Any], sessions: Mapping[int, Session]) -> None:
        """Whoever waits for nothing is in line."""
        for number, (pieces, starts, ends, flat) in state.items():
            session = sessions[number]
            self._left[session] = leftover = Leftover(pieces, array("I", starts), array("I", ends), flat)
            self._size += len(leftover)
            if not session.waits_for:
                self.line_up(session)

    def forget(self, session: Session) -> None:
        left = self._left.pop(session, None)
        self._size -= len(left) if left else 0
        self._line.pop(session, None)
        self._long.pop(session, None)
