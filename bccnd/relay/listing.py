"""Rows of clients and of sources, a page at a time, as ``CMSG clients`` and ``CMSG sources`` give them
(``clients/PROTOCOL.md``, "Control requests").

A page ends after PAGE_ROWS rows or PAGE_BYTES; its ``next`` is the cursor to ask with for what follows, or null.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from bccnd.relay.accounts import Source
from bccnd.relay.presence import Life
from bccnd.relay.session import Session
from bccnd.relay.slow import SlowClients
from bccnd.relay.state import State

# Rows in one answer, which one look at the table has to find.
PAGE_ROWS = 100
# Bytes of rows in one answer: names come from strangers, and JSON can make six bytes of one.
PAGE_BYTES = 32 << 10
# Names that are sorted in a step (``client_input``).
NAMES_A_STEP = 16
# Numbers of clients that are listed in a step.
NUMBERS_A_STEP = 64
# Publishers that a client holds, named in its row.
HELD_NAMES = 5
# What the row of a source has as its account has it.
_COUNTED = (
    *("last", "received", "lost", "repaired", "gone", "given_up"),
    *("duplicates", "late", "restarts", "replayed"),
)
_counts_of = attrgetter(*_COUNTED)


def clients(
    state: State, slow: SlowClients, cursor: bytes, now: float, *, only: Session | None = None
) -> bytes:
    """The clients that came after the one of number ``cursor``; ``only``: all that who asks may see."""
    after = int(cursor) if cursor.isdigit() and len(cursor) < 20 else 0
    numbers = list(state.sessions) if only is None else [only.number]  # in their order
    state.outgoing.steps += len(numbers) // NUMBERS_A_STEP
    sessions = map(state.sessions.__getitem__, numbers[bisect_right(numbers, after) :])
    rows = ((str(session.number), _client_row(session, slow, now)) for session in sessions)
    return _page("clients", rows)


def sources(state: State, cursor: bytes, now: float) -> bytes:
    """The sources behind ``cursor``, by name."""
    state.outgoing.steps += state.sources.sort_names() // NAMES_A_STEP
    known = state.sources.after(cursor)
    rows = ((src.decode(), _source_row(src, source, state.presence.get(src), now)) for src, source in known)
    return _page("sources", rows)


def as_json(value: dict[str, Any]) -> bytes:
    """In ASCII, without any control character: it also escapes DEL, which JSON allows."""
    return json.dumps(value, separators=(",", ":")).replace("\x7f", "\\u007f").encode()


def _client_row(session: Session, slow: SlowClients, now: float) -> dict[str, Any]:
    peer, outbox = session.peer, session.outbox
    episode = slow.get(session)
    return {
        "name": session.name.decode(),
        "program": peer.shown_program,
        "pid": peer.pid,
        "uid": peer.uid,
        "gid": peer.gid,
        "format": session.format,
        "pack": session.packed,
        "tap": session.tap,
        "subscriptions": sum(session.subscriptions.values()),
        "watches": len(session.watches),
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


def _source_row(src: bytes, source: Source, life: Life | None, now: float) -> dict[str, Any]:
    return {
        "src": src.decode(),
        "peer": source.peer,
        **_relay_of(source),
        **dict(zip(_COUNTED, _counts_of(source), strict=True)),
        "held": len(source.gap.held) if source.gap else 0,
        "silent": round(now - source.heard, 3),
        "state": life and str(life.state),
        "version": (life and life.version) or None,
        "repair": (life and life.repair) or None,
        "heartbeat": (life and round(life.interval, 3)) or None,
    }


def _relay_of(source: Source) -> dict[str, Any]:
    """Of a source that is relayed by whom, and how many numbers were left out."""
    if source.relay is None:
        return {}
    return {
        "relayed": dict(zip(("host", "address"), source.relay, strict=True)),
        "left_out": source.left_out,
    }


def _page(title: str, rows: Iterable[tuple[str, dict[str, Any]]]) -> bytes:
    page: list[dict[str, Any]] = []
    size, last = 0, None
    for cursor, row in rows:
        size += len(as_json(row))
        if len(page) == PAGE_ROWS or size > PAGE_BYTES:
            return as_json({title: page, "next": last})
        page.append(row)
        last = cursor
    return as_json({title: page, "next": None})
