"""Settings of ``bccnd-dndm``: flags, variables BCCND_DNDM_* and the table ``[dndm]`` of a TOML file.

``load`` is called again for a reload (``bccnd/process/one_table.py``).
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from bccnd.dndm.options import LINKS_LIMIT, ROUTES_LIMIT, Network, Options
from bccnd.errors import DndmError
from bccnd.process.one_table import OneTable
from bccnd.process.settings import (
    BusSocket,
    LogFormat,
    LogLevel,
    MetricsAddress,
    ProgramSettings,
    SegmentName,
    whole,
)
from bccnd.wire.dndm import peers
from bccnd.wire.dndm.peers import Peer

PREFIX = "BCCND_DNDM_"
TABLE = "dndm"
DEFAULT_FILE = Path("/etc/bccnd/dndm.toml")

# A reload leaves these as they were: they say where the gateway is, and what peers were told about it.
FIXED = ("socket", "listen", "bus", "address", "links", "routes")

SCHEMES = ("tcp", "udp", "serial")
# Parameters of a serial line.
LINE = "baud", "bits", "parity", "stop"
OF_LINE = (
    f"must set baud from 10 to {peers.BAUD_LIMIT}, bits from 5 to 8, parity N, E, O, M or S, stop 1, 1.5 or 2"
)
ADDRESS = "must be tcp://HOST:PORT, udp://HOST:PORT or serial:///dev/NAME, PORT up to 65535"
# The default address for peers: only those of this host.
LISTEN = "tcp://127.0.0.1:5420"
URLS_LIMIT = 64
NETWORKS_LIMIT = 64
EVERYWHERE = (ip_network("0.0.0.0/0"), ip_network("::/0"))
MIB = 1 << 20


def _peer(value: str) -> str:
    """Raises ``ValueError`` if it is no address to listen on, or to dial."""
    try:
        peer = peers.parse(value)
    except DndmError:
        raise ValueError(ADDRESS) from None
    if peer.scheme == "serial":
        try:
            peer.serial()
        except DndmError:
            raise ValueError(OF_LINE) from None
        return value
    host, _, port = peer.address.rpartition(":")
    if peer.scheme not in SCHEMES or not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        raise ValueError(ADDRESS)
    return value


def _listen(value: str) -> str:
    peer = peers.parse(_peer(value))
    if peer.scheme != "serial" and _host(peer) is None:
        raise ValueError("must have the address of an interface, such as 192.168.1.1, 0.0.0.0 or [::1]")
    return value


def _host(peer: Peer) -> Any:
    """The IP address; None for a name."""
    try:
        return ip_address(peer.address.rpartition(":")[0].strip("[]"))
    except ValueError:
        return None


def _network(value: object) -> object:
    try:
        return ip_network(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ValueError("must be a network without host bits, such as 192.168.1.0/24") from None


Dialled = Annotated[str, AfterValidator(_peer)]
Listened = Annotated[str, AfterValidator(_listen)]
Near = Annotated[Network, BeforeValidator(_network)]


class DndmSettings(ProgramSettings):
    """All settings of one gateway, immutable."""

    socket: BusSocket = ""
    listen: tuple[Listened, ...] = Field(
        default=(LISTEN,),
        max_length=URLS_LIMIT,
        description="where peers connect: tcp://ADDR:PORT, udp://ADDR:PORT or serial:///dev/NAME; several times for "
        "several",
    )
    dial: tuple[Dialled, ...] = Field(
        default=(),
        max_length=URLS_LIMIT,
        description="peers to dial, again and again: tcp://HOST:PORT, udp://HOST:PORT or serial:///dev/NAME?baud=N; "
        "several times for several",
    )
    bus: SegmentName = Field(
        default="bccn",
        description="name of this segment: gateways with the same one refuse each other, since both carry the "
        "same messages",
    )
    address: str = Field(
        default="",
        description="the gateway's address for peers, such as tcp://192.168.1.1:5420; empty: the first of listen "
        "that others can reach",
    )
    accept: tuple[Near, ...] = Field(
        default=EVERYWHERE, max_length=NETWORKS_LIMIT, description="networks from which peers may come"
    )
    discover: tuple[Near, ...] = Field(
        default=(),
        max_length=NETWORKS_LIMIT,
        description="networks in which peers that other peers name are dialled",
    )
    strict: bool = Field(
        default=False,
        strict=True,
        description="do not trust peers: hold each to its own path, and to what it has advertised",
    )
    links: int = whole(LINKS_LIMIT, 1, 1024, "most peers at a time")
    routes: int = whole(ROUTES_LIMIT, 1, 4096, "most intents, and interests, of a peer")
    backlog: int = whole(
        MIB, 1024, 1 << 30, "bytes that may wait for a peer before messages for it are dropped"
    )
    metrics: MetricsAddress = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"

    @field_validator("address")
    @classmethod
    def _own_address(cls, value: str) -> str:
        if value and (peers.parse(_peer(value)).scheme == "serial" or "?" in value):
            raise ValueError("must be tcp://HOST:PORT or udp://HOST:PORT, without parameters")
        return value

    @property
    def me(self) -> str:
        """Our address for peers; without one if no address of this host is the same for all of them."""
        own = next((url for url in self.listen if _is_reachable(peers.parse(url))), "tcp:///")
        peer = peers.parse(self.address or own)
        return f"{peer.scheme}://{peer.address}/{peer.path}?bccn={self.bus}"

    @property
    def serial(self) -> bool:
        """Whether it has a serial line."""
        return any(url.startswith("serial:") for url in (*self.listen, *self.dial))


def expected(settings: DndmSettings) -> list[Peer]:
    """The peers to dial, and the devices to listen on."""
    devices = [url for url in settings.listen if url.startswith("serial:")]
    return [peers.parse(url) for url in (*settings.dial, *devices)]


def _is_reachable(peer: Peer) -> bool:
    host = _host(peer)
    return host is not None and not host.is_unspecified and not host.is_loopback


def options_of(settings: DndmSettings) -> Options:
    return Options(
        settings.me,
        settings.dial,
        strict=settings.strict,
        discover=settings.discover,
        backlog=settings.backlog,
        routes=settings.routes,
        links=settings.links,
    )


_METAVARS = {
    "socket": "PATH", "listen": "URL", "dial": "URL", "bus": "NAME", "address": "URL", "accept": "NETWORKS",
    "discover": "NETWORKS", "strict": "BOOL", "metrics": "ADDRESS", "log_level": "LEVEL", "log_format": "FORMAT",
}  # fmt: skip

DESCRIPTION = """\
Join this bus with robots, boards and programs that speak DNDM, over TCP, UDP
and serial lines: the route Image@cam.front is the channel dndm/cam/front/Image
here, and a message on it is the protobuf message alone.

A robot sends what somebody listens to, here or at another peer, and gets what
is published here on routes that it has an interest in. Each message arrives at
most once, and those of one connection in order. Peers and the daemon may come
and go: adverts and subscriptions are then sent again. A peer that reads too
slowly loses messages, which are counted, and nobody else does. Peers are
trusted, unless strict; by default only this host's may connect. Messages too
long for a datagram of the segment go to other peers, and to programs of this
host on local/dndm/...
"""
EPILOG = f"""\
Each flag is also a setting of the table [{TABLE}] of the file, with _ for -,
and a variable, such as {PREFIX}DIAL. Flags win over variables, and these
over the file. Commas separate URLs and networks.

examples:
  bccnd-dndm --dial tcp://192.168.1.100:8080
  bccnd-dndm --listen tcp://192.168.1.1:5420 --accept 192.168.1.0/24
  bccnd-dndm --dial 'serial:///dev/ttyUSB0/arm?baud=115200'

signals: SIGHUP reads the settings again, SIGTERM and SIGINT end it

exit codes: 0 done, 1 internal fault, 2 wrong settings or usage, 4 refused,
            5 address taken, 7 out of memory"""

PROGRAM = OneTable("bccnd-dndm", DndmSettings, TABLE, PREFIX, DEFAULT_FILE, DESCRIPTION, EPILOG, _METAVARS)
command_line, load, effective = PROGRAM.command_line, PROGRAM.load, PROGRAM.effective


def doubts(settings: DndmSettings) -> Iterator[tuple[str, str]]:
    """Settings that are sound but perhaps not intended, each with what to do."""
    far = [url for url in settings.listen if not url.startswith("serial:") and not _is_of_this_host(url)]
    if far and not settings.strict and settings.accept == EVERYWHERE:
        yield f"whoever reaches {far[0]} is trusted", "name networks in accept, or set strict"
    if not settings.listen and not settings.dial:
        yield "no peer can come, and none is dialled", "give listen or dial"
    for url in (*settings.listen, *settings.dial):
        if unknown := _unknown(peers.parse(url)):
            yield f"{url} sets what a line does not have: {', '.join(unknown)}", f"it has {', '.join(LINE)}"
    if settings.strict and settings.discover:
        yield "not used with strict: discover", "remove it"


def _unknown(peer: Peer) -> list[str]:
    """Parameters of a serial line that have no effect."""
    return [name for name, _ in peer.params if name not in LINE] if peer.scheme == "serial" else []


def _is_of_this_host(url: str) -> bool:
    host = _host(peers.parse(url))
    return host is not None and bool(host.is_loopback)


def applicable(running: DndmSettings, wanted: DndmSettings) -> tuple[DndmSettings, list[str], list[str]]:
    """As ``OneTable.applicable``."""
    return PROGRAM.applicable(running, wanted, FIXED)
