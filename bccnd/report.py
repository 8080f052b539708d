"""What the log says of clients. Each line names the client (name, pid, uid, program) and gives the reason.

Rules
- Who left by itself is worth a debug line, who was closed a warning, with what waited for it and whom it held up.
- Slow clients are named at the beginning of an episode and at its end (``relay.slow``), at most LINES_A_REPORT of
  them in one report; how many more there are is one line.
"""

from collections.abc import Callable
from typing import Any

import structlog

from bccnd.relay.session import Session
from bccnd.relay.slow import Episode

LINES_A_REPORT = 20  # of a kind: enough to find who it is, few enough for a log when it is everybody
HELD_NAMES = 5  # of those whom a client holds up

log = structlog.get_logger()


def client_left(session: Session, reason: str, state: dict[str, Any]) -> None:
    """``state``: ``queue_state`` from before the client was forgotten; ``reason``: empty when it just left."""
    if reason in ("", "gone"):
        log.debug("client left", **_identity(session), reason=reason, dropped=session.outbox.dropped)
    else:
        log.warning("client closed", **_identity(session), reason=reason, **state)


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
