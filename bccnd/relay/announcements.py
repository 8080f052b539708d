"""Announces the last number of each source: nothing else shows the loss of a last message (``bccnd/wire/REPAIR.md``,
"Announcements").

Rules
- While this host sends, its daemon announces the last number of each source that sent something, in one datagram
  every EVERY seconds at most. It announces a source that has fallen silent twice more, after AGAIN. Then it is
  silent, too.
- Sources that do not fit into the datagram wait for the next. New sources come first, with their first number; then
  those that have been silent for longest. A source that goes on sending shows its losses by itself.
- A source that has just begun is announced at once, as long as few begin: a program may send one message and end. And
  a receiver that lost the first message of a source and got the second learns of the first only if this comes between
  them.
"""

from collections import deque
from math import inf

from bccnd.relay.allowance import Allowance
from bccnd.relay.deadlines import Alarm
from bccnd.wire.repair import last_payload

EVERY = 0.05
# Announcements in a second, and at once, that do not wait for EVERY because a source has just begun. That is enough
# for all programs that begin together, except when the host starts.
AT_ONCE_PER_SECOND, AT_ONCE_TOGETHER = 20.0, 8.0
# Seconds from one announcement of a silent source to the next.
AGAIN = 0.1, 0.4
# A source is new for so long: by then every daemon has heard its first number, and a few times in case of loss.
NEW_SECONDS = 1.0
# A datagram has no room for more.
LINES = 64
# Silent sources that wait to be announced again, while a flood of new ones, which come first, delays them.
AGAIN_LIMIT = 4096


class Speaker:
    """A source of this host that has sent the numbers from ``first`` to ``last``. ``since``: when it began;
    ``spoke``: when it first spoke after its last announcement; ``fresh``: it has spoken since then.
    """

    __slots__ = ("first", "fresh", "last", "name", "since", "spoke")

    def __init__(self, name: bytes, first: int, now: float) -> None:
        self.name = name
        self.first = first
        self.last = first - 1
        self.since = self.spoke = now
        self.fresh = False


class Announcements:
    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self._said = -inf
        self._at_once = Allowance(AT_ONCE_PER_SECOND, AT_ONCE_TOGETHER)
        self.clear()

    def clear(self) -> None:
        """Nothing is to be announced."""
        self._fresh: list[Speaker] = []
        # Those to be announced for the first time since they spoke.
        self._new: dict[Speaker, None] = {}
        self._waiting: dict[Speaker, None] = {}
        # When each is announced again, and with which number if it has stayed silent.
        self._again: tuple[deque[tuple[float, Speaker, int]], ...] = tuple(deque() for _ in AGAIN)
        self._next = inf

    def next_deadline(self) -> float:
        return self._next

    def note(self, speaker: Speaker, now: float) -> None:
        """It has spoken, and was not ``fresh``."""
        speaker.fresh = True
        speaker.spoke = now
        if speaker.since == now:
            self._plan(max(now, min(self._at_once.when(now, 1), self._said + EVERY)))
        elif not self._fresh:
            self._plan(now + EVERY)
        self._fresh.append(speaker)

    def forget(self, speaker: Speaker) -> None:
        """What it sent is no longer kept: nobody needs to know its last number."""
        speaker.fresh = False
        self._new.pop(speaker, None)
        self._waiting.pop(speaker, None)

    def take(self, now: float) -> bytes:
        """The announcement that is due, empty for none."""
        if now < self._next:
            return b""
        for speaker in [each for each in self._fresh if each.fresh]:  # those that were not forgotten
            speaker.fresh = False
            table = self._new if now - speaker.since <= NEW_SECONDS else self._waiting
            self._waiting.pop(speaker, None)
            table[speaker] = None
        self._fresh = []
        speakers = [(speaker, 0) for speaker, _ in zip(self._new, range(LINES), strict=False)]
        for times, queue in enumerate(self._again, 1):
            while queue and queue[0][0] <= now and len(speakers) < LINES:
                _, speaker, last = queue.popleft()
                if speaker.last == last:
                    speakers.append((speaker, times))
        speakers += [(speaker, 0) for speaker, _ in zip(self._waiting, range(LINES), strict=False)]
        payload = last_payload([self._line(speaker, now) for speaker, _ in speakers])
        done = payload.count(b"\n")
        for speaker, times in speakers[:done]:
            self._announced(speaker, times, now)
        for speaker, times in speakers[done:]:
            if times:
                self._again[times - 1].appendleft((now, speaker, speaker.last))
        self._plan_next(now)
        return payload

    def _plan_next(self, now: float) -> None:
        """After an announcement."""
        if now < self._said + EVERY:
            self._at_once.take(now)
        self._said, self._next = now, inf
        if self._new or self._waiting:
            self._plan(now + EVERY)
        for queue in self._again:
            if queue:
                self._plan(max(queue[0][0], now + EVERY))

    def _line(self, speaker: Speaker, now: float) -> tuple[bytes, int | None, int]:
        is_new = now - speaker.since <= NEW_SECONDS
        return speaker.name, speaker.first if is_new else None, speaker.last

    def _announced(self, speaker: Speaker, times: int, now: float) -> None:
        self._new.pop(speaker, None)
        self._waiting.pop(speaker, None)
        if times < len(AGAIN) and len(self._again[times]) < AGAIN_LIMIT:
            self._again[times].append((now + AGAIN[times], speaker, speaker.last))

    def _plan(self, due: float) -> None:
        self._next = min(self._next, due)
        self._alarm.due = min(self._alarm.due, due)
