"""Whole batches of packets and datagrams: what the hot paths do with everything that one system call read.

In Python, so that it runs everywhere and says what is meant; ``bccnd.wire.native`` has the same functions compiled
where they could be built, and chooses. A test holds the two equal, byte by byte.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Protocol

from bccnd.wire.bccn1 import Integrity
from bccnd.wire.sbus import LENGTH, PACK, Memory

# Consecutive datagrams of one source on one channel, numbered without a gap: the index of the first in the batch,
# src, the seq of the first, chan, and where their MSG packets begin and end.
Run = tuple[int, bytes, int, bytes, list[int], list[int]]


class Codec(Protocol):
    """The datagrams of a deployment."""

    def open(
        self, memory: Memory, starts: list[int], ends: list[int], region: tuple[int, int]
    ) -> list[Run | int]:
        """What the datagrams at these spans hold, in order: runs of sound ones, and the indexes of all others,
        which have to go through ``Integrity.open`` for the verdict.

        The sound ones are laid out in ``region`` of the memory, apart from the spans, as the packets of a PACK: the
        length before each ``MSG <chan> NUL <payload>``. One that finds no room there counts among the others.
        """

    def seal(
        self,
        src: bytes,
        seq: int,
        memory: Memory,
        starts: list[int],
        ends: list[int],
        region: tuple[int, int],
    ) -> tuple[list[int], list[int]]:
        """The datagrams of the MSG packets at these spans, numbered from ``seq``, side by side in ``region`` of the
        memory, apart from the packets: their spans. ``ValueError`` when the region has no room for all.
        """

    def datagrams(
        self, src: bytes, seq: int, memory: Memory, starts: list[int], ends: list[int]
    ) -> list[bytes]:
        """The same datagrams, each by itself."""


class PlainCodec:
    """``Codec`` in Python."""

    def __init__(self, integrity: Integrity) -> None:
        self._integrity = integrity

    def open(
        self, memory: Memory, starts: list[int], ends: list[int], region: tuple[int, int]
    ) -> list[Run | int]:
        opened: list[Run | int] = []
        free, limit = region
        source = channel = b""
        expected = -1  # the seq that would go on with the last run
        firsts: list[int] = []
        afters: list[int] = []
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            datagram = memory[start:end]
            fields = self._integrity.open_sound(datagram)
            if fields is None or free + len(datagram) > limit:
                opened.append(index)
                expected = -1
                continue
            src, seq, chan, _, payload_at = fields
            packet = b"MSG %b\0%b" % (chan, datagram[payload_at:])
            first = free + LENGTH.size
            free = first + len(packet)
            memory[first - LENGTH.size : free] = LENGTH.pack(len(packet)) + packet
            if seq != expected or src != source or chan != channel:
                firsts, afters = [], []
                opened.append((index, src, seq, chan, firsts, afters))
                source, channel = src, chan
            firsts.append(first)
            afters.append(free)
            expected = seq + 1
        return opened

    def seal(
        self,
        src: bytes,
        seq: int,
        memory: Memory,
        starts: list[int],
        ends: list[int],
        region: tuple[int, int],
    ) -> tuple[list[int], list[int]]:
        datagrams = self.datagrams(src, seq, memory, starts, ends)
        edges = list(accumulate(map(len, datagrams), initial=region[0]))
        if edges[-1] > region[1]:
            raise ValueError("no room for the datagrams")
        memory[region[0] : edges[-1]] = b"".join(datagrams)
        return edges[:-1], edges[1:]

    def datagrams(
        self, src: bytes, seq: int, memory: Memory, starts: list[int], ends: list[int]
    ) -> list[bytes]:
        seal = self._integrity.seal
        return [
            seal(b"%b:%d:%b" % (src, number, memory[start + 4 : end].replace(b"\0", b"|", 1)))
            for number, (start, end) in enumerate(zip(starts, ends, strict=True), seq)
        ]


def alike(
    memory: Memory,
    spans: tuple[list[int], list[int]],
    first: int,
    routes: Mapping[bytes, object],
    route: object,
    longest: tuple[int, int],
) -> int:
    """The index of the first packet, from ``first`` on, that is not a MSG on a channel with this very route, or is
    longer than allowed. ``spans``: starts, ends; ``longest``: packet, payload.
    """
    head = b""  # MSG <chan> NUL of the packet before
    width = limit = 0
    for index, (start, end) in enumerate(zip(spans[0][first:], spans[1][first:], strict=True), first):
        if memory[start : start + width] != head or not width <= end - start <= limit or not width:
            nul = memory.find(b"\0", start + 4, end) if memory[start : start + 4] == b"MSG " else -1
            if nul < 0 or routes.get(memory[start + 4 : nul]) is not route:
                return index
            head = memory[start : nul + 1]
            width = len(head)
            limit = min(longest[0], width + longest[1])
            if end - start > limit:
                return index
    return max(first, len(spans[0]))


def unpack(memory: Memory, start: int, end: int) -> tuple[list[int], list[int]] | None:
    """The spans of the packets inside the PACK at ``memory[start:end]``; its length precedes each.

    ``Pack.parse`` on offsets, except that a PACK inside is for the caller to refuse when it comes to it, and that
    None says that a length reaches beyond the PACK.
    """
    starts: list[int] = []
    ends: list[int] = []
    at = start + len(PACK)
    while at < end:
        first = at + LENGTH.size
        at = first + LENGTH.unpack_from(memory, at)[0] if first <= end else first
        starts.append(first)
        ends.append(at)
    return (starts, ends) if at <= end else None
