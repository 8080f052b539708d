"""Settings of ``bccnd-uplink``: flags, variables BCCND_UPLINK_* and the table ``[uplink]`` of a TOML file.

``load`` is called again for a reload (``bccnd/process/one_table.py``).
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from bccnd.errors import ConfigError
from bccnd.process.one_table import OneTable
from bccnd.process.settings import (
    BusSocket,
    LogFormat,
    LogLevel,
    MetricsAddress,
    ProgramSettings,
    PublishPattern,
    SegmentName,
    whole,
)
from bccnd.uplink.exports import NEVER

PREFIX = "BCCND_UPLINK_"
TABLE = "uplink"
DEFAULT_FILE = Path("/etc/bccnd/uplink.toml")

# A reload leaves these, and the settings of a carrier, as they were: they define the link, and what it keeps.
FIXED = ("carrier", "name", "socket", "journal", "backbone_key_file", "keepalive")
# Settings of one carrier only.
_BACKBONE, _NATS = ("backbone_key_file", "keepalive"), ("nats_",)

MIB = 1 << 20
# Each is compared with every new channel.
PATTERNS_LIMIT = 256
RATES_LIMIT = 64

# A host, or an address of IPv6.
_HOST = r"[A-Za-z0-9.-]+|\[[0-9a-fA-F:.]+\]"
_URLS = {
    "fyrehose": re.compile(r"fyrehose://[A-Za-z0-9.-]+:[0-9]{1,5}/?"),
    "nats": re.compile(rf"(?:nats|tls)://(?:{_HOST})(?::[0-9]{{1,5}})?(?:,(?:{_HOST})(?::[0-9]{{1,5}})?)*/?"),
}


def _carried(pattern: str) -> str:
    if pattern.encode().startswith(NEVER):
        raise ValueError(f"is never carried: {b', '.join(NEVER).decode()} stay in their segment")
    return pattern


def _number(value: object) -> object:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


Pattern = Annotated[PublishPattern, AfterValidator(_carried)]
Number = Annotated[float, BeforeValidator(_number)]


class Rate(BaseModel):
    """Most messages that are carried, of all channels together that match ``pattern``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pattern: Pattern
    per_second: Number = Field(ge=0.001, le=1e6, strict=True)
    burst: int = Field(default=1, ge=1, le=1_000_000, strict=True)


def _patterns(description: str, alias: str | None = None) -> Any:
    return Field(default=(), max_length=PATTERNS_LIMIT, description=description, alias=alias)


class UplinkSettings(ProgramSettings):
    """All settings of one uplink, immutable."""

    carrier: str = Field(
        description="the carrier: fyrehose://HOST:PORT, nats://HOST:PORT[,HOST:PORT...] or tls:// for NATS"
    )
    name: SegmentName = Field(description="name of this segment, different from all others")
    socket: BusSocket = ""
    export: tuple[Pattern, ...] = _patterns(
        "patterns of channels to send to other segments; !> and such for directed ones"
    )
    import_: tuple[Pattern, ...] = _patterns(
        "patterns of channels to take from other segments", alias="import"
    )
    rate: tuple[Rate, ...] = Field(
        default=(), max_length=RATES_LIMIT, description="most messages a second on the channels of a pattern"
    )
    local_names: bool = Field(
        default=False,
        strict=True,
        description="also take messages of other segments under the name of a host of this one",
    )
    retained: bool = Field(
        default=False,
        strict=True,
        description="also send the last values that the daemon keeps, each time the uplink connects to it",
    )
    key_file: Path | None = Field(
        default=None, description="keys of the link, one a line: the first signs, all verify"
    )
    backbone_key_file: Path | None = Field(
        default=None, description="keys of the fyrehose backbone; the uplink proves that it has the first"
    )
    keepalive: Number = Field(
        default=0.5,
        ge=0.1,
        le=1.0,
        strict=True,
        description="seconds between two KEEPALIVE packets to a fyrehose backbone",
    )
    nats_stream: str = Field(
        default="bccn", description="NATS stream, whose name its subjects also begin with"
    )
    nats_replicas: int = whole(0, 0, 5, "copies of a new stream; 0: 3 in a cluster, else 1")
    nats_bytes: int = whole(1 << 30, MIB, 1 << 50, "bytes that a new stream keeps")
    nats_seconds: int = whole(86_400, 1, 366 * 86_400, "seconds for which a new stream keeps a message")
    nats_credentials: Path | None = Field(default=None, description="credentials for NATS: a .creds file, or")
    nats_user: str = Field(default="", description="a user, with")
    nats_password_file: Path | None = Field(default=None, description="a file with the password, or")
    nats_token_file: Path | None = Field(default=None, description="a file with a token")
    nats_ca_file: Path | None = Field(
        default=None,
        description="certificates (PEM) to verify the NATS servers with; none: the system's",
    )
    nats_cert_file: Path | None = Field(default=None, description="own certificate (PEM) for NATS, with")
    nats_key_file: Path | None = Field(default=None, description="its key (PEM)")
    journal: Path | None = Field(
        default=None,
        description="file that keeps what the carrier has not taken, and how far other uplinks were heard; "
        "without it both are lost with the process",
    )
    journal_bytes: int = whole(
        64 * MIB, MIB, 1 << 40, "bytes that may wait for the carrier; the oldest go first"
    )
    journal_seconds: int = whole(3600, 1, 30 * 86_400, "seconds that a message may wait for the carrier")
    hold_bytes: int = whole(
        16 * MIB, MIB, 1 << 32, "bytes of messages that may wait for a lost one before them"
    )
    metrics: MetricsAddress = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"

    @field_validator("carrier")
    @classmethod
    def _known_carrier(cls, value: str) -> str:
        if not any(url.fullmatch(value) for url in _URLS.values()):
            if "@" in value:
                raise ValueError("must have no user in it: nats_user and nats_password_file say who this is")
            raise ValueError("must be fyrehose://HOST:PORT, nats://HOST:PORT or tls://HOST:PORT")
        if any(int(port) not in range(1, 65_536) for port in re.findall(r":([0-9]+)", value)):
            raise ValueError("must have a port from 1 to 65535")
        return value

    @property
    def directed(self) -> bool:
        """Whether directed messages are carried either way, as replies to requests are."""
        return any(pattern.startswith("!") and pattern != "!" for pattern in self.export + self.import_)

    @property
    def medium(self) -> str:
        """Which carrier it is: ``fyrehose`` or ``nats``."""
        return next(name for name, url in _URLS.items() if url.fullmatch(self.carrier))


_METAVARS = {
    "carrier": "URL", "name": "NAME", "socket": "PATH", "export": "PATTERNS", "import": "PATTERNS",
    "local_names": "BOOL", "retained": "BOOL",
    "key_file": "FILE", "backbone_key_file": "FILE", "keepalive": "S", "nats_stream": "NAME",
    "nats_credentials": "FILE", "nats_user": "NAME", "nats_password_file": "FILE", "nats_token_file": "FILE",
    "nats_ca_file": "FILE", "nats_cert_file": "FILE", "nats_key_file": "FILE", "journal": "FILE",
    "metrics": "ADDRESS", "log_level": "LEVEL", "log_format": "FORMAT",
}  # fmt: skip

DESCRIPTION = """\
Carry chosen channels of this segment to other segments, and theirs to this
one, over a fyrehose backbone or NATS JetStream.

Only channels that export names leave, and only those that import names come
in. Each message keeps its source and its number. It arrives on every other
segment once and in order, as long as the carrier or the journal keeps it.
Messages that are lost for good are counted, and nobody waits for them. While
the carrier is cut off, messages wait in the journal, and the daemon does not
wait. Two uplinks on one segment carry everything twice, and it is delivered
once: either may die. Needs the right to bridge.
"""
EPILOG = f"""\
Each flag is also a setting of the table [{TABLE}] of the file, with _ for -,
and a variable, such as {PREFIX}NAME. Flags win over variables, and these
over the file. Commas separate patterns. Tables [[{TABLE}.rate]] are in the
file alone.

examples:
  bccnd-uplink --config /etc/bccnd/uplink.toml
  bccnd-uplink --carrier fyrehose://10.1.0.1:4900 --name north \\
      --export 'orders/>' --import 'rates/>' --journal /var/lib/uplink.db
  bccn links

signals: SIGHUP reads the settings again, SIGTERM and SIGINT end it

exit codes: 0 done, 1 internal fault, 2 wrong settings or usage, 4 refused,
            5 journal or address taken, 7 out of memory"""

PROGRAM = OneTable(
    "bccnd-uplink", UplinkSettings, TABLE, PREFIX, DEFAULT_FILE, DESCRIPTION, EPILOG, _METAVARS, ("rate",)
)
command_line, load, effective = PROGRAM.command_line, PROGRAM.load, PROGRAM.effective


def doubts(settings: UplinkSettings) -> Iterator[tuple[str, str]]:
    """Settings that are sound but perhaps not intended, each with what to do."""
    if not settings.export and not settings.import_:
        yield "nothing is carried", "name channels in export and import"
    elif not settings.directed:
        yield "no directed messages are carried: requests get no reply", 'name "!>" in export and import'
    if not settings.key_file:
        yield "no key: whoever reaches the carrier can send under any name", "key_file"
    if unused := _of_another_carrier(settings):
        yield f"not used by this carrier: {', '.join(unused)}", "remove them, or name another carrier"
    if settings.journal is None:
        yield "no journal: what waits is lost with the process", "journal"
    elif not os.path.isdir(settings.journal.parent):  # noqa: PTH112 - of pathlib it raises without the right to look
        yield (
            f"no folder for the journal: {settings.journal.parent}",
            "make it; a unit of systemd may, as it starts",
        )


def _of_another_carrier(settings: UplinkSettings) -> list[str]:
    """Settings that were changed and have no effect, since they belong to another carrier."""
    others = _BACKBONE if settings.medium == "nats" else _NATS
    return [name for name in settings.model_dump(exclude_defaults=True) if name.startswith(others)]


def applicable(
    running: UplinkSettings, wanted: UplinkSettings
) -> tuple[UplinkSettings, list[str], list[str]]:
    """As ``OneTable.applicable``.

    Raises ``ConfigError`` when the keys of the link would go: the file may have been emptied by mistake.
    """
    if running.key_file and not wanted.key_file:
        raise ConfigError("key_file: is not set any more, so anybody could send; restart if that is meant")
    fixed = {*FIXED, *(name for name in UplinkSettings.model_fields if name.startswith("nats_"))}
    return PROGRAM.applicable(running, wanted, fixed)
