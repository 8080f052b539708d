"""What the log says about clients and about dropped datagrams.

Rules
- Each line about a client names it (name, pid, uid, program) and gives the reason.
- A client that leaves by itself is a debug line. A client that the daemon closes is a warning, which says what waited
  for it and whom it held up.
- A refusal is logged once for each client and right (``relay.rights``).
- A host that asks for much of what this one sends is logged once a minute (``relay.askers``).
- A slow client is logged when its episode begins and when it ends (``relay.slow``).
- Every line is limited by client, by user and in all (``process.log_limit``), by its fields ``uid`` and ``program``.
- A fault of ours while a client is served costs that client its connection, and one while a datagram is, that batch.
"""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import structlog

from bccnd.relay.askers import Asker
from bccnd.relay.identity import Peer
from bccnd.relay.session import Session
from bccnd.relay.slow import Episode
from bccnd.wire.verdict import HARMLESS

# Seconds between two lines about dropped datagrams.
REPORT_SECONDS = 10.0

# Names of the publishers that a client holds.
HELD_NAMES = 5

# What to look at on a host that asks for much to be sent again.
_SEE_ASKER = "there: bccn doctor (receive buffer), ip -s link (errors, drops); then the switch"

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


def client_refused(peer: Peer, reason: str, clients: int) -> None:
    """``reason``: what the client was told; ``clients``: how many are connected."""
    log.warning("client refused", **_of_peer(peer), reason=reason, clients=clients)


def client_left(session: Session, reason: str, state: dict[str, Any]) -> None:
    """``reason`` is empty for a client that left by itself; ``state`` is its ``queue_state`` from before it left."""
    if reason in ("", "gone", "shutdown"):
        log.debug("client left", **_identity(session), reason=reason, dropped=session.outbox.dropped)
    else:
        log.warning("client closed", **_identity(session), reason=reason, **state)


def refusals(kept: list[dict[str, Any]], more: int) -> None:
    """Log what ``Refusals.take`` returns."""
    for refusal in kept:
        log.warning("refused", **refusal)
    if more:
        log.warning("refused", more=more)


def askers(much: list[Asker]) -> None:
    """Log what ``Askers.take`` returns: a host that misses much of what this one sends."""
    for asker in much:
        log.warning("host misses much", **asdict(asker), see=_SEE_ASKER)


def slow_clients(begun: list[Episode], over: list[Episode], now: float) -> None:
    for episode in begun:
        _begun(episode)
    for episode in over:
        _over(episode, now)


def fault(error: BaseException | None, where: str, session: Session | None = None) -> None:
    """Log a fault of ours, with its traceback. ``where``: what was being done, or for whom."""
    log.error("fault", where=where, **(_identity(session) if session else {}), exc_info=error)


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


def _identity(session: Session) -> dict[str, Any]:
    return {"name": session.name.decode(), **_of_peer(session.peer)}


def _of_peer(peer: Peer) -> dict[str, Any]:
    return {"pid": peer.pid, "uid": peer.uid, "program": peer.shown_program}
