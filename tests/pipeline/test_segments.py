"""``bccnd/pipeline/segments.py``."""

from itertools import pairwise

from pyspark.sql import SparkSession

from bccnd.pipeline import delivery, segments, words
from bccnd.pipeline.segments import Heard
from tests.pipeline.rows import datagram, sent, traffic

ADDRESSES = {"a": "10.1.0.1", "b": "10.1.0.2", "x": "10.2.0.1", "y": "10.2.0.2"}


def each_other(*hosts: str) -> list[Heard]:
    """Hosts of one interface that hear each other and themselves."""
    return [Heard(host, "eth0", ADDRESSES[sender], sender) for host in hosts for sender in hosts]


def together(found: list[Heard], recorded: str = "") -> list[str]:
    """The hosts of each segment."""
    by_segment: dict[str, str] = {}
    for host, segment in segments.segments(found, recorded):
        by_segment[segment] = by_segment.get(segment, "") + host
    return sorted(by_segment.values())


def test_host_on_two_networks_does_not_join_them() -> None:
    bridge = [
        Heard("g", "eth0", "10.1.0.9", "g"), Heard("g", "eth1", "10.2.0.9", "g"), Heard("g", "eth0", "10.1.0.1", "a"),
        Heard("g", "eth1", "10.2.0.1", "x"), Heard("b", "eth0", "10.1.0.9", "g"), Heard("y", "eth0", "10.2.0.9", "g"),
    ]  # fmt: skip
    assert together(each_other("a", "b") + each_other("x", "y") + bridge) == ["abg", "gxy"]


def test_hosts_far_apart_in_a_chain_share_a_segment() -> None:
    hosts = [f"h{number:02}" for number in range(40)]
    chain = [Heard(later, "eth0", "10.0.0.1", host) for host, later in pairwise(hosts)]
    assert {host for host, segment in segments.segments(chain, hosts) if segment == "h00"} == {*hosts}


def test_isolated_host_belongs_to_the_only_segment() -> None:
    assert together(each_other("a", "b"), "abx") == ["abx"]


def test_isolated_host_belongs_where_addresses_are_alike() -> None:
    found = each_other("a", "b") + each_other("x", "y") + [Heard("d", "eth0", "10.2.0.77", "d")]
    assert together(found, "abxyd") == ["ab", "dxy"]
    assert together(each_other("a", "b") + each_other("x", "y"), "abxyd") == ["ab", "d", "xy"]


def test_addresses_belong_to_hosts_that_a_record_ties_to_them(spark: SparkSession) -> None:
    rows = [
        sent("a", 1, "a/p/1", 1), sent("b", 1, "b/p/1", 1), sent("c", 1, "c/p/1", 1),
        datagram("a", 1, "a/p/1", 1, direction="echo", verdict="own", peer="10.0.0.1:5400"),
        datagram("b", 1, "a/p/1", 1, peer="10.0.0.1:5400"),
        datagram("b", 1, "c/p/1", 1, peer="[fe80::3%eth0]:5400"),
        datagram("b", 1, "d/p/1", 1, peer="10.0.0.4:5400"),
        datagram("b", 1, "a/p/1", 2, peer="10.0.0.9:666"),  # forged: a's own address is known
        datagram("b", 1, "c/p/1", 2, peer="10.0.0.3:5400", verdict="hmac"),
        datagram("c", 1, "c/p/1", 1, direction="echo", verdict="own", peer="10.0.0.3:5400"),
        datagram("x", 1, "x/p/1", 1, direction="echo", verdict="own", peer="10.7.0.1:5400"),
        datagram("y", 1, "y/p/1", 1, direction="echo", verdict="own", peer="10.7.0.1:5400"),
    ]  # fmt: skip
    all_rows = traffic(spark, rows)
    owned = delivery.owners(delivery.present(words.of(words.digest(all_rows), 10**10)))
    heard = segments.heard(segments.digest(all_rows))
    known, found = segments.whom(heard, owned)
    assert known == {"10.0.0.1": "a", "10.0.0.3": "c", "10.0.0.4": "d"}
    assert Heard("b", "eth0", "10.0.0.3", "c") in found
    assert together(found) == ["abcd"]
