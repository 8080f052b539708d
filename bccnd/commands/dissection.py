"""A datagram taken apart as far as it goes: for people who want to see why one was rejected.

``bccnd.wire.bccn1`` reads the parts and judges them. Here they are kept, whatever the verdict.
"""

from dataclasses import dataclass

from bccnd.errors import WireError
from bccnd.wire.bccn1 import MAGIC, Bracket, Fields, Integrity, Level, crc32_value, mode_of
from bccnd.wire.verdict import Verdict

# The verdicts on datagrams with a right sum: their checks come later.
_SUM_IS_RIGHT = tuple(Verdict)[list(Verdict).index(Verdict.CRC32) + 1 :]


@dataclass(frozen=True, slots=True)
class Dissection:
    """The parts as they stand; None where there is no such part, or it could not be reached.

    verdict  of our own check
    detail   what that check says in words, if anything
    at       the byte with which the part begins that is wrong
    checked  whether the sum is right; None when that cannot be known here
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
    verdict: Verdict = Verdict.OK
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
    verdict, detail, at = Verdict.OK, "", 0
    try:
        integrity.open(datagram)
    except WireError as error:
        verdict, detail, at = error.verdict, error.detail, error.at
        if verdict is Verdict.CRC32:
            detail = f"would be {crc32_value(parts['body']).decode()}"
    return Dissection(
        datagram, **parts, verdict=verdict, detail=detail, at=at, checked=_checked(parts, verdict, integrity)
    )


def _parts(datagram: bytes) -> dict[str, bytes]:
    parts: dict[str, bytes | None] = {}
    bracket = Bracket.read(datagram)
    if bracket is not None:
        magic, length, algorithm, value, body_at = bracket
        parts = {"magic": magic, "length": length, "algorithm": algorithm, "sum": value}
        if length is not None:
            parts["body"] = datagram[body_at:]
            fields = Fields.read(datagram, body_at) if magic == MAGIC else None
            if fields is not None:
                src, seq, chan, payload_at = fields
                parts |= {"src": src, "seq": seq, "chan": chan, "payload": datagram[payload_at:]}
    return {name: part for name, part in parts.items() if part is not None}


def _checked(parts: dict[str, bytes], verdict: Verdict, integrity: Integrity) -> bool | None:
    if verdict in (Verdict.HMAC, Verdict.CRC32):
        return False
    if parts.get("algorithm") == b"crc32" and "sum" in parts:
        return parts["sum"] == crc32_value(parts["body"])
    if integrity.required is Level.HMAC and verdict in _SUM_IS_RIGHT:
        return True
    return None
