"""TLS between a socket and the bytes of bpmux, without I/O: each side proves its identity by a certificate.

Rules
- A peer needs a certificate that the authorities in the settings signed, or gets no further than the handshake.
- Records are counted by their headers, and those without data are chatter: a change of keys has 27 bytes, makes the
  work of some chunks, and does not show in what the library returns.
- A context is made from files once. A reload makes another for later connections, and drops nobody.
"""

import os
import ssl
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from bccnd.errors import ConfigError, RefusedError
from bccnd.mux import limits
from bccnd.mux.carrier import CarrierError
from bccnd.mux.peer import Peer
from bccnd.mux.settings import Certified, MuxSettings

PIECE = 64 * 1024
# Bytes that are decoded at a time: a millisecond, if all records are short.
PORTION = 4 * 1024
# Names of the blocks of a PEM file.
CERTIFICATE, KEY = "CERTIFICATE", "PRIVATE KEY"
# Permissions that the key file must not give. Its group may read it: many hosts have a group for certificates.
EXPOSED = 0o027
# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED.
WRONG_TIME = 9, 10
# Letters of a name in a refusal.
SHOWN = 255


def make_context(certificate: Path, key: Path, authorities: Path | None) -> ssl.SSLContext:
    """A context from PEM files. Without authorities, peers are not asked for a certificate.

    Raises ``ConfigError``, or ``RefusedError`` where the door may not read a file, or others may read the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _examine(f"certificate {certificate}", certificate, CERTIFICATE)
    mode = _examine(f"key {key}", key, KEY)
    if mode & EXPOSED:
        raise RefusedError(f"key {key}: mode {mode:04o} lets others at it; do: chmod 600 {key}")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise ConfigError(f"key {key}: is not the key of the certificate in {certificate}") from None
        raise ConfigError(f"certificate {certificate}, key {key}: {_reason(error)}") from None
    if authorities is not None:
        _examine(f"authorities {authorities}", authorities, CERTIFICATE)
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(authorities)
        except OSError as error:
            raise ConfigError(f"authorities {authorities}: {_reason(error)}") from None
    return context


def _examine(named: str, file: Path, block: str) -> int:
    """Check a PEM file, and return its mode. The library would not say which file is at fault, nor why."""
    try:
        with file.open("rb") as stream:
            mode, content = os.fstat(stream.fileno()).st_mode, stream.read()
    except PermissionError:
        raise RefusedError(f"{named}: the user who runs the door may not read it") from None
    except OSError as error:
        raise ConfigError(f"{named}: {error.strerror}") from None
    if f"{block}-----".encode() not in content:
        raise ConfigError(f"{named}: has no {block.lower()} in PEM")
    return stat.S_IMODE(mode)


def out_of_date(certificate: Path, key: Path) -> str:
    """What peers say about the dates of a certificate, such as "certificate has expired"; empty if it is valid now.

    The library checks only a peer's certificate: so this is a handshake with a peer that trusts this one alone.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    said, heard = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer, door = client.wrap_bio(heard, said), Tls(make_context(certificate, key, None))
    for _ in range(2):
        try:
            peer.do_handshake()
        except ssl.SSLWantReadError:
            door.received(said.read())
            heard.write(door.outgoing())
        except ssl.SSLCertVerificationError as error:
            return error.verify_message if error.verify_code in WRONG_TIME else ""
    return ""


def context_of(settings: MuxSettings) -> ssl.SSLContext | None:
    """The context for these settings; None without TLS. Raises ``ConfigError``."""
    if not settings.has_tls:
        return None
    if settings.certificate is None or settings.key is None or settings.authorities is None:
        raise ConfigError("listen: tls:// needs certificate, key and authorities")
    return make_context(settings.certificate, settings.key, settings.authorities)


def _no_password() -> str:
    raise ValueError(
        "the key has a password, which the door cannot ask for; remove it: openssl pkey -in KEY -out NEW"
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"cannot be read ({error.reason or error})"
    return (isinstance(error, OSError) and error.strerror) or str(error)


class Records:
    """Finds TLS records in a stream. ``count``: how many have begun so far."""

    _HEAD = 5  # type, version, and the length in two bytes

    def __init__(self) -> None:
        self.count = 0
        self._left = 0  # bytes of the last record that are still to come
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
        self._pieces = 0  # a read returns the data of one record
        self._unread = b""

    @property
    def names(self) -> list[str]:
        """The peer's names in its certificate: its DNS names, then its common name.

        Empty if one of them is no text: an authority may sign a DNS name with any bytes.
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
    """The peer of a certificate with these names, or the reason why there is none."""
    for user in users:
        if user.name in names:
            return Peer(user.user, user.groups, 0, user.name.encode())
    if not names:
        return b"refused the certificate has no name that can be read"
    shown = "".join(letter if letter.isprintable() else "?" for letter in names[0][:SHOWN])
    return f"refused the certificate of {shown} is no user's here".encode()
