"""``bccn-pcap``: tcpdump captures of BCCN traffic as recorded rows, for hosts that have no recorder.

    spark.read.format("bccn-pcap").option("port", 5400).load("captures/*.pcap")

Captures are pcap or pcapng, gzipped or not, of any link type that ``bccnd.wire.udp`` knows. A path is a file, a
folder (all that it and those below it hold but dot-files) or a glob, where the driver and all executors see the same.

    port   of the segment, default 5400; datagrams to other ports are rows, too, where they begin as BCCN's do
    host   whose capture it is; default: from ``host=NAME/`` in the path, else the file's name up to ``.pcap``
    keys   a key file: hmac is required and checked, as in the daemon; without it, what cannot be checked is ``ok``
    mode   ``permissive`` (default): of a broken or cut capture what can be read is given, then a row ``broken``, a
           mark with the reason as payload; ``failfast``: it is an error

Rows are as recorded (``rows``), and have the column ``file``. ``captures`` and ``broken`` are what ingestion takes.

A file is a partition, and read as a stream: memory is a chunk, a batch of rows and one packet. Its first row is
``opened``, at the time of the first packet of whatever kind, and its last ``closed``: for that time, whoever is not
in it was not heard. Packets that the capture says were lost before one are an ``unrecorded`` row.

Direction: what a capture says by itself (pcapng flags, Linux cooked headers, the comments of ``bccn dump -w``); else
``out`` for a src that is the host or begins ``host/``, as the daemon names its programs, else ``in``. A
datagram of which only the beginning was captured has the verdict ``cut``; what only a daemon sees, such as
``duplicate`` or ``late``, only ``bccn dump`` can have noted.
"""

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import has_magic
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bccnd.errors import CaptureError, ConfigError
from bccnd.pipeline.layout import RECORDED
from bccnd.pipeline.source import rows as recorded
from bccnd.pipeline.source.rows import Row, mark
from bccnd.pipeline.times import moment
from bccnd.process.keys import read_keys
from bccnd.recorder.layout import DAY_NS, Direction, Mark
from bccnd.wire import pcap
from bccnd.wire.bccn1 import Integrity, Level
from bccnd.wire.udp import UdpDatagram

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "bccn-pcap"
ROWS = f"{recorded.ROWS}, file string"
COLUMNS = [column.split()[0] for column in RECORDED.split(", ")]
PORT = 5400
CHUNK = 1 << 18  # bytes of a file at a time
CUT, OWN = "cut", "own"

_GZIP = b"\x1f\x8b"
_SUFFIX = re.compile(
    r"\.(p?cap(ng)?|dmp)\d*(\.|$).*", re.IGNORECASE
)  # tcpdump numbers the files that it rotates
_COMMENT = re.compile(r"bccnd (in|out|local) ([a-z0-9-]{1,32})")
_DIRECTIONS = {pcap.Direction.IN: Direction.IN.value, pcap.Direction.OUT: Direction.OUT.value}
_COOKED = {113: slice(0, 2), 276: slice(10, 11)}  # where "cooked" headers say the type of the packet
_COOKED_OUT = 4  # sent by us; all others came in


def captures(spark: "SparkSession", paths: str | Sequence[str], **options: str | int) -> "DataFrame":
    """The rows of captures as ``RECORDED``, and (file); those ``broken`` among them; see ``broken``."""
    rows = spark.read.format(FORMAT).options(**options).load([paths] if isinstance(paths, str) else [*paths])
    date = F.date_format(moment("time_ns"), "yyyy-MM-dd")
    return rows.withColumn("date", date).select(*COLUMNS, "file")


def broken(rows: "DataFrame") -> "DataFrame":
    """``REJECTED_FILES``: the captures that could be read in part or not at all, out of ``captures``."""
    return rows.where((F.col("direction") == Direction.MARK) & (F.col("verdict") == recorded.BROKEN)).select(
        F.col("file").alias("path"), F.col("payload").cast("string").alias("reason")
    )


class CaptureSource(DataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ROWS

    def reader(self, schema: "StructType") -> "CaptureReader":
        return CaptureReader(Settings.of(self.options), schema.names)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options, checked."""

    paths: tuple[str, ...]
    port: int = PORT
    host: str = ""
    keys: str = ""
    failfast: bool = False

    @classmethod
    def of(cls, options: Any) -> "Settings":
        """From Spark's own mapping, whose keys know no case. Raises ``ConfigError``."""
        several = json.loads(options.get("paths", "[]"))
        port = str(options.get("port", PORT))
        mode = options.get("mode", "permissive").lower()
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f"{FORMAT}: port {port}: must be 1 to 65535")
        if mode not in ("permissive", "failfast"):
            raise ConfigError(f"{FORMAT}: mode {mode}: must be permissive or failfast")
        paths = tuple(filter(None, [options.get("path"), *several]))
        if not paths:
            raise ConfigError(f"{FORMAT}: no path: say which captures, .load(PATH)")
        return cls(paths, int(port), options.get("host", ""), options.get("keys", ""), mode == "failfast")


@dataclass(frozen=True)
class CaptureFile(InputPartition):
    path: str


class CaptureReader(DataSourceReader):
    def __init__(self, settings: Settings, columns: Sequence[str]) -> None:
        self._settings = settings
        self._columns = list(columns)

    def partitions(self) -> list[CaptureFile]:
        if self._settings.keys:
            read_keys(Path(self._settings.keys))  # a wrong one ends it here, once
        return [CaptureFile(path) for path in files_of(self._settings.paths)]

    def read(self, partition: CaptureFile) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        rows: list[Row] = []
        for row in rows_of(partition.path, self._settings):
            rows.append(row)
            if len(rows) >= recorded.BATCH_ROWS:
                yield self._batch(rows, partition.path)
                rows = []
        if rows:
            yield self._batch(rows, partition.path)

    def _batch(self, rows: list[Row], path: str) -> pa.RecordBatch:
        batch = recorded.batch_of(rows)
        return batch.append_column("file", pa.repeat(path, len(rows))).select(self._columns)


def files_of(paths: Sequence[str]) -> list[str]:
    """The captures that ``paths`` name, sorted, each once. Raises ``ConfigError`` for a path that is none."""
    found: set[str] = set()
    for path in paths:
        url = urlsplit(path)
        if url.scheme not in ("", "file"):
            raise ConfigError(
                f"{FORMAT}: {path}: only paths of a file system that all executors have mounted"
            )
        local = unquote(url.path) if url.scheme else path
        named = _matching(Path(local).absolute())
        if not named:
            raise ConfigError(f"{FORMAT}: {path}: no such file or folder")
        for each in named:
            found.update(_files_below(each))
    return sorted(found)


def _matching(path: Path) -> list[Path]:
    if path.exists():
        return [path]
    root = Path(path.anchor)
    return [*root.glob(str(path.relative_to(root)))] if has_magic(str(path)) else []


def _files_below(path: Path) -> Iterator[str]:
    if not path.is_dir():
        yield str(path.resolve())
        return
    for entry in path.iterdir():
        if not entry.name.startswith((".", "_")):  # as Spark's own readers
            yield from _files_below(entry)


def host_of(path: str) -> str:
    """Whose capture it is, as far as its path tells."""
    for part in reversed(Path(path).parts[:-1]):
        if part.startswith("host="):
            return unquote(part.removeprefix("host="))
    name = Path(path).name
    return _SUFFIX.sub("", name) or name


def rows_of(path: str, settings: Settings) -> Iterator[Row]:
    """The rows of one capture. Raises ``CaptureError`` with ``failfast`` only."""
    host = settings.host or host_of(path)
    keys = read_keys(Path(settings.keys)) if settings.keys else ()
    look = Look(host, settings.port, Integrity(keys, Level.HMAC if keys else Level.NONE))
    try:
        with _opened(path) as stream:
            yield from _stream_rows(stream, look)
    except (CaptureError, OSError, EOFError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        if settings.failfast:
            raise CaptureError(f"{path}: {reason}") from None
        yield mark(look.last_ns, host, recorded.BROKEN, payload=reason.encode())
    if look.first_ns is not None:
        yield mark(look.last_ns, host, Mark.CLOSED)


def _opened(path: str) -> gzip.GzipFile | BufferedReader:
    with Path(path).open("rb") as stream:
        zipped = stream.read(len(_GZIP)) == _GZIP
    return gzip.open(path) if zipped else Path(path).open("rb")


def _stream_rows(stream: gzip.GzipFile | BufferedReader, look: "Look") -> Iterator[Row]:
    reader = pcap.Reader()
    while chunk := stream.read1(CHUNK):  # read() would drop what stands before the cut of a gzip
        for packet in reader.feed(chunk):
            yield from look.rows(packet)
    reader.finish()


class Look:
    """At the packets of one capture, in order; remembers from when to when they are."""

    def __init__(self, host: str, port: int, integrity: Integrity) -> None:
        self._host = host
        self._port = port
        self._integrity = integrity
        self._below = f"{host}/"
        self.first_ns: int | None = None
        self.last_ns = 0
        self._midnight = 0

    def rows(self, packet: pcap.Packet) -> Iterator[Row]:
        time_ns = packet.time_ns
        if self.first_ns is None:
            self.first_ns = time_ns
            self._midnight = (time_ns // DAY_NS + 1) * DAY_NS
            yield mark(time_ns, self._host, Mark.OPENED)
        while time_ns >= self._midnight:  # nothing that is recorded spans one: rows lie in folders of days
            yield mark(self._midnight, self._host, Mark.CLOSED)
            yield mark(self._midnight, self._host, Mark.OPENED)
            self._midnight += DAY_NS
        if time_ns > self.last_ns:
            self.last_ns = time_ns
        if packet.missing:
            yield mark(time_ns, self._host, Mark.UNRECORDED, packet.missing)
        udp = UdpDatagram.parse(packet.linktype, packet.data)
        if udp is not None and (udp.target_port == self._port or udp.payload.startswith(b"BCCN")):
            yield self._row(packet, udp)

    def _row(self, packet: pcap.Packet, udp: UdpDatagram) -> Row:
        verdict, (mode, src, seq, channel, payload) = recorded.parts_of(udp.payload, self._integrity)
        if udp.cut:
            verdict = CUT
        direction = ""
        if told := packet.comment and _COMMENT.match(packet.comment):
            direction, verdict = told[1], told[2]
            if verdict == OWN:
                direction = Direction.ECHO.value
        direction = direction or self._direction(packet, src)
        peer: str | None = (
            f"[{udp.source}]:{udp.source_port}" if ":" in udp.source else f"{udp.source}:{udp.source_port}"
        )
        size = len(udp.payload) + udp.cut
        if direction == Direction.LOCAL.value:
            peer = None
        return (
            packet.time_ns, self._host, None, direction, verdict, mode, peer,
            src, seq, channel, payload, size,
        )  # fmt: skip

    def _direction(self, packet: pcap.Packet, src: str | None) -> str:
        if packet.direction:
            return _DIRECTIONS[packet.direction]
        if place := _COOKED.get(packet.linktype):
            return (
                Direction.OUT.value
                if int.from_bytes(packet.data[place]) == _COOKED_OUT
                else Direction.IN.value
            )
        ours = src is not None and (src == self._host or src.startswith(self._below))
        return Direction.OUT.value if ours else Direction.IN.value
