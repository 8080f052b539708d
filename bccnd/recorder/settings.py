"""Settings of ``bccnd-record``: flags, variables BCCND_RECORD_* and the table ``[record]`` of a TOML file.

This module needs only pydantic: ``--help`` and the manual need neither pyarrow nor a daemon.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from bccnd.process.one_table import OneTable
from bccnd.process.settings import BusSocket, LogFormat, LogLevel, MetricsAddress, ProgramSettings, whole

PREFIX = "BCCND_RECORD_"
TABLE = "record"
DEFAULT_FILE = Path("/etc/bccnd/record.toml")

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB}


def _size(value: object) -> object:
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d{1,15})([KMG]?)", value, re.ASCII)
    if not found:
        raise ValueError("must be a number of bytes, such as 500000, 64M or 10G")
    return int(found[1]) * _UNITS[found[2]]


Bytes = Annotated[int, BeforeValidator(_size)]


def _bytes(default: str, least: int, most: int, description: str) -> Any:
    """A setting that is a size. Help shows the default as it is written here."""
    return Field(
        default=default, validate_default=True, ge=least, le=most, strict=True, description=description
    )


class RecorderSettings(ProgramSettings):
    """All settings of one recorder, immutable."""

    socket: BusSocket = ""
    output: Path = Field(description="directory for the recorded files; created if missing")
    rotate_seconds: int = whole(
        30, 1, 3600, "seconds after which a file is finished; a crash loses at most this much"
    )
    rotate_bytes: Bytes = _bytes("128M", MIB, 4 * GIB, "bytes after which a file is finished")
    keep_bytes: Bytes = _bytes(
        "10G", 2 * MIB, 1 << 50, "bytes of this host's files to keep; the oldest file goes first"
    )
    keep_days: int = whole(7, 1, 36_500, "days to keep files")
    buffer_bytes: Bytes = _bytes(
        "64M", 8 * MIB, 64 * GIB, "bytes of memory for what the disk has not taken yet"
    )
    payloads: Literal["all", "none"] = Field(
        default="all",
        description="all, or none: what was sent and lost, in a tenth of the bytes; only heartbeats keep theirs",
    )
    metrics: MetricsAddress = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"

    @field_validator("output", mode="before")
    @classmethod
    def _usable_output(cls, value: object) -> object:
        if not value or "\0" in str(value):
            raise ValueError("must be the path of a directory")
        return value

    @field_validator("keep_bytes")
    @classmethod
    def _room_for_two(cls, value: int, info: ValidationInfo) -> int:
        rotate = info.data.get("rotate_bytes", 0)
        if value < 2 * rotate:
            raise ValueError(f"must be at least twice rotate_bytes, which is {rotate}")
        return value


_METAVARS = {
    "socket": "PATH", "output": "DIR", "payloads": "WHICH", "metrics": "ADDRESS", "log_level": "LEVEL",
    "log_format": "FORMAT", "rotate_bytes": "BYTES", "keep_bytes": "BYTES", "buffer_bytes": "BYTES",
}  # fmt: skip

DESCRIPTION = """\
Record what this host sends, receives and rejects as Parquet files, in folders
by date and host. The recorder needs the right to tap.
"""
EPILOG = f"""\
Each flag is also a setting of the table [{TABLE}] of the file, with _ for -,
and a variable, such as {PREFIX}OUTPUT. Flags win over variables, and
these over the file. Bytes can be given as 64M or 10G, in the file as "64M".

examples:
  bccnd-record --output /var/lib/bccnd-record
  bccnd-record --output /data/bccn --keep-bytes 100G --keep-days 30

exit codes: 0 done, 1 internal fault, 2 wrong settings or usage, 4 refused,
            5 another process records there, or the address is taken"""


PROGRAM = OneTable(
    "bccnd-record", RecorderSettings, TABLE, PREFIX, DEFAULT_FILE, DESCRIPTION, EPILOG, _METAVARS
)
command_line, load, effective = PROGRAM.command_line, PROGRAM.load, PROGRAM.effective
