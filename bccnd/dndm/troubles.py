"""What is wrong with which peers, as far as the gateway has seen it: for ``bccn doctor``. No I/O and no clock.

Rules
- A peer that the settings name is away once it could not be reached, was let go, or went, until its handshake is
  done. So is a device at which peers are waited for, until it can be opened.
- Of others it is noted that they were let go, and why. One that comes and goes does nothing wrong.
- What others can make grow is bounded: the oldest goes.
- The worst come first: who is away, the longest first; who loses messages, the most first; who was let go, the latest
  first.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from bccnd.beside.answers import Form
from bccnd.dndm.link import Link
from bccnd.wire.dndm.peers import Peer

# Others that are remembered: peers that were told of and are not reached, and peers that were let go.
OTHERS_LIMIT = 128
# Seconds for which it is said that a peer was let go.
LET_GO_SECONDS = 3600.0
# Characters of the name of a peer, which it may choose, and of a reason.
NAME_LIMIT, REASON_LIMIT = 160, 120
# The peer has another connection: no reason to look at it.
TWICE = "twice"

# What a gateway answers to who asks (``bccnd.beside.answers``).
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
    """``since``: of the first time in a row, ``at``: of the last one, of ``count``."""

    peer: str
    reason: str
    since: float
    at: float
    count: int = 1


class Troubles:
    """Peers by their place: scheme and address. Times in monotonic seconds."""

    def __init__(self) -> None:
        self._named: set[Place] = set()
        self._away: dict[Place, Trouble] = {}
        self._let_go: dict[Place, Trouble] = {}

    def expect(self, peers: Iterable[Peer]) -> None:
        """The settings name these, and no others."""
        self._named = {peer.place for peer in peers}

    def away(self, peer: Peer, reason: str, now: float) -> bool:
        """It is not there; whether the reason is news."""
        return self._note(self._away, peer.place, str(peer), reason, now)

    def ended(self, whence: Peer, name: str, reason: str, now: float, *, let_go: bool) -> None:
        """A connection has ended. ``whence``: who was dialled, or where it came from; ``let_go``: by the gateway."""
        if reason == TWICE:
            return
        if whence.place in self._named:
            self.away(whence, reason, now)
        elif let_go:
            self._note(self._let_go, whence.place, name, reason, now)

    def over(self, *places: Place) -> None:
        """They are there."""
        for place in places:
            self._away.pop(place, None)

    def rows(self, links: Iterable[Link], now: float) -> list[dict[str, Any]]:
        """What ``FORM`` has of each trouble, the worst first."""
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
    """``seconds``: how long it lasts, or ago."""
    about = {"peer": trouble.peer, "kind": kind, "reason": trouble.reason}
    return about | {"seconds": round(seconds, 1), "count": trouble.count}
