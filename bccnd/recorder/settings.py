"""Settings of ``bccnd-record``: flags, and variables BCCND_RECORD_* in the environment. Flags win.

A value is right or refused, never guessed or clipped. Each mistake is one line that names the flag or the variable.
This module needs only pydantic: ``--help`` and the manual need neither pyarrow nor a daemon.
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, field_validator

from bccnd import __version__
from bccnd.errors import ConfigError
from bccnd.process.configuration import SettingsLine, one_line, problem
from bccnd.process.settings import SOCKET_PATH_LIMIT, LogFormat, LogLevel, MetricsAddress, ProgramSettings

PREFIX = "BCCND_RECORD_"
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB}


def _size(value: object) -> object:
    found = re.fullmatch(r"(\d{1,15})([KMG]?)", value, re.ASCII) if isinstance(value, str) else None
    if isinstance(value, str) and not found:
        raise ValueError("must be a number of bytes, such as 500000, 64M or 10G")
    return int(found[1]) * _UNITS[found[2]] if found else value


def _whole(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"\d{1,15}", value, re.ASCII):
        raise ValueError("must be a whole number")
    return int(value) if isinstance(value, str) else value


Bytes = Annotated[int, BeforeValidator(_size)]
Whole = Annotated[int, BeforeValidator(_whole)]


class RecorderSettings(ProgramSettings):
    """All settings of one recorder, immutable."""

    socket: str = Field(description="the daemon's socket: a path or @NAME (default: where bccn finds it)")
    output: Path = Field(description="directory for the recorded files; created if missing")
    rotate_seconds: Whole = Field(
        default=30,
        ge=1,
        le=3600,
        description="seconds after which a file is finished; a crash loses at most this much",
    )
    rotate_bytes: Bytes = Field(
        default=128 * MIB, ge=MIB, le=4 * GIB, description="bytes after which a file is finished"
    )
    keep_bytes: Bytes = Field(
        default=10 * GIB,
        ge=2 * MIB,
        le=1 << 50,
        description="bytes of this host's files to keep; the oldest file goes first",
    )
    keep_days: Whole = Field(default=7, ge=1, le=36_500, description="days to keep files")
    buffer_bytes: Bytes = Field(
        default=64 * MIB,
        ge=8 * MIB,
        le=64 * GIB,
        description="bytes of memory for what the disk has not taken yet",
    )
    payloads: Literal["all", "none"] = Field(
        default="all",
        description="all, or none: what was sent and lost, in a tenth of the bytes; only heartbeats keep theirs",
    )
    metrics: MetricsAddress = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"

    @field_validator("socket")
    @classmethod
    def _usable_socket(cls, value: str) -> str:
        if not value or not value.isprintable() or len(value.encode()) > SOCKET_PATH_LIMIT:
            raise ValueError(f"must be a path or @NAME of 1 to {SOCKET_PATH_LIMIT} bytes")
        return value

    @field_validator("output", mode="before")
    @classmethod
    def _usable_output(cls, value: object) -> object:
        if not value or "\0" in str(value):
            raise ValueError("must be the path of a directory")
        return value

    @field_validator("keep_bytes")
    @classmethod
    def _room_for_two(cls, value: int, info: Any) -> int:
        rotate = info.data.get("rotate_bytes", 0)
        if value < 2 * rotate:
            raise ValueError(f"must be at least twice --rotate-bytes, which is {rotate}")
        return value


METAVARS = {
    "socket": "PATH",
    "output": "DIR",
    "payloads": "WHICH",
    "metrics": "ADDRESS",
    "log_level": "LEVEL",
    "log_format": "FORMAT",
    "rotate_bytes": "BYTES",
    "keep_bytes": "BYTES",
    "buffer_bytes": "BYTES",
}

DESCRIPTION = """\
Record what this host sends, receives and rejects as Parquet files, in folders
by date and host. The recorder needs the right to tap.
"""
EPILOG = """\
Each flag can also be set by a variable, such as BCCND_RECORD_OUTPUT or
BCCND_RECORD_KEEP_BYTES; the flag wins. Bytes can be given as 64M or 10G.

examples:
  bccnd-record --output /var/lib/bccnd-record
  bccnd-record --output /data/bccn --keep-bytes 100G --keep-days 30

exit codes: 0 done, 1 internal fault, 2 wrong settings or usage, 4 refused,
            5 another process records there, or the address is taken"""


@dataclass(frozen=True, slots=True)
class Invocation:
    settings: RecorderSettings
    check_only: bool


def command_line() -> argparse.ArgumentParser:
    """The parser. It leaves values as text, which ``RecorderSettings`` checks."""
    parser = SettingsLine(
        prog="bccnd-record",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80),
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for name, field in RecorderSettings.model_fields.items():
        default = (
            "" if field.is_required() or not field.default else f" (default: {_shown(name, field.default)})"
        )
        parser.add_argument(
            _flag(name),
            metavar=METAVARS.get(name, "N"),
            help=f"{field.description}{default}".replace("%", "%%"),
        )
    parser.add_argument(
        "--check", action="store_true", default=False, help="check the settings, print them and exit"
    )
    parser.add_argument("--version", action="version", version=f"bccnd-record {__version__}")
    return parser


def load(argv: Sequence[str], environ: Mapping[str, str], default_socket: str) -> Invocation:
    """Raises ``ConfigError`` with a line per mistake, and ``SystemExit`` for --help and --version."""
    given: dict[str, Any] = vars(command_line().parse_args(argv))
    check_only = given.pop("check")
    variables = {PREFIX + name.upper(): name for name in RecorderSettings.model_fields}
    unknown = [name for name in environ if name.startswith(PREFIX) and name not in variables]
    if unknown:
        raise ConfigError("\n".join(one_line(f"{name}: unknown setting") for name in sorted(unknown)))
    origins = {name: variable for variable, name in variables.items() if variable in environ}
    origins |= {name: _flag(name) for name in given}
    values = {name: environ[origin] for name, origin in origins.items() if origin in environ} | given
    values.setdefault("socket", default_socket)
    try:
        return Invocation(RecorderSettings(**values), check_only)
    except ValidationError as error:
        raise ConfigError(_explain(error, origins)) from None


def effective(settings: RecorderSettings) -> str:
    """The settings as variables, a line each."""
    return "\n".join(f"{PREFIX}{name.upper()}={_shown(name, value)}" for name, value in settings)


def _explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    lines = []
    for detail in error.errors(include_url=False):
        name = str(detail["loc"][0])
        rule = "must be given" if detail["type"] == "missing" else problem(name, detail, ())
        lines.append(one_line(f"{origins.get(name, _flag(name))}: {rule}"))
    return "\n".join(lines)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(name: str, value: object) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        for unit in ("G", "M"):
            if value % _UNITS[unit] == 0:
                return f"{value // _UNITS[unit]}{unit}"
    return str(value)
