"""Ways and how they end, ids and when they are free."""

import pytest

from bpmux import chunks
from bpmux.entities import HEARD, NEXT, SILENT, Channel, Ids, Request, State, Step, Tables, after
from bpmux.errors import BpmuxError


@pytest.mark.parametrize(
    ("kind", "ours", "sends", "receives"),
    [
        (chunks.SINK, True, True, False),
        (chunks.SINK, False, False, True),
        (chunks.STREAM, True, False, True),
        (chunks.STREAM, False, True, False),
        (chunks.DUPLEX, True, True, True),
        (chunks.DUPLEX, False, True, True),
    ],
)
def test_the_ways_of_a_channel(kind: int, ours: bool, sends: bool, receives: bool) -> None:
    channel = Channel(1, kind, ours=ours)
    assert (channel.sending is State.OPEN, channel.receiving is State.OPEN) == (sends, receives)
    assert not channel.is_over


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("step", Step)
def test_what_is_not_in_the_table_is_a_fault(state: State, step: Step) -> None:
    if (state, step) in NEXT:
        assert after(state, step) is NEXT[state, step]
    else:
        with pytest.raises(BpmuxError, match="state"):
            after(state, step)


def test_every_way_comes_to_its_end() -> None:
    for state in set(State) - SILENT:
        ways = {following for (before, _), following in NEXT.items() if before is state}
        assert ways
        assert state not in ways
    assert {before for before, step in NEXT if step is Step.PEER} == HEARD


def test_the_lowest_id_that_is_free_is_given() -> None:
    ids = Ids()
    assert [ids.take() for _ in range(4)] == [0, 1, 2, 3]
    ids.give_back(2)
    ids.give_back(1)
    assert [ids.take() for _ in range(3)] == [1, 2, 4]


def test_channels_and_requests_have_ids_of_their_own() -> None:
    tables = Tables()
    first, request, second = (
        tables.new_channel(chunks.SINK),
        tables.new_request(),
        tables.new_channel(chunks.DUPLEX),
    )
    assert (first.id, request.id, second.id) == (0, 0, 1)
    tables.remove(first)
    tables.remove(request)
    assert (tables.ours, tables.asked) == ({1: second}, {})
    assert (tables.new_channel(chunks.STREAM).id, tables.new_request().id) == (0, 0)


def test_an_id_of_the_peer_is_not_given_here() -> None:
    tables = Tables()
    theirs = tables.theirs[0] = Channel(0, chunks.SINK, ours=False)
    asked = tables.requests[0] = Request(0, ours=False)
    tables.remove(theirs)
    tables.remove(asked)
    assert [tables.new_channel(chunks.SINK).id for _ in range(2)] == [0, 1]
    assert [tables.new_request().id for _ in range(2)] == [0, 1]


def test_handles_say_what_they_are() -> None:
    assert str(Tables().top) == "<the top level>"
    assert str(Channel(7, chunks.STREAM, ours=False)) == "<stream 7 of the peer>"
    assert str(Request(3, ours=True)) == "<request 3 of ours>"
