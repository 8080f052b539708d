"""An endpoint as a program sees it."""

import tracemalloc

import pytest

from bpmux import chunks
from bpmux.chunks import TOP, Chunk, head, parse
from bpmux.endpoint import NO_PONG, Endpoint
from bpmux.events import Cancelled, Closed, Ended, Message, Requested, Responded, Silent, Writable
from bpmux.heartbeats import IDLE_SECONDS, MISSED_LIMIT
from bpmux.limits import CHANNEL_BYTES, ITEM_BYTES, PAYLOAD_BYTES, REQUEST_BYTES, TOP_LEVEL_RESERVE, Limits
from tests.clients.bpmux.joined import Joined
from tests.fuzz.steps import Steps


def test_credit_for_the_top_level_goes_first() -> None:
    assert parse(Endpoint(0.0).data_to_send()) == [Chunk(chunks.CREDIT, TOP, TOP_LEVEL_RESERVE)]


def test_a_session_from_its_opening_to_its_end() -> None:
    joined = Joined()
    bus, theirs = joined.opened("duplex", window=65536)
    joined.there.set_window(theirs, 65536)
    joined.here.send(bus, b"CMSG ping")
    request = joined.here.request(b"status")
    here, there = joined.settle()
    assert here == []
    (asked,) = [event.request for event in there if isinstance(event, Requested)]
    assert Message(theirs, b"CMSG ping") in there
    joined.there.send(theirs, b"CMSG pong\0")
    joined.there.respond(asked, b"{}")
    here, _ = joined.settle()
    assert request
    assert sorted(here, key=repr) == [Message(bus, b"CMSG pong\0"), Responded(request, b"{}")]
    joined.here.close(bus)
    _, there = joined.settle()
    assert there == [Closed(theirs, b"")]
    joined.there.close(theirs)
    here, there = joined.settle()
    assert (here, there) == ([Closed(bus, b""), Ended(bus)], [Ended(theirs)])


def test_a_silent_peer_is_reported_for_the_connection() -> None:
    endpoint = Endpoint(0.0)
    endpoint.data_to_send()
    for at in range(1, MISSED_LIMIT + 1):
        assert endpoint.deadline == IDLE_SECONDS * at
        assert endpoint.expire(endpoint.deadline) == []
        assert endpoint.data_to_send() == head(chunks.PING, TOP)
    assert endpoint.expire(endpoint.deadline) == [Silent(endpoint.top)]


def test_any_byte_of_the_peer_keeps_the_connection() -> None:
    endpoint = Endpoint(0.0)
    endpoint.receive(b"\xee\x00", IDLE_SECONDS - 1)
    endpoint.receive(b"", IDLE_SECONDS)
    assert endpoint.deadline == 2 * IDLE_SECONDS - 1


def test_what_does_not_answer_is_cancelled() -> None:
    joined = Joined()
    (stream, theirs), (request, asked) = joined.opened("stream"), joined.asked()
    joined.here.watch(stream, 1.0, 0.0)
    joined.here.watch(request, 1.0, 0.0)
    for at in range(1, MISSED_LIMIT + 1):
        assert joined.here.expire(float(at)) == []
        joined.here.data_to_send()  # and it never arrives
    assert joined.here.expire(MISSED_LIMIT + 1.0) == [Silent(stream), Silent(request)]
    here, there = joined.settle()
    assert sorted(here, key=repr) == [Ended(request), Ended(stream)]
    assert Cancelled(theirs, NO_PONG) in there
    assert Cancelled(asked, NO_PONG) in there


def test_what_answers_is_kept() -> None:
    joined = Joined()
    (stream, _), (request, _), (duplex, _) = joined.opened("stream"), joined.asked(), joined.opened("duplex")
    for entity in (stream, request, duplex):
        joined.here.watch(entity, 1.0, 0.0)
    for at in range(1, 4 * MISSED_LIMIT):
        assert joined.here.expire(float(at)) == []
        assert joined.settle() == ([], [])
    assert joined.there.chatter >= 3 * (4 * MISSED_LIMIT - 1)


def test_a_channel_of_the_peer_is_asked_for_as_well() -> None:
    joined = Joined()
    joined.opened("stream")  # so that ids of one side do not fit those of the other
    _, theirs = joined.opened("sink")
    joined.there.watch(theirs, 1.0, 0.0)
    for at in range(1, 2 * MISSED_LIMIT):
        assert joined.there.expire(float(at)) == []
        assert joined.settle() == ([], [])


def test_a_message_costs_few_steps() -> None:
    """Lines of Python, which are the same on any machine."""
    joined = Joined()
    sink, theirs = joined.opened("sink")
    joined.there.grant(theirs, 1 << 30)
    joined.settle()
    sending, reading = Steps(), Steps()
    count = 200
    with sending.counting():
        for _ in range(count):
            joined.here.send(sink, bytes(100))
        data = joined.here.data_to_send(1 << 20)
    with reading.counting():
        events = joined.there.receive(data, 0.0)
    assert len(events) == count
    assert sending.count / count < 45
    assert reading.count / count < 40


@pytest.mark.parametrize("sizes", [[100], [100, 90, 300]], ids=["of one size", "of several sizes"])
def test_messages_of_a_batch_cost_next_to_nothing(sizes: list[int]) -> None:
    joined = Joined()
    sink, theirs = joined.opened("sink")
    joined.there.grant(theirs, 1 << 30)
    joined.settle()
    sending, count = Steps(), 900
    with sending.counting():
        assert joined.here.send_each(sink, [bytes(size) for size in sizes] * (count // len(sizes))) == count
        joined.here.data_to_send(1 << 20)
    assert sending.count / count < 15


def test_of_a_batch_as_many_are_taken_as_there_is_room_for() -> None:
    joined = Joined(here=Limits(queue=1000))
    sink, theirs = joined.opened("sink")
    messages = [b"%d" % at + bytes(200 - at) for at in range(9)]
    assert joined.here.send_each(sink, messages) == 3
    assert joined.here.send_each(sink, messages[3:]) == 0
    joined.there.grant(theirs, 10_000)
    here, there = joined.settle()
    assert here == [Writable(sink)]
    assert there == [Message(theirs, message) for message in messages[:3]]
    assert joined.here.send_each(sink, [bytes(2000), b"x"]) == 1
    assert joined.here.send_each(sink, []) == 0
    with pytest.raises(ValueError, match="200000"):
        joined.here.send_each(sink, [b"", bytes(200_000)])


def test_what_waits_for_credit_is_not_ready() -> None:
    joined = Joined()
    (rich, theirs), (poor, others) = joined.opened("sink"), joined.opened("sink")
    joined.there.grant(theirs, 1 << 20)
    joined.settle()
    for channel in (rich, poor):
        joined.here.send_each(channel, [bytes(1000)] * 10)
    assert joined.here.ready == joined.here.queued > 20_000
    joined.settle()
    assert (joined.here.ready, joined.here.queued) == (0, 10 * (1000 + ITEM_BYTES))
    joined.here.send(poor, bytes(500))
    assert joined.here.ready == 0
    joined.there.grant(others, 1)
    joined.here.receive(joined.there.data_to_send(), 0.0)
    assert joined.here.ready == joined.here.queued
    joined.settle()
    joined.here.close(poor, at_once=True)
    joined.settle()
    assert (joined.here.ready, joined.here.queued) == (0, 0)


def test_every_byte_is_accounted_for_until_it_is_gone() -> None:
    joined = Joined()
    sink, theirs = joined.opened("sink")
    joined.here.send(sink, bytes(1000))
    assert joined.here.queued > 1000
    joined.there.grant(theirs, 600)
    joined.settle()
    assert joined.here.queued > 400
    assert joined.there.held == 600
    joined.there.grant(theirs, 400)
    joined.settle()
    assert (joined.here.queued, joined.there.held, joined.here.replies, joined.there.replies) == (0, 0, 0, 0)


def test_who_sends_only_what_there_is_room_for_is_called() -> None:
    joined = Joined()
    sink, theirs = joined.opened("sink")
    assert joined.here.room(sink) == 0
    joined.here.await_credit(sink)
    joined.there.grant(theirs, 100)
    assert joined.settle()[0] == [Writable(sink)]
    assert joined.here.room(sink) == 100
    joined.here.send(sink, bytes(60))
    assert (joined.here.room(sink), joined.here.waiting(sink)) == (40, 60 + ITEM_BYTES)
    joined.settle()
    assert (joined.here.room(sink), joined.here.waiting(sink)) == (40, 0)
    joined.here.send(sink, bytes(60))
    joined.settle()
    assert (joined.here.room(sink), joined.here.waiting(sink)) == (0, 60 + ITEM_BYTES)
    joined.there.grant(theirs, 30)
    assert joined.settle()[0] == []
    assert joined.here.room(sink) == 10


def test_what_takes_memory_and_no_bytes_weighs_as_well() -> None:
    endpoint = Endpoint(0.0)
    begun = b"".join(head(chunks.PARTIAL, TOP, 9) + head(chunks.SINK, ident, 0) for ident in range(300))
    tracemalloc.start()
    try:
        endpoint.receive(begun, 0.0)
        assert endpoint.weight == 300 * PAYLOAD_BYTES
        assert tracemalloc.get_traced_memory()[0] < 2 * endpoint.weight
        endpoint.receive(b"".join(head(chunks.SINK, ident, 9) + bytes(9) for ident in range(300)), 0.0)
        endpoint.receive(b"".join(head(chunks.REQUEST, ident, 0) for ident in range(300)), 0.0)
        assert endpoint.weight == 300 * (CHANNEL_BYTES + REQUEST_BYTES)
        assert tracemalloc.get_traced_memory()[0] < 2 * endpoint.weight
    finally:
        tracemalloc.stop()
