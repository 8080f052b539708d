"""The state of a relay as plain values, and a relay made of them: what one daemon leaves to the next.

Rules
- Only builtins (dict, list, tuple, frozenset, bytes, str, int, float, bool, None): the successor may be other code.
- What a field means does not change while FORMAT stays; new fields may come, a missing one has its default. A
  successor refuses what is not of its FORMATS, and the old program goes on serving.
- Settings are not state: limits, keys and rights are the successor's own, who decides anew on subscriptions and taps
  (``Relay.apply_rights``) once it serves. What is queued is kept in any case.
- Taken between two calls of the relay, when nothing is on its way through it.
"""

from collections.abc import Mapping
from dataclasses import asdict, astuple, fields
from typing import Any

from bccnd.errors import ConfigError
from bccnd.relay.core import Relay
from bccnd.relay.identity import LocalSource, Peer
from bccnd.relay.session import Format, Session
from bccnd.relay.state import Counters
from bccnd.wire.verdict import verdict_of

FORMAT = 3
# What a successor takes over: in format 2 each message that waits was an entry of its own.
FORMATS = 2, 3
# What is kept of the daemon as a source.
KEPT = LocalSource.__slots__

# Attributes of a session that are plain values already.
_PLAIN = (
    *KEPT,
    *("format_chosen", "packed", "separator", "echo", "listening", "tap", "tap_interface"),
    *("published", "delivered", "queue_asked", "since", "progress"),
)


def state_of(relay: Relay) -> dict[str, Any]:
    """Everything a successor needs; its ports go by the numbers of ``sessions``."""
    state = relay.state
    return {
        "format": FORMAT,
        "last_number": state.last_number,
        "names": state.names.state(),
        "presence": state.presence.state(),
        "heartbeats": state.heartbeats.state(),
        "own": {name: getattr(state.own, name) for name in KEPT},
        "repair_source": {name: getattr(state.repair_source, name) for name in KEPT},
        "repair": relay.repair.state(),
        "sources": state.sources.state(),
        "retained": state.retained.state(),
        "retained_users": state.retained.users(),
        "counters": asdict(state.counters),
        "rejected": {str(verdict): count for verdict, count in state.rejected.items()},
        "refused": {str(right): count for right, count in state.refusals.counts.items()},
        "delivered": state.ledger.delivered,
        "dropped": state.ledger.dropped,
        "holding": relay.holding.state(),
        "leases": relay.elsewhere.state(),
        "notices": relay.notices.state(),
        "sessions": [_session_state(session) for session in state.sessions.values()],
    }


def restore(relay: Relay, data: dict[str, Any], ports: Mapping[int, int]) -> None:
    """Make ``relay``, which is new, the successor; ``ports`` has the port of each session by its number.

    Raises ``ConfigError`` for state that is of none of the FORMATS; the relay is then good for nothing.
    """
    if (found := data.get("format")) not in FORMATS:
        raise ConfigError(f"cannot take over state of format {found!r}, only {FORMAT}; stop and start")
    try:
        _restore(relay, data, ports)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = ascii(f"{type(error).__name__}: {error}")[1:-1]
        raise ConfigError(f"cannot take over state that is damaged ({why}); stop and start") from error


def _restore(relay: Relay, data: dict[str, Any], ports: Mapping[int, int]) -> None:
    state = relay.state
    state.last_number = data["last_number"]
    state.sources.restore(data["sources"])
    state.presence.restore(data.get("presence", ()))
    state.retained.restore(data.get("retained", ()), data.get("retained_users", ()))
    for field in fields(Counters):
        setattr(state.counters, field.name, data["counters"].get(field.name, 0))
    for word, count in data["rejected"].items():
        if verdict := verdict_of(word):
            state.rejected[verdict] = count
    state.refusals.counts.update(data.get("refused", {}))
    for session_data in data["sessions"]:
        _adopt(relay, session_data, ports[session_data["number"]])
    for source, kept in (
        (state.own, data.get("own", {})),
        (state.repair_source, data.get("repair_source", {})),
    ):
        for name, value in kept.items():
            if name in KEPT:
                setattr(source, name, value)
    clients = ((session.name, session, session.peer) for session in state.sessions.values())
    state.names.restore(
        data["names"],
        [(state.own.name, state.own, None), (state.repair_source.name, state.repair_source, None), *clients],
    )
    state.heartbeats.restore(data.get("heartbeats", ()), {0: state.own, **state.sessions})
    relay.notices.restore(data.get("notices", ()))
    relay.repair.restore(data.get("repair", {}))
    relay.holding.restore(data.get("holding", ()), state.sessions)
    relay.elsewhere.restore(data.get("leases", ()))
    for session_data in data["sessions"]:
        publisher = state.sessions[session_data["number"]]
        for slow in map(state.sessions.__getitem__, session_data["waits_for"]):
            relay.holding.hold(publisher, slow, slow.progress)
    state.ledger.delivered, state.ledger.dropped = data["delivered"], data["dropped"]


def _session_state(session: Session) -> dict[str, Any]:
    return {name: getattr(session, name) for name in _PLAIN} | {
        "number": session.number,
        "peer": astuple(session.peer),
        "format": session.format.value,
        "subscriptions": [(*key, count) for key, count in session.subscriptions.items()],
        "watches": [(*key, watch.told) for key, watch in session.watches.items()],
        "outbox": session.outbox.state(),
        "refused": sorted(session.refused),
        "scan": session.scan and session.scan.state(),
        "waits_for": sorted(other.number for other in session.waits_for),
    }


def _adopt(relay: Relay, data: dict[str, Any], port: int) -> None:
    session = relay.membership.admit(data["number"], port, Peer(*data["peer"]), now=0.0)
    for name in _PLAIN:
        if name in data:
            setattr(session, name, data[name])
    session.format = Format(data["format"])
    session.refused.update(data.get("refused", ()))
    session.outbox.restore(data["outbox"])
    if scan := data.get("scan"):
        session.scan = relay.state.retained.resume(scan)
    relay.state.router.adopt(session, data["subscriptions"])
    relay.watches.adopt(session, data.get("watches", ()))
    relay.membership.adopt(session)
