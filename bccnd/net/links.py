"""The links of this host and their addresses, kept up to date by the kernel (rtnetlink(7)).

Rules
- ``open`` takes a complete picture, and each ``read`` takes what has changed since. When the kernel had to drop
  events (ENOBUFS), ``read`` takes a new picture.
- On a host without netlink, such as a sandbox, ``open`` returns None and the caller relies on the routing table.
"""

import socket
from errno import EAGAIN, ENOBUFS
from typing import Self

from bccnd.net.netlink import (
    GROUPS,
    Added,
    Address,
    Done,
    Link,
    NetlinkError,
    Removed,
    dump_addresses,
    dump_links,
    parse,
)

# A datagram of the kernel has at most 32 KiB.
RECEIVE_BYTES = 1 << 16

# Room for some thousand events, as when a host full of containers stops.
EVENTS_BYTES = 1 << 20

# Events to discard: more than there is room for.
SKIPPED = EVENTS_BYTES // 256

DATAGRAMS_A_TURN = 64

# Seconds to wait for an answer; the kernel answers at once.
DUMP_SECONDS = 2.0

# Attempts at a picture during which nothing changes. After that, an inconsistent one will do.
DUMPS = 8


class LinkWatch:
    """``links`` maps an index to its ``Link``; ``addresses`` are those of all links."""

    def __init__(self, events: socket.socket) -> None:
        self.socket = events
        self.links: dict[int, Link] = {}
        self.addresses: set[Address] = set()

    @classmethod
    def open(cls) -> Self | None:
        try:
            events = socket.socket(
                socket.AF_NETLINK,
                socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
                socket.NETLINK_ROUTE,
            )
        except OSError:
            return None
        watch = cls(events)
        try:
            events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, EVENTS_BYTES)
            # Before the dumps, so that nothing is missed between them and the events.
            events.bind((0, GROUPS))
            watch.refresh()
        except (OSError, NetlinkError):
            events.close()
            return None
        return watch

    def fileno(self) -> int:
        return self.socket.fileno()

    def read(self) -> bool:
        """Take in the events of one turn. Returns False when there were none."""
        changed = False
        for _ in range(DATAGRAMS_A_TURN):
            try:
                data = self.socket.recv(RECEIVE_BYTES)
            except OSError as error:
                if error.errno == ENOBUFS:
                    self._skip()
                    self.refresh()
                    return True
                if error.errno == EAGAIN:
                    break
                raise
            self._apply(data)
            changed = True
        return changed

    def refresh(self) -> None:
        """Take a new picture."""
        for _ in range(DUMPS):
            links, self.links = self.links, {}
            addresses, self.addresses = self.addresses, set()
            try:
                if all([self._dump(dump_links()), self._dump(dump_addresses())]):
                    return
            except (OSError, NetlinkError):
                self.links, self.addresses = links, addresses
                raise

    def _skip(self) -> None:
        """Discard events that are older than the next picture."""
        for _ in range(SKIPPED):
            try:
                self.socket.recv(1)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != ENOBUFS:
                    raise

    def close(self) -> None:
        self.socket.close()

    def _dump(self, request: bytes) -> bool:
        """Ask on a separate socket, as events may stand between answers. False when anything changed meanwhile."""
        with socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        ) as asking:
            asking.settimeout(DUMP_SECONDS)
            asking.send(request)
            while True:
                done = self._apply(asking.recv(RECEIVE_BYTES))
                if done is not None:
                    return not done.interrupted

    def _apply(self, data: bytes) -> Done | None:
        for event in parse(data):
            match event:
                case Done():
                    return event
                case Added(Link() as link):
                    self.links[link.index] = link
                case Removed(Link() as link):
                    self.links.pop(link.index, None)
                    self.addresses = {each for each in self.addresses if each.index != link.index}
                case Added(Address() as address):
                    self._forget(address)
                    self.addresses.add(address)
                case Removed(Address() as address):
                    self._forget(address)
        return None

    def _forget(self, address: Address) -> None:
        """Drop the address, whatever its other attributes were."""
        self.addresses = {
            each for each in self.addresses if (each.index, each.address) != (address.index, address.address)
        }
