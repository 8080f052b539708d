"""Subjects are safe, readable and of one channel each; a stream that cannot serve is told from one that can."""

import re
from typing import Any
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.uplink.nats_stream import (
    SUBJECT_LIMIT,
    Answer,
    answer,
    channel_subject,
    configuration,
    place,
    segment_subject,
    unfit,
)

# Of BCCN1.md: no NUL, white space, ":" and "|".
CHANNEL_BYTES = [each for each in range(1, 128) if each not in b" \t\n\v\f\r:|"]
channels = st.lists(st.sampled_from(CHANNEL_BYTES), min_size=1, max_size=60).map(bytes)


@pytest.mark.parametrize(
    ("channel", "subject"),
    [
        (b"factory/line1", "bccn.siteA.factory.line1"),
        (b"!relay01/cardsys/123", "bccn.siteA.!relay01.cardsys.123"),
        (b"a.b/*/>", "bccn.siteA.a%2Eb.%2A.%3E"),
        (b"a//b/", "bccn.siteA.a.%.b.%"),
        (b"/", "bccn.siteA.%.%"),
        (b"100%", "bccn.siteA.100%25"),
        (b"\x01\x7f", "bccn.siteA.%01%7F"),
        (b"$JS/API", "bccn.siteA.$JS.API"),
    ],
)
def test_a_channel_has_a_readable_subject(channel: bytes, subject: str) -> None:
    assert channel_subject("bccn", b"siteA", channel) == subject


def test_a_segment_is_one_token_whatever_its_name() -> None:
    assert segment_subject("bccn", b"site.A/hall 1") == "bccn.site%2EA/hall%201"


@given(channels)
def test_the_channel_can_be_read_off_its_subject(channel: bytes) -> None:
    tokens = channel_subject("bccn", b"siteA", channel).split(".")
    assert tokens[:2] == ["bccn", "siteA"]
    assert b"/".join(b"" if each == "%" else unquote_to_bytes(each) for each in tokens[2:]) == channel


@given(channels, st.integers(1, 60))
def test_every_subject_is_one_that_nats_takes(channel: bytes, times: int) -> None:
    subject = channel_subject("bccn", b"siteA", (channel * times)[:1024])
    assert len(subject) <= SUBJECT_LIMIT
    assert all(re.fullmatch(r"[!-~]+", token) and not set(token) & set("*>") for token in subject.split("."))


@pytest.mark.parametrize("token", [b"\x01", b"\x01" * 9, b"\x01" * 500])
def test_a_long_subject_ends_after_a_whole_token(token: bytes) -> None:
    subject = channel_subject("bccn", b"siteA", b"/".join([token] * 1024)[:1024])
    kept = (SUBJECT_LIMIT - len("bccn.siteA.%%")) // (3 * len(token) + 1)
    assert subject == "bccn.siteA" + f".{'%01' * len(token)}" * kept + ".%%"


def config(**changed: Any) -> dict[str, Any]:
    made = configuration("bccn", 1, 1 << 30, 3600.0)
    return made | {"max_msgs_per_subject": -1, "sealed": False, "no_ack": False} | changed


def test_a_stream_as_we_make_it_serves() -> None:
    assert unfit("bccn", config()) == ""


@pytest.mark.parametrize(
    "subjects", [["bccn.*.>"], ["other", "bccn.*.>"], ["*.*.>"], ["bccn.*.*", "bccn.*.*.>"]]
)
def test_a_stream_may_take_other_subjects_besides(subjects: list[str]) -> None:
    assert unfit("bccn", config(subjects=subjects)) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"subjects": []}, "it does not take bccn.*.>"),
        ({"subjects": None}, "it does not take bccn.*.>"),
        ({"subjects": ["bccn.*.*"]}, "it does not take bccn.*.>"),
        ({"subjects": ["bccn.siteA.>"]}, "it does not take bccn.*.>"),
        ({"subjects": ["bccn.>"]}, "it takes bccn.* as well"),
        ({"subjects": ["bccn.*.>", "bccn.*"]}, "it takes bccn.* as well"),
        ({"retention": "workqueue"}, "its retention is workqueue, not limits"),
        ({"mirror": {"name": "x"}}, "it is a mirror, sealed"),
        ({"sealed": True}, "it is a mirror, sealed"),
        ({"no_ack": True}, "it is a mirror, sealed"),
        ({"max_msgs_per_subject": 1}, "it keeps only 1 messages of a subject"),
        ({"max_msg_size": 1000}, "its messages have 1000 bytes at most"),
    ],
)
def test_a_stream_that_cannot_serve_is_told_why(changed: dict[str, Any], why: str) -> None:
    assert unfit("bccn", config(**changed)).startswith(why)


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.bccn.consumer.1.12.3.1795397527396019214.7",
        "$JS.ACK.hub.hash.bccn.consumer.1.12.3.1795397527396019214.7",
        "$JS.ACK._.hash.bccn.consumer.1.12.3.1795397527396019214.7.random",
    ],
)
def test_the_place_of_a_message_in_either_form(reply: str) -> None:
    assert place(reply) == (12, 3, 7)


@pytest.mark.parametrize("reply", ["", "$JS.ACK.bccn", "$JS.ACK.bccn.c.1.a.b.c.d", "_INBOX.a.b.c.d.1.2.3.4"])
def test_what_is_no_place_is_refused(reply: str) -> None:
    with pytest.raises(ValueError, match=r"place|literal"):
        place(reply)


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (b"", Answer()),
        (b'{"stream":"bccn","seq":7}', Answer("bccn", 7)),
        (b'{"stream":"bccn","seq":0,"duplicate":true}', Answer("bccn", 0)),
        (
            b'{"error":{"code":400,"err_code":10054,"description":"message\\nsize"}}',
            Answer(code=10054, refused="message size"),
        ),
        (b'{"error":{"description":"%b"}}' % (b"x" * 10_000), Answer(refused="x" * 200)),
    ],
)
def test_the_answer_of_a_stream_is_read(payload: bytes, found: Answer) -> None:
    assert answer(payload) == found


@pytest.mark.parametrize(
    "payload",
    [
        b"x", b"[]", b"7", b'"x"', b"null", b"[" * 100_000, b"\xff", b'{"seq":"7"}', b'{"stream":"bccn","seq":7.5}',
        b'{"stream":"bccn","seq":-1}', b'{"stream":"bccn","seq":9223372036854775808}', b'{"stream":["bccn"],"seq":7}',
        b'{"stream":"bccn","seq":1e999}', b'{"error":"x"}', b'{"error":[1]}', b'{"error":{"err_code":"x"}}',
        b'{"error":{"description":[]}}', b'{"error":{"err_code":null}}',
    ],
)  # fmt: skip
def test_what_no_stream_answers_is_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of JSON, or of ours
        answer(payload)
