"""Settings of ``bccnd-backbone``: flags, variables BCCND_BACKBONE_* and the table ``[backbone]`` of a TOML file.

``load`` is called again for a reload (``bccnd/process/one_table.py``).
"""

import re
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator

from bccnd.errors import ConfigError
from bccnd.process.one_table import OneTable
from bccnd.process.settings import LogFormat, LogLevel, MetricsAddress, ProgramSettings, whole

PREFIX = "BCCND_BACKBONE_"
TABLE = "backbone"
DEFAULT_FILE = Path("/etc/bccnd/backbone.toml")

# A reload leaves these as they were; a replacement (SIGUSR2) keeps the socket and the state file as well.
FIXED = ("listen", "state", "buffer_bytes")

MIB = 1 << 20


def _network(value: object) -> object:
    if not isinstance(value, str | IPv4Network):
        raise ValueError("must be an IPv4 network, such as 10.1.0.0/16")
    try:
        return IPv4Network(value)
    except ValueError:
        raise ValueError("must be an IPv4 network without host bits, such as 10.1.0.0/16") from None


Network = Annotated[IPv4Network, BeforeValidator(_network)]
EVERYWHERE = (IPv4Network("0.0.0.0/0"),)


class BackboneSettings(ProgramSettings):
    """All settings of one backbone, immutable."""

    listen: str = Field(
        description="IPv4 address and UDP port to receive at and send from, such as 0.0.0.0:4900; port 0: any that "
        "is free"
    )
    state: Path | None = Field(
        default=None,
        description="file that keeps how far sequence numbers have come; without it they begin at 1 after each start",
    )
    publish: tuple[Network, ...] = Field(
        default=EVERYWHERE, max_length=64, description="networks from which a PUSH is taken"
    )
    subscribe: tuple[Network, ...] = Field(
        default=EVERYWHERE, max_length=64, description="networks whose hosts may be subscribers"
    )
    request: tuple[Network, ...] = Field(
        default=EVERYWHERE, max_length=64, description="networks from which a REQUEST is taken"
    )
    redirect: tuple[Network, ...] = Field(
        default=(),
        max_length=64,
        description="networks whose hosts may name another address than their own in ADDR and PORT, and so have "
        "traffic sent there",
    )
    strangers: bool = Field(
        default=True,
        strict=True,
        description="take a PUSH or REQUEST from senders without a KEEPALIVE in the last 5 seconds",
    )
    key_file: Path | None = Field(
        default=None, description="keys, one a line; the TOKEN of a KEEPALIVE must prove one of them"
    )
    subscribers: int = whole(1024, 1, 1024, "most subscribers")
    network_subscribers: int = whole(256, 1, 1024, "most subscribers of a network of 256 addresses")
    address_subscribers: int = whole(64, 1, 1024, "most subscribers of one address")
    range: int = whole(256, 1, 65_536, "most numbers that one FORWARD asks for")
    requests: int = whole(1000, 1, 1_000_000, "most REQUESTs of one address in a second")
    numbers: int = whole(
        65_536, 1, 1 << 30, "most numbers that the REQUESTs of one address ask for in a second"
    )
    pushes: int = whole(0, 0, 1 << 30, "most messages of one address in a second; 0: no limit")
    buffer_bytes: int = whole(
        4 * MIB, 64 << 10, 1 << 30, "bytes that the kernel may hold for the socket, in each direction"
    )
    metrics: MetricsAddress = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"

    @field_validator("listen")
    @classmethod
    def _address_and_port(cls, value: str) -> str:
        host, _, port = value.rpartition(":")
        try:
            IPv4Address(host)
            sound = re.fullmatch(r"[0-9]{1,5}", port) and int(port) < 65_536
        except ValueError:
            sound = False
        if not sound:
            raise ValueError("must be an IPv4 address and a port, such as 0.0.0.0:4900")
        return value

    @property
    def endpoint(self) -> tuple[str, int]:
        host, _, port = self.listen.rpartition(":")
        return host, int(port)


_METAVARS = {
    "listen": "ADDR:PORT", "state": "FILE", "key_file": "FILE", "strangers": "BOOL", "metrics": "ADDRESS",
    "log_level": "LEVEL", "log_format": "FORMAT", "publish": "NETWORKS", "subscribe": "NETWORKS",
    "request": "NETWORKS", "redirect": "NETWORKS",
}  # fmt: skip

DESCRIPTION = """\
Number the messages of all clients and send each to every subscriber: the
backbone of the fyrehose protocol, over UDP and IPv4.

Each KEEPALIVE is acknowledged with its TOKEN, and makes its sender a
subscriber for 5 seconds. A message gets the next sequence number, once, and
is sent to all subscribers, its sender among them; nothing is sent again. A
REQUEST goes to one subscriber, chosen at random, that may keep what is
missing; without one, nobody answers. Traffic goes only to addresses that asked
for it themselves, as long as nobody can forge addresses there.
"""
EPILOG = f"""\
Each flag is also a setting of the table [{TABLE}] of the file, with _ for -,
and a variable, such as {PREFIX}LISTEN. Flags win over variables, and
these over the file. Commas separate networks.

examples:
  bccnd-backbone --listen 10.1.0.1:4900 --state /var/lib/backbone.state
  bccn backbone status fyrehose://10.1.0.1:4900

signals: SIGHUP reads the settings again, SIGUSR2 starts a new program in
         place of this one, SIGTERM and SIGINT end it

exit codes: 0 done, 1 internal fault, 2 wrong settings or usage, or a damaged
            state file, 4 refused, 5 address or state file taken,
            7 out of memory"""


PROGRAM = OneTable(
    "bccnd-backbone", BackboneSettings, TABLE, PREFIX, DEFAULT_FILE, DESCRIPTION, EPILOG, _METAVARS
)
FILE_VARIABLE = PROGRAM.file_variable
command_line, load, effective = PROGRAM.command_line, PROGRAM.load, PROGRAM.effective


def applicable(
    running: BackboneSettings, wanted: BackboneSettings
) -> tuple[BackboneSettings, list[str], list[str]]:
    """As ``OneTable.applicable``.

    Raises ``ConfigError`` when the keys would go: the file may have been emptied by mistake.
    """
    if running.key_file and not wanted.key_file:
        raise ConfigError(
            "key_file: is not set any more, so anybody could subscribe; restart if that is meant"
        )
    return PROGRAM.applicable(running, wanted, FIXED)
