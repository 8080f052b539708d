"""A daemon's socket whose answers a test chooses, for situations that a real daemon seldom gets into."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

ANSWERS = {b"whoami": b"here/test/1", b"pack": b"on 65536"}

Script = Callable[[socket.socket, bytes], bool]


def answer(connection: socket.socket, packet: bytes) -> None:
    """As a daemon would."""
    if packet.startswith(b"CMSG "):
        key, _, value = packet[5:].partition(b"\0")
        word = b"pong" if key == b"ping" else key
        connection.send(b"CMSG %b\0%b" % (word, ANSWERS.get(key, value)))


class Reticent:
    """A script of a daemon that answers late: from a packet that begins with ``silence`` on it answers none, until
    one comes that begins with ``until``. Then it answers all of them in their order, as ``script`` does."""

    def __init__(self, until: bytes, script: Script = lambda *_: False) -> None:
        self.silence: bytes | None = None
        self._until, self._script = until, script
        self._unanswered: list[bytes] = []

    def __call__(self, connection: socket.socket, packet: bytes) -> bool:
        self._unanswered.append(packet)
        if self.silence is not None and packet.startswith(self._until):
            self.silence = None
        if self.silence is None or not any(each.startswith(self.silence) for each in self._unanswered):
            packets, self._unanswered = self._unanswered, []
            for each in packets:
                if not self._script(connection, each):
                    answer(connection, each)
        return True

    def forget(self) -> None:
        """The connection has ended."""
        self.silence, self._unanswered = None, []


class ScriptedDaemon:
    """Serves one client after the other. ``script(connection, packet)`` gets each packet first and returns whether it
    has dealt with it. If not, control requests are answered as a daemon would. Before ``with`` nobody is accepted."""

    def __init__(self, path: Path, script: Script, backlog: int = 128) -> None:
        self.path = path
        self.seen: list[bytes] = []
        self._script = script
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._listener.listen(backlog)
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connection = connection
            with connection:
                while packet := self._packet(connection):
                    self.seen.append(packet)
                    with suppress(ConnectionError):  # the client has left, and has what it wanted
                        if not self._script(connection, packet):
                            answer(connection, packet)

    def say(self, packet: bytes) -> None:
        """Send a packet to the client that is there."""
        assert self._connection is not None
        self._connection.send(packet)

    def hang_up(self) -> None:
        """End the connection of the client that is there."""
        assert self._connection is not None
        self._connection.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _packet(connection: socket.socket) -> bytes:
        try:
            return connection.recv(1 << 17)
        except OSError:  # the script has closed it
            return b""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._connection is not None:
            # It has ended; or else the client, whose test has failed, would not end it.
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
