"""Tables of last values as the tests of ``retained`` need them."""

from collections.abc import Callable, Iterable

from bccnd.relay.options import Retain
from bccnd.relay.ordered import OrderedKeys
from bccnd.relay.retained import ENTRY_COST, Kept, Retained
from tests.relay.counting import calls_of
from tests.relay.fakes import datagram

ALL = (">",)


def kept(payload: bytes, chan: bytes = b"state/a") -> Kept:
    whole = datagram(b"src", 1, chan, payload)
    return Kept(b"10.0.0.2:5400", 5, whole, len(whole) - len(payload))


def filled(*channels: bytes, payload: bytes = b"x", **bounds: int) -> Retained:
    retained = Retained(Retain(ALL, **{"channels": 100, "bytes": 1 << 20} | bounds))
    for chan in channels:
        retained.keep(chan, kept(payload, chan))
    return retained


def channels_of(retained: Retained, pattern: bytes = b"", separator: bytes = b"/") -> list[bytes]:
    return [chan for chan, _ in rows(retained, pattern, separator)]


def rows(retained: Retained, pattern: bytes = b"", separator: bytes = b"/") -> list[tuple[bytes, Kept]]:
    return [row for row in retained.matching(pattern, separator) if row]


def cost(entries: Iterable[tuple[bytes, Kept]]) -> int:
    return sum(ENTRY_COST + len(chan) + len(message.datagram) for chan, message in entries)


def looks_of(action: Callable[[], object]) -> int:
    """How many rows it looks for."""
    with calls_of(OrderedKeys, "first") as looks:
        action()
    return len(looks)
