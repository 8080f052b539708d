"""A backbone without a socket: packets in, what it does out."""

import random
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Network, ip_address
from itertools import groupby
from typing import Any

from bccnd.backbone.core import Backbone, Networks, Rules, Work
from bccnd.backbone.leases import Places
from bccnd.backbone.numbers import Numbers
from bccnd.wire.fyrehose import ITSELF, SEQ_LIMIT, Address, Deliver, Keepalive, Packet, Request, parse

TOKEN = bytes(range(16))
EVERYWHERE = Networks([IPv4Network("0.0.0.0/0")])
NOWHERE = Networks([])
PLACES = Places(1024, 256, 64)
RULES = Rules(EVERYWHERE, EVERYWHERE, EVERYWHERE, NOWHERE, PLACES, range=256, requests=1000, numbers=1 << 16)


def at(text: str) -> Address:
    """``10.0.0.1:5`` as an address."""
    host, _, port = text.partition(":")
    return ip_address(host).packed, int(port)


def networks(*names: str) -> Networks:
    return Networks(map(IPv4Network, names))


def keepalive(flags: int = 0, address: Address = ITSELF, token: bytes = TOKEN) -> bytes:
    return Keepalive(address, flags, token).serialize()


def request(first: int, last: int, address: Address = ITSELF) -> bytes:
    return Request(address, first, last).serialize()


class Desk:
    """A backbone of these rules, at a time that only ``pass_by`` changes."""

    def __init__(self, chance: Callable[[int], int] | None = None, **rules: Any) -> None:
        self.core = Backbone(replace(RULES, **rules), Numbers(), chance or random.Random(1).randrange)
        self.core.numbers.bound = SEQ_LIMIT
        self.now = 1000.0

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def receive(self, *packets: tuple[bytes, Address]) -> tuple[list[Packet], list[tuple[Packet, Address]]]:
        """One batch. Returns what is delivered to all, and the replies."""
        memory = bytearray(b"".join(packet for packet, _ in packets) + b"\xee")
        starts, ends, end = [], [], 0
        for packet, _ in packets:
            starts.append(end)
            end += len(packet)
            ends.append(end)
        senders = [(source, len(list(run))) for source, run in groupby(source for _, source in packets)]
        work: Work = self.core.receive(memoryview(memory), starts, ends, senders, self.now)
        delivered = [parse(bytes(memory[a:b])) for a, b in zip(work.starts, work.ends, strict=True)]
        assert all(isinstance(each, Deliver) for each in delivered)
        return delivered, [(parse(packet), address) for packet, address in work.replies]

    def dropped(self) -> dict[str, int]:
        """By reason, those that there are."""
        return {reason: count for reason, count in self.core.counts.dropped.items() if count}

    def subscribers(self) -> set[Address]:
        return set(self.core.subscribers.addresses)
