"""The queue of datagrams that go out by one binding.

Rules
- Order is kept. Datagrams that the network cannot take at the moment (EAGAIN, ENOBUFS) wait in the queue and are
  tried again every RETRY_SECONDS. The queue holds PENDING_LIMIT datagrams; further ones are given up.
- An egress is ``congested`` from when more than half of the queue is full until less than a quarter is. Meanwhile the
  caller reads no local publishers.
- Datagrams that the network refuses (no route, link down, not permitted) are given up at once: they would be stale by
  the time the link is back. If no datagram goes out for STALL_SECONDS, the whole queue is given up.
- With ``copies`` above 1 a datagram goes out again every ``spread`` seconds. Such further copies use only the half of
  the queue below congestion, so they never take the room of first copies.
- During a pause nothing is sent and nothing is given up. ``state`` has all that a successor needs; the successor
  sends nothing of it before ``resume``.
- ``unsent`` counts every datagram given up. ``error`` is the errno of the last refusal, and 0 once something has gone
  out again.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from bccnd.net.broadcast import SegmentWriter

# Datagrams; at most 11 MiB.
PENDING_LIMIT = 8192

# No event reports the end of ENOBUFS.
RETRY_SECONDS = 0.002

STALL_SECONDS = 1.0

# Datagrams that wait for their next copy.
COPIES_LIMIT = 65536


class Egress:
    """The way out by one ``SegmentWriter``. ``on_relief`` is called when it is no longer congested.

    ``copies``: how often each datagram is sent; ``spread``: the seconds between two copies of it.
    """

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
        # When the last datagram of the queue went out.
        self._moved = 0.0
        # Datagrams to be sent once more, and how many more times that will be.
        self._copies_due: deque[tuple[list[bytes], int]] = deque()
        # How many datagrams that is.
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
            self._wait(self._writer.as_bytes(starts[done:], ends[done:]), PENDING_LIMIT)
        if self._copies > 1:
            self._copy_later(self._writer.as_bytes(starts, ends))

    def send_bytes(self, datagrams: list[bytes]) -> None:
        """The same for datagrams outside the arena."""
        self._send(datagrams)
        if self._copies > 1:
            self._copy_later(list(datagrams))

    def set_writer(self, writer: SegmentWriter) -> None:
        """Send everything by this writer from now on, the queue included."""
        self._writer = writer

    def set_copies(self, copies: int, spread: float) -> None:
        """Change ``copies`` and ``spread`` for datagrams from now on."""
        self._copies = copies
        self._spread = spread

    @property
    def busy(self) -> bool:
        """Whether a datagram, or a further copy of one, waits to be sent."""
        return bool(self._pending or self._copies_due)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._await_room()
        for _ in range(len(self._copies_due)):
            self._loop.call_later(self._spread, self._send_copy)

    def state(self) -> dict[str, Any]:
        """The queue and the further copies, in plain values."""
        return {
            "pending": list(self._pending),
            "copies": list(self._copies_due),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over the ``state`` of a predecessor. The caller then calls ``resume``."""
        self._paused = True
        self._wait(state["pending"], PENDING_LIMIT)
        self._copies_due.extend(state["copies"])
        self._copies_waiting = sum([len(datagrams) for datagrams, _ in self._copies_due])

    def close(self) -> None:
        """Send what the network takes of the queue now. The rest is given up; further copies are not sent."""
        self._paused = True
        self._flush()
        self._give_up()
        if self._retry:
            self._retry.cancel()

    def _send(self, datagrams: list[bytes], limit: int = PENDING_LIMIT) -> None:
        done = 0 if self._pending else self._count(self._writer.send_bytes(datagrams))
        if done < len(datagrams):
            self._wait(datagrams[done:], limit)

    def _count(self, outcome: tuple[int, int, int]) -> int:
        """Count the outcome of a call of the writer. Returns how many datagrams are done; the rest must wait."""
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
        if len(self._pending) * 2 > PENDING_LIMIT:
            self.congested = True
        self._await_room()

    def _await_room(self) -> None:
        if self._pending and self._retry is None:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
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
        done = self._count(self._writer.send_bytes(list(self._pending)))
        if done:
            self._moved = self._loop.time()
        for _ in range(done):
            self._pending.popleft()

    def _give_up(self) -> None:
        self.unsent += len(self._pending)
        self._pending.clear()

    def _copy_later(self, datagrams: list[bytes]) -> None:
        """Schedule the further copies of these datagrams, if fewer than COPIES_LIMIT wait."""
        if self._copies_waiting + len(datagrams) <= COPIES_LIMIT:
            self._schedule(datagrams, self._copies - 1)
        else:
            self.unsent += len(datagrams) * (self._copies - 1)

    def _schedule(self, datagrams: list[bytes], left: int) -> None:
        self._copies_waiting += len(datagrams)
        self._copies_due.append((datagrams, left))
        self._loop.call_later(self._spread, self._send_copy)

    def _send_copy(self) -> None:
        """Send the oldest copies again: as the spread is the same for all, they are the ones that are due."""
        if self._paused or not self._copies_due:
            return
        datagrams, left = self._copies_due.popleft()
        self._copies_waiting -= len(datagrams)
        self._send(datagrams, PENDING_LIMIT // 2)
        if left > 1:
            self._schedule(datagrams, left - 1)
