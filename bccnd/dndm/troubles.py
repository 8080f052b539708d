"""The troubles with peers that the gateway has seen, for ``bccn doctor``. No I/O and no clock.

Rules
- A peer that the settings name is away from the time it could not be reached, was let go, or left, until its
  handshake is done. A device to listen on is away until it can be opened.
- Of other peers it is noted that they were let go, and why. A peer that comes and goes does nothing wrong.
- What other peers can make grow is bounded: the oldest goes.
- The worst come first: peers that are away, the longest first; peers that lose messages, the most first; peers that
  were let go, the latest first.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from bccnd.beside.answers import Form
from bccnd.dndm.link import Link
from bccnd.wire.dndm.peers import Peer

# Other peers that are remembered: those that peers named and that are not reached, and those that were let go.
OTHERS_LIMIT = 128
# Seconds for which a peer that was let go is reported.
LET_GO_SECONDS = 3600.0
# Characters of a peer's name, which the peer chooses, and of a reason.
NAME_LIMIT, REASON_LIMIT = 160, 120
# The peer has another connection: no reason to look at it.
TWICE = "twice"

# The form of a gateway's answers (``bccnd.beside.answers``).
FORM = Form(
    "gateway", "trouble", "troubles", 16,
    texts=("version", "state", "reason", "bus", "peer", "kind"),
    numbers=("peers", "unheard", "unwatched", "not_accepted", "seconds", "count", "waiting", "troubles_said",
             "more_troubles"),
    counts=("lost",),
)  # fmt: skip

Place = tuple[str, str]


@dataclass(slots=True)
class Trouble:
    """``since``: the first time in a row; ``at``: the last time; ``count``: how many times."""

    peer: str
    reason: str
    since: float
    at: float
    count: int = 1


class Troubles:
    """Troubles by the peer's scheme and address. Times in monotonic seconds."""

    def __init__(self) -> None:
        self._named: set[Place] = set()
        self._away: dict[Place, Trouble] = {}
        self._let_go: dict[Place, Trouble] = {}

    def expect(self, peers: Iterable[Peer]) -> None:
        """Set the peers that the settings name."""
        self._named = {peer.place for peer in peers}

    def away(self, peer: Peer, reason: str, now: float) -> bool:
        """A peer is away. Whether the reason is new."""
        return self._note(self._away, peer.place, str(peer), reason, now)

    def ended(self, whence: Peer, name: str, reason: str, now: float, *, let_go: bool) -> None:
        """A connection has ended. ``whence``: the dialled peer, or its origin; ``let_go``: the gateway ended it."""
        if reason == TWICE:
            return
        if whence.place in self._named:
            self.away(whence, reason, now)
        elif let_go:
            self._note(self._let_go, whence.place, name, reason, now)

    def over(self, *places: Place) -> None:
        """These peers are there again."""
        for place in places:
            self._away.pop(place, None)

    def rows(self, links: Iterable[Link], now: float) -> list[dict[str, Any]]:
        """The rows of an answer, in ``FORM``, the worst first."""
        away = [self._away[place] for place in self._away.keys() & self._named]
        let_go = [each for each in self._let_go.values() if now - each.at < LET_GO_SECONDS]
        slow = [link for link in links if link.counts["slow"] and link.peer]
        return [
            *(_row("away", each, now - each.since) for each in sorted(away, key=lambda each: each.since)),
            *(
                {
                    "peer": str(link.peer)[:NAME_LIMIT],
                    "kind": "slow",
                    "count": link.counts["slow"],
                    "waiting": link.backlog,
                }
                for link in sorted(slow, key=lambda link: -link.counts["slow"])
            ),
            *(_row("let go", each, now - each.at) for each in sorted(let_go, key=lambda each: -each.at)),
        ]

    def _note(self, table: dict[Place, Trouble], place: Place, peer: str, reason: str, now: float) -> bool:
        before = table.pop(place, None)
        reason = reason[:REASON_LIMIT]
        since, count = (before.since, before.count + 1) if before else (now, 1)
        table[place] = Trouble(peer[:NAME_LIMIT], reason, since, now, count)
        others: Collection[Place] = table.keys() - self._named
        if len(others) > OTHERS_LIMIT:
            del table[next(each for each in table if each in others)]
        return before is None or before.reason != reason


def _row(kind: str, trouble: Trouble, seconds: float) -> dict[str, Any]:
    """The row of a trouble. ``seconds``: how long it lasts, or how long ago it was."""
    about = {"peer": trouble.peer, "kind": kind, "reason": trouble.reason}
    return about | {"seconds": round(seconds, 1), "count": trouble.count}
