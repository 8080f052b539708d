"""What comes: it is paid, counted and put together, and what may not come ends the connection."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpmux import chunks
from bpmux.chunks import NAMES, PAYLOAD_KINDS, TOP, Chunk, head, parse
from bpmux.endpoint import Endpoint
from bpmux.errors import BpmuxError
from bpmux.events import Message, Opened, Refused
from bpmux.limits import OPENING_WORK, SMALL_GRANT, TOP_LEVEL_RESERVE, Limits
from tests.clients.bpmux.joined import Joined


def fresh(limits: Limits | None = None) -> Endpoint:
    endpoint = Endpoint(0.0, limits)
    endpoint.data_to_send()
    return endpoint


# What may be about something that is not there yet.
BEGINS = {chunks.SINK, chunks.STREAM, chunks.DUPLEX, chunks.REQUEST}


@pytest.mark.parametrize("kind", sorted(PAYLOAD_KINDS), ids=NAMES.get)
def test_every_payload_is_paid(kind: int) -> None:
    """Before any of it comes, and whatever it is about."""
    joined = Joined()
    joined.opened("duplex")
    joined.there.open_duplex(b"")
    joined.here.request(b"")
    joined.there.request(b"")
    joined.settle()
    with pytest.raises(BpmuxError) as caught:
        joined.here.receive(head(kind, 5 if kind in BEGINS else 0, TOP_LEVEL_RESERVE + 1), 0.0)
    assert caught.value.rule == "credit"


@pytest.mark.parametrize(
    ("data", "chatter"),
    [
        (head(chunks.MESSAGE, TOP, 0), 1),
        (head(chunks.MESSAGE, TOP, 1) + b"a", 0),
        (head(chunks.CREDIT, TOP, 1), 1),
        (head(chunks.CREDIT, TOP, SMALL_GRANT), 0),
        (head(chunks.PING, TOP), 1),
        (head(chunks.PONG, TOP), 1),
        (head(chunks.CANCEL_REQUEST, 7, 1) + b"a", 1),
        (head(chunks.PARTIAL, TOP, 2) + (head(chunks.MESSAGE, TOP, 0) * 3), 3),
    ],
)
def test_what_moves_nothing_is_counted(data: bytes, chatter: int) -> None:
    endpoint = fresh()
    endpoint.receive(data, 0.0)
    opening = (OPENING_WORK - 1) * data.startswith(head(chunks.CANCEL_REQUEST, 7, 1))
    assert (endpoint.work, endpoint.chatter) == (len(parse(data)) + opening, chatter)


@pytest.mark.parametrize("most", [1, 7, OPENING_WORK, 10**9])
def test_no_more_work_is_done_than_wanted_but_for_a_chunk(most: int) -> None:
    endpoint = fresh()
    data = (head(chunks.SINK, 3, 2) + b"hi" + head(chunks.CLOSE, 3, 0) + head(chunks.PING, TOP) * 50) * 4
    whole = fresh()
    wanted = [*map(repr, whole.receive(data, 0.0))]
    found = [*map(repr, endpoint.receive(data, 0.0, most))]
    turns = 1
    while endpoint.is_behind:
        assert endpoint.weight >= endpoint._incoming.unread
        before = endpoint.work
        found += map(repr, endpoint.receive(b"", 0.0, most))
        assert endpoint.work - before < most + OPENING_WORK
        turns += 1
    assert (found, endpoint.data_to_send()) == (wanted, whole.data_to_send())
    assert (endpoint.work, endpoint._incoming.unread) == (whole.work, 0)
    assert turns >= whole.work // (most + OPENING_WORK)


def test_it_is_not_behind_once_all_is_judged() -> None:
    endpoint = fresh()
    endpoint.receive(head(chunks.PING, TOP) * 5, 0.0, 5)
    assert not endpoint.is_behind


def test_events_before_a_fault_are_not_lost() -> None:
    endpoint = fresh()
    with pytest.raises(BpmuxError):
        endpoint.receive(b"\x6c\x01a\x8c", 0.0)
    assert endpoint.events() == [Message(endpoint.top, b"a")]


def test_nothing_is_said_after_a_fault() -> None:
    endpoint = fresh()
    with pytest.raises(BpmuxError):
        endpoint.receive(head(chunks.PING, TOP) + b"\x8c", 0.0)
    endpoint.open_sink(b"")
    assert not endpoint.has_data_to_send
    assert endpoint.data_to_send() == b""
    assert endpoint.receive(head(chunks.PING, TOP), 0.0) == []


def test_a_response_that_is_too_long_is_cancelled() -> None:
    joined = Joined(here=Limits(payload=64))
    request, asked = joined.asked()
    assert joined.there.respond(asked, bytes(100))
    here, there = joined.settle()
    assert here[0] == Refused(request, b"limit: a payload is too long")
    assert there == []
    assert not joined.here._connection.tables.asked


def test_messages_on_what_is_given_up_are_paid_and_dropped() -> None:
    joined = Joined()
    mine, theirs = joined.opened("stream", window=10)
    joined.there.send(theirs, b"12345")
    data = joined.there.data_to_send()
    joined.here.cancel(mine)
    assert joined.here.receive(data, 0.0) == []
    assert (mine.credit, mine.held) == (5, 0)
    with pytest.raises(BpmuxError, match="credit"):
        joined.here.receive(head(chunks.MESSAGE_PEER, 0, 6), 0.0)


@given(st.integers(1, 40), st.lists(st.integers(1, 9), max_size=40))
def test_a_message_arrives_however_it_is_cut(size: int, cuts: list[int]) -> None:
    endpoint = fresh()
    (opened,) = endpoint.receive(head(chunks.SINK, 0), 0.0)
    assert isinstance(opened, Opened)
    endpoint.grant(opened.channel, 40)
    payload = bytes(range(size))
    data, rest = head(chunks.PARTIAL, TOP, size), payload
    for cut in cuts:
        data += Chunk(chunks.MESSAGE, 0, 0, rest[:cut]).serialize() if rest else b""
        rest = rest[cut:]
    data += Chunk(chunks.MESSAGE, 0, 0, rest).serialize() if rest else b""
    events = [event for byte in data for event in endpoint.receive(bytes([byte]), 0.0)]
    assert events == [Message(opened.channel, payload)]
