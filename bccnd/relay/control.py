"""CMSG: what a client may ask of the daemon (DESIGN section 3; README, "The local protocol").

One function per key, from the value of the request to the value of its answer; each request is answered once, so
that a client can wait for it. A refusal is a ``PacketError``, which becomes ``CMSG error``. To add a key, write
its function and name it in ``KEYS``.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from heapq import nsmallest
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from bccnd.errors import DeniedError, PacketError
from bccnd.relay.dedup import Source
from bccnd.relay.heartbeat import SECONDS_LIMIT, TEXT_LIMIT
from bccnd.relay.outbox import Policy
from bccnd.relay.pattern import SEPARATORS
from bccnd.relay.router import HEARTBEATS
from bccnd.relay.session import Format, Session
from bccnd.wire.sbus import Cmsg

if TYPE_CHECKING:
    from bccnd.relay.core import Relay

PAGE_ROWS = 100  # rows of a list in one answer, which one look at the table has to find
HELD_NAMES = 5  # of those whom a client holds up, in its row
PAGE_BYTES = 32 << 10  # of rows in one answer: names come from strangers, and JSON makes six bytes of one


def answer(relay: "Relay", session: Session, request: Cmsg, now: float) -> Cmsg:
    """Carry out one request."""
    function = KEYS.get(request.key)
    if function is None:
        raise PacketError("unknown-key", "the keys are " + ", ".join(key.decode() for key in KEYS))
    key = b"pong" if request.key == b"ping" else request.key
    return Cmsg(key, function(relay, session, request.value, now))


def _ping(_relay: "Relay", _session: Session, value: bytes, _now: float) -> bytes:
    return value


def _whoami(_relay: "Relay", session: Session, _value: bytes, _now: float) -> bytes:
    return session.name


def _credentials(_relay: "Relay", session: Session, _value: bytes, _now: float) -> bytes:
    """The public sbus spelling of ``whoami``."""
    return b"!/cred/%d/%d/%d" % (session.peer.gid, session.peer.uid, session.peer.pid)


def _name(relay: "Relay", session: Session, value: bytes, now: float) -> bytes:
    relay.rename(session, value, now)
    return session.name


def _format(relay: "Relay", session: Session, value: bytes, _now: float) -> bytes:
    session.format = Format(_choice(value, [form.encode() for form in Format]).decode())
    session.format_chosen = True
    _serve_otherwise(relay, session)
    return value


def _pack(relay: "Relay", session: Session, value: bytes, _now: float) -> bytes:
    session.packed = _choice(value, [b"on", b"off"]) == b"on"
    _serve_otherwise(relay, session)
    return b"on %d" % relay.packet_limit if session.packed else b"off"


def _separator(_relay: "Relay", session: Session, value: bytes, _now: float) -> bytes:
    session.separator = _choice(value, SEPARATORS)
    return value


def _echo_on(_relay: "Relay", session: Session, _value: bytes, _now: float) -> bytes:
    session.echo = True
    return b""


def _echo_off(_relay: "Relay", session: Session, _value: bytes, _now: float) -> bytes:
    session.echo = False
    return b""


def _queue(relay: "Relay", session: Session, value: bytes, _now: float) -> bytes:
    """``[packets=N] [bytes=N] [policy=P]``: what is named changes, within the configured limits."""
    limits = {"packets": relay.limits.queue_max_packets, "bytes": relay.limits.queue_max_bytes}
    asked: dict[str, Any] = {}
    for item in value.decode("ascii", "replace").split():
        name, _, text = item.partition("=")
        if name == "policy":
            asked[name] = _choice(text.encode(), [policy.encode() for policy in Policy]).decode()
        elif name not in limits:
            raise PacketError("bad-value", f"{name}: known are packets=N, bytes=N and policy=P")
        elif not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= limits[name]):
            raise PacketError("bad-value", f"{name} is a number from 1 to {limits[name]}")
        else:
            asked[name] = int(text)
    session.queue_asked |= asked
    relay.size_queue(session)
    outbox = session.outbox
    return f"packets={outbox.max_packets} bytes={outbox.max_size} policy={outbox.policy}".encode()


def _listen(relay: "Relay", session: Session, _value: bytes, _now: float) -> bytes:
    if not session.rights.may_listen:
        raise DeniedError("subscribe", "no right to subscribe to anything")
    relay.router.listen(session)
    return b""


def _heartbeat(relay: "Relay", session: Session, value: bytes, now: float) -> bytes:
    """``<seconds>[ <text>]`` or ``off``: the daemon beats in the name of the client until it leaves."""
    if value == b"off":
        relay.heartbeats.leave(session)
        relay.heartbeats.stop(session)
        return value
    seconds, _, text = value.partition(b" ")
    if not (seconds.isdigit() and len(seconds) < 5 and 1 <= int(seconds) <= SECONDS_LIMIT):
        raise PacketError("bad-value", f"off, or seconds from 1 to {SECONDS_LIMIT} and a text")
    if len(text) > TEXT_LIMIT:
        raise PacketError("bad-value", f"the text has at most {TEXT_LIMIT} bytes")
    chan = HEARTBEATS + session.name
    if not session.rights.may_publish(chan):
        raise DeniedError("publish", f"no right to publish on {chan.decode()}")
    relay.heartbeats.begin(session, int(seconds), text, now)
    return value


def _tap(relay: "Relay", session: Session, value: bytes, _now: float) -> bytes:
    """``on``; ``interface``: with the interface in each RECV; ``off``."""
    on = _choice(value, [b"on", b"off", b"interface"]) != b"off"
    if on and not session.rights.tap:
        raise DeniedError("tap", "no right to tap")
    relay.set_tap(session, on, interface=value == b"interface")
    return value


def _status(relay: "Relay", _session: Session, _value: bytes, _now: float) -> bytes:
    delivery = relay.delivery
    return _json(
        relay.about()
        | {
            "src": relay.own.name.decode(),
            "integrity": relay.integrity.required,
            "clients": len(relay.sessions),
            "slow": len(delivery.slow),
            "subscriptions": relay.router.subscriptions,
            "sources": len(relay.sources),
            "queued": {"packets": delivery.ledger.packets, "bytes": delivery.ledger.bytes},
            "retained": {"channels": len(relay.retained), "bytes": relay.retained.size},
            "counters": {
                **asdict(relay.counters),
                "delivered": delivery.delivered - delivery.ledger.dropped,
                "dropped": delivery.ledger.dropped,
            },
            "rejected": dict(relay.rejected),
            "refused": dict(relay.refusals.counts),
        }
    )


def _clients(relay: "Relay", _session: Session, cursor: bytes, now: float) -> bytes:
    after = int(cursor) if cursor.isdigit() and len(cursor) < 20 else 0
    sessions = (session for number, session in relay.sessions.items() if number > after)
    return _page("clients", ((str(session.number), _client_row(relay, session, now)) for session in sessions))


def _sources(relay: "Relay", _session: Session, cursor: bytes, now: float) -> bytes:
    known = nsmallest(PAGE_ROWS + 1, (item for item in relay.sources if item[0] > cursor), key=itemgetter(0))
    return _page("sources", ((src.decode(), _source_row(relay, src, source, now)) for src, source in known))


def _client_row(relay: "Relay", session: Session, now: float) -> dict[str, Any]:
    peer, outbox = session.peer, session.outbox
    episode = relay.delivery.slow.get(session)
    return {
        "name": session.name.decode(),
        "program": peer.program.decode("ascii", "replace"),
        "pid": peer.pid,
        "uid": peer.uid,
        "gid": peer.gid,
        "format": session.format,
        "pack": session.packed,
        "tap": session.tap,
        "subscriptions": sum(session.subscriptions.values()),
        "published": session.published,
        "delivered": session.delivered - outbox.dropped,
        "dropped": outbox.dropped,
        "queued": outbox.packets,
        "queued_bytes": outbox.size,
        "policy": outbox.policy,
        "slow": round(now - episode.began, 3) if episode else None,
        "holds": len(session.holds - {session}),
        "held": session.held_names(HELD_NAMES),
        "seconds": round(now - session.since, 3),
    }


def _source_row(relay: "Relay", src: bytes, source: Source, now: float) -> dict[str, Any]:
    life = relay.presence.get(src)
    return {
        "src": src.decode(),
        "peer": source.peer,
        "last": source.last,
        "received": source.received,
        "lost": source.lost,
        "duplicates": source.duplicates,
        "late": source.late,
        "restarts": source.restarts,
        "replayed": source.replayed,
        "silent": round(now - source.heard, 3),
        "state": life and str(life.state),
        "version": (life and life.version) or None,
        "heartbeat": (life and round(life.interval, 3)) or None,
    }


def _serve_otherwise(relay: "Relay", session: Session) -> None:
    if session.listening:  # before that it is in no audience
        relay.router.service_changed()


def _page(title: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> bytes:
    """The next rows of a list; ``next`` is the cursor to ask with for those after them, or null."""
    page: list[dict[str, Any]] = []
    size = 0
    last = following = None
    for cursor, row in rows:
        size += len(_json(row))
        if len(page) == PAGE_ROWS or size > PAGE_BYTES:
            following = last
            break
        page.append(row)
        last = cursor
    return _json({title: page, "next": following})


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _choice(value: bytes, choices: Iterable[bytes]) -> bytes:
    if value not in choices:
        raise PacketError("bad-value", "one of " + ", ".join(choice.decode() for choice in choices))
    return value


KEYS: dict[bytes, Callable[["Relay", Session, bytes, float], bytes]] = {
    b"ping": _ping,
    b"whoami": _whoami,
    b"!/cred/whoami": _credentials,
    b"name": _name,
    b"format": _format,
    b"pack": _pack,
    b"separator": _separator,
    b"echo/on": _echo_on,
    b"echo/off": _echo_off,
    b"queue": _queue,
    b"listen": _listen,
    b"tap": _tap,
    b"heartbeat": _heartbeat,
    b"status": _status,
    b"clients": _clients,
    b"sources": _sources,
}
