"""TLS between a socket and the bytes of bpmux, without I/O: each side proves who it is by a certificate.

Rules
- A peer has a certificate that the authorities in the settings signed, or gets no further than the handshake.
- Records are counted by their heads, and those that carried nothing are chatter: a change of keys has 27 bytes and
  the work of some chunks, and nobody sees it in what the library reads.
- A context is made of files once. A reload makes another for those who come in from then on, and drops nobody.
"""

import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path

from bccnd.errors import ConfigError
from bccnd.mux import limits
from bccnd.mux.carrier import CarrierError
from bccnd.mux.peer import Peer
from bccnd.mux.settings import Certified, MuxSettings

PIECE = 64 * 1024
# Bytes that are taken apart at a time: a millisecond, if all its records are short.
PORTION = 4 * 1024
# Letters of a name in a refusal.
SHOWN = 255


def make_context(certificate: Path, key: Path, authorities: Path | None) -> ssl.SSLContext:
    """Of PEM files. Without authorities nobody is asked for a certificate. Raises ``ConfigError``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificate {certificate}, key {key}: {_reason(error)}") from None
    if authorities is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(authorities)
        except OSError as error:
            raise ConfigError(f"authorities {authorities}: {_reason(error)}") from None
    return context


def context_of(settings: MuxSettings) -> ssl.SSLContext | None:
    """None where nobody speaks TLS. Raises ``ConfigError``."""
    if not settings.has_tls:
        return None
    if settings.certificate is None or settings.key is None or settings.authorities is None:
        raise ConfigError("listen: tls:// needs certificate, key and authorities")
    return make_context(settings.certificate, settings.key, settings.authorities)


def _no_password() -> str:
    raise ValueError("the key is encrypted, and nobody is there to say its password")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"not what it should be ({error.reason or error})"
    return (isinstance(error, OSError) and error.strerror) or str(error)


class Records:
    """``count``: how many have begun in the bytes so far."""

    _HEAD = 5  # type, version, and the length in two bytes

    def __init__(self) -> None:
        self.count = 0
        self._left = 0  # bytes of the last one that are still to come
        self._begun = b""  # of a head

    def add(self, data: bytes) -> None:
        if self._begun:
            data = self._begun + data
        at, end = self._left, len(data)
        while at + self._HEAD <= end:
            at += self._HEAD + int.from_bytes(data[at + 3 : at + self._HEAD])
            self.count += 1
        self._begun = data[at:]
        self._left = max(0, at - end)


class Tls:
    """The server's side of one connection."""

    has_ended = False

    def __init__(self, context: ssl.SSLContext) -> None:
        self.is_ready = False
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._in, self._out, server_side=True)
        self._records = Records()
        self._pieces = 0  # a read gives what one record carried
        self._unread = b""

    @property
    def names(self) -> list[str]:
        """What the certificate of the peer calls it: its DNS names, then its common name.

        None at all where one of them is no text: a DNS name may hold any byte that an authority signs.
        """
        try:
            return [*_names(self._object.getpeercert() or {})]
        except UnicodeDecodeError:
            return []

    @property
    def frames(self) -> int:
        return self._records.count

    @property
    def chatter(self) -> int:
        return self._records.count - self._pieces

    @property
    def replies(self) -> int:
        return self._out.pending

    @property
    def is_behind(self) -> bool:
        return bool(self._unread)

    @property
    def held(self) -> int:
        return self._in.pending + len(self._unread)

    def received(self, data: bytes, most: int = limits.FRAMES) -> bytes:
        self._unread += data
        pieces: list[bytes] = []
        end = self.frames + most
        while self._unread and (self.frames < end or not self.is_ready):
            portion, self._unread = self._unread[:PORTION], self._unread[PORTION:]
            self._read(portion, pieces)
        if self.has_ended:
            self._unread = b""
        return b"".join(pieces)

    def _read(self, data: bytes, pieces: list[bytes]) -> None:
        before = len(pieces)
        self._in.write(data)
        self._records.add(data)
        try:
            if not self.is_ready:
                self._object.do_handshake()
                self.is_ready = True
            while piece := self._object.read(PIECE):
                pieces.append(piece)
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise CarrierError("tls") from error
        self._pieces += len(pieces) - before

    def outgoing(self, data: bytes = b"") -> bytes:
        if data:
            self._object.write(data)
        return self._out.read()


def _names(certificate: object) -> Iterator[str]:
    assert isinstance(certificate, dict)  # noqa: S101 - as the library has it
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "DNS":
            yield value
    for parts in certificate.get("subject", ()):
        for kind, value in parts:
            if kind == "commonName":
                yield value


def certified(names: Sequence[str], users: Sequence[Certified]) -> Peer | bytes:
    """Who has a certificate with these names; or why that is nobody."""
    for user in users:
        if user.name in names:
            return Peer(user.user, user.groups, 0, user.name.encode())
    if not names:
        return b"refused the certificate has no name that can be read"
    shown = "".join(letter if letter.isprintable() else "?" for letter in names[0][:SHOWN])
    return f"refused the certificate of {shown} is no user's here".encode()
