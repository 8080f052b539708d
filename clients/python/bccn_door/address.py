"""The connection to a door: a Unix stream socket or TLS, as its address says. Nothing of what goes over it.

unix:/run/bccnd/mux.sock    unix:@abstract    tls://relay01:5401    tls://[fe80::1]:5401
"""

import errno
import os
import socket
from typing import TYPE_CHECKING

from bccn.errors import BccnError, InvalidError, RefusedError, UnavailableError
from bccn.transport import Credentials, Path, off_standard, socket_address

if TYPE_CHECKING:
    import ssl

# Seconds to connect and to greet by TLS; a client gives up sooner where its own ``timeout`` is less.
CONNECT_SECONDS = 10.0


def connected(address: str, credentials: Credentials) -> socket.socket:
    """It blocks, for CONNECT_SECONDS at most. Raises InvalidError, RefusedError, UnavailableError."""
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        made = off_standard(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        made.settimeout(CONNECT_SECONDS)
        try:
            made.connect(socket_address(rest))
        except OSError as error:
            made.close()
            raise fault(error, address) from None
        return made
    host, _, port = rest.removeprefix("//").rpartition(":")
    if scheme != "tls" or not rest.startswith("//") or not host or not _is_port(port):
        raise InvalidError(f"{address}: no address of a door: that is unix:PATH or tls://HOST:PORT")
    return _connected_by_tls(address, (host.strip("[]"), int(port)), credentials)


def _is_port(text: str) -> bool:
    """The system takes a greater number for another port."""
    return text.isascii() and text.isdigit() and 0 < int(text) < 65_536


def _connected_by_tls(address: str, place: tuple[str, int], credentials: Credentials) -> socket.socket:
    context = _context(*map(_given, credentials[:3], ("CA", "CERT", "KEY")))
    try:
        made = off_standard(socket.create_connection(place, CONNECT_SECONDS))
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return context.wrap_socket(made, server_hostname=credentials[3] or place[0])
        except BaseException:
            made.close()
            raise
    except OSError as error:
        raise fault(error, address) from None


def _context(ca: str | None, cert: str | None, key: str | None) -> "ssl.SSLContext":
    """Raises InvalidError, which names the file that is at fault."""
    import ssl  # takes longer than all the rest

    if key and not cert:
        raise InvalidError(f"{key}: a key needs its certificate: cert, or $BCCN_TLS_CERT")
    if ca:
        _examine(ca, "certificate")
    if cert:
        _examine(cert, "certificate")
        _examine(key or cert, "private key")
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert:
            context.load_cert_chain(cert, key, password=_no_password)
    except ValueError:
        raise InvalidError(
            f"{key or cert}: the key has a password; take it off: openssl pkey -in KEY -out NEW"
        ) from None
    except OSError as error:  # SSLError is one
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise InvalidError(f"{key or cert}: is not the key of the certificate in {cert}") from None
        files = ", ".join(each for each in (ca, cert, key) if each)
        raise InvalidError(f"no keys or certificates to be read in {files}: {_text(error)}") from None
    return context


def _examine(file: str, block: str) -> None:
    """The library says neither which of its files is at fault, nor what each lacks."""
    try:
        with open(file, "rb") as stream:  # noqa: PTH123 - pathlib is not imported for this alone
            content = stream.read()
    except OSError as error:
        raise InvalidError(f"{file}: {error.strerror}") from None
    if f"{block.upper()}-----".encode() not in content:
        raise InvalidError(f"{file}: has no {block} in PEM")


def _no_password() -> str:
    """Without it the library asks at the terminal, and a program would wait for ever."""
    raise ValueError


def _given(chosen: Path | None, name: str) -> str | None:
    return os.fspath(chosen) if chosen else os.environ.get(f"BCCN_TLS_{name}") or None


def fault(error: OSError, address: str, *, stood: bool = False) -> BccnError:
    """What an error of a connection, that ``stood`` or was being made, is to a program."""
    if isinstance(error, PermissionError):
        return RefusedError("refused", f"no permission to connect to {address}")
    if "_ALERT_" in (getattr(error, "reason", None) or ""):  # of TLS: from the other side
        return RefusedError("refused", f"the door at {address} does not take our certificate: {_text(error)}")
    if hasattr(error, "verify_message"):
        return UnavailableError(f"the door at {address} does not prove that it is that: {_text(error)}")
    if error.errno == errno.EPROTOTYPE:
        return UnavailableError(f"{address} is the socket of a daemon: name that of its door, bccnd-mux")
    if stood and isinstance(error, ConnectionError):  # it closed before it had read all
        return UnavailableError(f"the door at {address} went away")
    what = f"the connection to {address} broke" if stood else f"no door at {address}"
    return UnavailableError(f"{what}: {_text(error)}")


def _text(error: OSError) -> str:
    """In a few words. What TLS says, such as CERTIFICATE_VERIFY_FAILED, is in other places."""
    said = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    if not said:
        return error.strerror or str(error)
    words = str(said).replace("_", " ").lower()
    # Behind a version, which is not always that of the connection.
    return words.partition(" alert ")[2] or words
