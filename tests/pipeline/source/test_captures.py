"""``bccn-pcap``: real captures of real traffic, and damaged files."""

import gzip
import struct
from collections import Counter
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType
from pyspark.testing import assertDataFrameEqual

from bccnd.errors import CaptureError, ConfigError
from bccnd.pipeline import digests
from bccnd.pipeline.analyse import Keeping, Span, tables
from bccnd.pipeline.ingest import taken_over
from bccnd.pipeline.layout import RECORDED
from bccnd.pipeline.source.captures import (
    CaptureOptions,
    CaptureSource,
    captures,
    files_of,
    host_of,
    rows_of,
)
from bccnd.pipeline.source.rows import SCHEMA
from bccnd.wire.bccn1 import Integrity, Level
from bccnd.wire.pcap import Direction, Packet, header
from bccnd.wire.udp import UdpDatagram
from tests.daemon_process import DaemonProcess
from tests.packet_client import PATIENCE, PacketClient
from tests.plain_bccn import datagram
from tests.running_program import RunningProgram

KEY = b"a key that nobody knows"
FIELDS = SCHEMA.names


def packet(payload: bytes, time_ns: int = 10**18, source: str = "10.0.0.7", **fields: Any) -> Packet:
    data = UdpDatagram(source, 5400, "10.0.0.255", 5400, payload).serialize()
    return Packet(time_ns, data, len(data), **fields)


def write(path: Path, *packets: Packet) -> Path:
    path.write_bytes(header("test", "eth0") + b"".join([each.serialize() for each in packets]))
    return path


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    return [
        dict(zip(FIELDS, row, strict=True))
        for row in rows_of(str(path), CaptureOptions((str(path),), **options))
    ]


def verdicts(path: Path, **options: Any) -> list[str]:
    return [row["verdict"] for row in rows(path, **options)]


@pytest.mark.needs("root", "tcpdump")
def test_a_tcpdump_of_a_daemon_is_read_exactly(
    spark: SparkSession, unrepairing: DaemonProcess, loopback_port: int, tmp_path: Path
) -> None:
    path = tmp_path / "here.pcap"
    tcpdump = RunningProgram(
        [
            "tcpdump",
            "-i",
            "lo",
            "-n",
            "-U",
            "-Z",
            "root",
            "-w",
            str(path),
            "-c",
            "101",
            f"udp port {loopback_port}",
        ]
    )
    try:
        tcpdump.read_until("listening on lo")
        with PacketClient(unrepairing.socket) as client:
            for number in range(100):
                client.send(b"MSG far/%d\0%d" % (number % 3, number))
            name = client.request("whoami")
            client.send(b"MSG far/!broken\0x")
        assert tcpdump.process.wait(PATIENCE) == 0
    finally:
        tcpdump.close()
    read = captures(spark, str(path), port=loopback_port)
    assert read.columns == [*StructType.fromDDL(RECORDED).names, "file"]
    found = read.orderBy("time_ns").collect()
    assert [found[0]["verdict"], found[-1]["verdict"]] in (
        ["opened", "closed"],
        ["opened", "ok"],
        ["ok", "closed"],
    )
    sent = [row for row in found if row["direction"]]
    assert Counter(row["verdict"] for row in found) == {"ok": 101, "opened": 1, "closed": 1}
    assert {(row["host"], row["direction"], row["src"], row["mode"]) for row in sent} == {
        ("here", "out", name, "none")
    }
    assert [int(row["seq"]) for row in sent] == list(range(int(sent[0]["seq"]), int(sent[0]["seq"]) + 101))
    assert [bytes(row["payload"]) for row in sent][:100] == [b"%d" % number for number in range(100)]
    assert Counter(row["channel"] for row in sent) == {
        "far/0": 34,
        "far/1": 33,
        "far/2": 33,
        "far/!broken": 1,
    }
    assert all(row["peer"].startswith("127.") and row["size"] > 20 for row in sent)


def test_the_largest_sequence_number_survives(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "a.pcapng", packet(datagram("b/x/1", 2**64 - 1, "c", b"\0\xff")))
    read = captures(spark, str(path)).where("direction = 'in'").select("src", "seq", "payload", "size")
    expected = spark.createDataFrame(
        [("b/x/1", Decimal(2**64 - 1), bytearray(b"\0\xff"), 40)],
        "src string, seq decimal(20,0), payload binary, size int",
    )
    assertDataFrameEqual(read, expected)


def test_with_a_key_file_hmac_is_required(tmp_path: Path) -> None:
    sound = datagram("b/x/1", 1, "c", b"p", KEY)
    path = write(tmp_path / "a.pcapng", *map(packet, [sound, sound[:-1] + b"!", datagram("b/x/1", 3, "c")]))
    keys = tmp_path / "keys"
    keys.write_bytes(KEY + b"\n")
    keys.chmod(0o600)
    assert verdicts(path) == ["opened", "ok", "ok", "ok", "closed"]
    assert verdicts(path, keys=str(keys)) == ["opened", "ok", "hmac", "unauthenticated", "closed"]
    assert [row["mode"] for row in rows(path)][1:4] == ["hmac", "hmac", "none"]


def test_rejected_datagrams_show_the_parts_that_can_be_read(tmp_path: Path) -> None:
    crc = Integrity([], Level.CRC32).seal(b"b/x/1:1:c|p")
    broken_ones = [b"noise", b"BCCN1[7]\xff:1:c|p", b"BCCN1[6]b:x:c|"]
    path = write(
        tmp_path / "a.pcapng",
        *map(
            packet,
            [crc, crc[:-1] + b"q", b"BCCN1[22]b/x:7:c|p", *broken_ones],
        ),
    )
    parts = [
        tuple(row[name] for name in ("verdict", "mode", "src", "seq", "channel", "payload"))
        for row in rows(path)
    ]
    assert parts[1:-1] == [
        ("ok", "crc32", "b/x/1", 1, "c", b"p"),
        ("crc32", "crc32", "b/x/1", 1, "c", b"q"),
        ("length", "none", "b/x", 7, "c", b"p"),
        *[
            (reason, None, None, None, None, noise)
            for reason, noise in zip(("magic", "source", "sequence"), broken_ones, strict=True)
        ],
    ]


def test_direction_is_from_the_capture_or_else_from_the_source(tmp_path: Path) -> None:
    ours, theirs = datagram("a/x/1", 1, "c"), datagram("ab/x/1", 1, "c")
    cooked = bytes([0, 4, *bytes(12), 8, 0])
    data = cooked + packet(theirs).data
    path = write(
        tmp_path / "a.pcapng",
        packet(ours),
        packet(theirs),
        packet(ours, direction=Direction.IN),
        packet(theirs, direction=Direction.OUT),
        packet(ours, comment="bccnd out own"),
        packet(ours, comment="bccnd in late"),
        packet(ours, comment="bccnd local ok"),
    )
    found = [(row["direction"], row["verdict"], row["peer"]) for row in rows(path)][1:-1]
    peer = "10.0.0.7:5400"
    assert found == [
        ("out", "ok", peer), ("in", "ok", peer), ("in", "ok", peer), ("out", "ok", peer), ("echo", "own", peer),
        ("in", "late", peer), ("local", "ok", None),
    ]  # fmt: skip
    classic = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 113)
    record = struct.pack("<IIII", 1, 2, len(data), len(data))
    cooked_path = tmp_path / "a.pcap"
    cooked_path.write_bytes(classic + record + data)
    assert [row["direction"] for row in rows(cooked_path)] == ["", "out", ""]


def test_marks_show_the_time_covered_and_packets_missing(tmp_path: Path) -> None:
    other = UdpDatagram("10.0.0.7", 53, "10.0.0.8", 53, b"no business of ours").serialize()
    sound = datagram("b", 1, "c")
    path = write(
        tmp_path / "a.pcapng", Packet(5, other, len(other)), packet(sound, 9, missing=4), packet(sound, 7),
        Packet(20, other, len(other)),
    )  # fmt: skip
    assert [(row["time_ns"], row["verdict"], row["size"]) for row in rows(path)] == [
        (5, "opened", 0), (9, "unrecorded", 4), (9, "ok", len(sound)), (7, "ok", len(sound)), (20, "closed", 0),
    ]  # fmt: skip


def test_midnight_closes_the_record_and_opens_it_again(tmp_path: Path) -> None:
    day = 86_400 * 10**9
    sound = datagram("b", 1, "c")
    path = write(tmp_path / "a.pcapng", packet(sound, day - 1), packet(sound, 3 * day))
    assert [(row["time_ns"], row["verdict"]) for row in rows(path)] == [
        (day - 1, "opened"), (day - 1, "ok"), (day, "closed"), (day, "opened"), (2 * day, "closed"),
        (2 * day, "opened"),        (3 * day, "closed"), (3 * day, "opened"), (3 * day, "ok"), (3 * day, "closed"),
    ]  # fmt: skip


def test_the_analysis_finds_the_loss_in_two_captures(spark: SparkSession, tmp_path: Path) -> None:
    second, start = 10**9, 1_700_000_000 * 10**9
    sent = [(start + number * second // 100, datagram("a/x/1", number, "c")) for number in range(6000)]
    write(tmp_path / "a.pcapng", *[packet(content, time_ns) for time_ns, content in sent])
    lost = {*range(2000, 2040), *range(3000, 3003)}
    came = [
        packet(content, time_ns + 300_000) for at, (time_ns, content) in enumerate(sent) if at not in lost
    ]
    write(tmp_path / "b.pcapng", *came)
    keep = Keeping(spark)
    traffic = taken_over(captures(spark, str(tmp_path))).withColumn("batch", F.lit(0)).drop("file").persist()
    _coverage, sources = islice(tables(digests.of(traffic), Span(), keep), 2)
    found = {(row["receiver"], row["src"], row["lost"], row["duplicates"]) for row in sources.collect()}
    sent_by = traffic.where("direction = 'out'").select("host", "src").distinct().collect()
    keep.release()
    traffic.unpersist()
    assert found == {("b", "a/x/1", 43, 0)}
    assert [tuple(row) for row in sent_by] == [("a", "a/x/1")]


def test_a_cut_file_is_read_as_far_as_it_goes(spark: SparkSession, tmp_path: Path) -> None:
    whole = write(tmp_path / "b.pcapng", *[packet(datagram("b/x/1", number, "c")) for number in range(10)])
    content = whole.read_bytes()
    (tmp_path / "cut.pcapng").write_bytes(content[:-7])
    (tmp_path / "cut.pcap.gz").write_bytes(gzip.compress(content)[:-12])
    (tmp_path / "noise.pcap").write_bytes(b"no capture")
    (tmp_path / "empty.pcap").write_bytes(b"")
    read = captures(spark, str(tmp_path))
    counted = {tuple(row) for row in read.where("direction != ''").groupBy("host").count().collect()}
    assert counted == {("b", 10), ("cut", 9 + 9)}
    broken = read.where("direction = '' and verdict = 'broken'").collect()
    assert {Path(row["file"]).name: bytes(row["payload"]).decode() for row in broken} == {
        "cut.pcapng": "ends in the middle of a packet; those before it are complete",
        "cut.pcap.gz": "Compressed file ended before the end-of-stream marker was reached",
        "noise.pcap": "not a capture file: neither pcap nor pcapng",
        "empty.pcap": "not a capture file: neither pcap nor pcapng",
    }
    with pytest.raises(PySparkException, match=r"cut\.pcapng: ends in the middle"):
        captures(spark, str(tmp_path / "cut.pcapng"), mode="failfast").count()


def test_a_cut_datagram_has_the_verdict_cut(tmp_path: Path) -> None:
    data = packet(datagram("b/x/1", 1, "c", bytes(500))).data
    path = write(tmp_path / "a.pcapng", Packet(1, data[:100], len(data)))
    [row] = rows(path)[1:-1]
    assert (row["verdict"], row["src"], row["seq"], row["channel"]) == ("cut", "b/x/1", 1, "c")
    assert row["size"] == len(datagram("b/x/1", 1, "c", bytes(500)))


def test_a_file_is_a_partition_with_the_columns_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / f"{name}.pcapng", packet(datagram(name, 1, "c")))
    (tmp_path / ".d.pcapng").write_bytes(b"not yet whole")
    read = spark.read.format("bccn-pcap").schema("src string, host string").load(str(tmp_path))
    assert read.rdd.getNumPartitions() == 3
    assert {tuple(row) for row in read.dropna().collect()} == {("a", "a"), ("b", "b"), ("c", "c")}


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("/x/a.pcap", "a"), ("/x/a.example.org.pcapng", "a.example.org"), ("/x/a.pcap12", "a"),
        ("/x/a.pcap0.gz", "a"),
        ("/x/a", "a"), ("/x/host=b%2Fc/a.pcap", "b/c"), ("/x/.pcap", ".pcap"), ("/x/a.cap", "a"),
    ],
)  # fmt: skip
def test_the_host_is_named_by_the_path(path: str, host: str) -> None:
    assert host_of(path) == host


def test_paths_are_files_folders_and_globs(tmp_path: Path) -> None:
    below = tmp_path / "day" / "night"
    below.mkdir(parents=True)
    one, two, odd = tmp_path / "day" / "1.pcap", below / "2.pcap", tmp_path / "[odd].pcap"
    for path in (one, two, odd):
        path.touch()
    assert files_of([str(tmp_path / "day"), str(two)]) == [str(one), str(two)]
    assert files_of([str(tmp_path / "*" / "*.pcap"), f"file://{two}"]) == [str(one), str(two)]
    assert files_of([str(odd)]) == [str(odd)]
    for wrong in ("s3a://bucket/x.pcap", str(tmp_path / "none"), str(tmp_path / "none*")):
        with pytest.raises(ConfigError):
            files_of([wrong])


@pytest.mark.parametrize("options", [{"port": "0"}, {"port": "x"}, {"mode": "dropmalformed"}, {"path": ""}])
def test_wrong_options_are_named(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        CaptureSource({"path": "x", **options}).reader(None)  # type: ignore[arg-type]


def test_a_wrong_path_ends_the_query_and_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match=r"none\.pcap: no such file or folder"):
        captures(spark, str(tmp_path / "none.pcap")).count()


def test_failfast_raises_without_spark(tmp_path: Path) -> None:
    path = tmp_path / "noise.pcap"
    path.write_bytes(b"no capture")
    with pytest.raises(CaptureError):
        rows(path, failfast=True)
