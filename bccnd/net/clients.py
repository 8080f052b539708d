"""The way out to the local clients: packets to their descriptors, a group with one call a client."""

import os
from collections.abc import Sequence
from errno import EAGAIN, ENOBUFS, ENOMEM

from bccnd.net.mmsg import Arena, SendTable

GONE = -1  # from a send: the client is not there any more

_FULL = frozenset({EAGAIN, ENOBUFS, ENOMEM})  # no room now: the client's, or the kernel's


class Clients:
    """Sends to clients by descriptor; what is sent in groups lies in ``arena``.

    ``scratch``: bytes of the arena in which packets from elsewhere are laid side by side, to go with one call.
    """

    def __init__(self, arena: Arena, scratch: int) -> None:
        self._memory = arena.memory
        self._view = arena.view
        self._table = SendTable(arena)
        self._scratch = arena.slots(*self.needs(scratch))[0]
        self._scratch_end = self._scratch + scratch

    @staticmethod
    def needs(scratch: int) -> tuple[int, int]:
        """Of the arena."""
        return 1, scratch

    def send(self, port: int, packet: bytes | memoryview) -> int:
        """1 when it went, 0 when it would block, GONE."""
        try:
            os.write(port, packet)
        except OSError as error:
            return 0 if error.errno in _FULL else GONE
        return 1

    def send_each(self, port: int, packets: Sequence[bytes]) -> int:
        """How many went, in order, or GONE."""
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
        """The packets at these spans to every port; port -> how many went (or GONE), where not all did."""
        fell_short: dict[int, int] = {}
        if len(starts) == 1:  # a lone packet deserves the short path
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

    def _lay_out(self, packets: Sequence[bytes], first: int) -> tuple[list[int], list[int]]:
        """Copy as many packets as there is room for into the scratch."""
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
        """Send what the table points to. A send that stopped half way says why only when it is asked again."""
        went = 0
        while went < count:
            more = self._table.send(port, count, went)
            if more < 0:
                return went if -more in _FULL else GONE
            went += more
        return went
