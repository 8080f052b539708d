"""A datagram taken apart as far as it goes: for people who want to see why one was rejected.

``bccnd.wire.bccn1`` decides what is sound, and where it is not, why; this reads on where that stops.
"""

from dataclasses import dataclass

from bccnd.errors import WireError
from bccnd.wire.bccn1 import (
    BRACKET_LIMIT,
    MAGIC_LIMIT,
    RECEIVE_LIMIT,
    Integrity,
    Level,
    Reason,
    crc32_value,
    mode_of,
)

_BRACKET = {Reason.ENVELOPE, Reason.LENGTH, Reason.ALGORITHM, Reason.SUM, Reason.UNAUTHENTICATED}
_SUMS = {Reason.HMAC, Reason.CRC32}
_BEHIND_SUMS = list(Reason)[list(Reason).index(Reason.CRC32) + 1 :]


@dataclass(frozen=True, slots=True)
class Dissection:
    """The parts as they stand; None where there is none, or it was not reached.

    reason   why our own check drops it (``Reason``), None if it does not
    detail   in words, where there are any
    at       the byte with which the part begins that is wrong
    checked  whether the sum is right; None when nobody here can tell
    """

    datagram: bytes
    magic: bytes | None = None
    length: bytes | None = None
    algorithm: bytes | None = None
    sum: bytes | None = None
    body: bytes | None = None
    src: bytes | None = None
    seq: bytes | None = None
    chan: bytes | None = None
    payload: bytes | None = None
    reason: str | None = None
    detail: str = ""
    at: int = 0
    checked: bool | None = None

    @property
    def mode(self) -> str | None:
        return None if self.chan is None else mode_of(self.chan)

    @property
    def shown(self) -> bytes:
        """What is left to be shown as it is: the payload, or whatever could not be read any further."""
        if self.payload is not None:
            return self.payload
        return self.datagram if self.body is None else self.body


def dissect(datagram: bytes, integrity: Integrity) -> Dissection:
    """Never raises, whatever the bytes. ``integrity``: our keys, and what is to be required."""
    parts = _parts(datagram)
    reason, detail, at = None, "", 0
    try:
        integrity.open(datagram)
    except WireError as error:
        reason, at = error.reason, _place(error.reason, datagram, parts)
        detail = str(error).removeprefix(error.reason).removeprefix(": ")
        if reason == Reason.CRC32:
            detail = f"would be {crc32_value(parts['body']).decode()}"
    return Dissection(
        datagram, **parts, reason=reason, detail=detail, at=at, checked=_checked(parts, reason, integrity)
    )


Parts = dict[str, bytes]


def _parts(datagram: bytes) -> Parts:
    parts: Parts = {}
    magic, bracket, rest = datagram.partition(b"[")
    if not bracket or len(magic) > MAGIC_LIMIT or not magic.startswith(b"BCCN"):
        return parts
    parts["magic"] = magic
    inside, close, body = rest.partition(b"]")
    if not close or len(inside) >= BRACKET_LIMIT:
        return parts
    length, colon, check = inside.partition(b":")
    parts |= {"length": length, "body": body}
    if colon:
        algorithm, equals, value = check.partition(b"=")
        parts |= {"algorithm": algorithm, "sum": value} if equals else {"algorithm": algorithm}
    if magic == b"BCCN1":
        header, bar, payload = body.partition(b"|")
        if bar:
            fields = header.split(b":", 2)
            parts |= dict(zip(("src", "seq", "chan"), fields, strict=False)) | {"payload": payload}
    return parts


def _place(reason: str, datagram: bytes, parts: Parts) -> int:
    if reason == Reason.TRUNCATED:
        return RECEIVE_LIMIT
    bracket = len(parts.get("magic", b"")) + 1
    body = len(datagram) - len(parts.get("body", b""))
    if reason == Reason.MAGIC:
        return 0
    if reason in _BRACKET:
        return bracket
    if reason in _SUMS:
        return body - 1 - len(parts["sum"])
    if reason == Reason.SEQUENCE:
        return body + len(parts["src"]) + 1
    if reason in (Reason.CHANNEL, Reason.TARGET):
        return body + len(parts["src"]) + len(parts["seq"]) + 2
    return 0 if reason == Reason.VERSION else body


def _checked(parts: Parts, reason: str | None, integrity: Integrity) -> bool | None:
    if reason in _SUMS:
        return False
    if parts.get("algorithm") == b"crc32" and "sum" in parts:
        return parts["sum"] == crc32_value(parts["body"])
    if integrity.required is Level.HMAC and (reason is None or reason in _BEHIND_SUMS):
        return True
    return None
