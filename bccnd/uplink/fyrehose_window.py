"""The datagrams that are pushed to a fyrehose backbone, until each comes back with a position.

    publish --> waiting --> sent --> it came back: published
                   ^          '--> not in time, or overtaken by what was sent later
                   '---------------------'

Rules
- A push is sent again, under the same link number, until it comes back. The timeout follows the round trips before
  (RFC 6298), and doubles each time the same push is sent. A push that was sent again is not measured (Karn).
- The backbone keeps the order of what it gets. So a push also counts as lost when one that was sent clearly later
  comes back before it (RFC 8985, "RACK").
- A window bounds what is under way. It is halved when something is lost, once in a round trip, and grows with what
  comes back. It never falls below a few datagrams: a network that loses some at random is not full.
"""

from collections import deque
from math import inf

from bccnd.relay.deadlines import Alarm, Deadlines

# Seconds until a push is sent again: before anything came back, at least, and at most. A busy host answers late, and
# a wrong guess costs a second message.
FIRST_TIMEOUT, LEAST_TIMEOUT, MOST_TIMEOUT = 0.5, 0.05, 1.0
# Datagrams under way at the start, at least, and at most: a megabyte and a half fits into what a backbone's kernel
# holds for it.
START, LEAST, MOST = 64, 32, 1024
# Bytes of a datagram of the window; longer ones count as several.
UNIT_BYTES = 1500
# Seconds by which one datagram may overtake another on the way, at least.
OVERTAKING = 0.005


class RoundTrip:
    """``smoothed``: seconds, None before anything was measured (RFC 6298, section 2)."""

    def __init__(self) -> None:
        self.smoothed: float | None = None
        self._varies = 0.0

    def measured(self, took: float) -> None:
        if self.smoothed is None:
            self.smoothed, self._varies = took, took / 2
        else:
            self._varies += (abs(self.smoothed - took) - self._varies) / 4
            self.smoothed += (took - self.smoothed) / 8

    @property
    def timeout(self) -> float:
        """Seconds after which no answer is expected any more."""
        if self.smoothed is None:
            return FIRST_TIMEOUT
        return min(MOST_TIMEOUT, max(LEAST_TIMEOUT, self.smoothed + 4 * self._varies))


class _Push:
    """``sent``: when it was last sent; ``times``: how often."""

    __slots__ = ("datagram", "number", "sent", "times")

    def __init__(self, number: int, datagram: bytes) -> None:
        self.number, self.datagram = number, datagram
        self.sent, self.times = 0.0, 0


class Window:
    """``size``: datagrams that may be under way; ``repeated``: those sent again, since the start."""

    def __init__(self, round_trip: RoundTrip) -> None:
        self._round_trip = round_trip
        self.size = float(START)
        self._threshold = float(MOST)  # where growth slows down
        self.repeated = 0
        self._by_number: dict[int, _Push] = {}
        self._by_datagram: dict[bytes, _Push] = {}
        self._waiting: deque[_Push] = deque()
        self._sent: dict[int, _Push] = {}  # the longest ago first
        self._held = self._bytes = 0  # bytes of all, and of those under way
        self._due: Deadlines[int] = Deadlines(Alarm())
        self._latest = self._halved = -inf

    def __len__(self) -> int:
        """Datagrams that have not come back."""
        return len(self._by_number)

    @property
    def room(self) -> int:
        """How many more datagrams may be published now."""
        if self._held >= self.size * UNIT_BYTES:
            return 0
        return max(0, int(self.size) - len(self._by_number))

    @property
    def opened(self) -> bool:
        """Whether there is enough room to make filling it worth while."""
        return self.room >= self.size / 4

    def next_deadline(self) -> float:
        """The earliest time at which ``take`` has something."""
        return self._due.next if self._sent else inf

    def publish(self, number: int, datagram: bytes) -> None:
        """Push it, until it comes back. A number that is under way already stays as it is."""
        if number in self._by_number or datagram in self._by_datagram:
            return
        push = self._by_number[number] = self._by_datagram[datagram] = _Push(number, datagram)
        self._held += len(datagram)
        self._waiting.append(push)

    def take(self, now: float) -> list[bytes]:
        """The datagrams to send now."""
        while (due := self._due.pop(now)) is not None:
            self._lose(self._sent[due[0]], now)
        taken = []
        while self._waiting and len(self._sent) < self.size and self._bytes < self.size * UNIT_BYTES:
            push = self._waiting.popleft()
            if self._by_number.get(push.number) is not push:  # it came back while it waited
                continue
            self.repeated += push.times > 0
            push.sent = now
            wait = min(MOST_TIMEOUT, self._round_trip.timeout * 2 ** min(push.times, 8))
            push.times += 1
            self._sent[push.number] = push
            self._bytes += len(push.datagram)
            self._due.set(push.number, now + wait)
            taken.append(push.datagram)
        return taken

    def came(self, datagram: bytes, now: float) -> int | None:
        """Take a delivered datagram. Returns its link number if it is ours and under way, else None."""
        push = self._by_datagram.pop(datagram, None)
        if push is None:
            return None
        del self._by_number[push.number]
        self._held -= len(datagram)
        if push.number in self._sent:
            self._grow()
            self._leave(push)
            if push.times == 1:
                self._round_trip.measured(now - push.sent)
                self._latest = max(self._latest, push.sent)
                self._find_overtaken(now)
        return push.number

    def pause(self) -> None:
        """Nothing gets through: send everything again once it does."""
        for push in reversed(list(self._sent.values())):
            self._leave(push)
            self._waiting.appendleft(push)
        self.size, self._threshold = float(START), float(MOST)
        self._latest = self._halved = -inf

    def _find_overtaken(self, now: float) -> None:
        late = self._latest - max(OVERTAKING, (self._round_trip.smoothed or 0.0) / 4)
        while self._sent and (first := next(iter(self._sent.values()))).sent < late:
            self._lose(first, now)

    def _lose(self, push: _Push, now: float) -> None:
        self._leave(push)
        self._waiting.append(push)  # last, so that those which never get through do not keep others from it
        if push.sent > self._halved:
            self.size = self._threshold = max(float(LEAST), self.size / 2)
            self._halved = now

    def _leave(self, push: _Push) -> None:
        del self._sent[push.number]
        self._bytes -= len(push.datagram)
        self._due.remove(push.number)

    def _grow(self) -> None:
        """Grow by as much as comes back, later by one in a round trip; but not while the window is not used."""
        if len(self._sent) >= self.size / 2:
            self.size = min(float(MOST), self.size + (1 if self.size < self._threshold else 1 / self.size))
