"""The datagrams of ``bccn dump``: from the daemon's tap or from a capture file, and into one.

A datagram has a direction: ``in`` came from the segment, ``out`` was sent there by this host, ``local`` never leaves
it. The tap shows a datagram of this host when it is published (peer ``local``). Most of these come back from the
network, with the verdict ``own``, or ``duplicate`` when the sender has left: such a datagram is an echo. In a capture
that others made the direction is unknown, and empty.
"""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import bccn
from bccnd.commands.dissection import Dissection, dissect
from bccnd.wire.bccn1 import Integrity
from bccnd.wire.pcap import Direction, Packet
from bccnd.wire.udp import PAYLOAD_LIMIT, UdpDatagram
from bccnd.wire.verdict import DELIVERED, Verdict

# In place of a verdict: the capture has only the beginning of the datagram.
CUT = "cut"
IN, OUT, LOCAL = "in", "out", "local"

# Datagrams of this host that may still come back.
ECHOES_AWAITED = 4096
# The port of the segment, unless another is given.
PORT = 5400
_LOOPBACK = {4: "127.0.0.1", 6: "::1"}
_NOWHERE = {4: "255.255.255.255", 6: "ff02::1"}
_COMMENT = re.compile(r"bccnd (in|out|local) ([a-z0-9-]{1,32})")
_DIRECTIONS = {Direction.IN: IN, Direction.OUT: OUT, Direction.UNKNOWN: ""}
_PACKET_DIRECTIONS = {IN: Direction.IN, OUT: Direction.OUT, LOCAL: Direction.OUT, "": Direction.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Sighting:
    """One datagram. ``verdict``: of the daemon, or of our own check, or CUT; ``missing``: how many datagrams were
    lost before it; ``captured``: how it stood in a capture.
    """

    time_ns: int
    direction: str
    verdict: str
    peer: str
    parts: Dissection
    missing: int = 0
    captured: UdpDatagram | None = None
    echo: bool = False

    @property
    def rejected(self) -> bool:
        return self.verdict not in DELIVERED and not self.echo

    @property
    def detail(self) -> str:
        """Where and how it breaks its rule, if our own check comes to the same verdict."""
        if self.verdict != self.parts.verdict:
            return ""
        where = f"at byte {self.parts.at}" if self.parts.at else ""
        return ": ".join(filter(None, [where, self.parts.detail]))


class Tap:
    """Makes sightings of what the daemon shows a tap; ``status`` is the daemon's."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._local: Sequence[str] = status.get("local", [])
        self._integrity = Integrity()
        self._sent: set[bytes] = set()
        self._sent_order: deque[bytes] = deque()

    def sighting(self, message: bccn.Message) -> Sighting:
        peer, verdict, datagram = message.peer or "", message.verdict or "", message.datagram or b""
        echo = verdict == Verdict.OWN or (verdict == Verdict.DUPLICATE and datagram in self._sent)
        if peer != "local":
            direction = OUT if echo else IN
        elif any(bccn.matches(pattern, message.channel) for pattern in self._local):
            direction = LOCAL
        else:
            direction = OUT
            self._remember(datagram)
        parts = dissect(datagram, self._integrity)
        return Sighting(message.time_ns or 0, direction, verdict, peer, parts, message.lost, echo=echo)

    def _remember(self, datagram: bytes) -> None:
        self._sent.add(datagram)
        self._sent_order.append(datagram)
        if len(self._sent_order) > ECHOES_AWAITED:
            self._sent.discard(self._sent_order.popleft())


def from_capture(packet: Packet, port: int, integrity: Integrity) -> Sighting | None:
    """None for a packet that is not of the segment: not to its port, and not beginning as BCCN does."""
    udp = UdpDatagram.parse(packet.linktype, packet.data)
    if udp is None or (udp.target_port != port and not udp.payload.startswith(b"BCCN")):
        return None
    parts = dissect(udp.payload, integrity)
    noted = _COMMENT.match(packet.comment)  # by Packer, when it was tapped
    direction = noted[1] if noted else _DIRECTIONS[packet.direction]
    verdict = noted[2] if noted else CUT if udp.cut else parts.verdict
    echo = verdict == Verdict.OWN
    host = f"[{udp.source}]" if ":" in udp.source else udp.source
    peer = f"{host}:{udp.source_port}"
    return Sighting(packet.time_ns, direction, verdict, peer, parts, packet.missing, udp, echo)


class Packer:
    """Makes packets of sightings, as they were on the wire or, for what a tap shows, might have been.

    A tap shows who sent a datagram but not where to: the packet gets the address of the segment. What this host sends
    comes from the loopback address, and what stays on this host goes there.
    """

    def __init__(self, segments: Iterable[dict[str, Any]]) -> None:
        self._targets: dict[int, tuple[str, int]] = {}
        for row in segments:
            address = ip_address(row["address"])
            self._targets.setdefault(address.version, (str(address), row["port"]))

    def packet(self, sighting: Sighting, missing: int) -> Packet | None:
        """``missing``: datagrams lost before it, wanted or not. None if the payload is too large for a datagram."""
        payload = sighting.parts.datagram
        if len(payload) > PAYLOAD_LIMIT:
            return None
        data = (sighting.captured or self._made_up(sighting, payload)).serialize()
        return Packet(
            sighting.time_ns,
            data,
            len(data),
            comment=f"bccnd {sighting.direction} {sighting.verdict}" if sighting.direction else "",
            direction=_PACKET_DIRECTIONS[sighting.direction],
            missing=missing,
        )

    def _made_up(self, sighting: Sighting, payload: bytes) -> UdpDatagram:
        host, _, port = sighting.peer.rpartition(":")
        version = ip_address(host.strip("[]")).version if host else min(self._targets, default=4)
        _, any_port = next(iter(self._targets.values()), ("", PORT))
        target, target_port = self._targets.get(version, (_NOWHERE[version], any_port))
        if sighting.direction == LOCAL:
            target = _LOOPBACK[version]
        source, source_port = (host.strip("[]"), int(port)) if host else (_LOOPBACK[version], target_port)
        return UdpDatagram(source, source_port, target, target_port, payload)
