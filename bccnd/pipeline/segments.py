"""Which hosts share a segment, and which host an address belongs to: whose messages a host should have received.

    record of a   eth0: heard 10.1.0.2 (b), 10.1.0.1 (itself)      a-eth0, b       are one segment
                  eth1: heard 10.2.0.7 (x), 10.2.0.1 (itself)      a-eth1, x       are another

Rules
- Hosts that heard each other through an interface share the segment of that interface, and so do all hosts that are
  connected through these. A host on two networks is in both segments, and does not join them.
- A rejected datagram was heard, too: so a host with another key is in the segment of the others.
- A host that heard nobody, and that nobody heard, belongs to the only segment there is, or to the one whose
  addresses are most like its own. If there is neither, it belongs to none.
- An address belongs to the host to which its own datagrams came back from it (``echo``). Without such a record it
  belongs to the host whose messages came from it most. Without a key anybody can use a name: so a host whose
  addresses are known by their echoes has no others.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from bccnd.pipeline import storage
from bccnd.pipeline.layout import ORIGIN
from bccnd.pipeline.times import HOUR_NS
from bccnd.recorder.layout import Direction
from bccnd.wire.verdict import DELIVERED, HARMLESS

# Two hosts whose addresses begin with so many equal bits may be neighbours; with fewer they are not.
LIKE_BITS = 16


class Talk(NamedTuple):
    """What a host heard from an address by an interface: how many messages of ``sender`` were delivered; null where
    nobody knows whose datagrams they were. ``echo`` of its own.
    """

    host: str
    interface: str
    address: str
    echo: bool
    sender: str | None
    delivered: int


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


def whom(heard_rows: DataFrame, owned: DataFrame) -> tuple[dict[str, str], set[Heard]]:
    """``heard`` and ``delivery.owners`` -> ``addresses`` and ``edges``."""
    talk = (
        heard_rows.join(F.broadcast(owned), "src", "left")
        .groupBy(*Talk._fields[:-1])
        .agg(F.sum("delivered").alias("delivered"))
    )
    named = F.col("echo") | F.col("sender").isNotNull()
    found = talks(talk.where(named).toArrow())
    known = addresses(found)
    # Anybody can send from any number of addresses: of those that nobody is known by, nothing goes to the driver.
    of_known = frame(heard_rows, known.items(), ("address", "known"))
    others = talk.where(~named).join(F.broadcast(of_known), "address", "left_semi")
    return known, edges([*found, *talks(others.toArrow())], known)


def talks(rows: pa.Table) -> list[Talk]:
    return [Talk(*row) for row in zip(*(rows[name].to_pylist() for name in Talk._fields), strict=True)]


def addresses(talk: Iterable[Talk]) -> dict[str, str]:
    """The host that an address belongs to, of those where one does."""
    claims = defaultdict[str, set[str]](set)
    said = defaultdict[str, Counter[str]](Counter)
    talk = [*talk]
    for row in talk:
        if row.echo:
            claims[row.address].add(row.host)
    echoing = set().union(*claims.values())
    for row in talk:
        known = row.echo or row.address in claims or row.sender in echoing
        if row.sender is not None and row.delivered > 0 and not known:
            said[row.address][row.sender] += row.delivered
    # Two networks may use the same address: then it says nothing.
    echoed = {address: min(hosts) for address, hosts in claims.items() if len(hosts) == 1}
    return echoed | {
        address: min(rows, key=lambda sender: (-rows[sender], sender)) for address, rows in said.items()
    }


def edges(talk: Iterable[Talk], known: Mapping[str, str]) -> set[Heard]:
    """``talks`` and ``addresses`` -> who heard whom."""
    found = set()
    for row in talk:
        sender = row.host if row.echo else row.sender
        sender = known.get(row.address) if sender is None else sender
        if sender is not None:
            found.add(Heard(row.host, row.interface, row.address, sender))
    return found


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


def frame(
    like: DataFrame, rows: Iterable[tuple[str, str]], names: tuple[str, str] = ("host", "segment")
) -> DataFrame:
    """``segments`` or ``addresses`` as a DataFrame in the session of ``like``."""
    columns = [*zip(*rows, strict=True)] or [(), ()]
    return storage.of_strings(like.sparkSession, dict(zip(names, columns, strict=True)))


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
