"""Each of some packets to every address, with few system calls and few ways through the kernel.

Packets of one length that follow each other go to an address as one long datagram, and the kernel is told to divide
it (UDP_SEGMENT, udp(7), since Linux 4.18). Who receives sees no difference. To one address of the loopback a packet
costs a sixth then, as all of them are routed, filtered and handed over at once.

Rules
- The packets of an address stay in order. Those of one run go to all addresses in turn, then those of the next.
- What the kernel does not divide for an address (for its link is too narrow, or computes no checksums) goes to it
  packet by packet.
"""

import ctypes
import socket
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from errno import EINTR, EINVAL, EIO, EMSGSIZE
from itertools import pairwise
from operator import sub
from socket import AF_INET
from struct import Struct
from typing import Any

from bccnd.net.mmsg import BATCH, VECTOR, Arena, Iovec, Mmsghdr, Msghdr

# Bytes of a packet that may be divided off: what Ethernet takes whole. What a narrower link refuses goes one by one.
DIVIDED_LIMIT = 1472
# Bytes of a datagram.
DATAGRAM_LIMIT = 65_507

_MSG_DONTWAIT = 0x40
_MSG_NOSIGNAL = 0x4000
_SOL_UDP, _UDP_SEGMENT = 17, 103
_IN = Struct("=H2s4s8x")  # struct sockaddr_in
_CONTROL = Struct("@NiiH6x")  # struct cmsghdr and the length of a part, as CMSG_SPACE has it
_CONTROL_LENGTH = 18  # as CMSG_LEN has it
# Words of a header, each with a field of its own, or with one and the padding behind it.
_WORDS = ctypes.sizeof(Mmsghdr) // 8
# The kernel does not divide these, but may send them one by one.
_UNDIVIDED = frozenset({EINVAL, EMSGSIZE, EIO})

_sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg


def divides(made: socket.socket) -> bool:
    """Whether the kernel divides datagrams of this socket. One that does not would send them whole."""
    try:
        made.setsockopt(_SOL_UDP, _UDP_SEGMENT, 0)
    except OSError:
        return False
    return True


class FanTable:
    """Sends packets in ``arena`` to every one of ``addresses``, from 1 to VECTOR of them, over sockets that can
    ``divide``, or not.

    An address is IPv4, in 4 bytes, and a port. The headers of a call stay as they are from batch to batch, as long as
    the packets lie in the same places.
    """

    def __init__(self, arena: Arena, addresses: Sequence[tuple[bytes, int]], *, divide: bool = False) -> None:
        self.width = len(addresses)
        self._divide = divide
        self._address = arena.address
        names = b"".join(_IN.pack(AF_INET, port.to_bytes(2, "big"), addr) for addr, port in addresses)
        self._names = ctypes.create_string_buffer(names, len(names))
        self._name = ctypes.addressof(self._names)
        self._rows = min(BATCH, VECTOR // self.width)  # runs of one call
        self._controls = ctypes.create_string_buffer(_CONTROL.size * self._rows)
        self._vectors = (Iovec * BATCH)()
        self._headers = (Mmsghdr * (self._rows * self.width))()
        first = ctypes.addressof(self._controls)
        row = [self._name + _IN.size * index for index in range(self.width)]
        self._fill(self._headers, Msghdr.name, row * self._rows)
        self._fill(self._headers, Msghdr.name_length, [_IN.size] * len(self._headers))
        self._fill(
            self._headers,
            Msghdr.control,
            self._each([first + _CONTROL.size * at for at in range(self._rows)]),
        )
        words = memoryview(self._vectors).cast("B").cast("L")
        self._bases, self._lengths = words[0::2], words[1::2]
        # Where the packets begin and end: mostly the next ones lie in the same places.
        self._pointed: tuple[Sequence[int], Sequence[int]] = (), ()
        self._sizes: list[int] = []
        # The first packet of each run, and how many packets there are.
        self._runs = [0]
        self._window = -1  # of runs, that the headers are laid out for

    def point(self, starts: Sequence[int], ends: Sequence[int]) -> int:
        """Point to the packets at these spans, at most BATCH. Returns how many datagrams that makes."""
        if (starts, ends) != self._pointed:
            self._pointed, self._window = ((), ()), -1
            self._sizes = sizes = [*map(sub, ends, starts)]
            self._bases[: len(starts)] = array("L", [self._address + start for start in starts])
            self._lengths[: len(starts)] = array("L", sizes)
            self._runs = _runs(sizes) if self._divide else [*range(len(sizes) + 1)]
            self._pointed = starts, ends
        return len(starts) * self.width

    def send(self, fd: int, first: int) -> int:
        """Send what one call takes of the datagrams from index ``first`` on. Returns how many went, or minus the
        errno of the first of them.
        """
        runs, width = self._runs, self.width
        run = bisect_right(runs, first // width) - 1
        count = runs[run + 1] - runs[run]
        column, at = divmod(first - runs[run] * width, count)
        if not at:
            went = self._send_runs(fd, run, column)
            if went > 0:
                run, column = divmod(run * width + column + went, width)
                inside = column * (runs[run + 1] - runs[run]) if column else 0
                return runs[run] * width + inside - first
            if count == 1 or -went not in _UNDIVIDED:
                return went
        return self._send_singly(fd, column, runs[run] + at, count - at)

    def alike(self, first: int) -> int:
        """How many datagrams from index ``first`` on are of one run and to one address: what is wrong with the
        address is wrong with all of them.
        """
        runs = self._runs
        run = bisect_right(runs, first // self.width) - 1
        count = runs[run + 1] - runs[run]
        return count - (first - runs[run] * self.width) % count

    def _send_runs(self, fd: int, run: int, column: int) -> int:
        """What one call takes, from this column of a run on: how many headers, or minus the errno of the first."""
        window, row = divmod(run, self._rows)
        if window != self._window:
            self._lay_out(window)
        count = min(self._rows, len(self._runs) - 1 - window * self._rows)
        begin = row * self.width + column
        return _sent(fd, self._headers[begin], count * self.width - begin)

    def _lay_out(self, window: int) -> None:
        """Have the headers point to the runs of this window."""
        self._window = -1
        runs = self._runs[window * self._rows : (window + 1) * self._rows + 1]
        vectors, counts, lengths = [], [], []
        first = ctypes.addressof(self._vectors)
        for row, (begin, end) in enumerate(pairwise(runs)):
            vectors.append(first + ctypes.sizeof(Iovec) * begin)
            counts.append(end - begin)
            lengths.append(_CONTROL.size if end - begin > 1 else 0)
            _CONTROL.pack_into(
                self._controls,
                _CONTROL.size * row,
                _CONTROL_LENGTH,
                _SOL_UDP,
                _UDP_SEGMENT,
                self._sizes[begin],
            )
        self._fill(self._headers, Msghdr.vectors, self._each(vectors))
        self._fill(self._headers, Msghdr.vector_count, self._each(counts))
        self._fill(self._headers, Msghdr.control_length, self._each(lengths))
        self._window = window

    def _send_singly(self, fd: int, column: int, first: int, count: int) -> int:
        """These packets to one address, undivided: how many went, or minus the errno of the first."""
        headers = (Mmsghdr * count)()
        vectors = ctypes.addressof(self._vectors[first])
        self._fill(headers, Msghdr.name, [self._name + _IN.size * column] * count)
        self._fill(headers, Msghdr.name_length, [_IN.size] * count)
        self._fill(headers, Msghdr.vectors, [vectors + ctypes.sizeof(Iovec) * at for at in range(count)])
        self._fill(headers, Msghdr.vector_count, [1] * count)
        return _sent(fd, headers[0], count)

    def _each(self, values: Sequence[int]) -> list[int]:
        """A value of each row, for all columns."""
        return [value for value in values for _ in range(self.width)]

    @staticmethod
    def _fill(headers: ctypes.Array[Mmsghdr], field: Any, values: Sequence[int]) -> None:
        """Set a field of the first headers, with the padding behind it."""
        words = memoryview(headers).cast("B").cast("L")
        words[field.offset // 8 : len(values) * _WORDS : _WORDS] = array("L", values)


def _runs(sizes: Sequence[int]) -> list[int]:
    """Where packets begin that can go as one: of one length, but for a last one that may be shorter. And the end."""
    edges, at = [0], 0
    while at < len(sizes):
        size = sizes[at]
        end = at + 1
        if 0 < size <= DIVIDED_LIMIT:
            most = min(len(sizes), at + DATAGRAM_LIMIT // size)
            while end < most and sizes[end] == size:
                end += 1
            if end < most and 0 < sizes[end] < size:
                end += 1
        edges.append(end)
        at = end
    return edges


def _sent(fd: int, first: Mmsghdr, count: int) -> int:
    """How many of these headers the kernel took, or minus the errno of the first."""
    table = ctypes.c_void_p(ctypes.addressof(first))
    while True:
        went: int = _sendmmsg(fd, table, count, _MSG_DONTWAIT | _MSG_NOSIGNAL)
        if went >= 0:
            return went
        error = ctypes.get_errno()
        if error != EINTR:
            return -error
