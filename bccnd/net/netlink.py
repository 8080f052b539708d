"""rtnetlink(7): what the kernel reports about the links of this host, and how to ask for it. No socket is used here.

Rules
- Numbers are in the host's byte order. Messages and attributes begin at multiples of four bytes.
- Only what the daemon needs of a link is taken from a message; unknown types and attributes are skipped.
- Every length is checked before anything is cut out. The kernel sends nothing malformed, so that is a NetlinkError.
"""

import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address
from struct import Struct

from bccnd.errors import BccndError

IFF_UP, IFF_BROADCAST, IFF_LOOPBACK, IFF_MULTICAST = 0x1, 0x2, 0x8, 0x1000
IFA_F_TENTATIVE, IFA_F_DADFAILED = 0x40, 0x08
GROUPS = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR


class _Type(IntEnum):
    ERROR = 2
    DONE = 3
    NEWLINK = 16
    DELLINK = 17
    GETLINK = 18
    NEWADDR = 20
    DELADDR = 21
    GETADDR = 22


_HEADER = Struct("=IHHII")  # length, type, flags, sequence number, port
_LINK = Struct("=BxHiII")  # family, type, index, flags, change
_ADDRESS = Struct("=BBBBI")  # family, prefix length, flags, scope, index
_ATTRIBUTE = Struct("=HH")
_REQUEST, _DUMP, _INTERRUPTED = 0x1, 0x300, 0x10
_IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER = 3, 4, 10
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST, _IFA_FLAGS = 1, 2, 4, 8


class NetlinkError(BccndError):
    """The kernel sent something that cannot be read, or answered with an error."""


@dataclass(frozen=True, slots=True)
class Link:
    """One interface. ``master`` is the index of the bridge or bond that it is a port of, or 0."""

    index: int
    name: str
    flags: int
    mtu: int = 1500
    master: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a link. ``broadcast`` is that of its subnet, if any; a tentative one is not ``usable``."""

    index: int
    address: IPv4Address | IPv6Address
    broadcast: IPv4Address | None = None
    usable: bool = True


@dataclass(frozen=True, slots=True)
class Added:
    what: Link | Address


@dataclass(frozen=True, slots=True)
class Removed:
    what: Link | Address


@dataclass(frozen=True, slots=True)
class Done:
    """A dump is complete. If it was ``interrupted``, something changed meanwhile: ask again."""

    interrupted: bool


Event = Added | Removed | Done


def dump_links() -> bytes:
    """The request for all links. The answer is an ``Added`` for each, and a ``Done``."""
    return _request(_Type.GETLINK)


def dump_addresses() -> bytes:
    """The request for all addresses, which is answered in the same form."""
    return _request(_Type.GETADDR)


def _request(kind: _Type) -> bytes:
    body = bytes(_LINK.size)  # any family; an address header is shorter, and the kernel takes this one too
    return _HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | _DUMP, 0, 0) + body


def parse(data: bytes) -> Iterator[Event]:
    """The events in one datagram of the kernel."""
    at = 0
    while at < len(data):
        if len(data) - at < _HEADER.size:
            raise NetlinkError("netlink: a message is cut off")
        length, kind, flags, _, _ = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= length <= len(data) - at:
            raise NetlinkError(f"netlink: a message of {length} bytes, {len(data) - at} are there")
        event = _event(kind, flags, data[at + _HEADER.size : at + length])
        if event is not None:
            yield event
        at += length + 3 & ~3


def _event(kind: int, flags: int, body: bytes) -> Event | None:
    match kind:
        case _Type.NEWLINK | _Type.DELLINK:
            what: Link | Address | None = _link(body)
        case _Type.NEWADDR | _Type.DELADDR:
            what = _address(body)
        case _Type.DONE:
            return Done(bool(flags & _INTERRUPTED))
        case _Type.ERROR:
            number = -int.from_bytes(body[:4], sys.byteorder, signed=True)
            raise NetlinkError(f"netlink: the kernel answered with error {number}")
        case _:
            return None
    if what is None:
        return None
    return Added(what) if kind in (_Type.NEWLINK, _Type.NEWADDR) else Removed(what)


def _link(body: bytes) -> Link | None:
    """None for a port of a bridge, which the bridge reports in the same kind of message (AF_BRIDGE)."""
    if len(body) < _LINK.size:
        raise NetlinkError("netlink: a link is cut off")
    family, _, index, flags, _ = _LINK.unpack_from(body)
    attributes = dict(_attributes(body, _LINK.size))
    name = attributes.get(_IFLA_IFNAME, b"").rstrip(b"\0").decode("ascii", "backslashreplace")
    if family != socket.AF_UNSPEC or not name:
        return None
    return Link(
        index,
        name,
        flags,
        mtu=_number(attributes, _IFLA_MTU, 1500),
        master=_number(attributes, _IFLA_MASTER, 0),
    )


def _address(body: bytes) -> Address | None:
    if len(body) < _ADDRESS.size:
        raise NetlinkError("netlink: an address is cut off")
    family, prefix, flags, _, index = _ADDRESS.unpack_from(body)
    attributes = dict(_attributes(body, _ADDRESS.size))
    flags = _number(attributes, _IFA_FLAGS, flags)
    usable = not flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)
    # For a tunnel, _IFA_ADDRESS is the other end.
    own = attributes.get(_IFA_LOCAL) or attributes.get(_IFA_ADDRESS, b"")
    if family == socket.AF_INET and len(own) == 4:
        return Address(index, IPv4Address(own), _broadcast(attributes, own, prefix), usable)
    if family == socket.AF_INET6 and len(own) == 16:
        return Address(index, IPv6Address(own), usable=usable)
    return None


def _broadcast(attributes: dict[int, bytes], own: bytes, prefix: int) -> IPv4Address | None:
    """The configured address, or that of the subnet, which the kernel uses too. A subnet of one or two has none."""
    configured = attributes.get(_IFA_BROADCAST, b"")
    if len(configured) == 4:
        return IPv4Address(configured)
    if 0 < prefix <= 30 and not own.startswith(b"\x7f"):
        return IPv4Network((own, prefix), strict=False).broadcast_address
    return None


def _attributes(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while len(body) - at >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(body, at)
        if not _ATTRIBUTE.size <= length <= len(body) - at:
            raise NetlinkError("netlink: an attribute is cut off")
        yield kind & 0x3FFF, body[at + _ATTRIBUTE.size : at + length]
        at += length + 3 & ~3


def _number(attributes: dict[int, bytes], kind: int, otherwise: int) -> int:
    value = attributes.get(kind, b"")
    return int.from_bytes(value, sys.byteorder) if len(value) == 4 else otherwise
