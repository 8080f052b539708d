"""The connections of a gateway over any carrier: listening for peers, dialling them, and writing to them.

Each has a number, by which the core knows it as a link. The only decision here is which networks peers may come from.
A device to listen on that is gone is opened again every LINE_SECONDS.
"""

import asyncio
import os
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from itertools import count
from socket import socket
from typing import Protocol

from bccnd.dndm import tcp
from bccnd.dndm.datagrams import Datagrams, dial_datagrams, stranger
from bccnd.dndm.options import Network
from bccnd.dndm.stream import Stream
from bccnd.wire.dndm import peers
from bccnd.wire.dndm.peers import Peer

# Seconds for a connection to be made, and between two looks for a device.
DIAL_SECONDS = 10.0
LINE_SECONDS = 2.0


class Owner(Protocol):
    def opened(
        self, number: int, scheme: str, dialled: Peer | None, whence: Peer, *, broadcast: bool = False
    ) -> None:
        """``whence``: the peer, if dialled; else the host that it comes from, or the device."""

    def wants(self, number: int, route: str) -> bool: ...

    def not_reached(self, peer: Peer, reason: str, *, dialled: bool = True) -> None: ...

    def heard(self, number: int, data: bytes) -> None: ...

    def wrote(self, number: int) -> None: ...

    def ended(self, number: int, reason: str) -> None: ...


class Carrier(Protocol):
    """The carrier of one link. ``waiting``: bytes that are still to be written."""

    waiting: int

    def send(self, data: bytes) -> None: ...

    def hold(self) -> None:
        """Read nothing for now."""

    def read_on(self) -> None: ...

    def close(self) -> None: ...


class Carriers:
    """``accept``: networks of peers. ``refused``: how many came from elsewhere. ``bus``: its name."""

    def __init__(
        self, loop: AbstractEventLoop, owner: Owner, accept: Sequence[Network], bus: str = ""
    ) -> None:
        self.accept = accept
        self.bus = bus
        self.refused = 0
        self._loop = loop
        self._owner = owner
        self._numbers = count(1)
        self._carriers: dict[int, Carrier] = {}
        self._listeners: list[tcp.Listener | Datagrams] = []
        # Devices to listen on: those with a link, and those to open again.
        self._lines: dict[int, Peer] = {}
        # Descriptors of devices.
        self._devices: dict[int, int] = {}
        self._again: set[TimerHandle] = set()
        self._stopped = False

    def open(self, urls: Iterable[str]) -> None:
        """Listen for peers. Raises ``BccndError``."""
        for peer in map(peers.parse, urls):
            if peer.scheme == "tcp":
                self._listeners.append(tcp.Listener(self._loop, peer, self._accepted))
            elif peer.scheme == "udp":
                self._listeners.append(Datagrams.listen(self._loop, peer, self))
            else:
                self._wait_on(peer)

    async def dial(self, peer: Peer) -> None:
        """Connect to a peer, and report the result; nothing once stopped."""
        if self._stopped:
            return
        try:
            if peer.scheme == "serial":
                self._open_line(peer, dialled=True)
                return
            async with asyncio.timeout(DIAL_SECONDS):
                if peer.scheme == "udp":
                    datagrams = await dial_datagrams(self._loop, peer, self)
                else:
                    made = await tcp.dial(self._loop, peer)
        except TimeoutError:
            self._owner.not_reached(peer, "no answer")
        except OSError as error:
            self._owner.not_reached(peer, _reason(error))
        else:
            if self._stopped:
                (datagrams if peer.scheme == "udp" else made).close()
            elif peer.scheme == "udp":
                datagrams.begin(peer, self.bus)
            else:
                self._add_socket(made, peer, peer)

    # -- of one link

    def send(self, number: int, data: bytes) -> None:
        if carrier := self._carriers.get(number):
            carrier.send(data)

    def waiting(self, number: int) -> int:
        """Bytes that are still to be written."""
        carrier = self._carriers.get(number)
        return carrier.waiting if carrier else 0

    def hold(self, number: int) -> None:
        if carrier := self._carriers.get(number):
            carrier.hold()

    def read_on(self, number: int) -> None:
        carrier = self._carriers.get(number)
        if carrier and not self._stopped:
            carrier.read_on()

    def close(self, number: int) -> None:
        if carrier := self._carriers.pop(number, None):
            carrier.close()
            self._line_ended(number)

    # -- the end

    def stop(self) -> None:
        """Accept, open and read nothing more."""
        self._stopped = True
        for listener in self._listeners:
            listener.stop()
        for timer in self._again:
            timer.cancel()
        self._again.clear()
        for carrier in self._carriers.values():
            carrier.hold()

    def part(self, stays: Callable[[int], bool]) -> bool:
        """Close the links for which nothing waits any more, except those that stay. Whether all are closed."""
        for number, carrier in list(self._carriers.items()):
            if not stays(number) and not carrier.waiting and not self._unsent(number):
                self.close(number)
        return not self._carriers

    def _unsent(self, number: int) -> int:
        """Bytes that the device of a link has still to send."""
        if number not in self._devices:
            return 0
        from bccnd.dndm.serial_line import unsent  # loaded only where it is used

        with suppress(OSError):
            return unsent(self._devices[number])
        return 0

    def end(self) -> None:
        self.stop()
        for number in list(self._carriers):
            self.close(number)
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()

    # -- what carriers say

    def add(
        self,
        carrier_of: Callable[[int], Carrier],
        scheme: str,
        dialled: Peer | None,
        *,
        whence: Peer,
        broadcast: bool = False,
    ) -> None:
        """Add a link, with the carrier that ``carrier_of`` makes for its number. ``whence``: as in ``Owner``."""
        number = next(self._numbers)
        self._carriers[number] = carrier_of(number)
        if scheme == "serial" and dialled is None:
            self._lines[number] = whence
        self._owner.opened(number, scheme, dialled, whence, broadcast=broadcast)

    def heard(self, number: int, data: bytes) -> None:
        self._owner.heard(number, data)

    def wants(self, number: int, route: str) -> bool:
        return self._owner.wants(number, route)

    def wrote(self, number: int) -> None:
        self._owner.wrote(number)

    def ended(self, number: int, reason: str) -> None:
        self._carriers.pop(number, None)
        self._line_ended(number)
        self._owner.ended(number, reason)

    def admits(self, address: str) -> bool:
        """Whether a peer may come from this address; an IPv4 address may be written as an IPv6 one."""
        known = ip_address(address.partition("%")[0])
        mapped = getattr(known, "ipv4_mapped", None) or known
        admitted = any(mapped in network for network in self.accept)
        self.refused += not admitted
        return admitted

    def _accepted(self, made: socket, address: str) -> None:
        if self.admits(address):
            self._add_socket(made, None, stranger("tcp", address))
        else:
            made.close()

    def _add_socket(self, made: socket, dialled: Peer | None, whence: Peer) -> None:
        descriptor = made.detach()
        self.add(
            lambda number: Stream(self._loop, number, descriptor, lambda: os.close(descriptor), self),
            "tcp",
            dialled,
            whence=whence,
        )

    # -- serial lines

    def _open_line(self, peer: Peer, *, dialled: bool) -> None:
        """Raises ``OSError``."""
        from bccnd.dndm.serial_line import open_line  # loaded only where it is used

        descriptor, shut = open_line(peer)

        def line(number: int) -> Stream:
            self._devices[number] = descriptor
            return Stream(self._loop, number, descriptor, shut, self)

        self.add(
            line,
            "serial",
            peer if dialled else None,
            whence=peer,
        )

    def _wait_on(self, peer: Peer) -> None:
        """Open a device to listen on; try again later if it is not there."""
        try:
            self._open_line(peer, dialled=False)
        except OSError as error:
            self._owner.not_reached(peer, _reason(error), dialled=False)
            self._wait_again(peer)

    def _line_ended(self, number: int) -> None:
        self._devices.pop(number, None)
        peer = self._lines.pop(number, None)
        if peer and not self._stopped:  # opening a line again restarts many boards
            self._wait_again(peer)

    def _wait_again(self, peer: Peer) -> None:
        def again() -> None:
            self._again.discard(timer)
            self._wait_on(peer)

        timer = self._loop.call_later(LINE_SECONDS, again)
        self._again.add(timer)


def _reason(error: OSError) -> str:
    """The system's words for an error, without what libraries add; a name that cannot be resolved has its own."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
