"""Every decision of the backbone; no socket, no clock, no log (``bccnd/wire/FYREHOSE.md``, "The backbone").

    packets of a batch --> receive --> what is delivered to all subscribers, and what is replied to one

Rules
- Only sound packets are answered. Nothing is sent to an address that has not sent something itself, unless
  ``Rules.redirect`` allows it.
- Dropped packets are counted by reason (DROPPED), without an answer.
- Time enters as monotonic seconds and never goes back.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any

from bccnd.backbone.leases import Leases, Places
from bccnd.backbone.numbers import Numbers
from bccnd.errors import FyrehoseError
from bccnd.wire.fyrehose import (
    NOJOURNAL,
    NOSUBSCRIBE,
    PUSH,
    Ack,
    Address,
    Forward,
    Keepalive,
    Request,
    check_length,
    parse,
    proves,
)
from bccnd.wire.native import number

# Why a packet, or a part of its request, is dropped. The text completes "packets ...".
DROPPED = {
    "kind": "of an unknown kind",
    "size": "of the wrong size for their kind",
    "length": "with a wrong LENGTH",
    "range": "that ask for a range that ends before it begins",
    "unexpected": "that only a backbone or another client sends",
    "source": "from port 0, where nobody can be reached",
    "right": "from a network without the right to it",
    "stranger": "from senders without a recent KEEPALIVE",
    "token": "with a TOKEN that proves no key",
    "redirect": "that name an address other than their sender's",
    "place": "of subscribers without a free place",
    "number": "that came while there was no sequence number",
    "hurry": "that ask, or publish, more than an address may in a second",
    "nobody": "that ask for messages when nobody else keeps any",
}

# Addresses whose requests, or messages, of one second are counted, some 100 bytes each. Beyond these only addresses
# with a place may ask in that second, and places are bounded, too. So forged addresses hold up nobody who has sent a
# KEEPALIVE.
ASKERS_LIMIT = 4096


class Networks:
    """The IPv4 networks with a right. In ``addr in networks`` the address has 4 bytes."""

    def __init__(self, networks: Iterable[IPv4Network]) -> None:
        self._pairs = [(int(each.netmask), int(each.network_address)) for each in networks]
        self._all = (0, 0) in self._pairs

    def __contains__(self, addr: bytes) -> bool:
        if self._all:
            return True
        value = int.from_bytes(addr, "big")
        return any(value & mask == network for mask, network in self._pairs)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rights of networks, and the bounds of addresses.

    ``publish``, ``subscribe``, ``request``: the networks that may; ``redirect``: those that may name another address
    than their own; ``range``: the numbers of one FORWARD; ``requests``, ``numbers``, ``pushes``: bounds of one
    address in a second, for its REQUESTs, the numbers that these ask for, and its messages (0 for none);
    ``strangers``: whether a PUSH or REQUEST is taken from senders without a KEEPALIVE; ``keys``: a TOKEN must prove
    one of them, if there are any.
    """

    publish: Networks
    subscribe: Networks
    request: Networks
    redirect: Networks
    places: Places
    range: int
    requests: int
    numbers: int
    pushes: int = 0
    strangers: bool = True
    keys: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Counts:
    """Counters since the start."""

    pushed: int = 0
    keepalives: int = 0
    requests: int = 0
    forwarded: int = 0
    dropped: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(DROPPED, 0)))


@dataclass(slots=True)
class Work:
    """The result of a batch. ``starts``, ``ends``: where the DELIVERs lie in the memory, in the order of their
    numbers; ``replies``: packets, each with its address.
    """

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    replies: list[tuple[bytes, Address]] = field(default_factory=list)


class Backbone:
    """``chance(n)``: a random number from 0 to n - 1."""

    def __init__(self, rules: Rules, numbers: Numbers, chance: Callable[[int], int]) -> None:
        self.numbers = numbers
        self.subscribers = Leases(rules.places)
        # Senders of a KEEPALIVE that are no subscribers: with NOSUBSCRIBE, for another address, or without the right.
        self.others = Leases(rules.places)
        self.counts = Counts()
        self._chance = chance
        # Of this second, by address.
        self._asked: Counter[bytes] = Counter()
        self._asked_numbers: Counter[bytes] = Counter()
        self._pushed: Counter[bytes] = Counter()
        self._counted_since = float("-inf")
        self.rules = rules

    def reconfigure(self, rules: Rules) -> None:
        """Use other rules from now on. Places that are taken stay until they run out."""
        self.rules = rules
        self.subscribers.places = self.others.places = rules.places

    def expire(self, now: float) -> None:
        """Take the places that have run out. Every call of ``receive`` does that, too."""
        self.subscribers.expire(now)
        self.others.expire(now)

    def receive(
        self,
        memory: memoryview,
        starts: Sequence[int],
        ends: Sequence[int],
        senders: Iterable[tuple[Address, int]],
        now: float,
    ) -> Work:
        """Judge the packets at these spans of ``memory``. ``senders``: their addresses, each with the number of
        consecutive packets from it.

        A PUSH that is taken becomes its DELIVER where it lies.
        """
        self.expire(now)
        work, at = Work(), 0
        for source, count in senders:
            stop = at + count
            if not source[1]:
                self.counts.dropped["source"] += count
                at = stop
            while at < stop:
                start, end = starts[at], ends[at]
                if start < end and memory[start] == PUSH:
                    at += self._push(memory, starts[at:stop], ends[at:stop], source, work, now)
                else:
                    self._take(bytes(memory[start:end]), source, work, now)
                    at += 1
        return work

    def _push(
        self,
        memory: memoryview,
        starts: Sequence[int],
        ends: Sequence[int],
        source: Address,
        work: Work,
        now: float,
    ) -> int:
        """Number the PUSHes at the start of these packets of ``source``; if the first gets no number, drop it.
        Returns how many packets that are.
        """
        numbers, most = self.numbers, self.numbers.left
        reason = self._refused(source, self.rules.publish, needs_place=not self.rules.strangers)
        if self.rules.pushes and not reason:
            left = self.rules.pushes - self._counted(self._pushed, source, now)
            most, reason = min(most, left), "" if left > 0 else "hurry"
        if not reason:
            count = number(memory, starts[:most], ends[:most], numbers.next)
            if count:
                numbers.take(count)
                if self.rules.pushes:
                    self._pushed[source[0]] += count
                self.counts.pushed += count
                work.starts += starts[:count]
                work.ends += ends[:count]
                return count
        try:
            check_length(memory, starts[0], ends[0])
        except FyrehoseError as error:
            reason = error.rule
        self.counts.dropped[reason or "number"] += 1
        return 1

    def _take(self, data: bytes, source: Address, work: Work, now: float) -> None:
        try:
            packet = parse(data)
        except FyrehoseError as error:
            reason = error.rule
        else:
            if isinstance(packet, Keepalive):
                reason = self._keepalive(packet, source, work, now)
            elif isinstance(packet, Request):
                reason = self._request(packet, source, work, now)
            else:
                reason = "unexpected"
        if reason:
            self.counts.dropped[reason] += 1

    def _keepalive(self, packet: Keepalive, source: Address, work: Work, now: float) -> str:
        """Returns why the KEEPALIVE gives no place, or nothing. It is acknowledged to its source either way."""
        if self.rules.keys and not proves(packet.token, self.rules.keys):
            return "token"
        self.counts.keepalives += 1
        work.replies.append((Ack(packet.token).serialize(), source))
        address = self._named(packet.address, source)
        if address is None:
            return "redirect"
        if packet.flags & NOSUBSCRIBE:
            return "" if self.others.keep(source, now, journals=False) else "place"
        may_subscribe = source[0] in self.rules.subscribe
        if address != source or not may_subscribe:
            self.others.keep(source, now, journals=False)
        if not may_subscribe:
            return "right"
        journals = not packet.flags & NOJOURNAL
        return "" if self.subscribers.keep(address, now, journals=journals) else "place"

    def _request(self, packet: Request, source: Address, work: Work, now: float) -> str:
        """Returns why the REQUEST is not forwarded, or an empty string."""
        self.counts.requests += 1
        # A forged request makes others send to its victim. So if there are keys, an address must prove one before it
        # asks.
        needs_place = not self.rules.strangers or bool(self.rules.keys)
        if reason := self._refused(source, self.rules.request, needs_place=needs_place):
            return reason
        address = self._named(packet.address, source)
        if address is None:
            return "redirect"
        granted = self._granted(source, packet, now)
        if not granted:
            return "hurry"
        chosen = self.subscribers.choose({address, source}, self._chance)
        if chosen is None:
            return "nobody"
        last = packet.first + granted - 1
        work.replies.append((Forward(address, packet.first, last).serialize(), chosen))
        self.counts.forwarded += 1
        return ""

    def _refused(self, source: Address, networks: Networks, *, needs_place: bool) -> str:
        if source[0] not in networks:
            return "right"
        return "stranger" if needs_place and not self._is_known(source) else ""

    def _is_known(self, source: Address) -> bool:
        return source in self.subscribers or source in self.others

    def _named(self, address: Address, source: Address) -> Address | None:
        """The address and port that a packet names: ADDR and PORT, each 0 for the sender's; None if it may not."""
        addr, port = address
        wanted = (addr if any(addr) else source[0], port or source[1])
        return wanted if wanted == source or source[0] in self.rules.redirect else None

    def _granted(self, source: Address, packet: Request, now: float) -> int:
        """How many numbers the address may ask for, from the first on: it may be a victim of forged requests."""
        addr, rules = source[0], self.rules
        if self._counted(self._asked, source, now) >= rules.requests:
            return 0
        left = rules.numbers - self._asked_numbers[addr]
        granted = min(packet.last - packet.first + 1, rules.range, left)
        if granted > 0:
            self._asked[addr] += 1
            self._asked_numbers[addr] += granted
        return max(0, granted)

    def _counted(self, counter: Counter[bytes], source: Address, now: float) -> int:
        """How much of its bound the address has used in this second; all of it, if there is no room to count."""
        if now - self._counted_since >= 1.0:
            for each in (self._asked, self._asked_numbers, self._pushed):
                each.clear()
            self._counted_since = now
        if source[0] not in counter and len(counter) >= ASKERS_LIMIT and not self._is_known(source):
            return max(self.rules.requests, self.rules.pushes)
        return counter[source[0]]

    # -- succession

    def state(self) -> dict[str, Any]:
        """What a successor needs, in plain values."""
        counts = self.counts
        return {
            "next": self.numbers.next,
            "bound": self.numbers.bound,
            "subscribers": self.subscribers.state(),
            "others": self.others.state(),
            "counts": (counts.pushed, counts.keepalives, counts.requests, counts.forwarded),
            "dropped": dict(counts.dropped),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.numbers.next, self.numbers.bound = state["next"], state["bound"]
        self.subscribers.restore(state["subscribers"])
        self.others.restore(state["others"])
        self.counts = Counts(*state["counts"])
        self.counts.dropped.update(state["dropped"])
