"""What ``bccn dump`` has seen, from the daemon's tap or out of a capture file, and as a packet of one.

Directions: ``in`` came from the segment, ``out`` was sent there by this host, ``local`` never leaves it. The tap
shows a datagram of ours as it is published (peer ``local``); the network gives most of them back to us, with the
verdict ``own``, or ``duplicate`` when the sender has left: these are echoes. In a capture that others made the
direction is not known, and it is empty.
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
from bccnd.wire.verdict import Verdict

# In place of a verdict: the capture has only the beginning of the datagram.
CUT = "cut"
IN, OUT, LOCAL = "in", "out", "local"

ECHOES_AWAITED = 4096  # datagrams of ours that may come back: what a burst has on the way
PORT = 5400  # of the segment, when nobody says another
_LOOPBACK = {4: "127.0.0.1", 6: "::1"}
_NOWHERE = {4: "255.255.255.255", 6: "ff02::1"}
_COMMENT = re.compile(r"bccnd (in|out|local) ([a-z0-9-]{1,32})")
_DIRECTIONS = {Direction.IN: IN, Direction.OUT: OUT, Direction.UNKNOWN: ""}
_PACKET_DIRECTIONS = {IN: Direction.IN, OUT: Direction.OUT, LOCAL: Direction.OUT, "": Direction.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Sighting:
    """One datagram. ``verdict``: of the daemon, or of our own check; ``missing``: how many were lost before it;
    ``captured``: how it stood in a capture."""

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
        return self.verdict != Verdict.OK and not self.echo

    @property
    def detail(self) -> str:
        """What our own look at it says, where that is why it was rejected."""
        if self.verdict != self.parts.verdict:
            return ""
        place = f"at byte {self.parts.at}" if self.parts.at else ""
        return ": ".join(filter(None, [place, self.parts.detail]))


class Tap:
    """Makes sightings of what the daemon shows; ``status`` is its own account of itself."""

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
    """None for what is no datagram of the segment: neither to its port nor beginning as they do."""
    udp = UdpDatagram.parse(packet.linktype, packet.data)
    if udp is None or (udp.target_port != port and not udp.payload.startswith(b"BCCN")):
        return None
    parts = dissect(udp.payload, integrity)
    told = _COMMENT.match(packet.comment)  # by ourselves, when it was tapped
    direction = told[1] if told else _DIRECTIONS[packet.direction]
    verdict = told[2] if told else CUT if udp.cut else parts.verdict
    echo = verdict == Verdict.OWN
    host = f"[{udp.source}]" if ":" in udp.source else udp.source
    peer = f"{host}:{udp.source_port}"
    return Sighting(packet.time_ns, direction, verdict, peer, parts, packet.missing, udp, echo)


class Packer:
    """Makes packets of sightings, as they were on the wire or, for what the daemon only shows, might have been.

    The tap tells who sent a datagram, not where to: that is the address of the segment. What comes from this host is
    shown as from the loopback address, and what stays on it as to there.
    """

    def __init__(self, segments: Iterable[dict[str, Any]]) -> None:
        self._targets: dict[int, tuple[str, int]] = {}
        for row in segments:
            address = ip_address(row["address"])
            self._targets.setdefault(address.version, (str(address), row["port"]))

    def packet(self, sighting: Sighting, missing: int) -> Packet | None:
        """``missing``: before it, whether or not they would have been written. None: too large for a datagram."""
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
