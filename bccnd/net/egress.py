"""Datagrams on their way out to one segment.

Rules
- Order is kept. What the network cannot take for the moment (EAGAIN, ENOBUFS) waits, at most PENDING_LIMIT datagrams,
  and is tried again every RETRY_SECONDS; the newest are given up beyond that.
- Once more than half of that waits the way is ``congested``, until less than a quarter does: the caller reads no more
  from local publishers meanwhile.
- What the network refuses (no route, link down, not permitted) is given up at once: it would be stale by the time the
  link is back. So is everything that has waited for STALL_SECONDS without one datagram going out.
- Further copies of a datagram follow after the spread. Like all else they wait their turn, but only in the half of
  the room that is not congested; the other half is for first copies.
- A pause sends nothing and forgets nothing; ``state`` is what a successor of this daemon has to know, which sends
  nothing of it before ``resume``.
- Everything given up is in ``unsent``; ``error`` is the errno of the last refusal, 0 once something went out again.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from bccnd.net.broadcast import SegmentWriter

PENDING_LIMIT = 8192  # datagrams; at most 11 MiB
RETRY_SECONDS = 0.002  # ENOBUFS has no event that tells when it is over
STALL_SECONDS = 1.0
COPIES_LIMIT = 65536  # datagrams that wait for their next copy


class Egress:
    """``on_relief`` is called when the way is no longer congested."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        writer: SegmentWriter,
        on_relief: Callable[[], None],
        *,
        copies: int = 1,
        spread: float = 0.0,
    ) -> None:
        self._loop = loop
        self._writer = writer
        self._on_relief = on_relief
        self._copies = copies
        self._spread = spread
        self._pending: deque[bytes] = deque()
        self._retry: TimerHandle | None = None
        self._moved = 0.0  # when the last datagram went out while others waited
        self._copies_due: deque[tuple[list[bytes], int]] = deque()  # and how many more times after that
        self._copies_waiting = 0
        self._paused = False
        self.congested = False
        self.sent = 0
        self.unsent = 0
        self.error = 0

    def send(self, starts: list[int], ends: list[int]) -> None:
        """Send the datagrams at these spans of the arena. They are copied only if they have to wait."""
        done = 0 if self._pending else self._count(self._writer.send(starts, ends))
        if done < len(starts):
            self._wait(self._writer.copies(starts[done:], ends[done:]), PENDING_LIMIT)
        if self._copies > 1:
            self._copy_later(self._writer.copies(starts, ends))

    def send_copies(self, datagrams: list[bytes]) -> None:
        """The same for datagrams that lie elsewhere."""
        self._send(datagrams)
        if self._copies > 1:
            self._copy_later(list(datagrams))

    def write_by(self, writer: SegmentWriter) -> None:
        """From now on, what waits included."""
        self._writer = writer

    def set_copies(self, copies: int, spread: float) -> None:
        """For what is sent from now on."""
        self._copies = copies
        self._spread = spread

    @property
    def busy(self) -> bool:
        """Something waits to be sent, be it a copy."""
        return bool(self._pending or self._copies_due)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._await_room()
        for _ in range(len(self._copies_due)):
            self._loop.call_later(self._spread, self._send_copy)

    def state(self) -> dict[str, Any]:
        """In plain values."""
        return {
            "pending": list(self._pending),
            "copies": list(self._copies_due),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """To be followed by ``resume``."""
        self._paused = True
        self._wait(state["pending"], PENDING_LIMIT)
        self._copies_due.extend(state["copies"])
        self._copies_waiting = sum([len(datagrams) for datagrams, _ in self._copies_due])

    def close(self) -> None:
        """Send what waits if the network takes it now; the rest is given up, and copies that are not due yet."""
        self._paused = True
        self._flush()
        self._give_up()
        if self._retry:
            self._retry.cancel()

    def _send(self, datagrams: list[bytes], limit: int = PENDING_LIMIT) -> None:
        done = 0 if self._pending else self._count(self._writer.send_copies(datagrams))
        if done < len(datagrams):
            self._wait(datagrams[done:], limit)

    def _count(self, outcome: tuple[int, int, int]) -> int:
        """How many are dealt with; the rest has to wait."""
        done, refused, error = outcome
        self.sent += done - refused
        self.unsent += refused
        if done:
            self.error = error
        return done

    def _wait(self, datagrams: Sequence[bytes], limit: int) -> None:
        if not self._pending:
            self._moved = self._loop.time()
        room = max(0, limit - len(self._pending))
        self._pending.extend(datagrams[:room])
        self.unsent += max(0, len(datagrams) - room)
        if len(self._pending) * 2 > PENDING_LIMIT:  # and never back here: only relief ends it
            self.congested = True
        self._await_room()

    def _await_room(self) -> None:
        if self._pending and self._retry is None:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._again)

    def _again(self) -> None:
        self._retry = None
        if self._paused:
            return
        self._flush()
        if self._pending and self._loop.time() - self._moved > STALL_SECONDS:
            self._give_up()
        self._await_room()
        if self.congested and len(self._pending) * 4 < PENDING_LIMIT:
            self.congested = False
            self._on_relief()

    def _flush(self) -> None:
        done = self._count(self._writer.send_copies(list(self._pending)))
        if done:
            self._moved = self._loop.time()
        for _ in range(done):
            self._pending.popleft()

    def _give_up(self) -> None:
        self.unsent += len(self._pending)
        self._pending.clear()

    def _copy_later(self, datagrams: list[bytes]) -> None:
        """Have the further copies follow, if there is room for them."""
        if self._copies_waiting + len(datagrams) <= COPIES_LIMIT:
            self._schedule(datagrams, self._copies - 1)
        else:
            self.unsent += len(datagrams) * (self._copies - 1)

    def _schedule(self, datagrams: list[bytes], left: int) -> None:
        self._copies_waiting += len(datagrams)
        self._copies_due.append((datagrams, left))
        self._loop.call_later(self._spread, self._send_copy)

    def _send_copy(self) -> None:
        """The oldest copies are due: the spread is the same for all."""
        if self._paused or not self._copies_due:
            return
        datagrams, left = self._copies_due.popleft()
        self._copies_waiting -= len(datagrams)
        self._send(datagrams, PENDING_LIMIT // 2)
        if left > 1:
            self._schedule(datagrams, left - 1)
