"""The inbox of the Python client: which messages match, whose they are, and how much waits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccn.inbox import Held, Inbox, matches
from bccn.protocol import Message
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
    inbox = Inbox("/")
    both, mine, shared = Held("a/>"), Held("b/>"), Held("a/1")
    for each in (both, mine, shared):
        inbox.add(each)
    for channel in ("a/1", "b/1", "!", "a/2", "b/2"):
        inbox.put(Message(channel, b"x"))
    assert [message.channel for message in inbox.open_stream(mine)] == ["b/1", "b/2"]
    assert [message.channel for message in inbox.received] == ["a/1", "!", "a/2"]
    assert [message.channel for message in inbox.open_stream(shared)] == ["a/1"]
    assert [message.channel for message in inbox.received] == ["a/1", "!", "a/2"], "of the other one, too"
    assert len(inbox) == 6
    inbox.remove(mine)
    inbox.remove(shared)
    inbox.drop(inbox.received)
    assert (len(inbox), inbox.waiting_size) == (0, 0)


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_the_size_of_what_waits_returns_to_zero(payloads: list[bytes]) -> None:
    inbox = Inbox("/")
    inbox.add(Held("taken", lambda _: None))
    for number, payload in enumerate(payloads):
        inbox.put(Message(("taken", "received")[number % 2], payload))
    assert inbox.waiting_size >= sum(map(len, payloads))
    while inbox.backlog:
        inbox.take()
    assert len(inbox.received) == len(payloads) // 2
    while inbox.received:
        inbox.next_of(inbox.received)
    assert inbox.waiting_size == 0
