"""The options of a link over NATS: its servers, our credentials, and how much its stream keeps."""

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bccnd.errors import ConfigError
from bccnd.process.keys import read_private

PORT = 4222

# A name that is a token of a subject, and a folder on the server.
_STREAM = re.compile(r"[A-Za-z0-9_-]{1,64}")

# Without them nats-py would look for them for ever.
_IN_CREDENTIALS = ("BEGIN NATS USER JWT", "BEGIN USER NKEY SEED")


@dataclass(frozen=True, slots=True)
class NatsOptions:
    """``servers``: URLs, as ``servers_of`` returns them; ``stream``: its name, and the beginning of its subjects.

    For a stream that does not exist yet: ``replicas``, 0 for 3 in a cluster and 1 elsewhere; ``max_bytes``;
    ``max_age`` in seconds. Our identity: a ``credentials`` file, or ``user`` with ``password``, or ``token``; the
    last two are files. ``ca``: certificates of the authorities that we trust, by default the system's; ``cert`` and
    ``key``: our own. Files are read again for each connection, so that they can be replaced.
    """

    servers: tuple[str, ...]
    stream: str = "bccn"
    replicas: int = 0
    max_bytes: int = 1 << 30
    max_age: float = 86_400.0
    credentials: Path | None = None
    user: str = ""
    password: Path | None = None
    token: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def check(self) -> None:
        """Raises ``BccndError``: a value is wrong, or a file cannot be read."""
        if not _STREAM.fullmatch(self.stream):
            raise ConfigError(f"nats_stream {self.stream!r}: must be 1 to 64 letters, digits, - and _")
        if not 0 <= self.replicas <= 5:
            raise ConfigError(
                f"nats_replicas {self.replicas}: must be 1 to 5, or 0 for as many as are sensible"
            )
        if bool(self.user) != bool(self.password):
            raise ConfigError("nats_user and nats_password_file go together")
        if [self.credentials, self.user or None, self.token].count(None) < 2:
            raise ConfigError(
                "give one of nats_credentials, nats_user with its password, and nats_token_file"
            )
        if bool(self.cert) != bool(self.key):
            raise ConfigError("nats_cert_file and nats_key_file go together")
        self.login()
        self.tls()

    def login(self) -> dict[str, Any]:
        """Our identity, as arguments of nats-py's ``connect``. Raises ``BccndError``."""
        if self.credentials:
            return {"user_credentials": _credentials(self.credentials)}
        if self.password:
            return {"user": self.user, "password": _line(self.password, "password file")}
        return {"token": _line(self.token, "token file")} if self.token else {}

    def tls(self) -> ssl.SSLContext:
        """Raises ``ConfigError``."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise ConfigError(f"nats_ca_file {self.ca}: {_why(error)}") from None
        if self.cert:
            try:
                context.load_cert_chain(self.cert, self.key)
            except OSError as error:
                raise ConfigError(
                    f"nats_cert_file {self.cert}, nats_key_file {self.key}: {_why(error)}"
                ) from None
        return context

    def demands_tls(self, server: str) -> bool:
        """Whether everything for this server, above all a password, must be encrypted."""
        return server.startswith("tls:") or bool(self.ca or self.cert)


def servers_of(text: str) -> tuple[str, ...]:
    """``nats://a,b:4223`` or ``tls://a`` -> a URL each. Raises ConfigError."""
    scheme, separator, rest = text.partition("://")
    if scheme not in ("nats", "tls") or not separator:
        raise ConfigError(f"{text}: must begin with nats:// or tls://")
    if "@" in rest:
        raise ConfigError(
            "a user or password in the URL of NATS is seen by all who see the settings; use their own"
        )
    return tuple(_server(scheme, each.strip()) for each in rest.rstrip("/").split(","))


def _server(scheme: str, place: str) -> str:
    place = place.removeprefix(f"{scheme}://")
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port or PORT
    except ValueError:
        host, port = None, 0
    if not host or any(each.isspace() for each in place) or parts.netloc != place:
        raise ConfigError(f"{scheme}://{place}: must be a host, or a host and a port, such as nats1:4222")
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _credentials(path: Path) -> str:
    text = read_private(path, "credentials file").decode(errors="replace")
    if not all(each in text for each in _IN_CREDENTIALS):
        raise ConfigError(f"credentials file {path}: holds no JWT and seed of a user; make it with nsc")
    return text


def _line(path: Path, what: str) -> str:
    lines = read_private(path, what).decode(errors="replace").splitlines()
    if len(lines) != 1 or not lines[0]:
        raise ConfigError(f"{what} {path}: must be one line")
    return lines[0]


def _why(error: OSError) -> str:
    """The text of an error. OpenSSL has its own numbers, and a text in capitals or none."""
    return (
        (error.strerror or str(error))
        if not isinstance(error, ssl.SSLError)
        else "no certificate or key in PEM"
    )
