"""Presence notices: who gets them, what they say, and that nobody else makes or takes any."""

import json
from typing import Any

import pytest

from bccnd.relay import notices
from bccnd.relay.notices import BEAT_STEPS, BEATS_STEPS
from bccnd.relay.rights import AccessList, unrestricted
from bccnd.relay.succession import restore, state_of
from tests.relay.fakes import Bus, FakeClient, datagram

PREFIX = b"MSG local/presence/"


def told(client: FakeClient) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for packet in client.heard():
        assert packet.startswith(PREFIX), packet
        chan, _, payload = packet.removeprefix(PREFIX).partition(b"\0")
        found.append((chan.decode(), json.loads(payload)))
    return found


def beat(bus: Bus, seq: int, text: bytes = b"bccnd/9.9", src: bytes = b"far/bccnd/1") -> None:
    bus.hear(datagram(src, seq, b"heartbeat/" + src, text))


def events(client: FakeClient) -> list[str]:
    return [event for event, _ in told(client)]


def test_a_source_comes_goes_and_comes_back() -> None:
    bus = Bus()
    watcher = bus.connect(b"SUB local/presence/>")
    for seq in range(5000, 5003):
        beat(bus, seq)
        bus.tick(10.0)
    ((event, about),) = told(watcher)
    assert event == "appeared/far/bccnd/1"
    assert about.pop("unix_ns") > 0
    assert about == {
        "event": "appeared", "src": "far/bccnd/1", "peer": "10.0.0.2:5400", "version": "9.9", "heartbeat": None,
    }  # fmt: skip
    for _ in range(30):
        bus.tick(1.0)
    ((event, about),) = told(watcher)
    assert (event, about["heartbeat"]) == ("silent/far/bccnd/1", 10.0)
    beat(bus, 5003)
    beat(bus, 7)
    beat(bus, 8, b"leaving")
    assert events(watcher) == [f"{event}/far/bccnd/1" for event in ("back", "restarted", "left")]


def test_clients_of_this_host_appear_and_leave() -> None:
    bus = Bus()
    watcher = bus.connect(b"SUB local/presence/*/here/>")
    client = bus.connect(pid=7, uid=12)
    ((event, about),) = told(watcher)
    assert event == "appeared/here/prog/7"
    assert about.pop("unix_ns") > 0
    assert about == {
        "event": "appeared", "src": "here/prog/7", "peer": "local", "program": "prog", "pid": 7, "uid": 12,
    }  # fmt: skip
    client.say(b"CMSG name\0here/prog/7/x")
    assert events(watcher) == ["left/here/prog/7", "appeared/here/prog/7/x"]
    client.leave()
    bus.settle()
    assert events(watcher) == ["left/here/prog/7/x"]


def test_only_a_pattern_that_names_notices_gets_them() -> None:
    bus = Bus(retain=[">"])
    others = [bus.connect(b"SUB " + pattern) for pattern in (b">", b"local/>", b"*/presence/>")]
    others.append(bus.connect(b"CMSG tap\0on", privileged=True))
    exact = bus.connect(b"SUB local/presence/appeared/here/prog/7")
    tap = bus.connect(b"SUB local/presence/>", b"CMSG tap\0on", privileged=True)
    tap.heard()
    bus.connect(pid=7)
    assert [client.heard() for client in others] == [[], [], [], []]
    assert events(exact) == ["appeared/here/prog/7"]
    assert len(tap.heard()) == 1
    assert bus.connect().ask(b"SUB local/presence/>") == []
    assert bus.sent == []


def test_nothing_is_encoded_when_nobody_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    bus.connect(b"SUB >")
    monkeypatch.delattr(notices, "as_json")
    bus.connect()
    beat(bus, 1)


def test_nobody_else_publishes_them_and_they_never_leave() -> None:
    bus = Bus(local=[])
    bus.reconfigure(access=AccessList(unrestricted([1000])))
    watcher = bus.connect(b"SUB local/presence/>")
    client = bus.connect(pid=7)
    told(watcher)
    (answer,) = client.ask(b"MSG local/presence/appeared/x\0{}")
    assert answer == b"CMSG error\0refused MSG local/presence/appeared/x: only the daemon publishes there"
    bus.hear(datagram(b"far/x/1", 1, b"local/presence/appeared/x", b"{}"))
    assert bus.relay.state.rejected == {"local-channel": 1}
    client.say(datagram(b"far/x/2", 1, b"local/presence/appeared/x", b"{}"))
    assert (told(watcher), bus.sent) == ([], [])


def test_heartbeat_in_another_name_is_ignored() -> None:
    bus = Bus()
    watcher = bus.connect(b"SUB local/presence/>")
    bus.hear(datagram(b"far/x/1", 1, b"heartbeat/far/x/2"), datagram(b"?", 1, b"heartbeat/?"))
    assert told(watcher) == []


def test_bridged_heartbeats_count_and_are_retained() -> None:
    bus = Bus(retain=["heartbeat/>"])
    watcher = bus.connect(b"SUB local/presence/>")
    bridge = bus.connect(privileged=True)
    told(watcher)
    bridge.say(datagram(b"far/x/1", 1, b"heartbeat/far/x/1", b"fine"))
    beat(bus, 1)
    assert events(watcher) == ["appeared/far/x/1", "appeared/far/bccnd/1"]
    late = bus.connect().ask(b"SUB heartbeat/>")
    assert sorted(late) == [b"MSG heartbeat/far/bccnd/1\0bccnd/9.9", b"MSG heartbeat/far/x/1\0fine"]


def test_sources_say_how_they_are_and_a_successor_knows() -> None:
    bus = Bus()
    beat(bus, 1)
    bus.tick(10.0)
    beat(bus, 2)
    bus.hear(datagram(b"far/y/1", 1, b"a"))

    def rows(of: Bus) -> list[tuple[Any, ...]]:
        (answer,) = of.connect().ask(b"CMSG sources")
        page = json.loads(answer.partition(b"\0")[2])["sources"]
        return [(row["src"], row["state"], row["version"], row["heartbeat"]) for row in page]

    known = [("far/bccnd/1", "alive", "9.9", 10.0), ("far/y/1", None, None, None)]
    assert rows(bus) == known
    for client in list(bus.clients.values()):
        client.leave()
    successor = Bus()
    successor.now = bus.now
    restore(successor.relay, state_of(bus.relay), {})
    assert rows(successor) == known
    for _ in range(30):
        successor.tick(1.0)
    assert rows(successor)[0] == ("far/bccnd/1", "silent", "9.9", 10.0)


def test_restart_is_reported_before_its_message() -> None:
    bus = Bus()
    watcher = bus.connect(b"SUB a", b"SUB local/presence/restarted/>")
    beat(bus, 5000)
    bus.hear(datagram(b"far/bccnd/1", 7, b"a", b"1"), datagram(b"far/bccnd/1", 8, b"a", b"2"))
    chans = [packet.partition(b"\0")[0] for packet in watcher.heard()]
    assert chans == [PREFIX + b"restarted/far/bccnd/1", b"MSG a", b"MSG a"]
    beat(bus, 5000)
    beat(bus, 5001)
    bus.hear(datagram(b"far/bccnd/1", 7, b"local/a"))
    assert events(watcher) == ["restarted/far/bccnd/1"]


def test_each_heartbeat_is_reported_as_it_comes() -> None:
    """Also of those that are read together: what is said of the first knows nothing of the next."""
    bus = Bus()
    watcher = bus.connect(b"SUB local/presence/>")
    src = b"far/x/1"
    bus.hear(
        *[
            datagram(src, seq, b"heartbeat/" + src, text)
            for seq, text in ((1, b""), (2, b""), (3, b"leaving"))
        ]
    )
    assert [(event, about["heartbeat"]) for event, about in told(watcher)] == [
        ("appeared/far/x/1", None),
        ("left/far/x/1", 1.0),
    ]


def test_clients_that_beat_together_leave_the_others_a_turn() -> None:
    bus = Bus()
    hearers = [bus.connect(b"SUB heartbeat/>") for _ in range(50)]
    beating = [bus.connect(b"CMSG heartbeat\x0010") for _ in range(1000)]
    bus.tick(0.0)
    for hearer in hearers:
        hearer.heard()
    bus.now += 10.0
    calls = 0
    while bus.relay.alarm.due <= bus.now:
        before = bus.relay.state.outgoing.steps
        bus.relay.on_deadline(bus.moment)
        assert bus.relay.state.outgoing.steps - before <= BEATS_STEPS + BEAT_STEPS + len(hearers)
        bus.settle()
        calls += 1
    assert calls == -(-len(beating) * (BEAT_STEPS + len(hearers)) // BEATS_STEPS)
    assert {len(hearer.heard()) for hearer in hearers} == {len(beating)}


def test_at_the_end_nobody_is_told_who_else_leaves() -> None:
    bus = Bus()
    hearers = [bus.connect(b"SUB local/presence/>") for _ in range(3)]
    bus.relay.end(bus.moment)
    for hearer in hearers:
        hearer.heard()
    hearers[0].leave()
    assert [told(hearer) for hearer in hearers] == [[], [], []]


def test_the_last_words_of_many_cost_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "LAST_STEPS", 10 * BEAT_STEPS)
    bus = Bus(heartbeat_seconds=10)
    bus.begin()
    for _ in range(100):
        bus.connect(b"CMSG heartbeat\x0010")
    bus.tick(20.0)
    bus.sent.clear()
    bus.relay.end(bus.moment)
    bus.settle()
    said = [sent for sent in bus.sent if sent.endswith(b"|leaving")]
    assert len(said) == 11
    assert b"heartbeat/here/bccnd/0|" in said[-1]


def later(bus: Bus, seconds: float) -> int:
    """What is due in so many seconds is done, each at its time; how many calls that took."""
    end, calls = bus.now + seconds, 0
    while bus.relay.alarm.due <= end:
        bus.now = max(bus.now, bus.relay.alarm.due)
        before = bus.relay.state.outgoing.steps
        bus.relay.on_deadline(bus.moment)
        assert bus.relay.state.outgoing.steps - before <= 8192
        bus.settle()
        calls += 1
    bus.now = end
    return calls


def cost_of(bus: Bus, hearers: int) -> int:
    return notices.NOTICE_STEPS + notices.HEARER_STEPS * hearers


def test_news_of_clients_takes_a_part_of_the_time() -> None:
    bus = Bus()
    hearers = [bus.connect(b"SUB local/presence/>") for _ in range(500)]
    later(bus, 60.0)
    for hearer in hearers:
        hearer.heard()
    clients = [bus.connect(uid=number) for number in range(100)]
    said = len(hearers[0].heard())
    assert said <= 2 + notices.STEPS_AT_ONCE // cost_of(bus, 500)
    calls = later(bus, 60.0)
    rest = told(hearers[0])
    assert [event for event, _ in rest] == ["appeared/" + client.name.decode() for client in clients[said:]]
    assert [about["uid"] for _, about in rest] == list(range(said, 100))
    assert calls >= 100 - said


@pytest.fixture
def hearer(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """Of a daemon that says one notice a turn, and lets four wait."""
    monkeypatch.setattr(notices, "WAITING_LIMIT", 4)
    monkeypatch.setattr(notices, "STEPS_AT_ONCE", 0)
    bus = Bus()
    hearer = bus.connect(b"SUB local/presence/>")
    bus.connect()
    later(bus, 60.0)
    hearer.heard()
    return hearer


def test_a_full_queue_loses_who_came_and_left_first(hearer: FakeClient) -> None:
    bus = hearer.bus
    stays = bus.connect(pid=1000)
    for pid in (1001, 1002):
        bus.connect(pid=pid).leave()
    more = [bus.connect(pid=pid) for pid in range(1003, 1006)]
    later(bus, 60.0)
    found = told(hearer)
    shown = [event for event, _ in found]
    assert shown[:4] == [f"appeared/{client.name.decode()}" for client in (stays, *more)][:4]
    assert "appeared/here/prog/1001" not in shown
    more[0].leave()
    later(bus, 60.0)
    assert events(hearer) == ["left/here/prog/1003"]


def test_how_many_notices_were_lost_is_told(hearer: FakeClient) -> None:
    bus = hearer.bus
    for pid in range(1000, 1010):
        bus.connect(pid=pid)
    later(bus, 60.0)
    *found, (event, about) = told(hearer)
    assert event == "lost/here/bccnd/0"
    assert about["count"] == 10 - len(found)
    assert len(found) in (4, 5)
    later(bus, 60.0)
    assert told(hearer) == []


def test_notices_that_wait_go_to_a_successor(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = Bus()
    hearer = bus.connect(b"SUB local/presence/>")
    later(bus, 60.0)
    hearer.heard()
    monkeypatch.setattr(notices, "STEPS_AT_ONCE", 0)
    for pid in range(1000, 1005):
        bus.connect(pid=pid)
    said = events(hearer)
    waiting = state_of(bus.relay)["notices"]
    successor = Bus()
    restore(successor.relay, state_of(bus.relay) | {"sessions": []}, {})
    late = successor.connect(b"SUB local/presence/>")
    later(successor, 1.0)
    shown = [event for event, about in told(late) if 1000 <= about["pid"] < 1005]
    assert len(said) + len(waiting) == 5
    assert shown == [f"appeared/here/prog/{pid}" for pid in range(1000 + len(said), 1005)]
