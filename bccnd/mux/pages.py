"""The page for browsers: its files, and the HTTP headers of each.

Rules
- The files are read once, with the settings: nothing in a request ever becomes a path on the disk.
- Whoever can reach the door gets them, since they say nothing about the bus: that takes a token.
- A browser keeps them, and asks each time whether they are still the same (ETag): a new door has a new page at once.
- Nothing comes from elsewhere, and no script from the document itself: the browser refuses both (CSP).
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import NamedTuple

FOLDER = "page"
FIRST = "index.html"
SETTINGS = "/settings.json"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
    ("Connection", "close"),
)


class Page(NamedTuple):
    """One file. ``tag``: its entity tag (RFC 9110), different for each content."""

    kind: str
    body: bytes
    tag: str

    @classmethod
    def of(cls, kind: str, body: bytes) -> "Page":
        return cls(kind, body, f'"{sha256(body).hexdigest()[:32]}"')


# By path.
Pages = Mapping[str, Page]
NONE: Pages = MappingProxyType({})


def read_pages(settings: Mapping[str, bool]) -> Pages:
    """The page at ``/``, each file that it loads at its path, and the settings that it needs."""
    pages = dict(_below(files(__package__) / FOLDER, "/"))
    pages["/"] = pages.pop(f"/{FIRST}")
    pages[SETTINGS] = Page.of("application/json", json.dumps(settings).encode())
    return pages


def _below(folder: Traversable, path: str) -> list[tuple[str, Page]]:
    found: list[tuple[str, Page]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _below(entry, f"{path}{entry.name}/")
        else:
            _, dot, ending = entry.name.rpartition(".")
            if kind := _TYPES.get(dot + ending):
                found.append((path + entry.name, Page.of(kind, entry.read_bytes())))
    return found
