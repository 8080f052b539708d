"""Pings, and when somebody is given up."""

import pytest

from bpmux import chunks, heartbeats
from bpmux.entities import Channel, Request, State
from bpmux.heartbeats import IDLE_SECONDS, MISSED_LIMIT, Heartbeats

TOP = Channel(chunks.TOP, chunks.DUPLEX, ours=True)
TOP.is_open = True


def stream(ident: int = 1) -> Channel:
    channel = Channel(ident, chunks.STREAM, ours=True)
    channel.is_open = True
    return channel


def test_an_idle_connection_is_asked_and_then_given_up() -> None:
    beats = Heartbeats(TOP, 100.0)
    assert beats.deadline == 100.0 + IDLE_SECONDS
    assert beats.due(beats.deadline - 0.1) == ([], [])
    for _ in range(MISSED_LIMIT):
        assert beats.due(beats.deadline) == ([TOP], [])
    assert beats.due(beats.deadline) == ([], [TOP])


def test_whatever_comes_counts_for_the_connection() -> None:
    beats = Heartbeats(TOP, 0.0)
    for _ in range(10):
        assert beats.due(beats.deadline) == ([TOP], [])
        beats.heard(beats.deadline - 1)


def test_what_is_watched_is_asked_for_itself() -> None:
    beats, channel = Heartbeats(TOP, 0.0), stream()
    assert beats.watch(channel, 2.0, 0.0)
    assert beats.deadline == 2.0
    for at in range(MISSED_LIMIT):
        beats.heard(2.0 * (at + 1))
        assert beats.due(2.0 * (at + 1)) == ([channel], [])
    assert beats.due(2.0 * (MISSED_LIMIT + 1)) == ([], [channel])
    assert beats.deadline == 2.0 * MISSED_LIMIT + IDLE_SECONDS


def test_a_pong_begins_anew() -> None:
    beats, channel = Heartbeats(TOP, 0.0), stream()
    beats.watch(channel, 2.0, 0.0)
    for at in range(1, 20):
        beats.heard(2.0 * at)
        assert beats.due(2.0 * at) == ([channel], [])
        beats.pong(channel)


def test_what_is_not_open_yet_is_not_asked_for() -> None:
    beats, request = Heartbeats(TOP, 0.0), Request(1, ours=True)
    beats.watch(request, 2.0, 0.0)
    assert beats.due(2.0) == ([], [])
    request.is_open = True
    assert beats.due(4.0) == ([request], [])


@pytest.mark.parametrize("state", [State.LEAVING, State.LEFT, State.CROSSED, State.OVER])
def test_what_has_ended_is_watched_no_more(state: State) -> None:
    beats, channel, request = Heartbeats(TOP, 0.0), stream(), Request(1, ours=True)
    for entity in (channel, request):
        entity.is_open = True
        beats.watch(entity, 2.0, 0.0)
    channel.receiving = request.state = state
    assert beats.due(2.0) == ([], [])
    assert (beats._watches, beats._heap) == ({}, [])


def test_to_watch_again_changes_how_often() -> None:
    beats, channel = Heartbeats(TOP, 0.0), stream()
    beats.watch(channel, 2.0, 0.0)
    beats.watch(channel, 5.0, 0.0)
    assert beats.due(2.0) == ([channel], [])
    assert beats.deadline == 7.0


def test_no_more_are_watched_than_come_due_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "WATCHED_LIMIT", 2)
    beats, first = Heartbeats(TOP, 0.0), stream()
    assert [beats.watch(each, 1.0, 0.0) for each in (first, stream(2), stream(3), first)] == [
        True,
        True,
        False,
        True,
    ]
    with pytest.raises(ValueError, match="every 0"):
        beats.watch(first, 0.0, 0.0)
