"""The inbox of the Python client: which messages match, whose they are, and how much waits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccn.exchange import Entry
from bccn.inbox import Held, Inbox, matches
from bccn.protocol import Message, build_msg
from bccn.session import Session
from bccnd.errors import PacketError
from bccnd.relay import pattern as router
from tests.golden import golden


@pytest.mark.parametrize("entry", golden("patterns", "matches"))
def test_patterns_match_as_the_vectors_say(entry: dict[str, Any]) -> None:
    assert matches(entry["pattern"], entry["channel"], entry["separator"]) is entry["matches"]


PATTERNS = st.text(alphabet="ab*>/.!", max_size=12)


@given(PATTERNS, PATTERNS.filter(bool), st.sampled_from("/."))
def test_client_and_daemon_agree_on_every_pattern(pattern: str, channel: str, separator: str) -> None:
    try:
        router.check(pattern.encode(), separator.encode())
    except PacketError:
        return  # the daemon takes no such subscription
    expected = not channel.startswith("!") and router.matches(
        pattern.encode(), separator.encode(), channel.encode()
    )
    assert matches(pattern, channel, separator) is expected


def test_messages_go_to_callbacks_and_streams() -> None:
    inbox = Inbox("/")

    def one(_: Message) -> None: ...

    def two(_: Message) -> None: ...

    wide, narrow, plain = Held("a/>", one), Held("a/b", two), Held("a/c")
    for each in (wide, narrow, plain):
        inbox.add(each)
    assert inbox.route("a/b") == ((one, two), ())
    assert inbox.route("a/c") == ((one,), (inbox.received,))
    assert inbox.route("!") == ((), (inbox.received,))
    inbox.listen(two)
    assert inbox.route("!h") == ((two,), ())
    inbox.remove(narrow)
    assert inbox.route("a/b") == ((one,), ())
    own = inbox.open_stream(plain)
    assert inbox.route("a/c") == ((one,), (own,))
    inbox.remove(plain)
    assert inbox.route("a/c") == ((one,), ())


def test_a_stream_takes_over_what_waits_for_it_alone() -> None:
    session = Session()
    inbox = session._inbox
    both, mine, shared = Held("a/>"), Held("b/>"), Held("a/1")
    for each in (both, mine, shared):
        inbox.add(each)
    for channel in ("a/1", "b/1", "!", "a/2", "b/2"):
        session._feed(build_msg(channel, b"x"))
    assert [message.channel for message in inbox.open_stream(mine)] == ["b/1", "b/2"]
    assert [message.channel for message in inbox.received] == ["a/1", "!", "a/2"]
    assert [message.channel for message in inbox.open_stream(shared)] == ["a/1"]
    assert [message.channel for message in inbox.received] == ["a/1", "!", "a/2"], "of the other one, too"
    assert len(inbox) == 6
    inbox.remove(mine)
    inbox.remove(shared)
    inbox.drop(inbox.received)
    assert (len(inbox), inbox.waiting_size) == (0, 0)


@pytest.mark.parametrize("verdict", ["duplicate", "own", "hmac", "late"])
def test_what_was_not_delivered_is_in_the_clients_stream_alone(verdict: str) -> None:
    session = Session(format="full", tap="on")
    inbox, own = session._inbox, Held("b")
    for each in (own, Held("a", lambda _: None)):
        inbox.add(each)
    rejected = [b"RECV x 1 %b\0BCCN1[5]x:1:%b|" % (verdict.encode(), chan) for chan in (b"a", b"b", b"!x")]
    session._feed(rejected[1])
    inbox.received.extend(inbox.backlog)
    inbox.backlog.clear()
    stream = inbox.open_stream(own)
    for packet in rejected:
        session._feed(packet)
        assert inbox.take()[1] == (), "no callbacks"
    assert not stream
    assert [message.channel for message in inbox.received] == ["b", "a", "b", "!x"]
    inbox.drop(inbox.received)
    for delivered in (b"ok", b"repaired", b"retained"):
        session._feed(b"RECV x 1 %b\0BCCN1[5]x:1:b|" % delivered)
        inbox.take()
        assert inbox.next_of(stream).verdict == delivered.decode()
    assert (inbox.waiting_size, len(inbox)) == (0, 0)


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_the_size_of_what_waits_returns_to_zero(payloads: list[bytes]) -> None:
    session = Session()
    inbox = session._inbox
    inbox.add(Held("taken", lambda _: None))
    for number, payload in enumerate(payloads):
        session._feed(build_msg(("taken", "received")[number % 2], payload))
    assert inbox.waiting_size >= sum(map(len, payloads))
    while inbox.backlog:
        inbox.take()
    assert len(inbox.received) == len(payloads) // 2
    while inbox.received:
        inbox.next_of(inbox.received)
    assert inbox.waiting_size == 0


def test_a_flood_before_an_answer_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bccn.session.BACKLOG_LIMIT", 20_000)
    monkeypatch.setattr("bccn.session.FLOOD_LIMIT", 50_000)
    session = Session()
    inbox = session._inbox
    session._asked.append(request := Entry(b"CMSG status", key="status"))
    for _ in range(1000):
        session._feed(build_msg("a", bytes(100)))
    assert session._wants_packets, "or the answer would never come"
    assert inbox.waiting_size < 60_000
    assert session.lost == 1000 - len(inbox) > 0
    assert [(notice.kind, notice.count) for notice in session._notices] == [("lost", session.lost)]
    session._feed(b"CMSG status\0{}")
    assert request.value == "{}"
    inbox.drop(inbox.received)
    session._feed(build_msg("a", b"next"))
    assert inbox.received[0].lost == session.lost
