"""Frames of DNDM, and how they are found in a stream of bytes (``bccnd/wire/DNDM.md``, "Frames").

    FADABEDA  total 4  header size 4  header  message size 4  message      total: behind itself
    CEBAFE4A  total 4  message size 4  message                             without a header

Sizes are big-endian. All that are there are checked before anything waits for the bytes they announce: they must be
within the limits and agree with each other.
"""

import re
from struct import Struct
from typing import NamedTuple

from bccnd.errors import DndmError

MAGIC, HEADERLESS = b"\xfa\xda\xbe\xda", b"\xce\xba\xfe\x4a"
# What public peers take of a header.
HEADER_LIMIT = 2048
# Bytes of a frame, all counted: an image of a camera has room.
FRAME_LIMIT = 4 << 20
# The same on a serial line, where it takes six seconds at 115200 baud.
LINE_LIMIT = 64 << 10
# Bytes before what ``total`` counts.
PREAMBLE_BYTES = 8

_SIZE = Struct(">I")
_MAGICS = re.compile(b"%b|%b" % (re.escape(MAGIC), re.escape(HEADERLESS)))


class Frame(NamedTuple):
    """``header`` and ``message`` as protobuf bytes; a headerless frame has no header, not an empty one."""

    header: bytes | None
    message: bytes

    def serialize(self) -> bytes:
        """Raises ``DndmError`` for a frame that is longer than any peer may send."""
        parts = [_SIZE.pack(len(self.message)), self.message]
        if self.header is not None:
            if len(self.header) > HEADER_LIMIT:
                raise DndmError("header", f"{len(self.header)} bytes, at most {HEADER_LIMIT}")
            parts = [_SIZE.pack(len(self.header)), self.header, *parts]
        total = sum(map(len, parts))
        if PREAMBLE_BYTES + total > FRAME_LIMIT:
            raise DndmError("size", f"{PREAMBLE_BYTES + total} bytes, at most {FRAME_LIMIT}")
        return b"".join([HEADERLESS if self.header is None else MAGIC, _SIZE.pack(total), *parts])


class Reader:
    """Takes bytes as they come, one or many, and gives frames.

    Rules
    - On a clean line the first wrong size is a fault: nothing behind it can be trusted, and nothing more is read.
    - On a noisy line, such as a serial one, bytes that begin no frame are skipped and counted, up to the next magic.
      A frame that turns out wrong is skipped by one byte alone, since a sound one may have begun within.
    - It keeps less than one frame within ``limit``, and what ``feed`` was given.
    """

    def __init__(self, limit: int = FRAME_LIMIT, *, noisy: bool = False) -> None:
        self._limit = limit
        self._noisy = noisy
        self._memory = bytearray()
        self.fault: DndmError | None = None
        # Bytes that belonged to no frame.
        self.skipped = 0

    @property
    def waiting(self) -> int:
        """Bytes of a frame that has begun."""
        return len(self._memory)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now."""
        if self.fault is not None:
            return []
        self._memory += data
        return self._take(0)

    def resume(self) -> list[Frame]:
        """Give up the frame that has begun, as a noisy line is silent since; the frames that it hid."""
        if not self._memory or not self._noisy:
            return []
        self.skipped += 1
        return self._take(1)

    def _take(self, at: int) -> list[Frame]:
        memory, frames = self._memory, []
        while True:
            if self._noisy:
                found = _next_magic(memory, at)
                self.skipped += found - at
                at = found
            try:
                size = measure(memory, at, self._limit)
            except DndmError as error:
                if not self._noisy:
                    self.fault = error
                    at = len(memory)
                    break
                self.skipped += 1
                at += 1
                continue
            if size is None:
                break
            frames.append(_cut(memory, at, size))
            at += size
        del memory[:at]
        return frames


def measure(memory: "bytes | bytearray", at: int, limit: int) -> int | None:
    """The size of the frame at ``at``, in bytes; None while it is not complete. Raises ``DndmError``."""
    there = len(memory) - at
    magic = bytes(memory[at : at + 4])
    if not MAGIC.startswith(magic) and not HEADERLESS.startswith(magic):
        raise DndmError("magic", magic.hex())
    if there < PREAMBLE_BYTES:
        return None
    (total,) = _SIZE.unpack_from(memory, at + 4)
    least = 4 if magic == HEADERLESS else 8
    if not least <= total <= limit - PREAMBLE_BYTES:
        raise DndmError("size", f"{total} bytes, at least {least} and at most {limit - PREAMBLE_BYTES}")
    behind = PREAMBLE_BYTES
    if magic == MAGIC:
        if there < behind + 4:
            return None
        (header,) = _SIZE.unpack_from(memory, at + behind)
        if header > min(HEADER_LIMIT, total - 8):
            raise DndmError("header", f"{header} bytes of {total}")
        behind += 4 + header
    if there < behind + 4:
        return None
    (message,) = _SIZE.unpack_from(memory, at + behind)
    if behind + 4 + message != PREAMBLE_BYTES + total:
        raise DndmError("message", f"{message} bytes, not {PREAMBLE_BYTES + total - behind - 4}")
    return PREAMBLE_BYTES + total if there >= PREAMBLE_BYTES + total else None


def parse(data: bytes, limit: int = FRAME_LIMIT) -> Frame:
    """The one frame that ``data`` is. Raises ``DndmError``."""
    size = measure(data, 0, limit)
    if size != len(data):
        raise DndmError("size", f"{len(data)} bytes are not one frame")
    return _cut(data, 0, size)


def _cut(memory: "bytes | bytearray", at: int, size: int) -> Frame:
    """Take the frame apart that ``measure`` found sound."""
    if memory[at] == HEADERLESS[0]:
        return Frame(None, bytes(memory[at + 12 : at + size]))
    (header,) = _SIZE.unpack_from(memory, at + 8)
    return Frame(bytes(memory[at + 12 : at + 12 + header]), bytes(memory[at + 16 + header : at + size]))


def _next_magic(memory: bytearray, at: int) -> int:
    """Where the next frame begins, or may: the last bytes can be the beginning of a magic."""
    found = _MAGICS.search(memory, at)
    if found:
        return found.start()
    for tail in range(min(3, len(memory) - at), 0, -1):
        end = bytes(memory[-tail:])
        if MAGIC.startswith(end) or HEADERLESS.startswith(end):
            return len(memory) - tail
    return len(memory)
