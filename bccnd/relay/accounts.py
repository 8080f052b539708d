"""The account of each source, in a table that is bounded in sources and in time.

Rules
- When a part of the table is full, the host with most sources gives one up (``crowd``). It looks at the LOOKS sources
  that it looked at longest ago, and gives up one that has sent nothing since.
- Each part has two generations. After some time the old one is forgotten, and the young one becomes the old one. A
  source that sends moves to the young one. So a message costs nothing.
"""

from collections.abc import Iterator
from math import inf
from typing import Any

from bccnd.relay.crowd import Crowd, address_of
from bccnd.relay.gaps import Gap

# A datagram that this host sent to the segment comes back in milliseconds; later, if the host stood still.
ECHO_SECONDS = 30.0
# What is nearer to the last number of a source may well be of the life that goes on.
ECHO_APART = 16
# Sources looked at for one that has fallen silent, when one has to go.
LOOKS = 8


class Source:
    """One src and its account; ``heard`` is in the caller's monotonic seconds, ``peer`` what it last came from.

    ``strays``: numbers above ``last`` that were not agreed with; ``lone``: the one that came last of all, or -1.
    ``kept``: when a daemon last said that it keeps what it sends; None before, or PLAIN (``gaps``). ``repaired``,
    ``gone`` and ``given_up``: numbers that were missing and came when asked for, that nobody keeps, that came late.
    ``relay``: the host and the address of the daemon that relays it, if one does; ``left_out``: numbers that it left
    out, which are no losses; ``relay_said``: when this daemon last said that it relays the source; ``before``: where
    it does, the numbers of its life before, which ended at ``ended``; ``brought``: the highest number that a bridge
    of this host brought, -1 for none.
    """

    __slots__ = (
        "before",
        "brought",
        "duplicates",
        "ended",
        "first",
        "gap",
        "given_up",
        "gone",
        "heard",
        "kept",
        "last",
        "late",
        "left_out",
        "lone",
        "lost",
        "ours",
        "peer",
        "received",
        "relay",
        "relay_said",
        "repaired",
        "replayed",
        "restarts",
        "seen",
        "since",
        "strays",
        "told",
    )

    def __init__(self, seq: int, now: float) -> None:
        self.received = 1
        self.lost = self.late = self.duplicates = self.restarts = self.replayed = 0
        self.repaired = self.gone = self.given_up = self.left_out = 0
        self.relay: tuple[str, str] | None = None
        self.relay_said = -inf
        self.brought = -1
        self.kept: float | None = None
        self.gap: Gap | None = None
        self.first = self.last = seq
        self.seen = 1  # bit k: last - k was seen
        self.heard = self.since = now
        self.peer = ""
        self.ours = range(0)  # sent from this host, by a client that has left
        self.lone = -1
        self.strays: tuple[int, ...] = ()
        self.told = 0  # ``received`` when it was last looked at whether it still speaks
        self.before: range | None = None
        self.ended = -inf

    def end_life(self, now: float) -> None:
        """Other numbers begin. Those of several lives that follow each other closely are remembered together."""
        if self.relay_said == -inf:
            return
        before = range(self.first, self.last + 1)
        if self.before is not None and now - self.ended <= ECHO_SECONDS:
            before = range(min(before.start, self.before.start), max(before.stop, self.before.stop))
        self.before, self.ended = before, now

    def is_past(self, seq: int, now: float) -> bool:
        """Whether the number is of a life before, and no missing one."""
        before = self.before
        if before is None or seq not in before or abs(seq - self.last) <= ECHO_APART:
            return False
        if now - self.ended > ECHO_SECONDS:
            return False
        return self.gap is None or self.gap.find(seq) < 0

    def restart(self, seq: int, now: float) -> None:
        self.end_life(now)
        self.restarts += 1
        self.received += 1
        self.first = self.last = seq
        self.seen = 1
        self.strays, self.lone = (), -1


class Part:
    """One part of the table: src -> ``Source`` in two generations, and whose they are."""

    __slots__ = ("crowd", "old", "turned", "young")

    def __init__(self) -> None:
        self.young: dict[bytes, Source] = {}
        self.old: dict[bytes, Source] = {}
        self.turned = 0.0
        self.crowd = Crowd()

    def __len__(self) -> int:
        return len(self.young) + len(self.old)

    def __iter__(self) -> Iterator[tuple[bytes, Source]]:
        yield from self.young.items()
        yield from self.old.items()

    def put(self, src: bytes, source: Source) -> None:
        """Take in a source that is not in it yet."""
        self.young[src] = source
        self.crowd.add(src, _address(source))

    def take(self, src: bytes) -> Source | None:
        source = self.young.pop(src, None) or self.old.pop(src, None)
        if source:
            self.crowd.remove(src)
        return source

    def make_room(self, src: bytes, source: Source, limit: int) -> None:
        """Have no more than ``limit`` when ``src`` is in: whoever has most gives."""
        while len(self) >= max(1, limit):
            giver = self.crowd.giver(src, _address(source))
            self.take(self._silent_one(self.crowd.members(giver)))

    def turn(self, now: float) -> None:
        self.turned = now
        for src in self.old:
            self.crowd.remove(src)
        self.old, self.young = self.young, {}

    def shrink(self, limit: int) -> None:
        """To half of the limit, those heard last, if there are more than the limit."""
        if len(self) > limit:
            latest = sorted(self, key=lambda item: item[1].heard)[-max(1, limit // 2) :]
            self.young, self.old = dict(latest), {}

    def count_anew(self) -> None:
        """Whose the sources are, from what is known of them."""
        self.crowd = Crowd()
        for src, source in self:
            self.crowd.add(src, _address(source))

    def state(self) -> dict[str, Any]:
        return {"turned": self.turned, "young": rows_of(self.young), "old": rows_of(self.old)}

    def restore(self, state: dict[str, Any]) -> None:
        self.turned = state["turned"]
        self.young = table_of(state["young"])
        self.old = table_of(state["old"])

    def _silent_one(self, givers: dict[bytes, None]) -> bytes:
        for _ in range(LOOKS):
            src = next(iter(givers))
            source = self.young.get(src)
            if source is None or source.received == source.told:
                return src
            source.told = source.received
            del givers[src]
            givers[src] = None
        return next(iter(givers))


def _address(source: Source) -> bytes:
    """Of bridges of this host, which have none, and are no clients that have left: their word."""
    return address_of(source.peer.encode()) or source.peer.encode()


def rows_of(table: dict[bytes, Source]) -> list[tuple[bytes, dict[str, Any]]]:
    return [
        (src, {name: _plain(getattr(source, name)) for name in Source.__slots__ if name != "gap"})
        for src, source in table.items()
    ]


def table_of(rows: list[tuple[bytes, dict[str, Any]]]) -> dict[bytes, Source]:
    table: dict[bytes, Source] = {}
    for src, fields in rows:
        table[src] = source = Source(0, 0.0)
        for name in fields.keys() & set(Source.__slots__):  # other code may have more of them
            value = fields[name]
            setattr(source, name, range(*value) if value and name in ("before", "ours") else value)
    return table


def _plain(value: Any) -> Any:
    return (value.start, value.stop) if isinstance(value, range) else value
