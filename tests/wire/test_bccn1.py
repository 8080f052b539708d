"""BCCN1 datagrams: the golden vectors, and what must hold for any bytes at all."""

import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bccnd.errors import WireError
from bccnd.wire.bccn1 import (
    CHAN_LIMIT,
    MAGIC,
    RECEIVE_LIMIT,
    SEND_LIMIT,
    SEQ_LIMIT,
    SRC_LIMIT,
    Envelope,
    Integrity,
    Level,
    Message,
    Mode,
    crc32_value,
    hmac_function,
    matches_target,
    mode_of,
    valid_chan,
    valid_src,
)
from bccnd.wire.verdict import UNSOUND, Verdict
from tests.golden import entries, golden

KEYS = (b"correct horse battery staple", b"yesterday's key")
DEPLOYMENTS = {
    "open": Integrity(),
    "open with keys": Integrity(KEYS),
    "crc32": Integrity(required=Level.CRC32),
    "crc32 with keys": Integrity(KEYS, Level.CRC32),
    "hmac": Integrity(KEYS, Level.HMAC),
}
thorough = settings(deadline=None, max_examples=200)


def deployment(vector: dict[str, Any]) -> Integrity:
    keys = [bytes.fromhex(vector["key"])] if vector["key"] else []
    return Integrity(keys, Level(vector["required"]))


def verdict_on(integrity: Integrity, datagram: bytes) -> Verdict | None:
    try:
        integrity.open(datagram)
    except WireError as error:
        return error.verdict
    return None


# The golden vectors


@pytest.mark.parametrize("vector", golden("bccn1", "valid"))
def test_valid_datagram(vector: dict[str, Any]):
    datagram = bytes.fromhex(vector["datagram"])
    algorithm, value = (vector["algorithm"] or "").encode(), (vector["sum"] or "").encode()
    src, seq, chan = vector["src"].encode(), int(vector["seq"]), vector["chan"].encode()
    payload = bytes.fromhex(vector["payload"])

    envelope = Envelope.parse(datagram)
    assert envelope == Envelope(vector["magic"].encode(), envelope.body, algorithm, value)
    assert len(envelope.body) == vector["length"]

    message = Message.parse(envelope.body)
    assert message == Message(src, seq, chan, payload)
    assert message.mode == mode_of(chan) == vector["mode"]

    opened_src, opened_seq, opened_chan, chan_at, payload_at = deployment(vector).open(datagram)
    assert (opened_src, opened_seq, opened_chan) == (src, seq, chan)
    assert datagram[chan_at : payload_at - 1] == chan
    assert datagram[payload_at:] == payload

    rebuilt = Envelope(MAGIC, message.serialize(), algorithm, value).serialize()
    assert (rebuilt == datagram) == vector["canonical"]


@pytest.mark.parametrize("vector", golden("bccn1", "invalid"))
def test_invalid_datagram_has_its_verdict(vector: dict[str, Any]):
    with pytest.raises(WireError) as caught:
        deployment(vector).open(bytes.fromhex(vector["datagram"]))
    assert caught.value.verdict is Verdict(vector["reason"])


@pytest.mark.parametrize(
    ("datagram", "at"),
    [
        (b"BCCN1[]" + bytes(RECEIVE_LIMIT), RECEIVE_LIMIT),
        (b"nothing", 0),
        (b"BCCN1[x]a:1:b|c", 6),
        (b"BCCN1[007:md5=00]a:1:b|c", 10),
        (b"BCCN1[007:hmac=00]a:1:b|c", 15),
        (b"BCCN12[7:crc32=00000000]a:1:b|c", 15),
        (b"BCCN1[7]a:1:b|c", 6),
        (b"BCCN2[1:hmac=61e79cb9f8cbcf62]x", 0),
    ],
)
def test_error_says_where_an_envelope_is_wrong(datagram: bytes, at: int):
    with pytest.raises(WireError) as caught:
        Integrity(required=Level.CRC32).open(datagram)
    assert caught.value.at == at


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (b"a:1", 0),
        (b"a:1:b:c|", 0),
        (b"\xff:1:b|", 0),
        (b"ab:x:b|", 3),
        (b"ab:01:\xff|", 6),
        (b"ab:01:!?|", 6),
    ],
)
def test_error_says_where_a_body_is_wrong(body: bytes, at: int):
    with pytest.raises(WireError) as caught:
        Message.parse(body)
    assert caught.value.at == at
    with pytest.raises(WireError) as caught:
        Integrity().open(Integrity().seal(body))
    assert caught.value.at == at + len(f"BCCN1[{len(body)}]")


def test_every_verdict_has_a_vector():
    assert {vector["reason"] for vector in entries("bccn1", "invalid")} == set(UNSOUND)


@pytest.mark.parametrize("vector", golden("integrity", "hmac"))
def test_hmac_of_the_vectors(vector: dict[str, Any]):
    assert (
        hmac_function(bytes.fromhex(vector["key"]))(bytes.fromhex(vector["body"])) == vector["sum"].encode()
    )


@pytest.mark.parametrize("vector", golden("integrity", "crc32"))
def test_crc32_of_the_vectors(vector: dict[str, Any]):
    assert crc32_value(bytes.fromhex(vector["body"])) == vector["sum"].encode()


@pytest.mark.parametrize("vector", golden("directed", "directed"))
def test_directed_targets_of_the_vectors(vector: dict[str, Any]):
    chan, src = vector["chan"].encode(), vector["src"].encode()
    assert mode_of(chan) is Mode.DIRECTED
    assert (valid_chan(chan) and matches_target(chan[1:], src)) == vector["matches"]


# Deployments


def test_hmac_required_without_a_key_is_refused():
    with pytest.raises(ValueError, match="no key"):
        Integrity(required=Level.HMAC)


def test_the_first_key_signs_and_every_key_verifies():
    today, yesterday = KEYS
    body = Message(b"test", 1, b"test/chan", b"hello").serialize()
    rotating = Integrity([today, yesterday], Level.HMAC)
    assert rotating.seal(body) == Integrity([today], Level.HMAC).seal(body)
    assert verdict_on(rotating, Integrity([yesterday], Level.HMAC).seal(body)) is None
    assert verdict_on(rotating, Integrity([b"tomorrow's"], Level.HMAC).seal(body)) is Verdict.HMAC


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_overhead_leaves_room_for_the_largest_body(name: str):
    integrity = DEPLOYMENTS[name]
    assert len(integrity.seal(bytes(SEND_LIMIT - integrity.overhead))) == SEND_LIMIT


@pytest.mark.parametrize(
    ("message", "verdict"),
    [
        (Message(b"", 1, b"c"), Verdict.SOURCE),
        (Message(b"s" * (SRC_LIMIT + 1), 1, b"c"), Verdict.SOURCE),
        (Message(b"a b", 1, b"c"), Verdict.SOURCE),
        (Message(b"s", -1, b"c"), Verdict.SEQUENCE),
        (Message(b"s", SEQ_LIMIT, b"c"), Verdict.SEQUENCE),
        (Message(b"s", 1, b""), Verdict.CHANNEL),
        (Message(b"s", 1, b"c" * (CHAN_LIMIT + 1)), Verdict.CHANNEL),
        (Message(b"s", 1, b"a:b"), Verdict.CHANNEL),
        (Message(b"s", 1, b"a\0b"), Verdict.CHANNEL),
        (Message(b"s", 1, b"!?x"), Verdict.TARGET),
    ],
)
def test_invalid_message_is_not_serialized(message: Message, verdict: Verdict):
    with pytest.raises(WireError) as caught:
        message.serialize()
    assert caught.value.verdict is verdict


# What must hold for all bytes

NAME_BYTES = bytes(byte for byte in range(1, 128) if byte not in b"\t\n\v\f\r |:")


def names(limit: int) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(NAME_BYTES), min_size=1, max_size=limit).map(bytes)


messages = st.builds(
    Message,
    src=names(SRC_LIMIT),
    seq=st.integers(0, SEQ_LIMIT - 1) | st.sampled_from([0, SEQ_LIMIT - 1]),
    chan=names(200).filter(lambda chan: not chan.startswith(b"!?")),
    payload=st.binary(max_size=1000),
)
deployments = st.sampled_from(list(DEPLOYMENTS.values()))
noise = st.binary(max_size=8) | st.text("BCN12[]:=|!?/* \t\n\0+-_a0", max_size=8).map(str.encode)
real_datagrams = st.sampled_from(
    [bytes.fromhex(vector["datagram"]) for vector in entries("bccn1", "valid") + entries("bccn1", "invalid")]
)


@st.composite
def mutated_datagrams(draw: st.DrawFn) -> bytes:
    """A real datagram with some bytes replaced; often in a sound envelope, to get to the body."""
    datagram = draw(real_datagrams)
    within = datagram.partition(b"]")[2] if draw(st.booleans()) else b""
    victim = within or datagram
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, min(len(victim), 64)))
        victim = victim[:start] + draw(noise) + victim[start + draw(st.integers(0, 8)) :]
    return draw(deployments).seal(victim) if within else victim


def plain_outcome(integrity: Integrity, datagram: bytes) -> tuple[bytes, int, bytes, bytes] | Verdict:
    """Layer by layer, as ``bccnd/wire/BCCN1.md`` describes it."""
    try:
        envelope = Envelope.parse(datagram)
        integrity.verify(envelope)
        if envelope.magic != MAGIC:
            return Verdict.VERSION
        message = Message.parse(envelope.body)
    except WireError as error:
        return error.verdict
    return message.src, message.seq, message.chan, message.payload


def fast_outcome(integrity: Integrity, datagram: bytes) -> tuple[bytes, int, bytes, bytes] | Verdict:
    try:
        src, seq, chan, chan_at, payload_at = integrity.open(datagram)
    except WireError as error:
        return error.verdict
    assert datagram[chan_at:payload_at] == chan + b"|"
    return src, seq, chan, datagram[payload_at:]


@thorough
@given(messages)
def test_a_message_survives_the_wire(message: Message):
    assert Message.parse(message.serialize()) == message


@thorough
@given(
    st.from_regex(rb"BCCN[0-9]{1,6}[A-Za-z]{0,6}", fullmatch=True),
    st.binary(max_size=1500),
    st.just((b"", b""))
    | st.tuples(
        st.from_regex(rb"[a-z][a-z0-9]{0,15}", fullmatch=True),
        st.binary(max_size=32).map(lambda raw: raw.hex().encode()),
    ),
)
def test_an_envelope_of_any_version_survives_the_wire(magic: bytes, body: bytes, check: tuple[bytes, bytes]):
    envelope = Envelope(magic, body, *check)
    assert Envelope.parse(envelope.serialize()) == envelope


@thorough
@given(messages, deployments)
def test_a_deployment_opens_what_it_seals(message: Message, integrity: Integrity):
    assert fast_outcome(integrity, integrity.seal(message.serialize())) == (
        message.src,
        message.seq,
        message.chan,
        message.payload,
    )


@thorough
@given(messages, st.data())
def test_no_flipped_bit_gets_past_an_hmac(message: Message, data: st.DataObject):
    datagram = bytearray(DEPLOYMENTS["hmac"].seal(message.serialize()))
    bit = data.draw(st.integers(0, len(datagram) * 8 - 1))
    datagram[bit // 8] ^= 1 << bit % 8
    assert isinstance(fast_outcome(DEPLOYMENTS["hmac"], bytes(datagram)), Verdict)


@settings(deadline=None, max_examples=1500)
@given(deployments, mutated_datagrams())
def test_the_fast_path_agrees_with_the_layers(integrity: Integrity, datagram: bytes):
    """Whatever the bytes. Anything but a ``WireError`` fails as well."""
    assert fast_outcome(integrity, datagram) == plain_outcome(integrity, datagram)


@thorough
@given(deployments, st.binary(max_size=RECEIVE_LIMIT + 100))
def test_noise_is_refused_with_a_verdict(integrity: Integrity, datagram: bytes):
    assert verdict_on(integrity, datagram) in set(UNSOUND)


@thorough
@given(mutated_datagrams())
def test_stricter_deployments_refuse_no_less(datagram: bytes):
    assume(verdict_on(DEPLOYMENTS["open with keys"], datagram) is not None)
    assert verdict_on(DEPLOYMENTS["hmac"], datagram) is not None


@thorough
@given(st.binary(max_size=SRC_LIMIT + 10), st.binary(max_size=40))
def test_valid_names_are_those_that_survive_the_wire(src: bytes, chan: bytes):
    message = Message(src, 1, chan)
    try:
        survives = Message.parse(b"%b:1:%b|" % (src, chan)) == message
    except WireError:
        survives = False
    assert survives == (valid_src(src) and valid_chan(chan))


paths = st.lists(st.text("a1*?", max_size=3).map(str.encode), min_size=1, max_size=4).map(b"/".join)


@thorough
@given(paths, paths)
def test_directed_matching_follows_the_document(target: bytes, src: bytes):
    assume(src != b"?")
    if target.endswith(b"/*"):
        expected = src == target[:-2] or src.startswith(target[:-1])
    elif re.fullmatch(rb"(.*/)?[0-9]+", target):
        expected = src == target
    else:
        expected = src == target or src.startswith(target + b"/")
    assert matches_target(target, src) == expected
    assert not matches_target(target, b"?")
