"""Heartbeats out: the sources of this host that regularly say they are there
(``bccnd/wire/BCCN1.md``, "Heartbeats").

Rules
- The daemon beats as a source of its own, with ``bccnd/<version>``; a client beats once it has asked to
  (``CMSG heartbeat``) and for as long as it may publish there.
- The first beat comes after a part of the interval that the caller chooses, so that hosts which start together do
  not beat together. After a pause missed beats are not made up.
- A source that leaves in order sends LEAVING; one that takes another name leaves under the old one.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bccnd.relay.deadlines import Alarm, Deadlines
from bccnd.relay.identity import LocalSource

LEAVING = b"leaving"
SECONDS_LIMIT = 3600
# Bytes: a status line, not a message.
TEXT_LIMIT = 256


class Beat(NamedTuple):
    seconds: int
    text: bytes


# The number of the client, 0 for the daemon itself; its beat; when the next is due.
Kept = tuple[int, int, bytes, float]


class Heartbeats(dict[LocalSource, Beat]):
    """The sources of this host that beat, how, and when they are due."""

    def __init__(self, alarm: Alarm) -> None:
        super().__init__()
        self._due: Deadlines[LocalSource] = Deadlines(alarm)

    def begin(self, source: LocalSource, seconds: int, text: bytes, first: float) -> None:
        """Beat from ``first`` on, in place of how the source has beaten before."""
        self[source] = Beat(seconds, text)
        self._due.set(source, first)

    def stop(self, source: LocalSource) -> None:
        self.pop(source, None)
        self._due.remove(source)

    def next_deadline(self) -> float:
        return self._due.next

    def due(self, now: float) -> Iterator[tuple[LocalSource, bytes]]:
        """The sources that beat now, and what they say."""
        while (first := self._due.pop(now)) is not None:
            source, due = first
            beat = self[source]
            following = due + beat.seconds
            self._due.set(source, following if following > now else now + beat.seconds)
            yield source, beat.text

    def state(self) -> list[Kept]:
        return [
            (getattr(source, "number", 0), *beat, self._due.get(source) or 0.0)
            for source, beat in self.items()
        ]

    def restore(self, state: Iterable[Kept], sources: dict[int, LocalSource]) -> None:
        """Go on where a predecessor left off; the daemon itself, number 0, only if it beats as often now, too."""
        for number, seconds, text, due in state:
            source = sources[number]
            beat = self.get(source)
            if number:
                self.begin(source, seconds, text, due)
            elif beat and beat.seconds == seconds:
                self.begin(source, seconds, beat.text, due)
