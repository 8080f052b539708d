"""Heartbeats out: who says regularly on ``heartbeat/<src>`` that it is there (``bccn.txt``, "Heartbeat convention").

Rules
- The daemon beats as a source of its own, with ``bccnd/<version>``; a client beats when it has asked to
  (``CMSG heartbeat``) and for as long as it may publish there.
- The first beat comes after a part of the interval that the caller chooses, so that hosts which start together do
  not beat together. After a pause nothing is made up for.
- Who leaves in order says so, with ``leaving``; who takes another name leaves under the old one.
- Time is given. What is due is found at the head of a heap; entries that were overtaken are dropped there.
"""

import heapq
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from bccnd.relay.own_source import OwnSource
from bccnd.relay.router import HEARTBEATS
from bccnd.relay.session import Session

if TYPE_CHECKING:
    from bccnd.relay.core import Relay

LEAVING = b"leaving"
SECONDS_LIMIT = 3600
TEXT_LIMIT = 256  # bytes: a status line, not a message


class Rhythm(NamedTuple):
    """``seconds`` between the daemon's own heartbeats, 0 for none; a source is silent after so many ``misses``."""

    seconds: int = 0
    misses: int = 3


class Beat(NamedTuple):
    seconds: int
    text: bytes
    due: float


class Heartbeats:
    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self._beats: dict[Session | OwnSource, Beat] = {}
        self._heap: list[tuple[float, int, Session | OwnSource]] = []
        self._pushed = 0  # so that entries that are due together need not be compared further

    def __len__(self) -> int:
        return len(self._beats)

    def get(self, source: Session | OwnSource) -> Beat | None:
        return self._beats.get(source)

    def begin(self, source: Session | OwnSource, seconds: int, text: bytes, first: float) -> None:
        """Beat from ``first`` on; in place of how the source has beaten before."""
        self._beats[source] = beat = Beat(seconds, text, first)
        self._push(source, beat)

    def stop(self, source: Session | OwnSource) -> None:
        self._beats.pop(source, None)

    def tick(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            due, _, source = heapq.heappop(self._heap)
            beat = self._beats.get(source)
            if beat is None or beat.due != due:
                continue
            following = due + beat.seconds if due + beat.seconds > now else now + beat.seconds
            self._beats[source] = beat = beat._replace(due=following)
            self._push(source, beat)
            self._say(source, beat.text)

    def leave(self, source: Session | OwnSource) -> None:
        """The source goes in order. If it beats, those who listen shall not wait for the next beat."""
        if source in self._beats:
            self._say(source, LEAVING)

    def leave_all(self) -> None:
        """The daemon ends in order, and nobody beats from now on; its own word comes last."""
        for source in sorted(self._beats, key=lambda source: source is self._relay.own):
            self._say(source, LEAVING)
        self._beats.clear()

    def state(self) -> list[tuple[int, int, bytes, float]]:
        """Who beats how, by the number of the client, 0 for the daemon itself."""
        return [(getattr(source, "number", 0), *beat) for source, beat in self._beats.items()]

    def restore(self, state: Iterable[tuple[int, int, bytes, float]], own_seconds: int) -> None:
        """Go on where a predecessor left off; the daemon itself only if it beats every ``own_seconds`` now, too."""
        for number, seconds, text, due in state:
            if number:
                self.begin(self._relay.sessions[number], seconds, text, due)
            elif seconds == own_seconds and (own := self._beats.get(self._relay.own)):
                self.begin(self._relay.own, seconds, own.text, due)

    def _say(self, source: Session | OwnSource, text: bytes) -> None:
        chan = HEARTBEATS + source.name
        if isinstance(source, OwnSource) or source.rights.may_publish(chan):
            self._relay.publish(source, chan, text)

    def _push(self, source: Session | OwnSource, beat: Beat) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (beat.due, self._pushed, source))
        if len(self._heap) > 64 + 2 * len(self._beats):  # of those who changed their minds
            self._heap = [entry for entry in self._heap if self._is_current(entry[2], entry[0])]
            heapq.heapify(self._heap)

    def _is_current(self, source: Session | OwnSource, due: float) -> bool:
        beat = self._beats.get(source)
        return beat is not None and beat.due == due
