"""Events are values, and the vectors have a word for each that a peer can cause."""

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest

from bpmux import chunks
from bpmux.entities import Channel
from bpmux.events import Event, Message
from tests.golden import entries

OF_THIS_SIDE = {"writable", "silent"}  # by its queue, and by its clock


def test_the_conversations_have_every_event() -> None:
    steps = [step for each in entries("bpmux", "conversations") for step in each["steps"]]
    seen = {event["event"] for step in steps for event in step.get("events", ())}
    assert seen == {kind.__name__.lower() for kind in get_args(Event)} - OF_THIS_SIDE


def test_an_event_is_a_value() -> None:
    channel = Channel(1, chunks.SINK, ours=False)
    message = Message(channel, b"hi")
    assert message == Message(channel, b"hi")
    assert message != Message(Channel(1, chunks.SINK, ours=False), b"hi")
    with pytest.raises(FrozenInstanceError):
        message.payload = b""  # type: ignore[misc]
