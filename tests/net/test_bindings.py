"""The bindings that a host has, given its links and its settings."""

from ipaddress import IPv4Address, ip_address

import pytest

from bccnd.net.bindings import Binding, Choice, missing, wanted, without_links
from bccnd.net.netlink import IFF_BROADCAST, IFF_LOOPBACK, IFF_MULTICAST, IFF_UP, Address, Link
from bccnd.process.settings import FOREIGN_INTERFACES

LAN = IFF_UP | IFF_BROADCAST | IFF_MULTICAST
LO = Link(1, "lo", IFF_UP | IFF_LOOPBACK)
ETH0, ETH1 = Link(2, "eth0", LAN), Link(3, "eth1", LAN)
DOWN, TUNNEL = Link(4, "eth2", LAN & ~IFF_UP), Link(5, "tun0", IFF_UP)
DOCKER, USER_BRIDGE, PORT = (
    Link(6, "docker0", LAN),
    Link(7, "br-0123456789ab", LAN),
    Link(8, "eth3", LAN, master=9),
)
LAN_BRIDGE = Link(9, "br-lan", LAN)
LINKS = [LO, ETH0, ETH1, DOWN, TUNNEL, DOCKER, USER_BRIDGE, PORT, LAN_BRIDGE]


def ipv4(index: int, net: int) -> Address:
    return Address(index, ip_address(f"10.0.{net}.5"), IPv4Address(f"10.0.{net}.255"))


ADDRESSES = [
    Address(1, ip_address("127.0.0.1")),
    *(ipv4(link.index, link.index) for link in LINKS[1:]),
    Address(2, ip_address("fe80::2")),
    Address(3, ip_address("fe80::3"), usable=False),
    Address(9, ip_address("fd00::9")),
]


def names(address: str, *interfaces: str, excluded: tuple[str, ...] = FOREIGN_INTERFACES) -> list[str | None]:
    choice = Choice(address, 5400, interfaces, excluded)
    return [binding.interface for binding in wanted(choice, LINKS, ADDRESSES)]


@pytest.mark.parametrize(
    ("address", "interfaces"),
    [
        ("255.255.255.255", ["eth0", "eth1", "br-lan"]),  # no container, no port of a bridge, no tunnel
        ("239.54.0.1", ["eth0", "eth1", "br-lan"]),
        ("127.255.255.255", ["lo"]),
        ("10.0.3.255", ["eth1"]),
        ("10.0.99.255", []),  # no link has that subnet
        ("subnet", ["eth0", "eth1", "tun0", "br-lan"]),
        ("ff02::5400", ["eth0"]),  # the only one with a usable link-local address
    ],
)
def test_by_default_every_link_that_can_serves(address: str, interfaces: list[str]) -> None:
    assert names(address) == interfaces


@pytest.mark.parametrize(
    ("asked", "interfaces"),
    [
        (["eth1"], ["eth1"]),
        (["eth*"], ["eth0", "eth1"]),
        (["eth1", "br-lan"], ["eth1", "br-lan"]),
        (["eth3"], ["eth3"]),  # a port, but named in full
        (["docker0"], ["docker0"]),
        (["docker*"], []),  # a pattern does not include what is excluded
        (["lo"], ["lo"]),
        (["*"], ["eth0", "eth1", "br-lan"]),
        (["eth2"], []),  # down
        (["tun0"], ["tun0"]),
        (["nosuch0"], []),
    ],
)
def test_interfaces_limit_the_links_that_serve(asked: list[str], interfaces: list[str]) -> None:
    assert names("255.255.255.255", *asked) == interfaces


def test_without_exclusions_the_links_of_containers_serve() -> None:
    assert names("255.255.255.255", excluded=()) == ["eth0", "eth1", "docker0", "br-0123456789ab", "br-lan"]


def test_a_link_with_two_subnets_has_one_binding() -> None:
    choice = Choice("subnet", 5400, ["eth0"])
    assert wanted(choice, LINKS, [*ADDRESSES, ipv4(2, 44)]) == [Binding("10.0.2.255", 5400, "eth0", 2)]


def test_the_loopback_has_a_broadcast_address_of_its_own() -> None:
    choice = Choice("255.255.255.255", 5400, ["lo"])
    assert wanted(choice, LINKS, ADDRESSES) == [Binding("127.255.255.255", 5400, "lo", 1)]


def test_a_link_without_an_address_does_not_serve() -> None:
    assert wanted(Choice("255.255.255.255", 5400), LINKS, []) == []


def test_without_netlink_only_named_interfaces_are_bound() -> None:
    everywhere = "255.255.255.255"
    assert without_links(Choice(everywhere, 5400)) == [Binding(everywhere, 5400)]
    assert without_links(Choice("subnet", 5400, ["eth*", "lan0"])) == [Binding(everywhere, 5400, "lan0")]


def test_interfaces_that_match_no_link_are_missing() -> None:
    assert missing(Choice("255.255.255.255", 5400, ["eth*", "wlan*", "eth7", "lo"]), LINKS) == [
        "wlan*",
        "eth7",
    ]


def test_only_bindings_that_hear_the_same_share_a_socket() -> None:
    binding = Binding("255.255.255.255", 5400, "eth0", 2)
    assert binding.hears == Binding("10.0.0.255", 5400, "eth0", 2).hears
    for other in (
        Binding("255.255.255.255", 5401, "eth0", 2),
        Binding("255.255.255.255", 5400, "eth0", 3),
        Binding("239.54.0.1", 5400, "eth0", 2),
        Binding("ff02::1", 5400, "eth0", 2),
    ):
        assert binding.hears != other.hears
