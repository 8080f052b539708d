"""What a side does: what is taken, what makes no sense, and what is too late."""

from collections.abc import Callable
from typing import Any

import pytest

from bpmux.errors import BpmuxError
from bpmux.events import Cancelled, Closed, Ended, Finished, Message, Refused, Writable
from bpmux.limits import ITEM_BYTES, Limits
from tests.clients.bpmux.joined import Joined


def payloads(events: list[Any]) -> list[bytes]:
    return [event.payload for event in events if isinstance(event, Message)]


@pytest.mark.parametrize(
    ("kind", "deed"),
    [
        ("stream", lambda here, mine: here.send(mine, b"")),
        ("stream", lambda here, mine: here.close(mine)),
        ("sink", lambda here, mine: here.cancel(mine)),
        ("sink", lambda here, mine: here.grant(mine, 1)),
        ("stream", lambda here, mine: here.grant(mine, 0)),
        ("stream", lambda here, mine: here.grant(mine, 1 << 64)),
        ("sink", lambda here, mine: here.send(mine, bytes(200_000))),
        ("sink", lambda here, mine: here.close(mine, bytes(200_000))),
    ],
)
def test_what_never_made_sense_is_an_error(kind: str, deed: Callable[..., object]) -> None:
    joined = Joined()
    mine, _ = joined.opened(kind)
    with pytest.raises(ValueError, match=r"\w"):
        deed(joined.here, mine)


def test_a_request_is_ended_by_its_own_side_only() -> None:
    joined = Joined()
    mine, theirs = joined.asked()
    for deed in (
        lambda: joined.here.close(mine),
        lambda: joined.there.cancel(theirs),
        lambda: joined.here.respond(mine, b""),
    ):
        with pytest.raises(ValueError, match="request of"):
            deed()


def test_what_is_too_late_does_nothing() -> None:
    joined = Joined()
    mine, theirs = joined.opened("duplex")
    request, asked = joined.asked()
    joined.there.cancel(theirs)
    joined.there.close(theirs)
    joined.here.cancel(request)
    joined.settle()
    joined.here.close(mine)
    joined.here.cancel(mine)
    joined.here.grant(mine, 5)
    joined.here.cancel(request)
    joined.there.close(asked)
    assert not joined.here.send(mine, b"late")
    assert not joined.there.respond(asked, b"late")
    assert joined.settle() == ([], [])


def test_a_full_queue_says_so_and_then_that_it_has_room() -> None:
    joined = Joined(Limits(queue=1000))
    mine, theirs = joined.opened("sink")
    assert [joined.here.send(mine, bytes(300)) for _ in range(4)] == [True, True, False, False]
    assert joined.here.queued == 2 * (300 + ITEM_BYTES)
    joined.there.grant(theirs, 250)
    assert joined.settle() == ([], [])
    joined.there.grant(theirs, 400)
    here, there = joined.settle()
    assert here == [Writable(mine)]
    assert len(payloads(there)) == 2
    assert joined.here.send(mine, bytes(300))


def test_a_message_as_long_as_any_fits_an_empty_queue() -> None:
    joined = Joined(Limits(queue=10))
    mine, _ = joined.opened("sink")
    assert joined.here.send(mine, bytes(1000))
    assert not joined.here.send(mine, b"")


def test_as_many_are_open_as_the_limits_say() -> None:
    joined = Joined(Limits(channels=2, requests=1))
    first = joined.here.open_sink(b"")
    assert joined.here.open_duplex(b"")
    assert joined.here.open_stream(b"") is None
    assert joined.here.request(b"")
    assert joined.here.request(b"") is None
    joined.settle()
    assert first
    joined.here.close(first)
    joined.settle()
    assert joined.here.open_stream(b"")


def test_a_close_goes_behind_what_is_queued_or_at_once() -> None:
    for at_once, heard in ((False, [b"a", b"b"]), (True, [])):
        joined = Joined()
        mine, theirs = joined.opened("sink")
        joined.here.send(mine, b"a")
        joined.here.send(mine, b"b")
        joined.here.close(mine, b"why", at_once=at_once)
        joined.there.grant(theirs, 10)
        _, there = joined.settle()
        assert payloads(there) == heard
        assert there[-2:] == [Closed(theirs, b"why"), Ended(theirs)]


def test_a_window_is_kept_at_its_size() -> None:
    joined = Joined()
    mine, theirs = joined.opened("stream", window=100)
    for _ in range(9):
        joined.there.send(theirs, bytes(60))
    got = 0
    while here := joined.settle()[0]:
        got += len(payloads(here))
        assert mine.held <= 100 + 60
        assert mine.credit <= 100
        joined.here.consumed(mine, mine.held)
    assert got == 9
    assert 50 < mine.credit <= 100


def test_any_window_lets_any_message_pass() -> None:
    joined = Joined()
    mine, theirs = joined.opened("stream", window=3)
    joined.there.send(theirs, bytes(1000))
    here, _ = joined.settle()
    assert here == [Message(mine, bytes(1000))]
    assert mine.held == 1000
    joined.there.send(theirs, bytes(1000))
    assert joined.settle()[0] == []
    joined.here.consumed(mine, 1000)
    assert joined.settle()[0] == [Message(mine, bytes(1000))]


def test_the_top_level_never_runs_dry() -> None:
    joined = Joined()
    for at in range(30):
        sink = joined.here.open_sink(bytes(50_000))
        assert sink
        joined.here.send(joined.here.top, b"%d" % at)
        _, there = joined.settle()
        assert len(there) == 2
    assert joined.here.queued == 0


def test_refusals_that_nobody_reads_end_the_connection() -> None:
    joined = Joined(there=Limits(channels=1, refused=2))
    for _ in range(3):
        joined.here.open_sink(b"")
    data = joined.here.data_to_send()
    refused = [event for event in joined.there.receive(data, 0.0) if isinstance(event, Refused)]
    assert [event.reason for event in refused] == [b"limit: too many are open"] * 2
    joined.here.open_sink(b"")
    with pytest.raises(BpmuxError, match="limit"):
        joined.there.receive(joined.here.data_to_send(), 0.0)


def test_refusals_that_are_read_end_nothing() -> None:
    joined = Joined(there=Limits(channels=1, requests=1, refused=2))
    joined.opened("sink")
    joined.asked()
    for _ in range(10):
        joined.here.open_duplex(b"")
        joined.here.request(b"")
        here, there = joined.settle()
        assert sum(isinstance(event, Refused) for event in there) == 2
        assert {event.payload for event in here if isinstance(event, Closed)} == {b"limit: too many are open"}
        assert sum(isinstance(event, Cancelled) for event in here) == 1
        for event in here:  # a duplex is cancelled and closed by the peer, and over
            assert event not in there
    assert len(joined.here._connection.tables.ours) == 1


def test_the_connection_is_finished_when_both_have_left() -> None:
    joined = Joined()
    mine, _ = joined.opened("sink")
    for end in (joined.here, joined.there):
        joined.here.send(mine, b"never credited")
        end.close(end.top, b"bye")
        end.cancel(end.top)
        here, there = joined.settle()
    assert [here[-1], there[-1]] == [Finished(), Finished()]
    assert joined.here.receive(b"\x8c", 0.0) == []
    joined.here.request(b"")
    assert not joined.here.has_data_to_send
    assert joined.here.data_to_send() == b""


def test_nothing_is_sent_to_a_top_level_that_is_cancelled() -> None:
    joined = Joined()
    joined.there.cancel(joined.there.top)
    assert joined.here.send(joined.here.top, b"crosses")
    assert joined.settle() == ([Cancelled(joined.here.top, b"")], [])
    assert not joined.here.send(joined.here.top, b"late")
    joined.opened("sink")
