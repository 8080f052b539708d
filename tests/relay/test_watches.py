"""``CMSG watch``: what a client is told, when, and what it may watch."""

import pytest

from bccnd.relay.rights import AccessList, Grant
from bccnd.relay.succession import restore, state_of
from bccnd.relay.watches import TOLD_SECONDS, UNREAD
from tests.relay.fakes import Bus, FakeClient, value_of


def watching(bus: Bus, *patterns: bytes, **who: int) -> FakeClient:
    """A client that was told of each what holds at first."""
    client = bus.connect(*[b"CMSG watch\0" + pattern for pattern in patterns], **who)  # type: ignore[arg-type]
    wait(bus, 0.5)
    client.heard()
    return client


def wait(bus: Bus, seconds: float) -> None:
    for _ in range(round(seconds / 0.01)):
        bus.tick(0.01)


def test_the_answer_comes_before_what_is_told():
    bus = Bus()
    bus.connect(b"SUB a/b")
    client = bus.connect()
    assert client.ask(b"CMSG watch\0a/>") == [b"CMSG watch\0a/>"]
    bus.tick(0.0)
    assert client.heard() == [b"CMSG wanted\0here a/>"]


def test_each_change_is_told_once():
    bus = Bus()
    client, first, second = watching(bus, b"a/>", b"c"), bus.connect(), bus.connect()
    first.say(b"SUB a/b")
    second.say(b"SUB >")
    wait(bus, 0.1)
    assert sorted(client.heard()) == [b"CMSG wanted\0here a/>", b"CMSG wanted\0here c"]
    second.leave()
    wait(bus, 0.1)
    assert client.heard() == [b"CMSG wanted\0no c"]
    first.say(b"UNSUB a/b")
    wait(bus, 0.1)
    assert client.heard() == [b"CMSG wanted\0no a/>"]


def test_nobody_is_told_before_others_could_answer():
    bus = Bus()
    client = bus.connect(b"CMSG watch\0a", b"CMSG watch\0local/a", b"CMSG watch\0local/>")
    bus.tick(0.0)
    assert client.heard() == [b"CMSG wanted\0no local/a", b"CMSG wanted\0no local/>"]
    wait(bus, 0.28)
    assert client.heard() == []
    wait(bus, 0.05)
    assert client.heard() == [b"CMSG wanted\0no a"]


def test_the_watcher_and_taps_do_not_count():
    bus = Bus()
    client = watching(bus, b"a", b"b/>")
    tap = bus.connect(b"CMSG tap\0on", b"SUB >", privileged=True)
    client.say(b"SUB >")
    wait(bus, 0.1)
    assert client.heard() == []
    tap.say(b"CMSG tap\0off")
    wait(bus, 0.1)
    assert client.heard() == [b"CMSG wanted\0here a", b"CMSG wanted\0here b/>"]
    tap.say(b"CMSG tap\0on")
    wait(bus, 0.1)
    assert client.heard() == [b"CMSG wanted\0no a", b"CMSG wanted\0no b/>"]


def test_what_comes_and_goes_at_once_is_told_seldom():
    bus = Bus()
    client, other = watching(bus, b"a/>"), bus.connect()
    for _ in range(100):
        other.say(b"SUB a/b")
        bus.tick(0.001)
        other.say(b"UNSUB a/b")
        bus.tick(0.001)
    assert len(client.heard()) <= 0.2 / TOLD_SECONDS + 1
    wait(bus, 0.1)
    assert client.ask(b"CMSG watch\0a/>") == [b"CMSG watch\0a/>"]
    wait(bus, 0.1)
    assert client.heard() == [b"CMSG wanted\0no a/>"], "whoever asks again is told again"


def test_who_reads_nothing_is_told_the_last_state_only():
    bus = Bus()
    patterns = [b"a/%d/>" % number for number in range(40)]
    client, other = watching(bus, *patterns), bus.connect()
    client.stop_reading()
    for _ in range(10):
        other.say(b"SUB >")
        wait(bus, 0.1)
        other.say(b"UNSUB >")
        wait(bus, 0.1)
    assert client.session.outbox.answers <= UNREAD + 1
    assert client.connected
    other.say(b"SUB >")
    wait(bus, 0.1)
    told: dict[bytes, bytes] = {}
    for _ in range(20):
        told |= {packet.split(b" ")[2]: packet.split()[1] for packet in client.take()}
        wait(bus, 0.3)
    assert told == dict.fromkeys(patterns, b"wanted\0here")


def test_a_watch_that_ended_tells_nothing():
    bus = Bus()
    client = watching(bus, b"a/>")
    other = bus.connect()
    assert client.ask(b"CMSG unwatch\0a/>", b"CMSG unwatch\0a/>") == [b"CMSG unwatch\0a/>"] * 2
    other.say(b"SUB a/b")
    wait(bus, 0.5)
    assert client.heard() == []
    assert value_of(client.ask(b"CMSG clients"), b"clients")["clients"][0]["watches"] == 0


def test_nothing_is_left_of_a_client_that_went():
    bus = Bus()
    client = watching(bus, b"a/>", b"b")
    client.leave()
    wait(bus, 5.0)
    watches = bus.relay.watches
    assert (len(watches), watches._bytes, len(watches._untold)) == (0, {}, 0)
    assert not watches._lookout._users
    elsewhere = watches._elsewhere
    assert not any([elsewhere._asked, elsewhere._tokens, elsewhere._young, elsewhere._old])
    bus.sent.clear()
    wait(bus, 5.0)
    assert not any(b"watch" in sent for sent in bus.sent)
    bus.assert_idle()


@pytest.mark.parametrize(
    ("packet", "answer"),
    [
        (b"CMSG watch\0!here", b"bad-pattern CMSG watch: directed"),
        (b"CMSG watch\0!", b"bad-pattern CMSG watch: directed"),
        (b"CMSG watch\0a b", b"bad-pattern CMSG watch: a channel"),
        (b"CMSG watch\0a*b", b"bad-pattern CMSG watch: '*'"),
        (b"CMSG watch\0local/presence/>", b"refused CMSG watch: only the daemon"),
    ],
)
def test_what_cannot_be_watched_is_refused(packet: bytes, answer: bytes) -> None:
    (said,) = Bus().connect().ask(packet)
    assert said.startswith(b"CMSG error\0" + answer)


def test_an_empty_pattern_is_every_channel():
    bus = Bus()
    client = watching(bus, b"")
    bus.connect(b"SUB a/b")
    wait(bus, 0.1)
    assert client.heard() == [b"CMSG wanted\0here "]


def test_the_right_to_publish_all_of_it_is_needed():
    bus = Bus()
    granted = Grant(publish=(b"a/>", b"b", b"!>"), subscribe=(b">",))
    bus.reconfigure(access=AccessList([granted]))
    client = bus.connect()
    refused = [packet for packet in (b"a/>", b"a/b", b"a/*/c", b"b", b">", b"a", b"b/c", b"*") if client.ask(
        b"CMSG watch\0" + packet)[0].startswith(b"CMSG error\0refused CMSG watch: no right")]  # fmt: skip
    assert refused == [b">", b"a", b"b/c", b"*"]


def test_a_reload_takes_watches_back():
    bus = Bus()
    client = watching(bus, b"a/>", b"b")
    bus.reconfigure(access=AccessList([Grant(publish=(b"b",), subscribe=(b">",))]))
    assert client.heard() == [b"CMSG revoked\0CMSG watch a/>"]
    bus.connect(b"SUB >")
    wait(bus, 0.1)
    assert client.heard() == [b"CMSG wanted\0here b"]


def test_users_share_what_may_be_watched():
    bus = Bus(subscriptions=65536)
    pattern = b"x" * 1000
    greedy = bus.connect(uid=1)
    said = greedy.ask(*[b"CMSG watch\0%b%d" % (pattern, number) for number in range(1000)])
    kept = sum(packet.startswith(b"CMSG watch") for packet in said)
    assert 500 < kept < 1000
    assert said[-1].startswith(b"CMSG error\0limit CMSG watch: the watches of a user")
    other = bus.connect(uid=2)
    assert other.ask(b"CMSG watch\0a") == [b"CMSG watch\0a"]


def test_a_client_has_as_many_watches_as_patterns():
    bus = Bus(subscriptions=2)
    client = bus.connect()
    said = client.ask(*[b"CMSG watch\0%d" % number for number in (1, 2, 2, 3)])
    assert said[-1] == b"CMSG error\0limit CMSG watch: at most 2 watches a client"
    assert len(said) == 4


def test_a_client_that_watches_speaks_for_nobody_else():
    bus = Bus()
    client = bus.connect(b"CMSG watch\0a", privileged=True)
    (said,) = client.ask(b"CMSG peer\x001000 1000 4711 node")
    assert said.startswith(b"CMSG error\0bad-value")


def test_a_successor_goes_on_and_tells_what_changes():
    bus = Bus()
    client, other = watching(bus, b"a/>", b"b"), bus.connect(b"SUB b")
    wait(bus, 0.1)
    client.heard()
    data = state_of(bus.relay)
    bus.relay = bus.new_relay()
    restore(bus.relay, data, {each.number: each.port for each in bus.relay.sessions.values()} or {
        session.session.number: session.port for session in bus.clients.values()
    })  # fmt: skip
    for each in bus.clients.values():
        each.session = bus.relay.sessions[each.session.number]
    wait(bus, 0.5)
    assert client.heard() == [], "what it knows already"
    other.say(b"UNSUB b", b"SUB a/x")
    wait(bus, 0.5)
    assert sorted(client.heard()) == [b"CMSG wanted\0here a/>", b"CMSG wanted\0no b"]
