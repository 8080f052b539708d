"""``bccn-pcap``: tcpdump captures of BCCN traffic as recorded rows, for hosts without a recorder.

    spark.read.format("bccn-pcap").option("port", 5400).load("captures/*.pcap")

Captures are pcap or pcapng, gzipped or not, of any link type that ``bccnd.wire.udp`` knows. A path is a file, a
folder (with everything below it except dot-files) or a glob. The driver and all executors must see the same files.

    port   the UDP port of the segment, default 5400; datagrams to other ports are rows if they begin as BCCN's do
    host   the host that captured; default: from ``host=NAME/`` in the path, else the file's name up to ``.pcap``
    keys   a key file: hmac is required and checked, as by the daemon; without it, what cannot be checked is ``ok``
    mode   ``permissive`` (default): a damaged or cut capture gives what can be read, then a row ``broken``, a mark
           with the reason as payload; ``failfast``: it is an error

Rows are as recorded (``rows``), with one column more: ``file``.

A file is a partition, and is read as a stream: memory holds a piece of it, a batch of rows and one packet. Its
first row is ``opened``, at the time of the first packet of any kind, and its last ``closed``: in that time, a
source that is not in the file was not heard. Packets that the capture reports as lost are an ``unrecorded`` row.

The direction is what the capture says (pcapng flags, Linux cooked headers, the comments of ``bccn dump -w``). Where
it says nothing, it is ``out`` for a source that is the host or begins with ``host/``, as the daemon names its
programs, else ``in``. A datagram of which only the beginning was captured has the verdict ``cut``. Verdicts that
need a daemon, such as ``late``, are there only if ``bccn dump`` noted them. What was asked for and sent again
(``resent``) is ``repaired`` or ``duplicate``; of the host itself it is ``own``, an ``echo``.
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
from bccnd.pipeline.source.resent import Resent
from bccnd.pipeline.source.rows import Row, mark
from bccnd.pipeline.times import moment
from bccnd.process.keys import read_keys
from bccnd.recorder.layout import DAY_NS, Direction, Mark
from bccnd.wire import pcap
from bccnd.wire.bccn1 import Integrity, Level
from bccnd.wire.udp import UdpDatagram
from bccnd.wire.verdict import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "bccn-pcap"
ROWS = f"{recorded.ROWS}, file string"
COLUMNS = [column.split()[0] for column in RECORDED.split(", ")]
PORT = 5400
# Bytes of a file that are read at a time.
READ_BYTES = 1 << 18
# The verdict on a datagram of which the capture has only the beginning.
CUT = "cut"

_GZIP = b"\x1f\x8b"
# tcpdump numbers the files that it rotates.
_SUFFIX = re.compile(r"\.(p?cap(ng)?|dmp)\d*(\.|$).*", re.IGNORECASE)
_COMMENT = re.compile(r"bccnd (in|out|local) ([a-z0-9-]{1,32})")
_DIRECTIONS = {pcap.Direction.IN: Direction.IN.value, pcap.Direction.OUT: Direction.OUT.value}
# Where "cooked" headers of these link types have the type of the packet.
_COOKED = {113: slice(0, 2), 276: slice(10, 11)}
# The type of packets that the host sent; all others came in.
_COOKED_OUT = 4


def captures(spark: "SparkSession", paths: str | Sequence[str], **options: str | int) -> "DataFrame":
    """The rows of captures as ``RECORDED``, and (file). A mark ``broken`` says what could not be read, and why."""
    rows = spark.read.format(FORMAT).options(**options).load([paths] if isinstance(paths, str) else [*paths])
    date = F.date_format(moment("time_ns"), "yyyy-MM-dd")
    return rows.withColumn("date", date).select(*COLUMNS, "file")


class CaptureSource(DataSource):
    """The format as Spark looks it up, by its name."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ROWS

    def reader(self, schema: "StructType") -> "CaptureReader":
        return CaptureReader(CaptureOptions.of(self.options), schema.names)


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The options, checked."""

    paths: tuple[str, ...]
    port: int = PORT
    host: str = ""
    keys: str = ""
    failfast: bool = False

    @classmethod
    def of(cls, options: Any) -> "CaptureOptions":
        """From Spark's own mapping, whose keys ignore case. Raises ``ConfigError``."""
        several = json.loads(options.get("paths", "[]"))
        port = str(options.get("port", PORT))
        mode = options.get("mode", "permissive").lower()
        if not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f"{FORMAT}: port {port}: must be 1 to 65535")
        if mode not in ("permissive", "failfast"):
            raise ConfigError(f"{FORMAT}: mode {mode}: must be permissive or failfast")
        paths = tuple(filter(None, [options.get("path"), *several]))
        if not paths:
            raise ConfigError(f"{FORMAT}: no path: name the captures, .load(PATH)")
        return cls(paths, int(port), options.get("host", ""), options.get("keys", ""), mode == "failfast")


@dataclass(frozen=True)
class CaptureFile(InputPartition):
    path: str


class CaptureReader(DataSourceReader):
    def __init__(self, options: CaptureOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = list(columns)

    def partitions(self) -> list[CaptureFile]:
        if self._options.keys:
            # A wrong key file ends the query here, once.
            read_keys(Path(self._options.keys))
        return [CaptureFile(path) for path in files_of(self._options.paths)]

    def read(self, partition: CaptureFile) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        rows: list[Row] = []
        for row in rows_of(partition.path, self._options):
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
    """The captures that ``paths`` name, sorted, each once. Raises ``ConfigError`` for a path that names none."""
    found: set[str] = set()
    for path in paths:
        url = urlsplit(path)
        if url.scheme not in ("", "file"):
            raise ConfigError(
                f"{FORMAT}: {path}: must be a path of a file system that all executors have mounted"
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
        # As Spark's own readers do.
        if not entry.name.startswith((".", "_")):
            yield from _files_below(entry)


def host_of(path: str) -> str:
    """The host that made the capture, from its path."""
    for part in reversed(Path(path).parts[:-1]):
        if part.startswith("host="):
            return unquote(part.removeprefix("host="))
    name = Path(path).name
    return _SUFFIX.sub("", name) or name


def rows_of(path: str, options: CaptureOptions) -> Iterator[Row]:
    """The rows of one capture. Raises ``CaptureError`` with ``failfast`` only."""
    host = options.host or host_of(path)
    keys = read_keys(Path(options.keys)) if options.keys else ()
    capture = Capture(host, options.port, Integrity(keys, Level.HMAC if keys else Level.NONE))
    try:
        with _opened(path) as stream:
            yield from _stream_rows(stream, capture)
    except (CaptureError, OSError, EOFError) as error:
        reason = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        if options.failfast:
            raise CaptureError(f"{path}: {reason}") from None
        yield mark(capture.last_ns, host, recorded.BROKEN, payload=reason.encode())
    if capture.first_ns is not None:
        yield mark(capture.last_ns, host, Mark.CLOSED)


def _opened(path: str) -> gzip.GzipFile | BufferedReader:
    with Path(path).open("rb") as stream:
        zipped = stream.read(len(_GZIP)) == _GZIP
    return gzip.open(path) if zipped else Path(path).open("rb")


def _stream_rows(stream: gzip.GzipFile | BufferedReader, capture: "Capture") -> Iterator[Row]:
    reader = pcap.Reader()
    # Of a gzip that is cut, read() would drop what stands before the cut.
    while content := stream.read1(READ_BYTES):
        for packet in reader.feed(content):
            yield from capture.rows(packet)
    reader.finish()


class Capture:
    """Makes rows of the packets of one capture, in order; knows from when to when they are."""

    def __init__(self, host: str, port: int, integrity: Integrity) -> None:
        self._host = host
        self._port = port
        self._integrity = integrity
        self._below = f"{host}/"
        self.first_ns: int | None = None
        self._resent = Resent()
        self.last_ns = 0
        self._midnight = 0

    def rows(self, packet: pcap.Packet) -> Iterator[Row]:
        time_ns = packet.time_ns
        if self.first_ns is None:
            self.first_ns = time_ns
            self._midnight = (time_ns // DAY_NS + 1) * DAY_NS
            yield mark(time_ns, self._host, Mark.OPENED)
        # Rows lie in folders of days, so no record spans midnight.
        while time_ns >= self._midnight:
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
        verdict, parts = recorded.parts_of(udp.payload, self._integrity)
        mode, src, seq, channel, payload = parts
        if udp.cut:
            verdict = CUT
        direction = ""
        if noted := packet.comment and _COMMENT.match(packet.comment):
            direction, verdict = noted[1], noted[2]
            if verdict == Verdict.OWN:
                direction = Direction.ECHO.value
        direction = direction or self._direction(packet, src)
        if not noted and verdict == Verdict.OK:
            verdict = self._resent.judge(packet.time_ns, direction, parts)
            if verdict == Verdict.OWN:
                direction = Direction.ECHO.value
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
        if field := _COOKED.get(packet.linktype):
            sent = int.from_bytes(packet.data[field]) == _COOKED_OUT
            return Direction.OUT.value if sent else Direction.IN.value
        ours = src is not None and (src == self._host or src.startswith(self._below))
        return Direction.OUT.value if ours else Direction.IN.value
