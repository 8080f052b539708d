"""Addresses of DNDM's peers: ``scheme://address/path?params`` (``bccnd/wire/DNDM.md``, "Peers").

tcp://192.168.1.100:8080/robot.sensors
serial:///dev/ttyUSB0/embedded.actuators?baud=115200       as the published text writes it
serial://.dev.ttyUSB0/embedded.actuators?baud=115200       as public peers read it: a dot for each slash
"""

import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from bccnd.errors import DndmError

# Bytes of an address: longer than any name of a host with a path that a route may have.
PEER_LIMIT = 1024
PARAMS_LIMIT = 16
BAUD, BAUD_LIMIT = 115_200, 4_000_000
PARITIES = "NEOMS"

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,31}")
# Devices whose name has a folder of its own below /dev; of the others the name ends at the first slash.
_DEVICE = re.compile(r"(/dev/(?:(?:pts|serial/by-id|serial/by-path)/)?[^/]+)(?:/([^/]*))?")
_ELSEWHERE = re.compile(r"(/.*[^/])/([^/]*)")
_STOP_BITS = {"1": 1.0, "1.5": 1.5, "2": 2.0}


class Serial(NamedTuple):
    """How a serial line is set; ``parity``: none, even, odd, mark or space, by its first letter."""

    baud: int
    bits: int
    parity: str
    stop_bits: float


@dataclass(frozen=True, slots=True)
class Peer:
    """``address``: host and port, or the path of a device; ``path``: what it is for, divided by dots.

    A peer that only dials may have no address.
    """

    scheme: str
    address: str
    path: str = ""
    params: tuple[tuple[str, str], ...] = ()
    text: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def place(self) -> tuple[str, str]:
        """What is equal of equal peers; how their address is written does not count."""
        return self.scheme, self.address

    def param(self, name: str) -> str:
        return next((value for key, value in self.params if key == name), "")

    def covers(self, path: str) -> bool:
        """Whether the peer may publish a route with this path: its own is a beginning, token by token."""
        return not self.path or f"{path}.".startswith(f"{self.path}.")

    def serial(self) -> Serial:
        """The settings of its line, 115200 8N1 where it says nothing. Raises ``DndmError``."""
        baud, bits = self.param("baud") or str(BAUD), self.param("bits") or "8"
        parity, stop = (self.param("parity") or "N")[0].upper(), self.param("stop") or "1"
        if not re.fullmatch("[1-9][0-9]{1,6}", baud) or int(baud) > BAUD_LIMIT:
            raise DndmError("peer", f"baud={baud[:16]}")
        if bits not in ("5", "6", "7", "8") or parity not in PARITIES or stop not in _STOP_BITS:
            raise DndmError("peer", f"bits={bits[:16]} parity={parity} stop={stop[:16]}")
        return Serial(int(baud), int(bits), parity, _STOP_BITS[stop])


def parse(text: str) -> Peer:
    """Raises ``DndmError``."""
    if len(text.encode(errors="surrogatepass")) > PEER_LIMIT or not text.isprintable():
        raise DndmError("peer", f"{len(text)} characters, or some that cannot be printed")
    try:
        url = urlsplit(text)
        params = tuple(
            parse_qsl(url.query, keep_blank_values=True, errors="strict", max_num_fields=PARAMS_LIMIT)
        )
        path = unquote(url.path, errors="strict")
    except ValueError as error:
        raise DndmError("peer", repr(text[:48])) from error
    if not _SCHEME.fullmatch(url.scheme) or url.username is not None or url.fragment:
        raise DndmError("peer", repr(text[:48]))
    address, path = _device(url, path) if url.scheme == "serial" else (url.netloc.lower(), path.strip("/"))
    if re.search("[@#]", path):
        raise DndmError("peer", repr(text[:48]))
    return Peer(url.scheme, address, path, params, text)


def _device(url: SplitResult, path: str) -> tuple[str, str]:
    """The device of a serial line, and the path of the peer."""
    if url.netloc:
        name = unquote(url.netloc).replace(".", "/")
        device = name if name.startswith("/") else f"/{name}" if name.startswith("dev/") else f"/dev/{name}"
        return device, path.strip("/")
    found = (_DEVICE if path.startswith("/dev/") else _ELSEWHERE).fullmatch(path)
    if found is None or ".." in path.split("/"):
        raise DndmError("peer", f"no device in {path[:48]!r}")
    return found[1], found[2] or ""
