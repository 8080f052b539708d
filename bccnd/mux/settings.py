"""Settings of ``bccnd-mux``: flags, variables BCCND_MUX_* and the table ``[mux]`` of a TOML file.

``load`` is called again for a reload (``bccnd/process/one_table.py``).
"""

import re
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from bccnd.process.one_table import OneTable
from bccnd.process.settings import (
    SOCKET_PATH_LIMIT,
    BusSocket,
    GroupId,
    LogFormat,
    LogLevel,
    MetricsAddress,
    Octal,
    ProgramSettings,
    UserId,
    whole,
)

PREFIX = "BCCND_MUX_"
TABLE = "mux"
DEFAULT_FILE = Path("/etc/bccnd/mux.toml")

# A reload leaves these as they were: they say where the door listens.
FIXED = ("socket", "listen", "socket_mode", "web")

UNIX, TLS = "unix:", "tls://"

# Users of certificates, and gids of each: the daemon takes no more gids.
USERS_LIMIT = 1024
GROUPS_LIMIT = 1024


def _listen(value: str) -> str:
    if value.startswith(TLS):
        return TLS + address(value.removeprefix(TLS))
    path = value.removeprefix(UNIX)
    if not value.startswith(UNIX) or not path.startswith("/") or not path.isprintable():
        raise ValueError("must be unix:PATH, with a path from /, or tls://ADDR:PORT")
    if len(path.encode()) > SOCKET_PATH_LIMIT:
        raise ValueError(f"has a path of more than {SOCKET_PATH_LIMIT} bytes")
    return value


def address(value: str) -> str:
    """Parse ADDR:PORT. Raises ``ValueError``."""
    host, _, port = value.rpartition(":")
    try:
        if host.startswith("["):
            IPv6Address(host.strip("[]"))
        else:
            IPv4Address(host)
        sound = re.fullmatch(r"[0-9]{1,5}", port) and int(port) < 65_536
    except ValueError:
        sound = False
    if not sound:
        raise ValueError("must have an IP address, no name, and a port, such as 127.0.0.1:8470 or [::1]:8470")
    return value


Listen = Annotated[str, AfterValidator(_listen)]


class Certified(BaseModel):
    """A peer with a certificate of this ``name`` acts as this user, with these groups, the primary one first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=255)
    user: UserId
    groups: tuple[GroupId, ...] = Field(min_length=1, max_length=GROUPS_LIMIT)


class Bearer(BaseModel):
    """A peer that sends a token of this ``file`` acts as this user, with these groups, and is called ``name``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=32)
    file: Path
    user: UserId
    groups: tuple[GroupId, ...] = Field(min_length=1, max_length=GROUPS_LIMIT)


def _web(value: str) -> str:
    return address(value) if value else value


class MuxSettings(ProgramSettings):
    """All settings of one door, immutable."""

    socket: BusSocket = ""
    listen: tuple[Listen, ...] = Field(
        default=(),
        max_length=16,
        description="where programs connect: unix:PATH or tls://ADDR:PORT; may be given several times",
    )
    socket_mode: Octal = Field(
        default="0660", description="mode of the file at each unix:PATH, in octal: who may connect"
    )
    certificate: Path | None = Field(
        default=None, description="certificate (PEM) that the door shows, for TLS"
    )
    key: Path | None = Field(default=None, description="key (PEM) of that certificate")
    authorities: Path | None = Field(
        default=None, description="certificates (PEM) of the authorities that sign the peers' certificates"
    )
    peers: tuple[Certified, ...] = Field(
        default=(), max_length=USERS_LIMIT, description="the user of each certificate"
    )
    web: Annotated[str, AfterValidator(_web)] = Field(
        default="",
        validate_default=True,
        description="serve the page at ADDR:PORT, and WebSocket at its path /bus; with TLS if there is a certificate",
    )
    tokens: tuple[Bearer, ...] = Field(
        default=(), max_length=USERS_LIMIT, description="the user of each token that is sent there"
    )
    hosts: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description="names under which browsers may reach the door, besides ADDR:PORT",
    )
    origins: tuple[str, ...] = Field(
        default=(),
        max_length=64,
        description="sites whose pages may connect, such as https://board.example.org",
    )
    web_publish: bool = Field(
        default=False,
        strict=True,
        description="whether the page has a box to publish with; rights decide what a token may publish",
    )
    connections: int = whole(1024, 1, 1 << 20, "most connections at a time")
    user_connections: int = whole(256, 1, 1 << 20, "most connections of one user at a time")
    sessions: int = whole(
        4096, 1, 1 << 20, "most sessions, streams and requests at a time; each is a client of the daemon"
    )
    recorded: Path | None = Field(default=None, description="folder of this host's recorder, for REPLAY")
    metrics: MetricsAddress = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"

    @field_validator("web")
    @classmethod
    def _is_entered(cls, value: str, info: ValidationInfo) -> str:
        if not value and info.data.get("listen") == ():
            raise ValueError("give this or --listen, or nobody can connect")
        return value

    @property
    def has_tls(self) -> bool:
        return any(where.startswith(TLS) for where in self.listen)


_METAVARS = {
    "socket": "PATH", "listen": "ADDRESS", "socket_mode": "MODE", "metrics": "ADDRESS", "log_level": "LEVEL",
    "log_format": "FORMAT", "certificate": "FILE", "key": "FILE", "authorities": "FILE", "recorded": "FOLDER",
    "web": "ADDR:PORT", "hosts": "NAMES", "origins": "URLS", "web_publish": "true|false",
}  # fmt: skip

DESCRIPTION = """\
Connect programs that cannot open the daemon's socket: many sessions over one
connection, and a slow session does not hold up the others (bpmux).

Each session is a client of the daemon, with the rights of the user behind the
connection. When the daemon restarts, sessions end and connections stay.
"""
EPILOG = f"""\
Each flag is also a setting of the table [{TABLE}] of the file, with _ for -,
and a variable, such as {PREFIX}LISTEN. Flags win over variables, and
these over the file. Commas separate addresses.

examples:
  bccnd-mux --listen unix:/run/bccnd/mux.sock
  bccnd-mux --listen tls://10.0.0.1:5401 --config mux.toml
  bccnd-mux --web 127.0.0.1:8470

signals: SIGHUP reads the settings again, SIGTERM and SIGINT end it

exit codes: 0 done, 1 internal fault, 2 wrong settings or usage, 4 refused,
            5 address taken, 7 out of memory"""


PROGRAM = OneTable(
    "bccnd-mux", MuxSettings, TABLE, PREFIX, DEFAULT_FILE, DESCRIPTION, EPILOG, _METAVARS, ["peers", "tokens"]
)
command_line, load, effective = PROGRAM.command_line, PROGRAM.load, PROGRAM.effective


def applicable(running: MuxSettings, wanted: MuxSettings) -> tuple[MuxSettings, list[str], list[str]]:
    """As ``OneTable.applicable``."""
    return PROGRAM.applicable(running, wanted, FIXED)
