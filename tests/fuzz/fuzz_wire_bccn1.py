"""Datagrams: ``Integrity.open`` against the layers it is made of, and against a reference in the order of the checks.

The first byte says what the rest is: a whole datagram, or a body to seal, or a body for an envelope with an hmac. So
the fuzzer gets past the integrity values, which it cannot guess.
"""

import hashlib
import hmac
import zlib
from collections.abc import Callable, Iterable

from bccnd.errors import WireError
from bccnd.wire.bccn1 import Envelope, Integrity, Level, Message, Opened, mode_of
from bccnd.wire.verdict import UNSOUND, Verdict
from tests.fuzz.fuzzer import Script
from tests.golden import entries

OLD, NEW, STRANGE = b"an old key of ours", b"n" * 65, b"a key of strangers"
# keys, required
DEPLOYMENTS: list[tuple[tuple[bytes, ...], Level]] = [
    ((), Level.NONE),
    ((), Level.CRC32),
    ((NEW,), Level.NONE),
    ((NEW,), Level.CRC32),
    ((NEW,), Level.HMAC),
    ((OLD, NEW), Level.HMAC),
]
INTEGRITIES = [Integrity(*deployment) for deployment in DEPLOYMENTS]
SIGNERS = [*INTEGRITIES, Integrity((STRANGE,), Level.HMAC)]
DIGITS = b"0123456789"
LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANK = {b"": 0, b"crc32": 1, b"hmac": 2}

Fields = tuple[bytes, int, bytes, bytes]


def one_input(data: bytes) -> None:
    script = Script(data)
    choice = script.number(16)
    rest = script.rest()
    if choice < len(SIGNERS):
        datagram = SIGNERS[choice].seal(rest)
    elif choice == len(SIGNERS):
        datagram = b"BCCN2x[%d:hmac=%b]%b" % (len(rest), hmac_of(NEW, rest), rest)
    else:
        datagram = rest
    for integrity, (keys, required) in zip(INTEGRITIES, DEPLOYMENTS, strict=True):
        got = outcome(lambda: fields_of(datagram, integrity.open(datagram)))  # noqa: B023 - called at once
        assert got == outcome(lambda: layer_by_layer(datagram, integrity)), "open is not the layers"  # noqa: B023
        assert got == reference(datagram, keys, required), "open is not the reference"
        if not isinstance(got, str):
            there_and_back(Message(*got), integrity)
    envelope_round_trip(datagram)


def outcome(call: Callable[[], Fields]) -> Fields | str:
    try:
        return call()
    except WireError as error:
        assert error.verdict in UNSOUND
        assert 0 <= error.at <= 2048
        return error.verdict


def fields_of(datagram: bytes, opened: Opened) -> Fields:
    src, seq, chan, chan_at, payload_at = opened
    assert datagram[chan_at : chan_at + len(chan)] == chan
    assert datagram[payload_at - 1 : payload_at] == b"|"
    assert chan_at + len(chan) + 1 == payload_at
    assert chan_at >= 4  # the relay writes "MSG " before it
    return src, seq, chan, datagram[payload_at:]


def layer_by_layer(datagram: bytes, integrity: Integrity) -> Fields:
    envelope = Envelope.parse(datagram)
    integrity.verify(envelope)
    if envelope.magic != b"BCCN1":
        raise WireError(Verdict.VERSION)
    message = Message.parse(envelope.body)
    return message.src, message.seq, message.chan, message.payload


def there_and_back(message: Message, integrity: Integrity) -> None:
    assert message.mode == mode_of(message.chan)
    body = message.serialize()
    assert Message.parse(body) == message
    sealed = integrity.seal(body)
    assert len(sealed) <= len(body) + integrity.overhead
    if len(sealed) <= 2048:
        assert fields_of(sealed, integrity.open(sealed)) == (
            message.src,
            message.seq,
            message.chan,
            message.payload,
        )


def envelope_round_trip(datagram: bytes) -> None:
    try:
        envelope = Envelope.parse(datagram)
    except WireError:
        return
    again = envelope.serialize()  # shorter at most by leading zeros of the length
    assert Envelope.parse(again) == envelope
    assert datagram.endswith(again.partition(b"[")[2].lstrip(DIGITS))


def hmac_of(key: bytes, body: bytes) -> bytes:
    return hmac.new(key, body, hashlib.sha256).hexdigest()[:16].encode()


def reference(datagram: bytes, keys: tuple[bytes, ...], required: Level) -> Fields | str:
    """The rules one by one, without a regular expression."""
    if len(datagram) > 2048:
        return "truncated"
    magic, bracket, rest = datagram.partition(b"[")
    version = magic[4:].rstrip(LETTERS)
    if not bracket or magic[:4] != b"BCCN" or not version or version.strip(DIGITS) or len(magic) > 16:
        return "magic"
    inside, close, body = rest.partition(b"]")
    length, colon, check = inside.partition(b":")
    algorithm, equals, value = check.partition(b"=")
    if not close or len(inside) >= 256 or not 1 <= len(length) <= 5 or length.strip(DIGITS):
        return "envelope"
    if any(byte in b" \t\n\v\f\r" for byte in inside) or (colon and not (equals and algorithm)):
        return "envelope"
    if int(length) != len(body):
        return "length"
    if algorithm not in RANK:
        return "algorithm"
    wrong_sum = len(value) != {b"": 0, b"crc32": 8, b"hmac": 16}[algorithm] or value.strip(
        b"0123456789abcdef"
    )
    if wrong_sum:
        return "sum"
    if RANK[algorithm] < {"none": 0, "crc32": 1, "hmac": 2}[required]:
        return "unauthenticated"
    if algorithm == b"crc32" and int(value, 16) != zlib.crc32(body):
        return "crc32"
    if algorithm == b"hmac" and keys and value not in [hmac_of(key, body) for key in keys]:
        return "hmac"
    if magic != b"BCCN1":
        return "version"
    return reference_body(body)


def reference_body(body: bytes) -> Fields | str:
    header, bar, payload = body.partition(b"|")
    if not bar or header.count(b":") != 2:
        return "fields"
    src, seq, chan = header.split(b":")
    if not is_token(src, 128):
        return "source"
    if not 1 <= len(seq) <= 20 or seq.strip(DIGITS) or int(seq) >= 2**64:
        return "sequence"
    if not is_token(chan, 1024):
        return "channel"
    if chan[:2] == b"!?":
        return "target"
    return src, int(seq), chan, payload


def is_token(text: bytes, longest: int) -> bool:
    forbidden = b"\0\t\n\v\f\r |:"
    return 1 <= len(text) <= longest and all(byte < 128 and byte not in forbidden for byte in text)


def seeds() -> Iterable[bytes]:
    for entry in [*entries("bccn1", "valid"), *entries("bccn1", "invalid")]:
        datagram = bytes.fromhex(entry["datagram"])
        yield b"\x0f" + datagram
        yield b"\x04" + datagram.partition(b"]")[2]
