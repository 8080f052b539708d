"""All that can happen when both sides end the same thing: every interleaving, by ``explorer``.

These are 4,600 states, in two or three seconds of processor time.

A peer that follows the rules never meets a fault of the other; at the end nobody holds anything, and each id is free.
"""

from collections.abc import Callable
from typing import Any

import pytest

from bpmux.endpoint import Endpoint
from bpmux.entities import Channel, Request, State
from bpmux.limits import Limits
from tests.clients.bpmux.explorer import A, Action, B, World, explore, world

PLENTY = Limits()
# One byte of credit for the top level at a time: every payload of two bytes is cut in two.
MISERY = Limits(reserve=1)


def opening(kind: str) -> Action:
    """Opens a channel, or the next once the one before is over, which then has the same id."""

    def act(here: World, side: int) -> bool:
        if any(isinstance(each, Channel) and not each.is_over for each in here.handles[side]):
            return False
        endpoint = here.sides[side]
        handle = getattr(endpoint, f"open_{kind}")(b"hi")
        assert handle.id == 0
        here.handles[side].append(handle)
        return True

    return act


def ask(here: World, side: int) -> bool:
    if any(isinstance(each, Request) and not each.is_over for each in here.handles[side]):
        return False
    handle = here.sides[side].request(b"hi")
    assert handle is not None
    assert handle.id == 0
    here.handles[side].append(handle)
    return True


def with_first(kind: type[Channel] | type[Request], act: Callable[[Endpoint, Any], object]) -> Action:
    """Does something with the first one that this side knows."""

    def acting(here: World, side: int) -> bool:
        first = next((each for each in here.handles[side] if isinstance(each, kind)), None)
        if first is None:
            return False
        act(here.sides[side], first)
        return True

    return acting


def is_asked_for(state: State) -> bool:
    """As ``watch`` does: nobody pings what was given up."""
    return state is State.OPEN


ACTIONS: dict[str, Action] = {
    "sink": opening("sink"),
    "stream": opening("stream"),
    "duplex": opening("duplex"),
    "duplex again": opening("duplex"),
    "send": with_first(Channel, lambda endpoint, channel: endpoint.send(channel, b"ab")),
    "grant a byte": with_first(Channel, lambda endpoint, channel: endpoint.grant(channel, 1)),
    "close": with_first(Channel, lambda endpoint, channel: endpoint.close(channel, b"zz", at_once=True)),
    "cancel": with_first(Channel, lambda endpoint, channel: endpoint.cancel(channel, b"yy")),
    "ping": with_first(
        Channel, lambda endpoint, channel: is_asked_for(channel.receiving) and endpoint._ping(channel)
    ),
    "ask": ask,
    "ask again": ask,
    "respond": with_first(Request, lambda endpoint, request: endpoint.respond(request, b"ok")),
    "close request": with_first(
        Request, lambda endpoint, request: endpoint.close(request, b"zz", at_once=True)
    ),
    "cancel request": with_first(Request, lambda endpoint, request: endpoint.cancel(request, b"yy")),
    "ping request": with_first(
        Request, lambda endpoint, request: is_asked_for(request.state) and endpoint._ping(request)
    ),
}

# What each side does, in any order that makes sense; and at least how many states that has, with PLENTY and MISERY.
SCRIPTS = {
    "sink": (("sink", "send", "close"), ("grant a byte", "cancel"), 130, 480),
    "stream": (("stream", "grant a byte", "cancel"), ("send", "close"), 130, 480),
    "duplex": (("duplex", "close", "cancel"), ("close", "cancel"), 420, 0),
    "one way of a duplex": (("duplex", "cancel"), ("close", "cancel"), 80, 320),
    "duplex again": (("duplex", "close", "cancel", "duplex again"), ("cancel",), 200, 0),
    "ask, respond": (("ask", "cancel request"), ("respond",), 15, 70),
    "ask, close": (("ask", "cancel request"), ("close request",), 19, 75),
    "ask, respond or close": (("ask", "cancel request"), ("respond", "close request"), 50, 300),
    "ask again": (("ask", "cancel request", "ask again"), ("respond", "close request"), 50, 300),
    "pings": (("stream", "ping", "cancel"), ("close",), 25, 0),
    "pings of requests": (("ask", "ping request", "cancel request"), ("respond", "close request"), 150, 0),
    "sink and ask": (("sink", "ask", "cancel request"), ("cancel", "respond"), 130, 0),
}


def nothing_is_left(here: World) -> None:
    """But what was opened or asked last, if it was opened again."""
    for side, endpoint in enumerate(here.sides):
        tables = endpoint._connection.tables
        left = [
            *tables.ours.values(),
            *tables.theirs.values(),
            *tables.asked.values(),
            *tables.requests.values(),
        ]
        kept = [each for each in here.handles[side] if not each.is_over]
        assert set(map(id, left)) == set(map(id, kept))
        assert len(endpoint._connection.unfinished) == 0
        assert (endpoint.held, endpoint.queued, tables.refused) == (0, 0, 0)
        assert not endpoint.has_data_to_send
    assert [each.is_over for each in here.handles[A]] == [each.is_over for each in here.handles[B]]


@pytest.mark.parametrize(
    ("script", "limits"),
    [
        pytest.param(script, limits, id=f"{script}, {name}")
        for script, (_, _, *least) in SCRIPTS.items()
        for name, limits, states in zip(("plenty", "misery"), (PLENTY, MISERY), least, strict=True)
        if states
    ],
)
def test_every_interleaving_ends_well(script: str, limits: Limits) -> None:
    first, second, *least = SCRIPTS[script]

    def ending(here: World) -> None:
        assert here.todo == [(), ()]
        nothing_is_left(here)

    states, ends = explore(world((limits, limits), (first, second)), ACTIONS, ending)
    assert states >= least[limits is MISERY]
    assert ends > 1


@pytest.mark.parametrize("reserve", [20, 64 * 1024])  # a reason of 28 bytes goes in two
@pytest.mark.parametrize(
    "script",
    [
        ("duplex", "send", "close", "duplex again"),
        ("sink", "ask"),
        ("ask", "cancel request", "ask again"),
    ],
    ids=" ".join,
)
def test_every_interleaving_of_a_refusal_ends_well(script: tuple[str, ...], reserve: int) -> None:
    """One side takes nothing: whatever the other opens or asks is refused, while it may end it itself."""
    limits = Limits(reserve=reserve), Limits(reserve=reserve, channels=0, requests=0)
    _, ends = explore(world(limits, (script, ())), ACTIONS, nothing_is_left)
    assert ends > 1
