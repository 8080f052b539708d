"""The limits fit together, and bound what a peer can make an endpoint hold."""

import tracemalloc
from collections.abc import Iterable

import pytest

from bpmux import arrivals, chunks
from bpmux.chunks import TOP, head
from bpmux.endpoint import Endpoint
from bpmux.errors import BpmuxError
from bpmux.limits import PIECE_LIMIT, TOP_LEVEL_RESERVE, Limits

LIMITS = Limits(channels=50, requests=50, payload=4096, unfinished=20_000, refused=8, replies=10_000)


def openings() -> Iterable[bytes]:
    for ident in range(10_000):
        yield head(chunks.DUPLEX, ident, 0)


def requests() -> Iterable[bytes]:
    for ident in range(10_000):
        yield head(chunks.REQUEST, ident, 0)


def beginnings() -> Iterable[bytes]:
    for ident in range(10_000):
        yield head(chunks.PARTIAL, TOP, 1 << 60) + head(chunks.SINK, ident, 60) + bytes(60)


def cancels_of_nothing() -> Iterable[bytes]:
    for ident in range(10_000):
        yield head(chunks.PARTIAL, TOP, 5) + head(chunks.CANCEL_REQUEST, ident, 0)


def pings() -> Iterable[bytes]:
    for _ in range(20_000):
        yield head(chunks.PING, TOP)


def one_long_message() -> Iterable[bytes]:
    yield head(chunks.PARTIAL, TOP, 1 << 60)
    for _ in range(200):
        yield head(chunks.MESSAGE, TOP, 8000) + bytes(8000)


@pytest.mark.parametrize(
    ("flood", "ends"),
    [
        (openings, True),
        (requests, True),
        (beginnings, True),
        (cancels_of_nothing, True),
        (pings, True),
        (one_long_message, False),
    ],
)
def test_a_peer_that_never_stops_takes_little_memory(flood, ends: bool) -> None:  # type: ignore[no-untyped-def]
    """It reads nothing and gives no credit; it is dropped, but for a message of which nothing is kept."""
    endpoint = Endpoint(0.0, LIMITS)
    pieces = list(flood())
    tracemalloc.start()
    try:
        for piece in pieces:
            endpoint.receive(piece, 0.0)
        dropped = False
    except BpmuxError as error:
        dropped = error.rule in ("limit", "credit")
    finally:
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert dropped is ends
    assert held < 500_000


def test_a_reason_fits_every_payload() -> None:
    assert max(len(arrivals.TOO_LONG), len(arrivals.TOO_MANY)) <= 64


def test_a_reserve_carries_more_than_one_piece() -> None:
    assert 2 * PIECE_LIMIT <= TOP_LEVEL_RESERVE == Limits().reserve
    assert Limits().payload <= min(Limits().unfinished, Limits().queue)
