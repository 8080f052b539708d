"""UDP datagrams as they stand in captures, in IPv4 or IPv6, behind the header of a link.

``UdpDatagram.parse`` takes a captured packet apart, whatever link it was captured on. ``serialize`` makes the IP
packet with its checksums (RFC 768, 791, 8200), for a capture of link type RAW. Checksums are not verified: most
packets that a host captures of its own do not have them yet, because the network card adds them.
"""

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from struct import Struct
from typing import Self

_UDP = 17
_UDP_HEADER = Struct(">HHHH")
_IPV4_HEADER = Struct(">BBHHHBBH4s4s")
_IPV6_HEADER = Struct(">IHBB16s16s")
_IPV4_LENGTH, _IPV6_LENGTH = 20, 40
# Extension headers of IPv6 that may stand before UDP: hop by hop, routing, destination. Nobody sends more than eight.
_EXTENSIONS = {0, 43, 60}
_EXTENSIONS_LIMIT = 8

# Bytes that fit one IPv4 datagram.
PAYLOAD_LIMIT = 65_535 - _IPV4_LENGTH - _UDP_HEADER.size

_ETHERTYPE_IP = {0x0800, 0x86DD}
_ETHERTYPE_VLAN = {0x8100, 0x88A8, 0x9100}
# AF_INET, and AF_INET6 of Linux and the BSDs, in the byte order of any host.
_FAMILIES_IP = {family.to_bytes(4, order) for family in (2, 10, 24, 28, 30) for order in ("little", "big")}


@dataclass(frozen=True, slots=True)
class UdpDatagram:
    """Addresses are text, parsed ones without a scope. ``cut``: bytes of the payload that the capture lacks."""

    source: str
    source_port: int
    target: str
    target_port: int
    payload: bytes
    cut: int = 0

    @classmethod
    def parse(cls, linktype: int, packet: bytes) -> Self | None:
        """None for anything but UDP, for a later fragment, and for a packet of which too little was captured."""
        at = _ip_offset(linktype, packet)
        if at is None or at >= len(packet):
            return None
        version = packet[at] >> 4
        found = _through_ipv4(packet, at) if version == 4 else _through_ipv6(packet, at)
        if version not in (4, 6) or found is None:
            return None
        source, target, at = found
        payload_at = at + _UDP_HEADER.size
        if len(packet) < payload_at:
            return None
        source_port, target_port, length, _ = _UDP_HEADER.unpack_from(packet, at)
        if length < _UDP_HEADER.size:
            return None
        payload = packet[payload_at : at + length]
        cut = length - _UDP_HEADER.size - len(payload)
        return cls(_text(source), source_port, _text(target), target_port, payload, cut)

    def serialize(self) -> bytes:
        """Raises ``ValueError`` for a payload above ``PAYLOAD_LIMIT``, and for addresses of two families."""
        source, target = ip_address(self.source), ip_address(self.target)
        if source.version != target.version or len(self.payload) > PAYLOAD_LIMIT:
            raise ValueError("two families of addresses, or more than fits one datagram")
        size = _UDP_HEADER.size + len(self.payload)
        pseudo = source.packed + target.packed + size.to_bytes(4) + _UDP.to_bytes(4)
        head = _UDP_HEADER.pack(self.source_port, self.target_port, size, 0)
        checksum = _checksum(pseudo + head + self.payload) or 0xFFFF
        udp = head[:6] + checksum.to_bytes(2) + self.payload
        if source.version == 6:
            return _IPV6_HEADER.pack(6 << 28, size, _UDP, 1, source.packed, target.packed) + udp
        fields = (0x45, 0, _IPV4_LENGTH + size, 0, 0x4000, 1, _UDP)  # do not fragment, time to live 1
        header = _IPV4_HEADER.pack(*fields, 0, source.packed, target.packed)
        return _IPV4_HEADER.pack(*fields, _checksum(header), source.packed, target.packed) + udp


def _ip_offset(linktype: int, packet: bytes) -> int | None:
    """Where the IP packet begins (tcpdump.org, "Link-layer header types")."""
    match linktype:
        case 12 | 14 | 101 | 228 | 229:  # RAW, as BSDs and as files number it; IPV4; IPV6
            return 0
        case 0 | 108:  # NULL, LOOP
            return 4 if packet[:4] in _FAMILIES_IP else None
        case 1:  # Ethernet
            return _behind_ethertype(packet, 12)
        case 113:  # Linux "cooked"
            return _behind_ethertype(packet, 14)
        case 276:  # the same, version 2
            return 20 if int.from_bytes(packet[:2]) in _ETHERTYPE_IP else None
    return None


def _behind_ethertype(packet: bytes, at: int) -> int | None:
    for _ in range(3):  # two VLAN tags at most
        ethertype = int.from_bytes(packet[at : at + 2])
        if ethertype in _ETHERTYPE_IP:
            return at + 2
        if ethertype not in _ETHERTYPE_VLAN:
            return None
        at += 4
    return None


# Source, target, and the offset of the UDP header.
Addressed = tuple[bytes, bytes, int]


def _through_ipv4(packet: bytes, at: int) -> Addressed | None:
    if len(packet) < at + _IPV4_LENGTH:
        return None
    first, _, _, _, fragment, _, protocol, _, source, target = _IPV4_HEADER.unpack_from(packet, at)
    size = (first & 15) * 4
    if size < _IPV4_LENGTH or protocol != _UDP or fragment & 0x1FFF:
        return None
    return source, target, at + size


def _through_ipv6(packet: bytes, at: int) -> Addressed | None:
    if len(packet) < at + _IPV6_LENGTH:
        return None
    _, _, following, _, source, target = _IPV6_HEADER.unpack_from(packet, at)
    at += _IPV6_LENGTH
    for _ in range(_EXTENSIONS_LIMIT):
        if following not in _EXTENSIONS or len(packet) < at + 2:
            break
        following, at = packet[at], at + 8 * (packet[at + 1] + 1)
    return (source, target, at) if following == _UDP else None


@lru_cache(4096)  # a capture has few addresses, each thousands of times
def _text(packed: bytes) -> str:
    return str(ip_address(packed))


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071) of bytes that are not all 0, as a remainder: 2**16 is 1 modulo 2**16 - 1."""
    return 0xFFFF - (int.from_bytes(data + bytes(len(data) % 2)) % 0xFFFF or 0xFFFF)
