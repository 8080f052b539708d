"""The links of this host and their addresses, kept up to date by the kernel (rtnetlink(7)).

Rules
- ``open`` gives a complete picture; from then on ``read`` takes what has changed. When the kernel had to throw
  events away (ENOBUFS) the picture is asked for anew.
- Where there is no netlink (a sandbox), there is no ``LinkWatch`` either: the caller goes by the routing table.
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

RECEIVE_BYTES = 1 << 16  # a datagram of the kernel is at most 32 KiB
EVENTS_BYTES = 1 << 20  # room for some thousand events: a host full of containers that stop at once
DATAGRAMS_A_TURN = 64
SKIPPED = EVENTS_BYTES // 256  # more events than there is room for
DUMP_SECONDS = 2.0  # the kernel answers at once
DUMPS = 8  # tries for a picture during which nothing changes; after that one with a seam will do


class LinkWatch:
    """``links``: index -> ``Link``; ``addresses``: those of all links."""

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
            events.bind(
                (0, GROUPS)
            )  # before the dumps, so that nothing between them and the events is missed
            watch.refresh()
        except (OSError, NetlinkError):
            events.close()
            return None
        return watch

    def fileno(self) -> int:
        return self.socket.fileno()

    def read(self) -> bool:
        """Take in what has happened, a turn's worth; False when nothing had."""
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
        """The whole picture anew."""
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
        """Read away events that are older than the picture to follow."""
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
        """Ask on a socket of its own, for events may stand between the answers; whether nothing changed meanwhile."""
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
        """Drop the address, whatever was known of it."""
        self.addresses = {
            each for each in self.addresses if (each.index, each.address) != (address.index, address.address)
        }
