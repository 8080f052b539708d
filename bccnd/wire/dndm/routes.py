"""Routes of DNDM, and the channels that stand for them on the bus (``bccnd/wire/DNDM.md``, "Routes").

    Foo@sensors.front          dndm/sensors/front/Foo
    types.Foo@a b              dndm/a%20b/types.Foo
    sensors#m1F+jL/...         dndm/#/sensors/m1F-jL_...
    m1F+jL/...                 dndm/#/m1F-jL_...             as public peers send it, without its prefix

Each route has one channel, and each of these channels one route: ``channel`` and ``route_of`` are inverse.
"""

import hashlib
import re
from base64 import b64encode
from dataclasses import dataclass

from bccnd.errors import DndmError

# Bytes of a route. Its header then has room for a signature.
ROUTE_LIMIT = 1024
# Of the bus (``clients/PROTOCOL.md``, "Channels and patterns").
CHANNEL_LIMIT = 1024
PREFIX = "dndm/"
HASHED = "dndm/#/"

# 160 bits in unpadded Base64: the last character has four of them.
_HASH = re.compile(r"[A-Za-z0-9+/]{26}[AEIMQUYcgkosw048]")
# What stands for itself in a token of a channel. "*" and ">" mean something in patterns, and "!" before names.
_PLAIN = re.compile(rb"[A-Za-z0-9_-]")
_IN_TYPE = re.compile(rb"[A-Za-z0-9_.-]")
_IN_HASH = re.compile(rb"[A-Za-z0-9]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED = re.compile(r"%([0-9A-F]{2})")


@dataclass(frozen=True, slots=True)
class Plain:
    """``type_name``: that of the protobuf message, with its package if it has one; ``path``: divided by dots."""

    type_name: str
    path: str

    def __str__(self) -> str:
        return f"{self.type_name}@{self.path}"

    @property
    def id(self) -> str:
        """What is equal of equal routes."""
        return str(self)

    def channel(self) -> str:
        tokens = [_escape(token, _PLAIN) for token in self.path.split(".")]
        return _bounded(PREFIX + "/".join([*tokens, _escape(self.type_name, _IN_TYPE)]))


@dataclass(frozen=True, slots=True)
class Hashed:
    """``prefix`` is None where a peer left it out, and the ``#``. Routes with the same ``digest`` are equal."""

    prefix: str | None
    digest: str

    def __str__(self) -> str:
        return self.digest if self.prefix is None else f"{self.prefix}#{self.digest}"

    @property
    def id(self) -> str:
        """What is equal of equal routes, with or without a prefix."""
        return self.digest

    @property
    def path(self) -> str:
        """What paths of peers are matched with."""
        return self.prefix or ""

    def channel(self) -> str:
        tokens = [] if self.prefix is None else [_escape(token, _PLAIN) for token in self.prefix.split(".")]
        digest = "".join({"/": "_", "+": "-"}.get(each) or _escape(each, _IN_HASH) for each in self.digest)
        return _bounded(HASHED + "/".join([*tokens, digest]))


Route = Plain | Hashed


def parse(text: str) -> Route:
    """``Type@path``, ``prefix#hash``, or a hash alone. Raises ``DndmError``."""
    if len(text.encode(errors="surrogatepass")) > ROUTE_LIMIT:
        raise DndmError("route", f"{len(text)} characters, at most {ROUTE_LIMIT} bytes")
    if _SURROGATE.search(text):
        raise DndmError("route", "no UTF-8")
    if "@" in text:
        type_name, _, path = text.partition("@")
        if type_name and path and not re.search("[@#]", type_name + path):
            return Plain(type_name, path)
    elif "#" in text:
        prefix, _, digest = text.partition("#")
        if digest and "#" not in digest:
            return Hashed(prefix, digest)
    elif _HASH.fullmatch(text):
        return Hashed(None, text)
    raise DndmError("route", repr(text[:48]))


def is_sha1(route: Hashed) -> bool:
    """Whether the hash can be that of the protocol; public peers take any text."""
    return _HASH.fullmatch(route.digest) is not None


def hashed(prefix: str, route: Plain) -> Hashed:
    """The hashed route of a plain one, whose path begins with ``prefix``. Raises ``DndmError``."""
    if not prefix or not route.path.startswith(prefix):
        raise DndmError("route", f"{prefix!r} is no beginning of {route.path!r}")
    digest = hashlib.sha1(str(route).encode(), usedforsecurity=False).digest()
    return Hashed(prefix, b64encode(digest).decode().rstrip("="))


def route_of(channel: str) -> Route:
    """The route that a channel stands for. Raises ``DndmError`` for one that ``Route.channel`` does not give."""
    try:
        route = _route_of(channel)
    except ValueError as error:  # escapes that are not UTF-8
        raise DndmError("channel", repr(channel[:48])) from error
    if parse(str(route)) != route or route.channel() != channel:
        raise DndmError("channel", repr(channel[:48]))
    return route


def _route_of(channel: str) -> Route:
    *tokens, last = channel.removeprefix(HASHED if channel.startswith(HASHED) else PREFIX).split("/")
    path = ".".join(map(_unescape, tokens))
    if not channel.startswith(HASHED):
        return Plain(_unescape(last), path)
    return Hashed(path if tokens else None, _unescape(last.replace("_", "/").replace("-", "+")))


def _escape(text: str, plain: re.Pattern[bytes]) -> str:
    octets = [bytes([octet]) for octet in text.encode()]
    return "".join(octet.decode() if plain.fullmatch(octet) else f"%{octet[0]:02X}" for octet in octets)


def _unescape(token: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), token).encode("latin-1").decode()


def _bounded(channel: str) -> str:
    if len(channel) > CHANNEL_LIMIT:
        raise DndmError("channel", f"{len(channel)} characters, at most {CHANNEL_LIMIT}")
    return channel
