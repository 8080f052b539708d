"""Connections whose carrier is not ready, so that their user is not known yet.

Rules
- Each has GREETING_SECONDS, and there are THRESHOLDS of them at a time. For one more, the oldest of the address with
  most is closed: so nobody with one address keeps others out.
- Only the carrier reads what comes. It keeps no more bytes, and does no more work, than a handshake needs.
- A connection whose carrier is ready is handed on with it; the carrier may already hold some bytes.
- A connection that only gets an answer, such as a page, has the rest of its time to read that.
"""

import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from bccnd.mux import limits
from bccnd.mux.carrier import Carrier, CarrierError
from bccnd.mux.connection import House

# Bytes that are read at a time, and in all before a carrier is ready: a certificate chain has a few kilobytes.
READ = 16 * 1024
READ_IN_ALL = 256 * 1024


class Threshold:
    """``welcome(socket, bytes)`` is called once the carrier is ready, with what has come for the endpoint by then.

    ``others``: all of them, the oldest first.
    """

    def __init__(
        self,
        house: House,
        accepted: socket.socket,
        carrier: Carrier,
        welcome: Callable[[socket.socket, bytes], None],
        others: "dict[Threshold, None]",
    ) -> None:
        self._house = house
        self._socket = accepted
        self._carrier = carrier
        self._welcome = welcome
        self._others = others
        self.address = _address_of(accepted)
        self._read = 0
        self._end = house.loop.call_later(limits.GREETING_SECONDS, self.drop, "no greeting")
        if len(others) >= limits.THRESHOLDS:
            self._make_room()
        others[self] = None
        house.loop.add_reader(accepted, self._on_readable)

    def _make_room(self) -> None:
        shares = Counter(each.address for each in self._others)
        most = max(shares.values())
        next(each for each in self._others if shares[each.address] == most).drop("no greeting")

    def _on_readable(self) -> None:
        try:
            data = self._socket.recv(READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._read += len(data)
        if not data or self._read > READ_IN_ALL:
            self.drop("left")
            return
        try:
            early = self._carrier.received(data)
        except CarrierError as error:
            self._house.loop.remove_reader(self._socket)
            self._part(self._carrier.outgoing(), str(error))
            return
        if not self._say(self._carrier.outgoing()):
            self.drop("left")
        elif self._carrier.chatter > limits.HANDSHAKE:
            self.drop("protocol-limit")
        elif self._carrier.is_ready:
            self._leave()
            self._welcome(self._socket, early)

    def _say(self, data: bytes) -> bool:
        """Send. Whether everything went: a handshake fits an empty socket, so a peer that blocks it is not in
        earnest."""
        with suppress(OSError):
            return not data or self._socket.send(data) == len(data)
        return False

    def _part(self, rest: bytes, why: str) -> None:
        """Send the rest, as it finds room, and then drop it."""
        try:
            rest = rest[self._socket.send(rest) :] if rest else rest
        except BlockingIOError:
            pass
        except OSError:
            rest = b""
        if rest:
            self._house.loop.add_writer(self._socket, self._part, rest, why)
        else:
            self.drop(why)

    def _leave(self) -> None:
        self._end.cancel()
        self._others.pop(self, None)
        self._house.loop.remove_reader(self._socket)
        self._house.loop.remove_writer(self._socket)

    def drop(self, why: str) -> None:
        self._house.dropped[why] += 1
        self._leave()
        self._socket.close()


def _address_of(accepted: socket.socket) -> str:
    """The address of the peer; empty if it has gone meanwhile."""
    try:
        name = accepted.getpeername()
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""
