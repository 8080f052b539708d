"""The directories of the pipeline and the columns of their files: recorded, ingested, tables.

Rules
- Times are UTC. ``*_ns`` are nanoseconds since 1970 (bigint); ``hour``, ``minute``, ``from``, ``until`` timestamps.
- Every reader states its schema. Left to infer one, Spark makes numbers of the hosts ``007`` and ``1e5``.
- ``seq`` is an unsigned 64-bit number, too large for a bigint: decimal(20,0). For arithmetic it is split without loss
  into ``word`` = floor(seq / 64) and ``bit`` = seq mod 64.
- A batch counts once its directory has ``_SUCCESS``, until a merged one that holds it has, too (``maintain``). The
  tables are replaced all at once (``versions``).
- Paths are strings, because they may be of any file system that Spark knows (``hdfs://``, ``s3a://``).
"""

from typing import NamedTuple

# One row per datagram or mark, as recorded. ``date`` and ``host`` come from the directories (``date=/host=``).
RECORDED = (
    "time_ns bigint, interface string, direction string, verdict string, mode string, peer string, src string, "
    "seq decimal(20,0), channel string, payload binary, size int, date string, host string"
)
# As ingested: the recorded columns, the sequence number split, and whether tcpdump recorded it.
TRAFFIC = (
    "time_ns bigint, interface string, direction string, verdict string, mode string, peer string, src string, "
    "seq decimal(20,0), channel string, payload binary, size int, word bigint, bit int, capture boolean, "
    "batch string, date string, host string"
)
# What a row has of its file: whether tcpdump recorded it, and the day of its directory.
ORIGIN = ("capture", "date")
_ORIGIN_COLUMNS = "capture boolean, date string"
# What the tables need of the rows, of so many batches (``digests``).
DIGESTS = {
    "marks": (
        f"host string, time_ns bigint, direction string, verdict string, size int, payload binary, {_ORIGIN_COLUMNS}"
    ),
    "words": (
        f"host string, direction string, src string, word bigint, slot bigint, {_ORIGIN_COLUMNS}, bits bigint, "
        "late_bits bigint, repaired_bits bigint, rows bigint, late bigint, first_ns bigint, last_ns bigint"
    ),
    "heard": (
        "host string, direction string, interface string, address string, src string, hour bigint, "
        f"{_ORIGIN_COLUMNS}, delivered bigint, said bigint"
    ),
    "sizes": (
        f"src string, host string, channel string, second bigint, length int, {_ORIGIN_COLUMNS}, messages bigint, "
        "bytes bigint"
    ),
    "beats": (
        f"host string, src string, word bigint, bit int, own boolean, {_ORIGIN_COLUMNS}, time_ns bigint, "
        "leaving boolean"
    ),
    "rejected": (
        f"host string, minute bigint, verdict string, peer string, {_ORIGIN_COLUMNS}, datagrams bigint, "
        "first bigint, last bigint, example_channel string"
    ),
    "sample": (
        f"host string, direction string, src string, word bigint, bit int, repaired boolean, time_ns bigint, "
        f"{_ORIGIN_COLUMNS}"
    ),
}
REJECTED_FILES = "path string, reason string"

# Sources whose numbers mean nothing: that of senders without a name, which many share, and those of what daemons say
# about lost datagrams, which nobody misses (``bccnd/wire/REPAIR.md``).
UNNUMBERED = r"^(\?|[^/]+/bccnd/[^/]+/repair)$"

# What a source is called on a segment to which it is relayed: ``<src> via <host>`` (``relays``). No name has a space.
VIA = " via "

# The clocks of two hosts differ, and messages take time (``coverage``).
MARGIN_NS = 2 * 10**9

# The worst pairs are drawn over time: a screen holds four rows of three. Among them, at most so many have the same
# receiver or the same sender; the page says so.
PAIRS_DRAWN = 12
OF_ONE_HOST = 4

# Loss is of a pair: what a receiver lost of a sender.
PAIR = ("sender", "receiver")
_PAIR_COLUMNS = "sender string, receiver string"
# In the order in which they are made.
TABLES = {
    "coverage": (
        "host string, from_ns bigint, until_ns bigint, unrecorded bigint, capture boolean, counted boolean"
    ),
    "sources": (
        "receiver string, src string, hour timestamp, received bigint, lost bigint, duplicates bigint, "
        "late bigint, restarts bigint, repaired bigint, resent bigint"
    ),
    "minutes": f"{_PAIR_COLUMNS}, minute timestamp, sent bigint, lost bigint",
    "episodes": (
        f"{_PAIR_COLUMNS}, `from` timestamp, until timestamp, sent bigint, lost bigint, loss double, "
        "burst_p50 bigint, outages bigint, outage_s double, starts array<timestamp>"
    ),
    "delivery": (
        f"{_PAIR_COLUMNS}, hour timestamp, basis string, sent bigint, received bigint, lost bigint, late bigint, "
        "loss double, bursts bigint, burst_p50 bigint, burst_p95 bigint, burst_max bigint, latency_method string, "
        "clock_offset_us double, latency_p50_us double, latency_p90_us double, latency_p99_us double, "
        "latency_max_us double, repaired bigint, direct_p50_us double, direct_p99_us double, "
        "repaired_p50_us double, repaired_p99_us double"
    ),
    "losses": f"{_PAIR_COLUMNS}, src string, hour timestamp, sent bigint, lost bigint, repaired bigint",
    "senders": (
        "sender string, hour timestamp, lost bigint, lost_everywhere bigint, missed bigint, missed_everywhere bigint"
    ),
    "copies": (
        f"{_PAIR_COLUMNS}, hour timestamp, copies int, sent bigint, lost bigint, lost_single double, saved double"
    ),
    "steps": f"{_PAIR_COLUMNS}, `from` timestamp, seconds int, sent bigint, lost bigint",
    "channels": (
        "channel string, hour timestamp, messages bigint, bytes bigint, rate_peak bigint, payload_p50 bigint, "
        "payload_p95 bigint, payload_max bigint"
    ),
    "silences": (
        "observer string, src string, `from` timestamp, until timestamp, seconds double, expected_s double"
    ),
    "rejected": (
        "host string, hour timestamp, verdict string, peer string, peer_host string, datagrams bigint, "
        "first timestamp, last timestamp, example_channel string"
    ),
    "drops": "host string, hour timestamp, client string, messages bigint",
    "reordering": (
        "receiver string, src string, hour timestamp, reordered bigint, distance_p50 bigint, distance_max bigint"
    ),
    "links": (
        "near string, far string, exporter string, importer string, hour timestamp, exported bigint, "
        "withheld bigint, sent bigint, arrived bigint, missed bigint, lost bigint, messages bigint, "
        "latency_method string, latency_p50_us double, latency_p99_us double, latency_max_us double"
    ),
}


class Output(NamedTuple):
    """The directory below which everything is written; ``root`` as the user gave it."""

    root: str

    def at(self, *names: str) -> str:
        return "/".join([self.root.rstrip("/"), *names])

    @property
    def traffic(self) -> str:
        """``batch=<id>/date=/host=/*.parquet`` of ``TRAFFIC``; merged, ``batch=<first>-<last>``."""
        return self.at("traffic")

    def batch(self, number: int) -> str:
        return self.at("traffic", f"batch={number}")

    @property
    def digests(self) -> str:
        """``<form>/batch=<first>-<last>/<kind>/*.parquet`` of ``DIGESTS``; in ``traffic``, to go where that goes."""
        return self.at("traffic", "_digests")

    @property
    def checkpoint(self) -> str:
        """Which recorded files were ingested, and in which batch (``source.inputs``)."""
        return self.at("checkpoint")

    @property
    def rejected_files(self) -> str:
        """``batch=<id>/*.parquet`` of ``REJECTED_FILES``."""
        return self.at("rejected-files")

    @property
    def tables(self) -> str:
        """``<name>/*.parquet`` of ``TABLES``: a link to the newest of ``versions``, where there can be one."""
        return self.at("tables")

    @property
    def versions(self) -> str:
        """``<number>/<name>/*.parquet`` of ``TABLES`` (``versions``)."""
        return self.at("versions")

    def version(self, number: int) -> str:
        return self.at("versions", str(number))

    @property
    def report(self) -> str:
        return self.at("report.html")
