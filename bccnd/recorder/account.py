"""The daemon's account of itself, as marks: who delivers here by which settings, and what was lost inside the host.

    tap ── status, in the greeting and every LOOK_SECONDS ──> daemon
    tap <── the answer, before and among the datagrams ── daemon
     └──> writer ──> Account ──> marks in the file
                        └── clients, page after page, where any has lost messages ──> tap

Rules
- The mark ``daemon`` says what the daemon is. It is due when that is known first, and whenever it changes.
- The mark ``counters`` says what the daemon has counted since the look before: increments, which a reader adds up.
  The first look of a connection, its greeting, only says from where counting goes.
- A counter that has fallen began again at zero.
- A healthy daemon is asked one question a look. Clients are asked for only if the daemon has dropped messages since
  it was last asked for them. A client's losses can be named a look after the daemon counted them.
- What an answer can make grow is bounded: pages, clients, names, and so the payload of a mark. What is not as it
  should be is left out; an account is never a reason to stop recording.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bccnd.recorder.layout import Mark
from bccnd.wire.verdict import verdict_of

# Seconds between two looks: a minute of the report has six, and a mark weighs as much as three messages.
LOOK_SECONDS = 10.0
# Pages of clients that are read at a look. A page has up to 100 rows; a daemon has 4096 clients unless it is told
# otherwise.
PAGES = 64
# Clients in a mark: those that lost most. The payload of a mark has at most some 10 kB.
CLIENTS = 20
# Characters of a client's name: as many as it can have.
NAME_LIMIT = 128
# Characters of the other words of a daemon, such as its version.
WORD_LIMIT = 64
# A JSON number above this is not a counter; Spark reads a bigint.
NUMBER_LIMIT = 2**63 - 1
# What a mark has of the ``counters`` of the status.
COUNTERS = ("published", "received", "accepted", "unwanted", "delivered", "dropped", "sent", "unsent")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request that the tap should make."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Said:
    """A mark that is due. ``payload``: JSON."""

    kind: Mark
    payload: bytes


@dataclass(slots=True)
class _Naming:
    """A look that waits for rows of clients.

    ``counted``: its increments, empty for the first look; ``after_ns``: the last look that asked for clients;
    ``lost``: what each has lost since it connected; ``losers``: what it lost since that look, and its row there.
    """

    counted: dict[str, Any]
    time_ns: int
    after_ns: int
    pages: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    losers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)


class Account:
    """Of one connection. Times are Unix ns."""

    def __init__(self) -> None:
        self._about: dict[str, Any] = {}
        self._uptime = 0.0
        # The last look: when, and its counters.
        self._looked_ns = 0
        self._counted: dict[str, int] = {}
        self._rejected: dict[str, int] = {}
        # What the daemon had dropped when clients were last asked for, and what each of them had lost by then.
        self._named_upto = self._named_ns = 0
        self._lost: dict[str, int] = {}
        self._naming: _Naming | None = None

    def heard(self, key: str, value: str | bytes, time_ns: int) -> Iterator[Ask | Said]:
        """An answer of the daemon, which was given at this time."""
        answer = json_object(value)
        if answer is None:
            return
        if key == "status":
            yield from self.end()
            yield from self._status(answer, time_ns)
        elif key == "clients" and self._naming is not None:
            yield from self._page(self._naming, answer)

    def end(self) -> Iterator[Said]:
        """What is known of a look that still waits for answers, which may never come."""
        naming, self._naming = self._naming, None
        if naming is None:
            return
        self._lost |= naming.lost
        if naming.counted:
            naming.losers.sort(key=lambda loser: loser[0], reverse=True)
            named = [row for _, row in naming.losers[:CLIENTS]]
            more = len(naming.losers) - len(named)
            yield said(Mark.COUNTERS, naming.counted | {"clients": named, "more_clients": more})

    def _status(self, status: dict[str, Any], time_ns: int) -> Iterator[Ask | Said]:
        about = self._described(status, time_ns)
        if about != self._about:
            self._about = about
            yield said(Mark.DAEMON, about)
        counts, rejected = _counts(status)
        counted: dict[str, Any] = {}
        if self._looked_ns:
            refused = _increments(rejected, self._rejected)
            counted = {"from_ns": self._looked_ns, **_increments(counts, self._counted)}
            counted["rejected"] = {verdict: more for verdict, more in refused.items() if more}
        self._looked_ns, self._counted, self._rejected = time_ns, counts, rejected
        self._naming = _Naming(counted, time_ns, self._named_ns)
        if counts["dropped"] == self._named_upto:
            yield from self.end()
        else:
            self._named_upto, self._named_ns = counts["dropped"], time_ns
            yield Ask("clients", "")

    def _described(self, status: dict[str, Any], time_ns: int) -> dict[str, Any]:
        """What the daemon is. ``since_ns`` stays what it was for as long as the daemon is the same: clocks jump."""
        about: dict[str, Any] = {name: word(status.get(name)) for name in ("version", "host", "integrity")}
        about |= {"pid": number(status.get("pid")), "reorder": number(status.get("reorder"))}
        uptime = _seconds(status.get("uptime"))
        same = bool(self._about) and self._about["pid"] == about["pid"] and uptime >= self._uptime
        self._uptime = uptime
        return about | {"since_ns": self._about["since_ns"] if same else time_ns - int(uptime * 1e9)}

    def _page(self, naming: _Naming, page: dict[str, Any]) -> Iterator[Ask | Said]:
        naming.pages += 1
        rows = page.get("clients")
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict):
                self._client(naming, row)
        following = page.get("next")
        if isinstance(following, str) and following.isdigit() and naming.pages < PAGES:
            yield Ask("clients", following[:WORD_LIMIT])
        else:
            # The others have left.
            self._lost = {}
            yield from self.end()

    def _client(self, naming: _Naming, row: dict[str, Any]) -> None:
        name, lost = word(row.get("name"), NAME_LIMIT), number(row.get("dropped"))
        if not name or not lost:
            return
        # A client that connected since then may bear the name of one that has left.
        since_ns = naming.time_ns - int(_seconds(row.get("seconds")) * 1e9)
        more = _more(lost, self._lost.get(name, 0) if since_ns <= naming.after_ns else 0)
        naming.lost[name] = lost
        if more:
            policy, tap = word(row.get("policy")), row.get("tap") is True
            naming.losers.append((more, {"name": name, "dropped": more, "policy": policy, "tap": tap}))


def _counts(status: dict[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """The counters of a status, all of COUNTERS and those of the kernel; and what was rejected, by verdict."""
    counters, kernel, rejected = (
        each if isinstance(each := status.get(name), dict) else {}
        for name in ("counters", "kernel", "rejected")
    )
    counts = {"kernel_dropped": number(kernel.get("dropped")) or 0}
    counts |= {name: number(counters.get(name)) or 0 for name in COUNTERS}
    return counts, {name: number(count) or 0 for name, count in rejected.items() if verdict_of(name)}


def _increments(now: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: _more(count, before.get(name, 0)) for name, count in now.items()}


def _more(now: int, before: int) -> int:
    return now - before if now >= before else now


def json_object(value: str | bytes) -> dict[str, Any] | None:
    """None for anything else, and for what is no JSON."""
    try:
        made = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return made if isinstance(made, dict) else None


def number(value: object) -> int | None:
    """None for what is no count, as others may say anything."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_LIMIT:
        return value
    return None


def _seconds(value: object) -> float:
    """Seconds that are no more than a life; 0 for what is none."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 0.0


def word(value: object, limit: int = WORD_LIMIT) -> str | None:
    """Cut after ``limit`` characters; None for what is no string."""
    return value[:limit] if isinstance(value, str) else None


def said(kind: Mark, about: dict[str, Any]) -> Said:
    return Said(kind, json.dumps(about, separators=(",", ":")).encode())
