"""The inbox of the Python client: which messages match, whose they are, and how much waits."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccn.errors import InvalidError
from bccn.inbox import Inbox, matches
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


def test_messages_go_to_matching_callbacks_or_receive() -> None:
    inbox = Inbox("/")

    def one(_: Message) -> None: ...

    def two(_: Message) -> None: ...

    inbox.subscribe("a/>", one)
    inbox.subscribe("a/b", two)
    inbox.subscribe("a/c", None)
    assert inbox.route("a/b") == ((one, two), False)
    assert inbox.route("a/c") == ((one,), True)
    assert inbox.route("!") == ((), True)
    inbox.listen(two)
    assert inbox.route("!h") == ((two,), False)
    inbox.unsubscribe("a/b")
    assert inbox.route("a/b") == ((one,), False)
    with pytest.raises(InvalidError):
        inbox.unsubscribe("a/b")


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_the_size_of_what_waits_returns_to_zero(payloads: list[bytes]) -> None:
    inbox = Inbox("/")
    inbox.subscribe("taken", lambda _: None)
    for number, payload in enumerate(payloads):
        inbox.put(Message(("taken", "received")[number % 2], payload))
    assert inbox.waiting_size >= sum(map(len, payloads))
    while inbox.backlog:
        inbox.take()
    assert len(inbox.received) == len(payloads) // 2
    while inbox.received:
        inbox.next_received()
    assert inbox.waiting_size == 0
