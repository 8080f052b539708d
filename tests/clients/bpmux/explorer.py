"""Every interleaving of what two endpoints do and of what arrives: states are pickled, hashed, and visited once.

A world is two endpoints and the chunks on their way, in order, each way. A step is either the delivery of the next
chunk of one way or the next free action of one side. Each action of a script is done once, at any time at which its
subject is known to that side. What an endpoint has to send is on its way at once, as far as credit goes.
"""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bpmux.chunks import parse
from bpmux.endpoint import Endpoint
from bpmux.events import Closed, Ended, Message, Opened, Refused, Requested, Responded
from bpmux.limits import Limits

A, B = 0, 1


@dataclass
class World:
    """``handles``: per side, of each round (an id is used again in the next), what it knows of the subject."""

    sides: list[Endpoint]
    todo: list[tuple[str, ...]]
    wires: list[list[bytes]] = field(default_factory=lambda: [[], []])
    handles: list[list[Any]] = field(default_factory=lambda: [[], []])
    seen: list[list[tuple[int, str]]] = field(default_factory=lambda: [[], []])

    def flush(self) -> None:
        for side, endpoint in enumerate(self.sides):
            while data := endpoint.data_to_send():
                self.wires[side] += [chunk.serialize() for chunk in parse(data)]

    def key(self) -> bytes:
        return pickle.dumps(self)


def revived(key: bytes) -> World:
    return pickle.loads(key)  # type: ignore[no-any-return] # noqa: S301 - our own bytes


def world(limits: tuple[Limits, Limits], todo: tuple[tuple[str, ...], tuple[str, ...]]) -> World:
    made = World([Endpoint(0.0, each) for each in limits], list(todo))
    made.flush()
    for side in (A, B):  # the credit that each gives the other at the beginning
        for chunk in made.wires[side]:
            made.sides[1 - side].receive(chunk, 0.0)
        made.wires[side].clear()
    return made


Action = Callable[[World, int], bool]


def explore(start: World, actions: dict[str, Action], at_the_end: Callable[[World], None]) -> tuple[int, int]:
    """Visits all; returns how many states there are, and in how many of them nothing more can happen."""
    seen = {start.key()}
    waiting = list(seen)
    ends = 0
    while waiting:
        key = waiting.pop()
        is_end = True
        for following in steps(key, actions):
            is_end = False
            new = following.key()
            if new not in seen:
                seen.add(new)
                waiting.append(new)
        if is_end:
            ends += 1
            at_the_end(revived(key))
    return len(seen), ends


def steps(key: bytes, actions: dict[str, Action]) -> Iterator[World]:
    here = revived(key)
    for side in (A, B):
        if here.wires[side]:
            yield delivered(here, side)
            here = revived(key)
        for name in here.todo[side]:
            if actions[name](here, side):
                here.todo[side] = tuple(each for each in here.todo[side] if each != name)
                here.flush()
                yield here
                here = revived(key)


def delivered(here: World, side: int) -> World:
    """The next chunk of a side arrives at the other. Chatter is no state."""
    endpoint = here.sides[1 - side]
    for event in endpoint.receive(here.wires[side].pop(0), 0.0):
        note(here, 1 - side, event)
    endpoint._incoming.work = endpoint._connection.chatter = 0
    here.flush()
    return here


def note(here: World, side: int, event: Any) -> None:
    """What a side sees, in an order that makes sense."""
    handles, seen = here.handles[side], here.seen[side]
    name = type(event).__name__
    if isinstance(event, Opened | Requested):
        handles.append(event.channel if isinstance(event, Opened) else event.request)
        seen.append((len(handles), name))
        return
    subject = event.channel if isinstance(event, Message) else getattr(event, "request", None) or event.entity
    if isinstance(event, Refused) and not any(each is subject for each in handles):
        handles.append(subject)
    (which,) = [at for at, each in enumerate(handles, 1) if each is subject]
    assert (which, name) not in seen or isinstance(event, Message), f"{name} twice"
    assert (which, "Ended") not in seen, f"{name} after the end"
    if isinstance(event, Message | Responded | Closed):
        assert (which, "Closed") not in seen, f"{name} after Closed"
    if isinstance(event, Ended):
        assert subject.is_over
    seen.append((which, name))
