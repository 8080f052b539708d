"""Which users may connect from elsewhere, by the settings and the files that they name. A reload reads them again.

Rules
- A file that cannot be read, or is no certificate, is a fault of the settings: a running door goes on as before, a
  new one does not start.
- WebSocket without TLS is for this host alone: anybody who listens on the way would get the token.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from bccnd.errors import ConfigError
from bccnd.mux.carrier import Carrier
from bccnd.mux.entrance import Far
from bccnd.mux.peer import Peer
from bccnd.mux.settings import Bearer, MuxSettings
from bccnd.mux.tls import Tls, certified, context_of, make_context, out_of_date
from bccnd.process.keys import read_keys

if TYPE_CHECKING:
    from bccnd.mux.pages import Pages
    from bccnd.mux.websocket import Tokens


@dataclass(frozen=True)
class Guests:
    """``context``: for ``tls://``; ``web_context``: for WebSocket, None without TLS; ``tokens`` and
    ``pages``: None without it.
    """

    settings: MuxSettings
    context: ssl.SSLContext | None
    web_context: ssl.SSLContext | None
    tokens: "Tokens | None"
    pages: "Pages | None"

    @classmethod
    def of(cls, settings: MuxSettings, own: Bearer | None = None) -> "Guests":
        """``own``: the bearer of the token that the door has made, if it has. Raises ``BccndError``."""
        web_context, tokens, pages = None, None, None
        if settings.web:
            if settings.certificate and settings.key:
                web_context = make_context(settings.certificate, settings.key, None)
            elif not _is_loopback(settings.web):
                raise ConfigError(
                    f"web: others than this host reach {settings.web}, so it needs certificate and key; "
                    "127.0.0.1 and [::1] need none"
                )
            tokens = _tokens(settings, [own] if own else settings.tokens)
            pages = _pages(settings)
        return cls(settings, context_of(settings), web_context, tokens, pages)

    @property
    def out_of_date(self) -> str:
        """Why peers do not accept the door's certificate today; empty if they do, or if it has none."""
        settings = self.settings
        if settings.certificate is None or settings.key is None or not (self.context or self.web_context):
            return ""
        return out_of_date(settings.certificate, settings.key)

    def by_tls(self) -> Far:
        assert self.context is not None  # noqa: S101 - the settings have tls://
        carrier = Tls(self.context)
        return Far(carrier, lambda: certified(carrier.names, self.settings.peers))

    def by_web(self) -> Far:
        from bccnd.mux.websocket import Stacked, WebSocket  # loaded only where it is used

        assert self.tokens is not None  # noqa: S101 - the settings have web
        assert self.pages is not None  # noqa: S101 - likewise
        web = WebSocket(self.tokens, self.pages)
        carrier: Carrier = Stacked(Tls(self.web_context), web) if self.web_context else web
        return Far(carrier, lambda: web.peer or b"refused that token is nobody's")


def _tokens(settings: MuxSettings, bearers: Sequence[Bearer]) -> "Tokens":
    try:
        from bccnd.mux.websocket import Tokens
    except ImportError as error:
        raise ConfigError(
            f"websockets cannot be loaded ({error}); install it: pip install 'bccnd[mux]'"
        ) from None
    users = [
        (token, Peer(bearer.user, bearer.groups, 0, bearer.name.encode()))
        for bearer in bearers
        for token in read_keys(bearer.file, "token")
    ]
    hosts = {settings.web, *settings.hosts}
    if _is_loopback(settings.web):
        hosts.add("localhost:" + settings.web.rpartition(":")[2])
    return Tokens(
        users, hosts, settings.origins, "https" if settings.certificate and settings.key else "http"
    )


def _pages(settings: MuxSettings) -> "Pages":
    from bccnd.mux.pages import read_pages  # loaded only where it is used

    return read_pages({"publish": settings.web_publish})


def _is_loopback(address: str) -> bool:
    return ip_address(address.rpartition(":")[0].strip("[]")).is_loopback
