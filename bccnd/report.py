"""What the log says of clients and of what was dropped.

Rules
- Each line about a client names it (name, pid, uid, program) and gives the reason.
- Who left by itself is worth a debug line, who was closed a warning, with what waited for it and whom it held up.
- A refusal is said once per client and right (``relay.rights``).
- Who is turned away at the door comes back at once, in a loop as like as not: one line, then one a while.
- Slow clients are named at the beginning of an episode and at its end (``relay.slow``), at most LINES_A_REPORT of
  them in one report; how many more there are is one line.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from bccnd.relay.session import Session
from bccnd.relay.slow import Episode

REPORT_SECONDS = 10.0  # between two lines about dropped datagrams, or about clients turned away
HARMLESS = frozenset({"own", "duplicate", "late"})  # counted, but nothing to warn about
LINES_A_REPORT = 20  # of a kind: enough to find who it is, few enough for a log when it is everybody
HELD_NAMES = 5  # of those whom a client holds up

log = structlog.get_logger()


class Drops:
    """The dropped datagrams that the log has told of."""

    def __init__(self) -> None:
        self._told: Counter[str] = Counter()
        self._told_at = 0.0

    def pass_over(self, counts: Counter[str]) -> None:
        """A predecessor has told of these."""
        self._told = counts.copy()

    def tell(self, counts: Counter[str], errors: Iterable[int], now: float) -> None:
        """``counts``: of all since the start, by reason; ``errors``: errnos of what the network refuses now."""
        if now - self._told_at < REPORT_SECONDS:
            return
        worth_it = Counter({reason: count for reason, count in counts.items() if reason not in HARMLESS})
        new = worth_it - self._told
        if new:
            self._told_at, self._told = now, worth_it
            reasons = sorted(map(os.strerror, errors))
            log.warning("datagrams dropped", **new, **({"errors": reasons} if reasons else {}))


class Door:
    """The clients that could not be let in; ``turned_away`` in all."""

    def __init__(self) -> None:
        self.turned_away = 0
        self._told = 0
        self._told_at = -REPORT_SECONDS

    def turn_away(self, now: float, **why: Any) -> None:
        self.turned_away += 1
        if now - self._told_at >= REPORT_SECONDS:
            log.warning("client refused", **why, refused=self.turned_away - self._told)
            self._told, self._told_at = self.turned_away, now


def client_left(session: Session, reason: str, state: dict[str, Any]) -> None:
    """``state``: ``queue_state`` from before the client was forgotten; ``reason``: empty when it just left."""
    if reason in ("", "gone"):
        log.debug("client left", **_identity(session), reason=reason, dropped=session.outbox.dropped)
    else:
        log.warning("client closed", **_identity(session), reason=reason, **state)


def refusals(kept: list[dict[str, Any]], more: int) -> None:
    """What ``Refusals.take`` gives."""
    for refusal in kept:
        log.warning("refused", **refusal)
    if more:
        log.warning("refused", more=more)


def slow_clients(begun: list[Episode], over: list[Episode], now: float) -> None:
    _some(begun, _begun, "more clients too slow")
    _some(over, lambda episode: _over(episode, now), "more clients no longer too slow")


def queue_state(session: Session) -> dict[str, Any]:
    """What waits for a client, and who waits for it."""
    outbox = session.outbox
    state: dict[str, Any] = {
        "policy": outbox.policy.value,
        "queued": outbox.packets,
        "queued_bytes": outbox.size,
        "dropped": outbox.dropped,
    }
    held = session.held_names(HELD_NAMES)
    return state | ({"holds": len(session.holds - {session}), "held": held} if held else {})


def _begun(episode: Episode) -> None:
    session = episode.session
    log.warning("client too slow", **_identity(session), reason=episode.trouble.value, **queue_state(session))


def _over(episode: Episode, now: float) -> None:
    session = episode.session
    ended = now if episode.ended is None else episode.ended
    log.info(
        "client no longer too slow",
        **_identity(session),
        reason="left" if episode.left else "caught up",
        lost=episode.lost,
        seconds=round(ended - episode.began, 3),
    )


def _some(episodes: list[Episode], write: Callable[[Episode], None], more: str) -> None:
    for episode in episodes[:LINES_A_REPORT]:
        write(episode)
    if len(episodes) > LINES_A_REPORT:
        log.warning(more, clients=len(episodes) - LINES_A_REPORT)


def _identity(session: Session) -> dict[str, Any]:
    peer = session.peer
    return {
        "name": session.name.decode(),
        "pid": peer.pid,
        "uid": peer.uid,
        "program": peer.program.decode("ascii", "backslashreplace"),
    }
