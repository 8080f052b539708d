"""State of a relay: plain values whatever has happened, and refused in one line when it is damaged."""

import pickle
from io import BytesIO
from typing import Any

import pytest

from bccnd.errors import ConfigError
from bccnd.relay.succession import restore, state_of
from bccnd.restart import load_state
from tests.relay.fakes import Bus, datagram


def eventful() -> Bus:
    """A bus on which something of everything has happened."""
    bus = Bus(retain=[b"a/>"])
    slow = bus.connect(b"SUB ", b"CMSG queue\0packets=2 policy=drop-newest", b"CMSG format\0full")
    slow.stop_reading()
    bus.connect(b"CMSG pack\0on").say(*[b"MSG a/b\0%d" % number for number in range(5)], b"CMSG ping")
    bus.hear(b"noise", datagram(b"far/prog/1", 7, b"a/c"), datagram(b"far/prog/1", 7, b"a/c"))
    return bus


def handed_over(state: dict[str, Any]) -> dict[str, Any]:
    """``load_state`` names no class, so what is not plain does not arrive."""
    return load_state(BytesIO(pickle.dumps(state, protocol=4)))


def test_the_state_arrives_as_it_was_and_makes_the_same_relay():
    bus, successor = eventful(), Bus(retain=[b"a/>"])
    state = handed_over(state_of(bus.relay))
    assert state["rejected"] == {"magic": 1, "duplicate": 1}
    restore(successor.relay, state, [session.port for session in bus.relay.sessions.values()])
    assert handed_over(state_of(successor.relay)) == handed_over(state_of(bus.relay))


@pytest.mark.parametrize("key", state_of(Bus().relay))
@pytest.mark.parametrize("instead", [None, 5, "x", [None], {"x": None}])
def test_damaged_state_is_refused_or_of_no_consequence(key: str, instead: Any):
    bus = eventful()
    state = state_of(bus.relay) | {key: instead}
    try:
        restore(Bus().relay, state, [session.port for session in bus.relay.sessions.values()])
    except ConfigError as error:
        assert str(error).startswith("cannot take over state")  # noqa: PT017 - some are taken, a wrong count say


@pytest.mark.parametrize("key", ["format", "sessions", "names", "sources"])
def test_what_is_missing_is_said(key: str):
    state = state_of(Bus().relay)
    del state[key]
    with pytest.raises(ConfigError, match=key):
        restore(Bus().relay, state, [])
