"""Many packets with one system call: recvmmsg(2) and sendmmsg(2) between a socket and one arena of memory.

The asyncio and socket modules have no such calls, and system calls are what a relay spends its time on. The tables of
headers are laid out once; a read or a send only fills in addresses and lengths.
"""

import ctypes
import mmap
import os
from array import array
from collections.abc import Sequence
from errno import EAGAIN, EINTR
from itertools import groupby
from operator import add, sub
from socket import AF_INET
from struct import Struct
from typing import Self

# Packets of one read: enough to make the call cheap, few enough for the others to have their turn soon.
BATCH = 64

# Packets of one send, at most (UIO_MAXIOV).
VECTOR = 1024

_MSG_DONTWAIT = 0x40
_MSG_NOSIGNAL = 0x4000


class Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Msghdr(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.c_void_p),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class Mmsghdr(ctypes.Structure):
    _fields_ = (("header", Msghdr), ("length", ctypes.c_uint32))


_WORDS = ctypes.sizeof(Mmsghdr) // 4  # u32 a header
_LENGTH_WORD = Mmsghdr.length.offset // 4
_NAME_LENGTH_WORD = Msghdr.name_length.offset // 4
_NAME_BYTES = 28  # a sockaddr_in6, the longer of the two
_NAME = Struct("=H2s")  # family, port; the address of a sockaddr_in begins at 4, that of a sockaddr_in6 at 8

_libc = ctypes.CDLL(None, use_errno=True)
_recvmmsg = _libc.recvmmsg
_sendmmsg = _libc.sendmmsg


class Arena:
    """One piece of memory for everything that is read and sent, so that a position in it is a single number.

    Each user states what it ``needs``, the (count, size) of its slots, and takes them with ``slots``.
    """

    def __init__(self, size: int) -> None:
        self.memory = mmap.mmap(-1, size)  # pages are taken when they are first touched
        self.view = memoryview(self.memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self._used = 0
        self._size = size

    @classmethod
    def holding(cls, *needs: tuple[int, int]) -> Self:
        """An arena of just the size that these users need."""
        return cls(sum(count * _stride(size) for count, size in needs))

    def slots(self, count: int, size: int) -> list[int]:
        """Reserve ``count`` slots of ``size`` bytes and return where each begins."""
        stride = _stride(size)
        begin, self._used = self._used, self._used + count * stride
        if self._used > self._size:
            raise MemoryError(f"arena of {self._size} bytes, {self._used} asked")
        return [begin + index * stride for index in range(count)]


def _stride(size: int) -> int:
    """Whole cache lines and one more: slots a power of two apart would compete for the same lines."""
    return (size + 127) // 64 * 64 + 64


class ReceiveTable:
    """Reads up to BATCH packets of at most ``size`` bytes into ``arena``; with ``addresses``, who sent each.

    ``region``: where in the arena they are read to.
    """

    def __init__(self, arena: Arena, size: int, *, addresses: bool = False) -> None:
        self._slots = arena.slots(*self.needs(size))
        self.region = self._slots[0]
        self._one = [arena.view[self._slots[0] : self._slots[0] + size]]
        self._vectors = (Iovec * BATCH)()
        self._headers = (Mmsghdr * BATCH)()
        self._names = bytearray(_NAME_BYTES * BATCH)
        names = ctypes.addressof(ctypes.c_char.from_buffer(self._names))
        for index, slot in enumerate(self._slots):
            self._vectors[index].base = arena.address + slot
            self._vectors[index].length = size
            header = self._headers[index].header
            header.vectors = ctypes.addressof(self._vectors[index])
            header.vector_count = 1
            if addresses:
                header.name = names + _NAME_BYTES * index
        words = memoryview(self._headers).cast("B").cast("I")
        self._lengths = words[_LENGTH_WORD::_WORDS]
        self._name_lengths = words[_NAME_LENGTH_WORD::_WORDS]
        # The lengths of the packets of an earlier read, and where they ended: mostly the next ones are as long.
        self._known, self._ends = b"", list[int]()
        # Mostly the next ones come from where these did.
        self._known_name, self._known_peer = b"", (b"", 0)
        self._name_rooms = array("I", [_NAME_BYTES] * BATCH) if addresses else None
        self._table = ctypes.c_void_p(ctypes.addressof(self._headers))

    @staticmethod
    def needs(size: int) -> tuple[int, int]:
        return BATCH, size

    def read(self, fd: int, most: int = BATCH) -> tuple[list[int], list[int]]:
        """Where the packets begin and end, ``most`` of them at most; empty when there are none.

        Raises ``OSError`` for anything else.
        """
        if self._name_rooms:
            self._name_lengths[:] = self._name_rooms  # where the kernel wrote how much it took
        while True:
            count = _recvmmsg(fd, self._table, most, _MSG_DONTWAIT, None)
            if count >= 0:
                lengths = self._lengths[:count].tobytes()
                if not self._known.startswith(lengths):
                    self._ends = list(map(add, self._slots, self._lengths[:count].tolist()))
                    self._known = lengths
                return self._slots[:count], self._ends[:count]
            error = ctypes.get_errno()
            if error == EINTR:
                continue
            if error == EAGAIN:
                return [], []
            raise OSError(error, os.strerror(error))

    def read_one(self, fd: int) -> tuple[list[int], list[int]]:
        """Read a single packet, with the cheapest call."""
        try:
            length = os.readv(fd, self._one)
        except BlockingIOError:
            return [], []
        return [self.region], [self.region + length]

    def name(self, index: int) -> bytes:
        """The sender's address as the kernel wrote it, for comparison only: bytes after a short one may be stale."""
        return bytes(self._names[_NAME_BYTES * index : _NAME_BYTES * (index + 1)])

    def same_name(self, index: int, count: int) -> int:
        """How many of the ``count`` packets from ``index`` on came from where the first of them did; fewer than that
        where stale bytes differ.
        """
        begin = _NAME_BYTES * index
        first = self._names[begin : begin + _NAME_BYTES]
        if self._names[begin : begin + _NAME_BYTES * count] == first * count:
            return count
        return next(at for at in range(1, count) if self.name(index + at) != first)

    def peers(self, count: int) -> list[tuple[tuple[bytes, int], int]]:
        """Who sent the first ``count`` packets of the last read, as ``peer`` says it, and how many each of them did
        one after the other.
        """
        names = bytes(self._names[: _NAME_BYTES * count])
        first = names[:_NAME_BYTES]
        if names == first * count:
            if first != self._known_name:
                self._known_name, self._known_peer = first, self.peer(0)
            return [(self._known_peer, count)]
        runs, at = [], 0
        for _, run in groupby(
            names[begin : begin + _NAME_BYTES] for begin in range(0, len(names), _NAME_BYTES)
        ):
            length = len(list(run))
            runs.append((self.peer(at), length))
            at += length
        return runs

    def peer(self, index: int) -> tuple[bytes, int]:
        """Address (4 or 16 bytes) and port of the sender of the ``index``-th packet of the last read."""
        at = _NAME_BYTES * index
        family, port = _NAME.unpack_from(self._names, at)
        begin, end = (at + 4, at + 8) if family == AF_INET else (at + 8, at + 24)
        return bytes(self._names[begin:end]), int.from_bytes(port, "big")


class SendTable:
    """Sends packets from where they lie in ``arena``. Once it points to them, any number of sockets can get them."""

    def __init__(self, arena: Arena, capacity: int = VECTOR, *, to: bytes = b"") -> None:
        """``to``: the socket address that every packet goes to, for sockets without a peer."""
        self.capacity = capacity
        self._address = arena.address
        self._vectors = (Iovec * capacity)()
        self._headers = (Mmsghdr * capacity)()
        self._name = ctypes.create_string_buffer(to, len(to)) if to else None
        for index in range(capacity):
            header = self._headers[index].header
            header.vectors = ctypes.addressof(self._vectors[index])
            header.vector_count = 1
            if self._name is not None:
                header.name = ctypes.addressof(self._name)
                header.name_length = len(to)
        words = memoryview(self._vectors).cast("B").cast("L")
        self._bases, self._lengths = words[0::2], words[1::2]
        # Where the packets that it points to begin and end: mostly the next ones lie in the same places.
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._table = ctypes.c_void_p(ctypes.addressof(self._headers))

    def point(self, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Point to the packets at these spans, at most ``capacity``, for the next calls of ``send``."""
        count = len(starts)
        if self._starts[:count] == starts and self._ends[:count] == ends:
            return
        address = self._address
        self._starts = self._ends = []
        self._bases[:count] = array("L", [address + start for start in starts])
        self._lengths[:count] = array("L", [*map(sub, ends, starts)])
        self._starts, self._ends = [*starts], [*ends]

    def send(self, fd: int, count: int, first: int = 0) -> int:
        """Send the packets from index ``first`` up to ``count``. Returns how many went, or minus the errno."""
        table = self._table if not first else ctypes.c_void_p(ctypes.addressof(self._headers[first]))
        while True:
            went: int = _sendmmsg(fd, table, count - first, _MSG_DONTWAIT | _MSG_NOSIGNAL)
            if went >= 0:
                return went
            error = ctypes.get_errno()
            if error != EINTR:
                return -error
