"""What an uplink may be told, and what not."""

from typing import Any

import pytest

from bccnd.errors import ConfigError
from bccnd.uplink.options import BATCH_LIMIT, Options, Rate


@pytest.mark.parametrize("pattern", [b"", b">", b"door/*", b"!", b"!>", b"!relay01/>", b"!relay01/door/7"])
def test_patterns_of_all_kinds_are_taken(pattern: bytes) -> None:
    assert Options(b"berlin", export=(pattern,), import_=(pattern,), rates=(Rate(pattern, 1.0, 1.0),))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": b""}, "name"),
        ({"name": b"a/b"}, "name"),
        ({"name": b"a b"}, "name"),
        ({"name": b"a" * 65}, "name"),
        ({"export": (b"a*b",)}, r"pattern 'a\*b'"),
        ({"import_": (b"!a*b",)}, r"pattern '!a\*b'"),
        ({"rates": (Rate(b"a b", 1.0, 1.0),)}, "pattern 'a b'"),
        ({"export": (b"!!",)}, "pattern '!!'"),
        ({"batch_bytes": -1}, "batch_bytes"),
        ({"batch_bytes": BATCH_LIMIT + 1}, "batch_bytes"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Options(**{"name": b"berlin", **wrong})
