"""How a message is printed: ``-F`` and JSON."""

import json

import pytest

import bccn
from bccnd.commands.formats import Formatter, to_json

MESSAGE = bccn.Message("a/b", b"h\xc3\xa9\n", "h/p/1", 7, "10.0.0.1:5400", 1_700_000_000_123_456_789, "ok")


def line(text: str, message: bccn.Message = MESSAGE, *, raw: bool = True, end: bytes = b"") -> bytes:
    return Formatter(text, end=end, raw=raw).line(message)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("%c", b"a/b"),
        ("%p", b"h\xc3\xa9\n"),
        ("%x", b"68c3a90a"),
        ("%l", b"4"),
        ("%s #%n", b"h/p/1 #7"),
        ("%m", b"plain"),
        ("%a", b"10.0.0.1:5400"),
        ("%r", b"0"),
        ("%I", b"2023-11-14T22:13:20.123456Z"),
        ("%U", b"1700000000.123456789"),
        ("100%% of %c\\t\\n\\0\\\\", b"100% of a/b\t\n\0\\"),
        ("caf\N{LATIN SMALL LETTER E WITH ACUTE}\udcff", b"caf\xc3\xa9\xff"),
        ("", b""),
    ],
)
def test_every_mark_of_a_format(text: str, shown: bytes) -> None:
    assert line(text) == shown


@pytest.mark.parametrize("text", ["%q", "%", "\\", "\\x", "a%"])
def test_an_unknown_mark_is_refused(text: str) -> None:
    with pytest.raises(bccn.InvalidError, match="means nothing"):
        Formatter(text, end=b"", raw=True)


@pytest.mark.parametrize(("text", "needed"), [("%c %p %x %l %m", False), ("%s", True), ("%j", True)])
def test_metadata_is_requested_only_when_shown(text: str, needed: bool) -> None:
    assert Formatter(text, end=b"", raw=True).needs_full is needed


def test_on_a_terminal_messages_are_printable() -> None:
    hostile = bccn.Message("a\x1b[2J", b"\x1b]0;x\x07\n")
    assert line("%c %p", hostile, raw=False, end=b"\n") == b"a\\e[2J \\e]0;x\\x07\\n\n"
    assert line("%p", hostile, end=b"\0") == b"\x1b]0;x\x07\n\0"


def test_last_values_are_marked() -> None:
    retained = bccn.Message("a", b"x", "h/p/1", 7, "local", 1, "retained")
    assert line("%r", retained) == b"1"
    assert json.loads(to_json(retained))["retained"] is True


def test_json_has_every_field() -> None:
    MESSAGE.lost = 2
    assert json.loads(to_json(MESSAGE)) == {
        "time": "2023-11-14T22:13:20.123456Z",
        "src": "h/p/1",
        "seq": 7,
        "peer": "10.0.0.1:5400",
        "channel": "a/b",
        "mode": "plain",
        "lost": 2,
        "payload": "h\N{LATIN SMALL LETTER E WITH ACUTE}\n",
    }
    assert json.loads(to_json(bccn.Message("!", b"\xff"))) == {
        "channel": "!",
        "mode": "all",
        "payload_hex": "ff",
    }
