"""What the log says about clients and about dropped datagrams.

Rules
- Each line about a client names it (name, pid, uid, program) and gives the reason.
- A client that leaves by itself is a debug line. A client that the daemon closes is a warning, which says what waited
  for it and whom it held up.
- A refusal is logged once for each client and right (``relay.rights``).
- A client that is turned away usually comes back at once, again and again: it is logged at once, then at most every
  REPORT_SECONDS, with the number of refusals since the last line.
- A slow client is logged when its episode begins and when it ends (``relay.slow``). A report logs at most
  LINES_A_REPORT of them and counts the rest in one line.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from bccnd.relay.session import Session
from bccnd.relay.slow import Episode
from bccnd.wire.verdict import HARMLESS

# Seconds between two lines about dropped datagrams, or about clients that are turned away.
REPORT_SECONDS = 10.0

# Lines of one kind: enough to find the culprit, few enough for a log when every client is one.
LINES_A_REPORT = 20

# Names of the publishers that a client holds.
HELD_NAMES = 5

log = structlog.get_logger()


class Drops:
    """Reports dropped datagrams, each once."""

    def __init__(self) -> None:
        self._reported: Counter[str] = Counter()
        self._reported_at = 0.0

    def pass_over(self, counts: Counter[str]) -> None:
        """Leave out these, which a predecessor has reported."""
        self._reported = counts.copy()

    def report(self, counts: Counter[str], errors: Iterable[int], now: float) -> None:
        """``counts``: all since the start, by reason; ``errors``: the errnos with which the network refuses now."""
        if now - self._reported_at < REPORT_SECONDS:
            return
        wrong = Counter({reason: count for reason, count in counts.items() if reason not in HARMLESS})
        new = wrong - self._reported
        if new:
            self._reported_at, self._reported = now, wrong
            reasons = sorted(map(os.strerror, errors))
            log.warning("datagrams dropped", **new, **({"errors": reasons} if reasons else {}))


class Door:
    """Reports clients that are turned away; ``turned_away`` counts them."""

    def __init__(self) -> None:
        self.turned_away = 0
        self._reported = 0
        self._reported_at = -REPORT_SECONDS

    def turn_away(self, now: float, **why: Any) -> None:
        self.turned_away += 1
        if now - self._reported_at >= REPORT_SECONDS:
            log.warning("client refused", **why, refused=self.turned_away - self._reported)
            self._reported, self._reported_at = self.turned_away, now


def client_left(session: Session, reason: str, state: dict[str, Any]) -> None:
    """``reason`` is empty for a client that left by itself; ``state`` is its ``queue_state`` from before it left."""
    if reason in ("", "gone"):
        log.debug("client left", **_identity(session), reason=reason, dropped=session.outbox.dropped)
    else:
        log.warning("client closed", **_identity(session), reason=reason, **state)


def refusals(kept: list[dict[str, Any]], more: int) -> None:
    """Log what ``Refusals.take`` returns."""
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
        "program": peer.shown_program,
    }
