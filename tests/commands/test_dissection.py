"""Datagrams taken apart as far as they go."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.commands.dissection import dissect
from bccnd.errors import WireError
from bccnd.wire.bccn1 import Integrity, Level, crc32_value
from bccnd.wire.verdict import UNSOUND, Verdict
from tests.golden import golden

OPEN = Integrity()


def deployment(vector: dict[str, Any]) -> Integrity:
    return Integrity([bytes.fromhex(vector["key"])] if vector["key"] else [], Level(vector["required"]))


@pytest.mark.parametrize("vector", golden("bccn1", "valid"))
def test_sound_datagrams_have_the_parts_of_the_vectors(vector: dict[str, Any]) -> None:
    parts = dissect(bytes.fromhex(vector["datagram"]), deployment(vector))
    expected = [
        vector[name] and vector[name].encode() for name in ("magic", "algorithm", "sum", "src", "chan")
    ]
    assert [parts.magic, parts.algorithm, parts.sum, parts.src, parts.chan] == expected
    assert parts.payload is not None
    assert (int(parts.length or -1), int(parts.seq or -1)) == (vector["length"], int(vector["seq"]))
    assert (parts.payload.hex(), parts.mode, parts.verdict) == (vector["payload"], vector["mode"], "ok")


@pytest.mark.parametrize("vector", golden("bccn1", "invalid"))
def test_broken_datagrams_have_the_verdict_of_the_vectors(vector: dict[str, Any]) -> None:
    datagram = bytes.fromhex(vector["datagram"])
    parts = dissect(datagram, deployment(vector))
    assert parts.verdict == vector["reason"]
    assert 0 <= parts.at <= len(datagram)


@pytest.mark.parametrize(
    ("datagram", "at", "detail"),
    [
        (b"nothing", 0, ""),
        (b"BCCN1[x]a:1:b|c", 6, ""),
        (b"BCCN1[9]a:1:b|c", 6, "says 9, has 7"),
        (b"BCCN1[7:md5=00]a:1:b|c", 8, "b'md5'"),
        (b"BCCN1[7:crc32=00000000]a:1:b|c", 14, f"would be {crc32_value(b'a:1:b|c').decode()}"),
        (b"BCCN2[1]x", 0, "BCCN2"),
        (b"BCCN1[5]a:1:b", 8, ""),
        (b"BCCN1[7]\xff:1:b|c", 8, ""),
        (b"BCCN1[7]a:x:b|c", 10, ""),
        (b"BCCN1[7]a:1:\xff|c", 12, ""),
        (b"BCCN1[8]a:1:!?|c", 12, ""),
    ],
)
def test_wrong_part_is_found_where_it_is(datagram: bytes, at: int, detail: str) -> None:
    parts = dissect(datagram, OPEN)
    assert parts.verdict in UNSOUND
    assert (parts.at, parts.detail) == (at, detail)


@pytest.mark.parametrize(
    ("datagram", "shown"),
    [
        (b"nothing", b"nothing"),
        (b"BCCN2[3]abc", b"abc"),
        (b"BCCN1[3]a:1", b"a:1"),
        (b"BCCN1[9]a:1:b|c", b"c"),
    ],
)
def test_unreadable_bytes_are_shown_as_they_are(datagram: bytes, shown: bytes) -> None:
    assert dissect(datagram, OPEN).shown == shown


def test_a_sum_is_right_or_wrong_or_unknown() -> None:
    body = b"a:1:b|c"
    keyed = Integrity([b"k" * 16], Level.HMAC)
    right = b"BCCN1[7:crc32=%b]%b" % (crc32_value(body), body)
    assert dissect(right, OPEN).checked is True
    assert dissect(b"BCCN1[7:crc32=00000000]" + body, OPEN).checked is False
    assert dissect(b"BCCN1[7:crc32=00]" + body, OPEN).checked is False
    assert dissect(keyed.seal(body), OPEN).checked is None
    assert dissect(keyed.seal(body), keyed).checked is True
    assert dissect(keyed.seal(body)[:-1] + b"d", keyed).checked is False


@given(st.binary(max_size=60) | st.binary(max_size=30).map(lambda rest: b"BCCN1[5]" + rest))
def test_dissection_agrees_with_the_daemon(datagram: bytes) -> None:
    parts = dissect(datagram, OPEN)
    try:
        src, seq, chan, _, payload_at = OPEN.open(datagram)
        verdict = Verdict.OK
    except WireError as error:
        verdict = error.verdict
    assert parts.verdict is verdict
    if verdict is Verdict.OK:
        assert (parts.src, parts.chan, parts.payload) == (src, chan, datagram[payload_at:])
        assert int(parts.seq or -1) == seq
