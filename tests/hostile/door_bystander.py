"""The bystander that comes in by the door: the same account, of two sessions of a connection each.

    python -I -S door_bystander.py CLIENT HOSTILE SOCKET MESSAGES_A_SECOND GIVES_UP

CLIENT and HOSTILE are the folders of ``bpmux`` and of this file.
"""

import socket
import sys
import time

sys.path[:0] = sys.argv[1:3]

import bystander  # noqa: E402

from bpmux.endpoint import Endpoint  # noqa: E402
from bpmux.events import Cancelled, Closed, Finished, Message  # noqa: E402

WINDOW = 64 * 1024
# What may wait here before the publisher is as good as blocked.
UNSENT = 64 * 1024


class Session:
    """As far as ``Pair`` needs it, a socket of packets."""

    type = socket.SOCK_STREAM

    def __init__(self, path):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._endpoint = Endpoint(time.monotonic())
        self._channel = self._endpoint.open_duplex(b"bus", WINDOW)
        self._packets = []
        self._unsent = b""
        self._is_over = False

    def fileno(self):
        return self._socket.fileno()

    def setblocking(self, blocks):
        self._socket.setblocking(blocks)

    def send(self, packet):
        self._flush()
        if len(self._unsent) > UNSENT or not self._endpoint.send(self._channel, packet):
            raise BlockingIOError
        self._flush()

    def recv(self, size):
        """A packet, empty at the end. Raises BlockingIOError as a socket that does not block."""
        self._flush()
        while not self._packets:
            if self._is_over:
                return b""
            data = self._socket.recv(size)
            self._is_over = not data
            for event in self._endpoint.receive(data, time.monotonic()):
                if isinstance(event, Message):
                    self._packets.append(event.payload)
                self._is_over |= isinstance(event, Closed | Cancelled | Finished)
            self._flush()
        packet = self._packets.pop(0)
        self._endpoint.consumed(self._channel, len(packet))
        return packet

    def _flush(self):
        """What the socket takes; the rest goes with the next call."""
        while self._unsent or (data := self._endpoint.data_to_send()):
            self._unsent = self._unsent or data
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                return


if __name__ == "__main__":
    bystander.bus = Session
    bystander.main(*sys.argv[3:])
