"""RECV packets of a tap by the batch, as columns: one pass from what was read to what Arrow takes as it is.

In Python, so that it runs everywhere; ``bccnd.wire.native`` has the same compiled where it could be built, and
chooses. A test holds the two equal.

Rules
- Here is only taken apart. What a verdict, a peer or a channel means is for others to say.
- A datagram is taken apart as far as its header goes: what was rejected for its length or its sum still says from
  whom it claims to be. Without a sound header it has neither source nor channel, and all of it is payload.
- What is no RECV packet (CMSG, or anything else) is given back with the row before which it came.
"""

import re
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from bccnd.wire import batch
from bccnd.wire.bccn1 import CHAN_LIMIT, LENGTH_DIGITS, SEQ_LIMIT, SRC_LIMIT
from bccnd.wire.sbus import NOWHERE, PACK, TIME_DIGITS, Memory

TIME_LIMIT = 2**63  # nanoseconds since 1970, exclusive: the year 2262

Words = tuple[bytes, list[bytes]]  # an int32 a row, and what it is the index of: each distinct value once


class Columns(NamedTuple):
    """``rows`` packets. Numbers are the bytes of arrays in the machine's order, one element a row."""

    rows: int
    time_ns: bytes  # int64
    size: bytes  # int32, of the datagram
    seq: bytes  # uint64, 0 where there is no header
    sound: bytes  # uint8, 1 where there is one: src, seq, chan and mode
    peer: Words
    verdict: Words
    interface: Words
    mode: Words  # empty, crc32 or hmac
    src: Words
    chan: Words
    payload_at: bytes  # int32, one more than rows: where each payload begins and the one before it ends
    payload: bytes
    others: list[tuple[int, bytes]]


_TOKEN = rb"[^\x00\t-\r |:\x80-\xff]"
_RECV = re.compile(
    rb"RECV ([^ \x00]+) ([0-9]{1,%d}) ([^ \x00]+)(?: ([^ \x00]+))?\x00" % TIME_DIGITS
    + rb"(?:BCCN1\[[0-9]{1,%d}(?::(hmac|crc32)=[0-9a-f]{1,16})?\]" % LENGTH_DIGITS
    + rb"(%b{1,%d}):([0-9]{1,20}):(%b{1,%d})\|)?" % (_TOKEN, SRC_LIMIT, _TOKEN, CHAN_LIMIT)
)


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
    """The packets at these places; a PACK is taken apart. ``others`` has a PACK whose lengths are wrong."""
    times, sizes, seqs, sound = array("q"), array("i"), array("Q"), bytearray()
    peer, verdict, interface, mode, src, chan = [_Index() for _ in range(6)]
    payload_at, payload = array("i", [0]), bytearray()
    others: list[tuple[int, bytes]] = []
    for packet in _packets(memory, starts, ends):
        found = _RECV.match(packet)
        if found is None or int(found[2]) >= TIME_LIMIT:
            others.append((len(times), packet))
            continue
        fields = found.groups()
        begin = packet.index(b"\0") + 1
        times.append(int(fields[1]))
        sizes.append(len(packet) - begin)
        peer.add(fields[0])
        verdict.add(fields[2])
        interface.add(fields[3] or NOWHERE)
        if fields[5] is not None and int(fields[6]) < SEQ_LIMIT:
            sound.append(1)
            seqs.append(int(fields[6]))
            mode.add(fields[4] or b"")
            src.add(fields[5])
            chan.add(fields[7])
            payload += packet[found.end() :]
        else:
            sound.append(0)
            seqs.append(0)
            for index in (mode, src, chan):
                index.add(b"")
            payload += packet[begin:]
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
