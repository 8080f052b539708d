"""What is left of a client's packets when its turn is over, and the order of the turns.

A client can ask for more with one read than the others can wait for. Its turn ends after TURN_SECONDS, and its next
one comes when everybody else has had theirs:

    read --> turn --> packets left? --> copied out of the arena --> next turn --> ... --> read again
                                        (others are read into it)

Rules
- A client with packets left is not read, so it has one read's worth left at most. Its own socket holds the rest.
- They are in its account and in that of all (``relay.delivery``): where too many wait, who has most is closed.
- Of a user with MUCH_OF_A_USER left, no other client is read that is busy, as long as one of those with packets left
  can have a turn.
- A round of the loop has a budget (ROUND_NS) for clients that ask for little (``Pace``), which are read as the loop
  finds them, and one for those that are busy, which get in line: so who asks for little waits for no more than that,
  however many are busy, and who is beyond the budget gets in a line of its own.
- A client is busy that had a long turn lately (LONG_NS, LATELY_NS), or has sent much that was not read (LITTLE). Only
  a turn with work for it counts (LONG_STEPS): a machine that does something else meanwhile makes nobody busy.
- Turns go round by user, and then by client of that user: who has many clients has as many turns as who has one.
- What is left of a batch has to be copied. So the batches of a client are half as large from one on that was not done
  when the turn was over, and twice as large from one on that was done when half of the turn was left.
- The packets keep their distances inside a PACK, so that they can be passed on as one slice of it. They are copied
  once: a turn lays out the next of them (WINDOW, WINDOW_BYTES).
"""

import time
from array import array
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import sub
from typing import Any, Self

from bccnd.net.mmsg import BATCH
from bccnd.net.peers import unread_bytes
from bccnd.relay.client_input import Left
from bccnd.relay.effects import Spans
from bccnd.relay.session import Session
from bccnd.wire.sbus import LENGTH, Memory

# What a client may keep the others waiting for: far below what people or services notice, and long enough for some
# thousand messages, so that busy publishers seldom have packets left.
TURN_SECONDS = 0.002

TURN_NS = int(TURN_SECONDS * 1e9)

# What clients of either line, and those that the loop finds, may take of a round in nanoseconds. The last turn may
# begin just before.
ROUND_NS = 1_000_000

# A turn of so many nanoseconds and steps is long. Shorter ones, such as those of a client that waits for answers, or
# that sends a few messages, can come one after the other.
LONG_NS = 500_000
LONG_STEPS = 256

# While one turn takes so many nanoseconds, others send several packets.
GATHERING_NS = 200_000

# For so many nanoseconds after a long turn a client is expected to want another. Who means well hardly notices.
LATELY_NS = 10_000_000_000

# A pause of so many nanoseconds between two turns: the loop had nothing to do, and another round has begun.
PAUSE_NS = 200_000

# Bytes left of all clients from which on one packet is read of a client, so that little is left of it: what some
# forty leave that send as much as they can. It is below what ``queue.total_bytes`` allows, as these are soon done.
MUCH = 8 << 20

# The same for the clients of a user, from which on no more is begun.
MUCH_OF_A_USER = 4 << 20

# Bytes: who has sent no more is read soon.
LITTLE = 16 << 10

# How many packets are laid out for a turn, and how many bytes: some calls of the relay.
WINDOW = 2048
WINDOW_BYTES = 128 << 10

# Bytes between packets that were not read as one: more than lie between two of a PACK, and fewer than between slots.
_APART = 64


@dataclass(slots=True)
class Leftover:
    """Packets copied out of the memory, and where in the copy they begin and end; ``flat``: of ``Left``; ``at``: the
    first that is left.
    """

    copy: bytes
    starts: "array[int]"
    ends: "array[int]"
    flat: int
    at: int = 0

    @classmethod
    def of(cls, memory: Memory, left: Left) -> Self:
        packets, first, flat = left
        starts, ends = packets[0][first:], packets[1][first:]
        placed = array("I"), array("I")
        pieces, at, flat, first = [], 0, max(flat - first, 0), 0
        apart = [index for index, gap in enumerate(map(sub, starts[1:], ends), 1) if gap >= _APART]
        for after in [*apart, len(starts)] if starts else []:
            # The length in a PACK stands before its first packet.
            begin = max(starts[first] - LENGTH.size, 0)
            pieces.append(memory[begin : ends[after - 1]])
            placed[0].extend([start - begin + at for start in starts[first:after]])
            placed[1].extend([end - begin + at for end in ends[first:after]])
            at += len(pieces[-1]) + _APART
            first = after
        return cls(bytes(_APART).join(pieces), *placed, flat)

    def __len__(self) -> int:
        """Bytes, with those of the spans: a packet may have none itself."""
        return len(self.copy) + len(self.starts) * 2 * self.starts.itemsize

    def __bool__(self) -> bool:
        return self.at < len(self.starts)

    def lay_out(self, memory: Memory, region: int, packets: int = 1 << 30, size: int = 1 << 30) -> Left:
        """The next packets again, so many and so many bytes, but one in any case, in a region that has room."""
        first, after = self.at, min(self.at + packets, len(self.starts))
        if first == after:
            return ([], []), 0, 0
        begin = max(self.starts[first] - LENGTH.size, 0)
        self.at = after = max(first + 1, bisect_right(self.ends, begin + size, first, after))
        piece = self.copy[begin : self.ends[after - 1]]
        memory[region : region + len(piece)] = piece
        shift = region - begin
        spans = (
            [start + shift for start in self.starts[first:after]],
            [end + shift for end in self.ends[first:after]],
        )
        return spans, 0, min(max(self.flat - first, 0), after - first)


@dataclass(slots=True)
class Waiting:
    """The clients of a user that wait for a turn: those with packets left and those to be read, in turn."""

    begun: dict[Session, None] = field(default_factory=dict)
    fresh: dict[Session, None] = field(default_factory=dict)
    from_begun: bool = False

    def __bool__(self) -> bool:
        return bool(self.begun or self.fresh)

    def next(self, *, only_begun: bool) -> Session:
        self.from_begun = bool(self.begun) and (only_begun or not self.fresh or not self.from_begun)
        row = self.begun if self.from_begun else self.fresh
        session = next(iter(row))
        del row[session]
        return session


class Line:
    """Who waits for a turn: users one after the other, and the clients of each one after the other."""

    def __init__(self) -> None:
        self._users: dict[int, Waiting] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, session: Session, *, left: bool) -> None:
        """At the end, if it is not in line yet; ``left``: whether packets are left of it."""
        waiting = self._users.setdefault(session.peer.uid, Waiting())
        if session not in waiting.begun and session not in waiting.fresh:
            (waiting.begun if left else waiting.fresh)[session] = None
            self._length += 1

    def remove(self, session: Session) -> None:
        waiting = self._users.get(session.peer.uid)
        if waiting is None:
            return
        for row in (waiting.begun, waiting.fresh):
            if session in row:
                del row[session]
                self._length -= 1
        if not waiting:
            del self._users[session.peer.uid]

    def next(self, left: Mapping[int, int]) -> Session | None:
        """Who is first, and no longer from now on. ``left``: how many bytes are left of each user."""
        uid = next(iter(self._users), None)
        if uid is None:
            return None
        waiting = self._users.pop(uid)
        self._length -= 1
        session = waiting.next(only_begun=left.get(uid, 0) > MUCH_OF_A_USER)
        if waiting:
            self._users[uid] = waiting
        return session


class Turns:
    """The lines for the next turn: of clients that are busy, and of those that ask for little. ``left``: the packets
    that are left of each, those that come next at the end.
    """

    def __init__(self, memory: Memory, region: int) -> None:
        """``region``: of the memory, with room for one read."""
        self._memory = memory
        self._region = region
        self.left: dict[Session, list[Leftover]] = {}
        self._size = 0
        self._of_users: dict[int, int] = {}
        self._busy, self._modest = Line(), Line()
        self._in_line = 0
        self._long: dict[Session, int] = {}  # when they had a long turn, in nanoseconds
        self._batches: dict[Session, int] = {}  # how many packets, where that is less than BATCH
        # What this round has taken, and when its last turn ended, in nanoseconds.
        self._used = 0
        self._ended = 0
        # When a turn was so long the last time that others have gathered packets, in nanoseconds since 1970.
        self.gathered_ns = 0
        # Whether some have to wait: the budget of the round is spent, or somebody is in line.
        self.are_scarce = False

    def have_many(self, session: Session) -> bool:
        """Whether no more than one packet of this client is to be read."""
        return self._size > MUCH or self._of_users.get(session.peer.uid, 0) > MUCH_OF_A_USER

    def __len__(self) -> int:
        """How many are in line."""
        return self._in_line

    @property
    def is_spent(self) -> bool:
        return self._used > ROUND_NS

    def begin_round(self) -> None:
        self._used = 0
        self._count()

    def end(self, begun: int) -> None:
        """Note how long something else took that the loop began at this time, in nanoseconds since 1970."""
        now = time.time_ns()
        if now - begun > GATHERING_NS:
            self.gathered_ns = now

    def took(self, session: Session, begun: int, now: int, steps: int) -> bool:
        """Note how long a turn was, by the clock, in nanoseconds. True when the budget of the round is spent."""
        used = now - begun
        if not 0 <= used <= GATHERING_NS:
            used = used if used > 0 else TURN_NS
            if steps >= LONG_STEPS:
                self.gathered_ns = now
                if used > LONG_NS:
                    self._long[session] = now
        if begun - self._ended <= PAUSE_NS:
            used += self._used
        self._used, self._ended = used, now
        if used <= ROUND_NS:
            return False
        self.are_scarce = True
        return True

    def must_wait(self, session: Session) -> bool:
        """Whether a client has to get in line: a busy one if anybody else is, others if the budget is spent."""
        return self.are_scarce and (self.is_spent or self._is_busy(session))

    def _is_busy(self, session: Session) -> bool:
        if session in self.left:
            return True
        if session in self._long:
            if 0 <= time.time_ns() - self._long[session] < LATELY_NS:
                return True
            del self._long[session]
        return unread_bytes(session.port) > LITTLE

    def batch_of(self, session: Session) -> int:
        """How many packets are to be read of a client at once."""
        return self._batches.get(session, BATCH)

    def read_less(self, session: Session) -> None:
        """Note that a turn was over before a batch was done."""
        self._batches[session] = max(1, self.batch_of(session) // 2)

    def read_more(self, session: Session) -> None:
        """Note that half of a turn was left when a batch was done."""
        batch = self._batches.get(session)
        if batch is not None:
            if batch * 2 < BATCH:
                self._batches[session] = batch * 2
            else:
                del self._batches[session]

    def put_aside(self, session: Session, left: Left) -> None:
        leftover = Leftover.of(self._memory, left)
        self.left.setdefault(session, []).append(leftover)
        self._account(session, len(leftover))

    def line_up(self, session: Session) -> None:
        """At the end, if it is not in line yet."""
        if self._is_busy(session):
            self._busy.add(session, left=session in self.left)
        else:
            self._modest.add(session, left=False)
        self._count()

    def next_modest(self) -> Session | None:
        """Who is first in line of those that ask for little, and no longer from now on."""
        return self._next_of(self._modest)

    def next(self) -> Session | None:
        """Who is first in line of the others, and no longer from now on."""
        return self._next_of(self._busy)

    def _next_of(self, line: Line) -> Session | None:
        session = line.next(self._of_users)
        self._count()
        return session

    def _count(self) -> None:
        self._in_line = len(self._busy) + len(self._modest)
        self.are_scarce = self.is_spent or self._in_line > 0

    def take(self, session: Session) -> Left:
        """The next packets of a client, laid out in the region."""
        parts = self.left[session]
        left = parts[-1].lay_out(self._memory, self._region, WINDOW, WINDOW_BYTES)
        if not parts[-1]:
            self._account(session, -len(parts.pop()))
            if not parts:
                del self.left[session]
        return left

    def size_of(self, session: Session) -> int:
        """How many bytes are left of a client."""
        return sum(map(len, self.left.get(session, ())))

    def state(self) -> dict[int, Any]:
        """What is left, in plain values, by the number of the session, for a successor of this daemon."""
        found: dict[int, Any] = {}
        for session, parts in self.left.items():
            pieces: list[bytes] = []
            spans: Spans = [], []
            flat = at = 0
            for part in reversed(parts):
                pieces.append(part.copy)
                flat = max(flat, len(spans[0]) + part.flat - part.at if part.flat > part.at else 0)
                spans[0].extend([at + start for start in part.starts[part.at :]])
                spans[1].extend([at + end for end in part.ends[part.at :]])
                at += len(part.copy) + _APART
            found[session.number] = pieces, *spans, flat
        return found

    def sizes(self) -> list[tuple[Session, int]]:
        """How many bytes are left of whom."""
        return [(session, self.size_of(session)) for session in self.left]

    def restore(self, state: Mapping[int, Any], sessions: Mapping[int, Session]) -> None:
        """Whoever waits for nothing is in line."""
        for number, (pieces, starts, ends, flat) in state.items():
            session = sessions[number]
            leftover = Leftover(bytes(_APART).join(pieces), array("I", starts), array("I", ends), flat)
            self.left[session] = [leftover]
            self._account(session, len(leftover))
            if not session.waits_for:
                self.line_up(session)

    def forget(self, session: Session) -> None:
        self._account(session, -self.size_of(session))
        self.left.pop(session, None)
        self._busy.remove(session)
        self._modest.remove(session)
        self._count()
        self._long.pop(session, None)
        self._batches.pop(session, None)

    def _account(self, session: Session, size: int) -> None:
        self._size += size
        uid = session.peer.uid
        self._of_users[uid] = self._of_users.get(uid, 0) + size
        if not self._of_users[uid]:
            del self._of_users[uid]
