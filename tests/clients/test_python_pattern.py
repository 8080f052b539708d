"""Patterns of the Python client: they match what the daemon's patterns match."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccn import matches
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
