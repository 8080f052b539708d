"""Clients that read too slowly, and when the log names them.

Rules
- An episode begins when a client loses a message, or when publishers begin to wait for it (``block``). It ends when
  the client has taken everything, but not before CALM_SECONDS have passed: a client that falls behind again and again
  in that time is one episode, and one line in the log.
- An episode is reported when it begins and when it ends. It also ends when the client leaves.
"""

from dataclasses import dataclass
from enum import StrEnum

from bccnd.relay.session import Session

CALM_SECONDS = 10.0


class Trouble(StrEnum):
    """What an episode began with."""

    LOSES = "loses messages"
    HOLDS = "holds publishers"


@dataclass(slots=True)
class Episode:
    """``began``, ``ended``: monotonic seconds; ``left``: it ended since the client left."""

    session: Session
    trouble: Trouble
    began: float
    lost_before: int
    ended: float | None = None
    left: bool = False

    @property
    def lost(self) -> int:
        """Messages that the client has lost in it, so far."""
        return self.session.outbox.dropped - self.lost_before


class SlowClients:
    """The episodes that are not over."""

    def __init__(self) -> None:
        self._episodes: dict[Session, Episode] = {}
        self._begun: list[Episode] = []
        self._over: list[Episode] = []

    def __len__(self) -> int:
        return len(self._episodes)

    def get(self, session: Session) -> Episode | None:
        return self._episodes.get(session)

    def falls_behind(self, session: Session, trouble: Trouble, now: float, lost: int = 0) -> None:
        """The client is in trouble, by which it has just lost so many messages."""
        episode = self._episodes.get(session)
        if episode is None:
            episode = Episode(session, trouble, now, session.outbox.dropped - lost)
            self._episodes[session] = episode
            self._begun.append(episode)
        episode.ended = None

    def catches_up(self, session: Session, now: float) -> None:
        """Nothing waits for the client any more."""
        episode = self._episodes.get(session)
        if episode is not None:
            episode.ended = now

    def leaves(self, session: Session, now: float) -> None:
        episode = self._episodes.pop(session, None)
        if episode is not None:
            episode.ended = now
            episode.left = True
            self._over.append(episode)

    def reports(self, now: float) -> tuple[list[Episode], list[Episode]]:
        """The episodes that have begun, and those that are over, since this was last asked."""
        calm = [
            episode
            for episode in self._episodes.values()
            if episode.ended is not None and now - episode.began >= CALM_SECONDS
        ]
        for episode in calm:
            del self._episodes[episode.session]
        begun, self._begun = self._begun, []
        over, self._over = [*self._over, *calm], []
        return begun, over
