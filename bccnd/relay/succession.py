"""The state of a relay as plain values, and a relay made of them: what one daemon leaves to the next.

Rules
- Only builtins (dict, list, tuple, frozenset, bytes, str, int, float, bool, None): the successor may be other code.
- What a field means does not change while FORMAT stays; new fields may come, a missing one has its default. A
  successor refuses another FORMAT, and the old program goes on serving.
- Settings are not state: limits, keys and rights are the successor's own, who decides anew on subscriptions and taps
  (``Relay.set_access``) once it serves. What is queued is kept in any case.
- Taken between two calls of the relay, when nothing is on its way through it.
"""

from collections.abc import Mapping
from dataclasses import asdict, astuple, fields
from typing import Any

from bccnd.errors import ConfigError
from bccnd.relay.core import Counters, Relay
from bccnd.relay.identity import Peer
from bccnd.relay.own_source import KEPT, OwnSource
from bccnd.relay.session import Format, Session

FORMAT = 1

# Attributes of a session that are plain values already.
_PLAIN = (
    "name",
    "seq",
    "first_seq",
    "local_seq",
    "format_chosen",
    "packed",
    "separator",
    "echo",
    "listening",
    "tap",
    "tap_interface",
    "published",
    "delivered",
    "queue_asked",
    "since",
    "progress",
)


def state_of(relay: Relay) -> dict[str, Any]:
    """Everything a successor needs; its ports go by the numbers of ``sessions``."""
    return {
        "format": FORMAT,
        "last_number": relay.last_number,
        "names": relay.names.state(),
        "presence": relay.presence.state(),
        "heartbeats": relay.heartbeats.state(),
        "own": {name: getattr(relay.own, name) for name in KEPT},
        "sources": relay.sources.state(),
        "retained": relay.retained.state(),
        "counters": asdict(relay.counters),
        "rejected": {str(reason): count for reason, count in relay.rejected.items()},
        "refused": {str(kind): count for kind, count in relay.refusals.counts.items()},
        "delivered": relay.delivery.delivered,
        "dropped": relay.delivery.ledger.dropped,
        "sessions": [_session_state(session) for session in relay.sessions.values()],
    }


def restore(relay: Relay, state: dict[str, Any], ports: Mapping[int, int]) -> None:
    """Make ``relay``, which is new, the successor; ``ports`` has the port of each session by its number.

    Raises ``ConfigError`` for state that is not of this FORMAT; the relay is then good for nothing.
    """
    if state.get("format") != FORMAT:
        raise ConfigError(
            f"cannot take over state of format {state.get('format')!r}, only {FORMAT}; stop and start"
        )
    try:
        _restore(relay, state, ports)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = ascii(f"{type(error).__name__}: {error}")[1:-1]
        raise ConfigError(f"cannot take over state that is damaged ({why}); stop and start") from error


def _restore(relay: Relay, state: dict[str, Any], ports: Mapping[int, int]) -> None:
    relay.last_number = state["last_number"]
    relay.sources.restore(state["sources"])
    relay.presence.restore(state.get("presence", ()))
    relay.retained.restore(state.get("retained", ()))
    known = {field.name for field in fields(Counters)}
    relay.counters = Counters(**{name: value for name, value in state["counters"].items() if name in known})
    relay.rejected.update(state["rejected"])
    relay.refusals.counts.update(state.get("refused", {}))
    for session_state in state["sessions"]:
        _adopt(relay, session_state, ports[session_state["number"]])
    for name, value in state.get("own", {}).items():
        if name in KEPT:
            setattr(relay.own, name, value)
    holders: list[OwnSource | Session] = [relay.own, *relay.sessions.values()]
    relay.names.restore(state["names"], ((holder.name, holder) for holder in holders))
    relay.heartbeats.restore(state.get("heartbeats", ()), relay.rhythm.seconds)
    for session_state in state["sessions"]:
        publisher = relay.sessions[session_state["number"]]
        for number in session_state["waits_for"]:
            relay.delivery.hold(publisher, relay.sessions[number])
    relay.delivery.delivered = state["delivered"]
    relay.delivery.ledger.dropped = state["dropped"]


def _session_state(session: Session) -> dict[str, Any]:
    return {name: getattr(session, name) for name in _PLAIN} | {
        "number": session.number,
        "peer": astuple(session.peer),
        "format": session.format.value,
        "subscriptions": [(*key, count) for key, count in session.subscriptions.items()],
        "outbox": session.outbox.state(),
        "refused": sorted(session.refused),
        "waits_for": [other.number for other in session.waits_for],
    }


def _adopt(relay: Relay, state: dict[str, Any], port: int) -> None:
    session = relay.admit(state["number"], port, Peer(*state["peer"]), now=0.0)
    for name in _PLAIN:
        if name in state:
            setattr(session, name, state[name])
    session.format = Format(state["format"])
    session.refused.update(state.get("refused", ()))
    session.outbox.restore(state["outbox"])
    relay.size_queue(session)
    relay.router.adopt(session, state["subscriptions"])
    relay.delivery.adopt(session)
