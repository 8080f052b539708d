"""What chunks do: to what they are about, to what is there always, and where there is nothing of the kind."""

import pytest

from bpmux import chunks
from bpmux.arrivals import OF_HEADS, OF_PAYLOADS
from bpmux.chunks import HEADS, NAMES, PAYLOAD_KINDS, TOP, TOP_KINDS, Chunk, head, parse
from bpmux.endpoint import Endpoint
from bpmux.errors import BpmuxError
from bpmux.events import Cancelled, Refused
from bpmux.limits import Limits
from tests.clients.bpmux.joined import Joined

KINDS = sorted({known[0] for known in HEADS if known})


def fresh(limits: Limits | None = None) -> Endpoint:
    endpoint = Endpoint(0.0, limits)
    endpoint.data_to_send()
    return endpoint


def test_every_kind_of_chunk_does_something() -> None:
    assert set(OF_PAYLOADS) == PAYLOAD_KINDS
    assert {*OF_PAYLOADS, *OF_HEADS, chunks.PARTIAL} == set(KINDS)


# Of something that is not there: what may have crossed its end, what is there always, and what begins something.
HARMLESS = {chunks.CANCEL_REQUEST, chunks.PONG, chunks.PONG_PEER, chunks.PING_REQUEST, chunks.PONG_REQUEST}
BEGINS = {chunks.SINK, chunks.STREAM, chunks.DUPLEX, chunks.REQUEST, chunks.PARTIAL}


@pytest.mark.parametrize("kind", KINDS, ids=NAMES.get)
def test_a_chunk_about_nothing(kind: int) -> None:
    endpoint = fresh()
    chunk = head(kind, TOP if kind == chunks.PARTIAL else 5)
    if kind in HARMLESS | BEGINS:
        assert len(endpoint.receive(chunk, 0.0)) == (kind in BEGINS - {chunks.PARTIAL})
    else:
        with pytest.raises(BpmuxError, match="state"):
            endpoint.receive(chunk, 0.0)


@pytest.mark.parametrize("kind", sorted(TOP_KINDS), ids=NAMES.get)
def test_a_chunk_about_the_top_level(kind: int) -> None:
    endpoint = fresh()
    events = endpoint.receive(head(kind, TOP, 0 if kind in PAYLOAD_KINDS else 1), 0.0)
    assert len(events) == (kind in PAYLOAD_KINDS)
    assert endpoint.data_to_send() == (head(chunks.PONG, TOP) if kind == chunks.PING else b"")


def test_an_opening_that_is_too_long_is_refused_at_its_end() -> None:
    endpoint = fresh(Limits(payload=64))
    endpoint.receive(b"\xee\x00\x01\x00\x00", 0.0)
    assert endpoint.receive(head(chunks.SINK, 0, 65) + bytes(64), 0.0) == []
    (refused,) = endpoint.receive(b"\0", 0.0)
    assert isinstance(refused, Refused)
    assert parse(endpoint.data_to_send()) == [
        Chunk(chunks.CANCEL_PEER, 0, 28, b"limit: a payload is too long")
    ]


def test_a_long_reason_is_cut_and_counts() -> None:
    joined = Joined(here=Limits(payload=64))
    mine, theirs = joined.opened("sink")
    joined.there.cancel(theirs, bytes(100))
    here, _ = joined.settle()
    assert here[0] == Cancelled(mine, bytes(64))


def test_no_pong_comes_once_everything_is_said() -> None:
    joined = Joined()
    _, theirs = joined.opened("stream")
    joined.there.close(theirs)
    assert parse(joined.there.data_to_send()) == [Chunk(chunks.CLOSE_PEER, 0)]
    joined.there.receive(head(chunks.PING, 0), 0.0)
    assert joined.there.data_to_send() == b""
