"""Heartbeats out: the daemon's own and those of clients that asked for them; in time, never in a burst, until they
leave.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.relay.rights import AccessList, Grant
from bccnd.relay.succession import restore, state_of
from tests.relay.fakes import Bus, datagram, options

OWN = b"heartbeat/here/bccnd/0|"


def beating(seconds: int = 10, offset: float = 0.0) -> Bus:
    bus = Bus(heartbeat_seconds=seconds)
    bus.begin(offset)
    return bus


def beats(bus: Bus, seconds: int) -> list[int]:
    """In which of the next seconds a heartbeat was sent."""
    found = []
    for second in range(1, seconds + 1):
        bus.sent.clear()
        bus.tick(1.0)
        found += [second] * sum(b":heartbeat/" in sent for sent in bus.sent)
    return found


def test_daemon_beats_at_its_interval_from_its_offset() -> None:
    assert beats(beating(), 31) == [1, 10, 20, 30]
    assert beats(beating(offset=0.35), 30) == [4, 14, 24]
    assert beats(beating(0), 30) == []


def test_own_heartbeats_reach_local_subscribers() -> None:
    bus = beating()
    client = bus.connect(b"SUB heartbeat/>")
    bus.tick(1.0)
    assert client.heard() == [b"MSG heartbeat/here/bccnd/0\x001.2.3".replace(b"\x00", b"\0bccnd/")]
    assert [sent.partition(b":heartbeat")[2] for sent in bus.sent] == [b"/here/bccnd/0|bccnd/1.2.3"]


def test_nothing_is_made_up_for_after_a_pause() -> None:
    bus = beating()
    bus.tick(1000.0)
    assert len(bus.sent) == 1
    assert beats(bus, 20) == [10, 20]


def test_reload_restarts_heartbeats_only_if_they_change() -> None:
    bus = beating()
    bus.tick(1.0)
    change(bus, 10)
    assert beats(bus, 10) == [9]
    change(bus, 4)
    assert beats(bus, 9) == [1, 4, 8]
    change(bus, 0)
    assert beats(bus, 20) == []


def change(bus: Bus, seconds: int) -> None:
    bus.reconfigure(options=options(local=[], heartbeat_seconds=seconds))


def test_only_sources_that_beat_announce_their_end() -> None:
    bus = beating()
    bus.relay.end(bus.moment)
    bus.settle()
    assert [sent.rpartition(b":")[2] for sent in bus.sent] == [OWN + b"leaving"]
    silent = beating(0)
    silent.relay.end(silent.moment)
    assert silent.relay.take_effects() is None


@given(st.integers(1, 9), st.lists(st.integers(1, 40), max_size=30))
def test_one_heartbeat_at_a_time_and_on_time(seconds: int, steps: list[int]) -> None:
    bus = beating(seconds)
    due = bus.now
    for step in steps:
        bus.sent.clear()
        bus.tick(step / 4)
        assert len(bus.sent) == (due <= bus.now)
        if due <= bus.now:
            due = due + seconds if due + seconds > bus.now else bus.now + seconds


def test_the_rhythm_stays_over_a_replacement() -> None:
    bus = beating()
    bus.tick(1.0)
    successor = beating(offset=0.5)
    restore(successor.relay, state_of(bus.relay), {})
    assert beats(successor, 20) == [10, 20]
    otherwise = beating(4)
    restore(otherwise.relay, state_of(bus.relay), {})
    assert beats(otherwise, 8) == [1, 4, 8]


# Clients


def said(bus: Bus) -> list[bytes]:
    texts = [sent.partition(b":heartbeat/")[2] for sent in bus.sent]
    bus.sent.clear()
    return texts


def test_a_client_beats_by_choice_in_its_own_numbers() -> None:
    bus = Bus()
    client = bus.connect(b"MSG a\0", pid=7)
    bus.sent.clear()
    assert client.ask(b"CMSG heartbeat\x005 at work") == [b"CMSG heartbeat\x005 at work"]
    bus.tick(1.0)
    assert bus.sent[0].endswith(
        b"here/prog/7:%d:heartbeat/here/prog/7|at work" % (client.session.first_seq + 1)
    )
    bus.sent.clear()
    assert beats(bus, 10) == [4, 9]
    client.leave()
    bus.settle()
    assert said(bus)[-1] == b"here/prog/7|leaving"
    assert beats(bus, 10) == []


def test_new_heartbeat_replaces_the_last_and_off_ends_it() -> None:
    bus = Bus()
    client = bus.connect(b"CMSG heartbeat\x005", b"CMSG heartbeat\x003", pid=7)
    assert beats(bus, 6) == [1, 3, 6]
    assert client.ask(b"CMSG heartbeat\0off") == [b"CMSG heartbeat\0off"]
    assert said(bus)[-1] == b"here/prog/7|leaving"
    assert beats(bus, 6) == []
    client.leave()
    assert said(bus) == []


def test_renamed_client_leaves_under_its_old_name() -> None:
    bus = Bus()
    client = bus.connect(b"CMSG heartbeat\x005", pid=7)
    bus.tick(1.0)
    said(bus)
    client.say(b"CMSG name\0here/prog/7/x")
    assert said(bus) == [b"here/prog/7|leaving"]
    bus.tick(5.0)
    assert said(bus) == [b"here/prog/7/x|"]
    echo = datagram(b"here/prog/7", client.session.first_seq - 1, b"heartbeat/here/prog/7", b"leaving")
    bus.hear(echo)
    assert bus.relay.state.rejected == {"duplicate": 1}


@pytest.mark.parametrize("value", [b"", b"0", b"3601", b"-1", b"1.5", b"x", b"off now", b"5 " + b"x" * 257])
def test_requested_heartbeats_are_bounded(value: bytes) -> None:
    bus = Bus()
    client = bus.connect()
    (answer,) = client.ask(b"CMSG heartbeat\0" + value)
    assert answer.startswith(b"CMSG error\0bad-value CMSG heartbeat")
    assert beats(bus, 5) == []


def test_the_right_to_publish_there_is_needed_and_may_be_lost() -> None:
    bus = Bus()
    client = bus.connect(b"CMSG heartbeat\x001", pid=7)
    bus.reconfigure(access=AccessList([Grant(publish=(b"a/>",))]))
    assert beats(bus, 3) == []
    (answer,) = client.ask(b"CMSG heartbeat\x001")
    assert answer.startswith(b"CMSG error\0refused CMSG heartbeat: no right")
    bus.reconfigure(access=AccessList([Grant(publish=(b"heartbeat/here/prog/7",))]))
    assert client.ask(b"CMSG heartbeat\x001") == [b"CMSG heartbeat\x001"]


def test_a_client_beats_on_over_a_replacement() -> None:
    bus = Bus()
    client = bus.connect(b"CMSG heartbeat\x005 at work", pid=7)
    bus.tick(1.0)
    successor = Bus()
    restore(successor.relay, state_of(bus.relay), {client.session.number: client.session.port})
    successor.now = bus.now
    successor.tick(3.9)
    assert successor.sent == []
    successor.tick(0.1)
    assert successor.sent[0].endswith(b":heartbeat/here/prog/7|at work")
