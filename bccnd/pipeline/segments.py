"""Which hosts share a segment, and which host an address belongs to: whose messages a host should have received.

    record of a   eth0: heard 10.1.0.2 (b), 10.1.0.1 (itself)      a-eth0, b       are one segment
                  eth1: heard 10.2.0.7 (x), 10.2.0.1 (itself)      a-eth1, x       are another

Rules
- Hosts that heard each other by an interface share the segment of that interface, and so do all that are connected
  through such hosts. A host on two networks is in both segments and joins none.
- A datagram that was rejected was heard as well: so a host with another key is in the segment of the others.
- A host that heard nobody, and that nobody heard, belongs to the only segment there is, or to the one whose addresses
  are most like its own. Where neither says anything, it belongs to none.
- An address belongs to the host to which its own datagrams came back from it (``echo``). Without such a record it
  belongs to the host whose messages came from it most. Without a key anybody can use a name: so a host whose
  addresses are known by their echoes has no others.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import storage
from bccnd.pipeline.layout import ORIGIN
from bccnd.pipeline.times import HOUR_NS
from bccnd.recorder.layout import Direction
from bccnd.wire.verdict import DELIVERED, HARMLESS

# Two hosts whose addresses begin with so many equal bits may be neighbours; with fewer they are not.
LIKE_BITS = 16


class Heard(NamedTuple):
    """A host heard ``sender`` from ``address`` by ``interface``; its own datagrams have itself as the sender."""

    host: str
    interface: str
    address: str
    sender: str


def digest(traffic: DataFrame) -> DataFrame:
    """``TRAFFIC`` -> (host, direction, interface, address, src, hour, capture, date, delivered, said).

    ``src`` is null where the datagram was rejected: its name may be anybody's. ``said`` counts those of ``delivered``
    that have a channel, for ``channels``; for that, what was sent and what stayed within the host is there as well.
    """
    delivered = F.col("verdict").isin(*DELIVERED)
    key = ("host", "direction", F.coalesce("interface", F.lit("")).alias("interface"))
    src = F.when(F.col("verdict").isin(*HARMLESS), F.col("src")).alias("src")
    hour = F.expr(f"time_ns div {HOUR_NS}").alias("hour")
    # First by the whole peer: to look for a port in each row takes longer than to count the rows.
    peers = (
        traffic.where(F.col("direction") != Direction.MARK)
        .groupBy(*key, "peer", src, hour, *ORIGIN)
        .agg(
            F.count_if(delivered).alias("delivered"),
            F.count_if(delivered & F.col("channel").isNotNull()).alias("said"),
        )
    )
    address = F.regexp_replace("peer", r":\d+$", "").alias("address")
    return peers.groupBy("host", "direction", "interface", address, "src", "hour", *ORIGIN).agg(
        *(F.sum(name).alias(name) for name in ("delivered", "said"))
    )


def heard(digests: DataFrame) -> DataFrame:
    """``digest``, of any number of batches -> (host, interface, address, src, echo boolean, delivered bigint)."""
    echo = (F.col("direction") == Direction.ECHO).alias("echo")
    return (
        digests.where(F.col("direction").isin(Direction.IN, Direction.ECHO) & F.col("address").isNotNull())
        .groupBy("host", "interface", "address", "src", echo)
        .agg(F.sum("delivered").alias("delivered"))
    )


def addresses(heard_rows: DataFrame, owned: DataFrame) -> DataFrame:
    """``heard`` and ``delivery.owners`` -> (address, known): the host that an address belongs to, where one does."""
    own = (
        heard_rows.where("echo")
        .groupBy("address")
        .agg(F.count_distinct("host").alias("claims"), F.first("host").alias("known"))
    )
    # Two networks may use the same address: then it says nothing.
    echoed = own.where("claims = 1").select("address", "known")
    named = (
        heard_rows.where("NOT echo AND delivered > 0")
        .join(F.broadcast(owned), "src")
        .join(own.select("address"), "address", "left_anti")
        .join(
            heard_rows.where("echo").select(F.col("host").alias("sender")).distinct(), "sender", "left_anti"
        )
        .groupBy("address", F.col("sender").alias("known"))
        .agg(F.sum("delivered").alias("delivered"))
    )
    most = Window.partitionBy("address").orderBy(F.desc("delivered"), "known")
    named = named.withColumn("place", F.row_number().over(most)).where("place = 1").select("address", "known")
    return echoed.unionByName(named)


def edges(heard_rows: DataFrame, owned: DataFrame, known: DataFrame) -> list[Heard]:
    """``heard``, ``delivery.owners`` and ``addresses`` -> who heard whom, to the driver: at most hosts x hosts."""
    whom = F.coalesce(F.when(F.col("echo"), F.col("host")), F.col("sender"), F.col("known"))
    rows = (
        heard_rows.join(F.broadcast(owned), "src", "left")
        .join(F.broadcast(known), "address", "left")
        .select("host", "interface", "address", whom.alias("sender"))
        .where("sender IS NOT NULL")
        .distinct()
        .toArrow()
    )
    return [Heard(*row) for row in zip(*(rows[name].to_pylist() for name in Heard._fields), strict=True)]


def segments(found: Iterable[Heard], recorded: Iterable[str]) -> Iterator[tuple[str, str]]:
    """``edges`` and the recorded hosts -> (host, segment), a row for each segment of a host; sorted."""
    found = sorted(found)
    interfaces = defaultdict(set)
    for row in found:
        interfaces[row.host].add(row.interface)
    several = {host for host, names in interfaces.items() if len(names) > 1}

    def receiving(row: Heard) -> tuple[str, ...]:
        return (row.host, "interface", row.interface) if row.host in several else (row.host,)

    def sending(row: Heard) -> tuple[str, ...]:
        return (row.sender, "address", row.address) if row.sender in several else (row.sender,)

    joined = _Joined()
    own: dict[str, set[str]] = defaultdict(set)
    for row in found:
        joined.join(receiving(row), sending(row))
        own[row.sender].add(row.address)
    groups: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for node in joined.nodes():
        groups[joined.root(node)].add(node[0])
    shared = {root: hosts for root, hosts in groups.items() if len(hosts) > 1}
    lonely = {*recorded} - {host for hosts in shared.values() for host in hosts}
    likely = {host: _likely(own[host], shared, own) or (host,) for host in sorted(lonely)}
    for host, root in likely.items():
        shared.setdefault(root, set()).add(host)
    for root, hosts in sorted(shared.items()):
        for host in sorted(hosts):
            yield host, "/".join(root)


def frame(like: DataFrame, rows: Iterable[tuple[str, str]]) -> DataFrame:
    """``segments`` as a DataFrame (host, segment) in the session of ``like``."""
    hosts, names = [*zip(*rows, strict=True)] or [(), ()]
    return storage.of_strings(like.sparkSession, {"host": hosts, "segment": names})


def _likely(
    own: set[str], shared: dict[tuple[str, ...], set[str]], addresses_of: dict[str, set[str]]
) -> tuple[str, ...] | None:
    """The segment that a host with these addresses belongs to, though nothing was heard."""
    if len(shared) == 1:
        return next(iter(shared))
    likeness = {
        root: max(
            (_like(one, other) for host in hosts for other in addresses_of[host] for one in own), default=0
        )
        for root, hosts in shared.items()
    }
    most = max(likeness.values(), default=0)
    best = [root for root, bits in likeness.items() if bits == most]
    return best[0] if most >= LIKE_BITS and len(best) == 1 else None


def _like(one: str, other: str) -> int:
    """How many bits two addresses have in common at their beginning."""
    try:
        a, b = (ip_address(each.strip("[]").partition("%")[0]) for each in (one, other))
    except ValueError:
        return 0
    return a.max_prefixlen - (int(a) ^ int(b)).bit_length() if a.version == b.version else 0


class _Joined:
    """Nodes in groups, of which two can be joined (union-find)."""

    def __init__(self) -> None:
        self._above: dict[tuple[str, ...], tuple[str, ...]] = {}

    def nodes(self) -> list[tuple[str, ...]]:
        return [*self._above]

    def root(self, node: tuple[str, ...]) -> tuple[str, ...]:
        self._above.setdefault(node, node)
        while (above := self._above[node]) != node:
            self._above[node] = node = self._above[above]
        return node

    def join(self, one: tuple[str, ...], other: tuple[str, ...]) -> None:
        lower, higher = sorted((self.root(one), self.root(other)))
        self._above[higher] = lower
