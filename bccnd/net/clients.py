"""Sends packets to local clients, by their descriptors: a whole group with one system call for each client."""

import fcntl
import os
import termios
from array import array
from collections.abc import Sequence
from errno import EAGAIN, ENOBUFS, ENOMEM

from bccnd.net.mmsg import Arena, SendTable
from bccnd.net.peers import unread_bytes

# What a send returns when the client has gone.
GONE = -1

# The socket of the client, or the kernel, has no room at the moment.
_FULL = frozenset({EAGAIN, ENOBUFS, ENOMEM})


class Clients:
    """The ``Transport`` of the relay. A port is the descriptor of a client; spans lie in ``arena``.

    ``scratch``: bytes of the arena in which ``send_each`` lays packets side by side, to send them with one call.
    """

    def __init__(self, arena: Arena, scratch: int) -> None:
        self._memory = arena.memory
        self._view = arena.view
        self._table = SendTable(arena)
        self._scratch = arena.slots(*self.needs(scratch))[0]
        self._scratch_end = self._scratch + scratch

    @staticmethod
    def needs(scratch: int) -> tuple[int, int]:
        """The (count, size) of slots in the arena."""
        return 1, scratch

    def send(self, port: int, packet: bytes | memoryview) -> int:
        """Returns 1 when the packet went, 0 when it would block, or GONE."""
        try:
            os.write(port, packet)
        except OSError as error:
            return 0 if error.errno in _FULL else GONE
        return 1

    def send_each(self, port: int, packets: Sequence[bytes]) -> int:
        """Send the packets in order. Returns how many went, or GONE."""
        if len(packets) == 1:
            return self.send(port, packets[0])
        done = 0
        while done < len(packets):
            starts, ends = self._lay_out(packets, done)
            if len(starts) > 1:
                self._table.point(starts, ends)
                asked, went = len(starts), self._send_pointed(port, len(starts))
            else:  # the last, or one too long for the scratch
                asked, went = 1, self.send(port, packets[done])
            if went != asked:
                return went if went == GONE else done + went
            done += went
        return done

    def send_group(self, ports: Sequence[int], starts: list[int], ends: list[int]) -> dict[int, int]:
        """Send the packets at these spans to every port, in order.

        Returns how many went, or GONE, for each port that did not take all.
        """
        fell_short: dict[int, int] = {}
        if len(starts) == 1:  # write(2) costs less than a table of one
            packet = self._view[starts[0] : ends[0]]
            for port in ports:
                try:
                    os.write(port, packet)
                except OSError as error:
                    fell_short[port] = 0 if error.errno in _FULL else GONE
            return fell_short
        table = self._table
        for begin in range(0, len(starts), table.capacity):
            part = starts[begin : begin + table.capacity]
            table.point(part, ends[begin : begin + table.capacity])
            for port in ports:
                if port not in fell_short:
                    went = self._send_pointed(port, len(part))
                    if went != len(part):
                        fell_short[port] = went if went == GONE else begin + went
        return fell_short

    def unread(self, port: int) -> int:
        """How much of what was sent the client has not read, in bytes of the kernel's memory."""
        count = array("i", [0])
        fcntl.ioctl(port, termios.TIOCOUTQ, count)  # SIOCOUTQ by another name
        return count[0]

    def unsaid(self, port: int) -> int:
        """How much of what the client has sent was not read, in bytes."""
        return unread_bytes(port)

    def _lay_out(self, packets: Sequence[bytes], first: int) -> tuple[list[int], list[int]]:
        """Copy packets into the scratch, from ``first`` on, as many as fit. Returns their spans."""
        starts: list[int] = []
        ends: list[int] = []
        at = self._scratch
        for packet in packets[first : first + self._table.capacity]:
            end = at + len(packet)
            if end > self._scratch_end:
                break
            self._memory[at:end] = packet
            starts.append(at)
            ends.append(end)
            at = end
        return starts, ends

    def _send_pointed(self, port: int, count: int) -> int:
        """Send what the table points to. After a send that stopped half way, only the next one gives the reason."""
        went = 0
        while went < count:
            more = self._table.send(port, count, went)
            if more < 0:
                return went if -more in _FULL else GONE
            went += more
        return went
