"""Batches of RECV packets of a tap, as columns: one pass from what was read to what Arrow takes as it is.

The recorder gets its rows this way, without an object for each packet. This is the form in Python, which runs
everywhere; ``bccnd.wire.native`` has the same compiled, and chooses. A test holds the two equal.

Rules
- This only takes packets apart. What a verdict, a peer or a channel means is for others to say.
- A datagram that was rejected for its length or its sum still says which source it claims to be from. Without a sound
  header (``bccn1.HEADER``) it has neither source nor channel, and all of it is payload.
- What is not a RECV packet (a CMSG, or anything else) is returned with the number of the row before which it came.
"""

import re
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from bccnd.wire import batch
from bccnd.wire.bccn1 import HEADER, SEQ_LIMIT
from bccnd.wire.sbus import NOWHERE, PACK, TIME_DIGITS, Memory

# Nanoseconds since 1970, exclusive: the year 2262.
TIME_LIMIT = 2**63

# An int32 for each row, and what it is the index of: each distinct value once.
Words = tuple[bytes, list[bytes]]


class Columns(NamedTuple):
    """``rows`` packets. Numbers are the bytes of arrays in the machine's order, one element for each row."""

    rows: int
    time_ns: bytes  # int64
    size: bytes  # int32, of the datagram
    seq: bytes  # uint64, 0 where there is no header
    sound: bytes  # uint8, 1 where there is one, and so src, seq, chan and mode
    peer: Words
    verdict: Words
    interface: Words
    mode: Words  # empty, crc32 or hmac
    src: Words
    chan: Words
    payload_at: bytes  # int32, one more than rows: where each payload begins and the one before it ends
    payload: bytes
    others: list[tuple[int, bytes]]


_RECV = re.compile(rb"RECV ([^ \x00]+) ([0-9]{1,%d}) ([^ \x00]+)(?: ([^ \x00]+))?\x00" % TIME_DIGITS)


class _Index:
    """Numbers for words, in the order in which they come."""

    def __init__(self) -> None:
        self.numbers = array("i")
        self._known: dict[bytes, int] = {}

    def add(self, word: bytes) -> None:
        self.numbers.append(self._known.setdefault(word, len(self._known)))

    @property
    def words(self) -> Words:
        return self.numbers.tobytes(), list(self._known)


def columns(memory: Memory, starts: list[int], ends: list[int]) -> Columns:
    """The packets at these spans, those inside a PACK too. A PACK whose lengths are wrong is in ``others``."""
    times, sizes, seqs, sound = array("q"), array("i"), array("Q"), bytearray()
    peer, verdict, interface, mode, src, chan = [_Index() for _ in range(6)]
    payload_at, payload = array("i", [0]), bytearray()
    others: list[tuple[int, bytes]] = []
    for packet in _packets(memory, starts, ends):
        recv = _RECV.match(packet)
        if recv is None or int(recv[2]) >= TIME_LIMIT:
            others.append((len(times), packet))
            continue
        times.append(int(recv[2]))
        sizes.append(len(packet) - recv.end())
        peer.add(recv[1])
        verdict.add(recv[3])
        interface.add(recv[4] or NOWHERE)
        header = HEADER.match(packet, recv.end())
        if header is not None and int(header["seq"]) < SEQ_LIMIT:
            sound.append(1)
            seqs.append(int(header["seq"]))
            mode.add(header["algorithm"] or b"")
            src.add(header["src"])
            chan.add(header["chan"])
            payload += packet[header.end() :]
        else:
            sound.append(0)
            seqs.append(0)
            for index in (mode, src, chan):
                index.add(b"")
            payload += packet[recv.end() :]
        payload_at.append(len(payload))
    return Columns(
        len(times),
        times.tobytes(),
        sizes.tobytes(),
        seqs.tobytes(),
        bytes(sound),
        peer.words,
        verdict.words,
        interface.words,
        mode.words,
        src.words,
        chan.words,
        payload_at.tobytes(),
        bytes(payload),
        others,
    )


def _packets(memory: Memory, starts: list[int], ends: list[int]) -> Iterator[bytes]:
    for start, end in zip(starts, ends, strict=True):
        packet = memory[start:end]
        inside = batch.unpack(memory, start, end) if packet.startswith(PACK) else None
        if inside is None:
            yield packet
        else:
            for first, after in zip(*inside, strict=True):
                yield memory[first:after]
