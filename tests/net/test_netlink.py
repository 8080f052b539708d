"""Messages of rtnetlink: from the kernel, damaged, and of other types."""

import contextlib
import socket
import struct
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bccnd.net.netlink import (
    IFF_BROADCAST,
    IFF_UP,
    Added,
    Address,
    Done,
    Link,
    NetlinkError,
    Removed,
    dump_addresses,
    dump_links,
    parse,
)
from tests.packet_client import PATIENCE

NEWLINK, DELLINK, NEWADDR, DELADDR, DONE, ERROR = 16, 17, 20, 21, 3, 2
UP = IFF_UP | IFF_BROADCAST


def message(kind: int, body: bytes, flags: int = 0) -> bytes:
    """One message with its true length, padded to a multiple of four."""
    data = struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body
    return data + bytes(-len(data) % 4)


def attribute(kind: int, value: bytes) -> bytes:
    data = struct.pack("=HH", 4 + len(value), kind) + value
    return data + bytes(-len(data) % 4)


def number(value: int) -> bytes:
    return struct.pack("=I", value)


def link(index: int, *attributes: bytes, family: int = 0, flags: int = UP) -> bytes:
    return struct.pack("=BxHiII", family, 1, index, flags, 0) + b"".join(attributes)


def address(index: int, family: int, *attributes: bytes, flags: int = 0) -> bytes:
    return struct.pack("=BBBBI", family, 24, flags, 0, index) + b"".join(attributes)


NAME = attribute(3, b"eth0\0")
OWN = attribute(2, bytes((10, 0, 0, 5)))
BROADCAST = attribute(4, bytes((10, 0, 0, 255)))
LINK_LOCAL = IPv6Address("fe80::5")


@pytest.mark.parametrize(
    ("data", "event"),
    [
        (message(NEWLINK, link(4, NAME)), Added(Link(4, "eth0", UP))),
        (
            message(NEWLINK, link(4, NAME, attribute(4, number(9000)), attribute(10, number(7)))),
            Added(Link(4, "eth0", UP, mtu=9000, master=7)),
        ),
        (message(DELLINK, link(4, NAME, flags=0)), Removed(Link(4, "eth0", 0))),
        (
            message(NEWADDR, address(4, socket.AF_INET, OWN, BROADCAST)),
            Added(Address(4, IPv4Address("10.0.0.5"), IPv4Address("10.0.0.255"))),
        ),
        (  # none is configured: that of the subnet of 24 bits
            message(NEWADDR, address(4, socket.AF_INET, OWN)),
            Added(Address(4, IPv4Address("10.0.0.5"), IPv4Address("10.0.0.255"))),
        ),
        (  # for a tunnel, the first is the other end
            message(DELADDR, address(4, socket.AF_INET, attribute(1, bytes((10, 0, 0, 9))), OWN)),
            Removed(Address(4, IPv4Address("10.0.0.5"), IPv4Address("10.0.0.255"))),
        ),
        (
            message(NEWADDR, address(4, socket.AF_INET6, attribute(1, LINK_LOCAL.packed))),
            Added(Address(4, LINK_LOCAL)),
        ),
        (  # tentative, in the old and in the new flags
            message(NEWADDR, address(4, socket.AF_INET6, attribute(1, LINK_LOCAL.packed), flags=0x40)),
            Added(Address(4, LINK_LOCAL, usable=False)),
        ),
        (
            message(
                NEWADDR, address(4, socket.AF_INET6, attribute(1, LINK_LOCAL.packed), attribute(8, number(0x440)))
            ),
            Added(Address(4, LINK_LOCAL, usable=False)),
        ),
        (message(DONE, bytes(4)), Done(interrupted=False)),
        (message(DONE, bytes(4), flags=0x10), Done(interrupted=True)),
    ],
)  # fmt: skip
def test_each_message_is_one_event(data: bytes, event: object) -> None:
    assert list(parse(data)) == [event]
    assert list(parse(data + data)) == [event, event]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        message(NEWLINK, link(4)),  # no name
        message(NEWLINK, link(4, NAME, family=socket.AF_BRIDGE)),
        message(NEWADDR, address(4, socket.AF_INET)),
        message(NEWADDR, address(4, 12, OWN)),  # DECnet
        message(24, bytes(12)),  # a route
    ],
)
def test_other_messages_are_no_events(data: bytes) -> None:
    assert list(parse(data)) == []


@pytest.mark.parametrize(
    "data",
    [
        message(NEWLINK, link(4, NAME))[:-4],
        message(NEWLINK, link(4, NAME))[:10],
        struct.pack("=IHHII", 15, NEWLINK, 0, 0, 0),
        message(NEWLINK, bytes(8)),
        message(NEWADDR, bytes(4)),
        message(NEWLINK, link(4, struct.pack("=HH", 3, 3))),
        message(NEWLINK, link(4, struct.pack("=HH", 40, 3))),
        message(ERROR, struct.pack("=i", -22)),
    ],
)
def test_a_malformed_message_is_one_error(data: bytes) -> None:
    with pytest.raises(NetlinkError, match="netlink"):
        list(parse(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_events_or_the_one_error(data: bytes) -> None:
    with contextlib.suppress(NetlinkError):
        list(parse(data))


@given(st.data())
def test_a_damaged_message_is_events_or_the_one_error(data: st.DataObject) -> None:
    whole = bytearray(
        message(NEWLINK, link(4, NAME)) + message(NEWADDR, address(4, socket.AF_INET, OWN, BROADCAST))
    )
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(NetlinkError):
        list(parse(bytes(whole)))


def test_the_kernel_answers_the_requests() -> None:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(PATIENCE)
        for request, expected in ((dump_links(), Link), (dump_addresses(), Address)):
            kernel.send(request)
            found: list[object] = []
            while not any(isinstance(event, Done) for event in found):
                found += parse(kernel.recv(1 << 16))
            assert all(isinstance(event.what, expected) for event in found if isinstance(event, Added))
            assert expected is Address or any(
                isinstance(event, Added) and isinstance(event.what, Link) and event.what.name == "lo"
                for event in found
            )
