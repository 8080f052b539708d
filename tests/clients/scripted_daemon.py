"""A daemon's socket whose answers a test chooses, for situations that a real daemon seldom gets into."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

ANSWERS = {b"whoami": b"here/test/1", b"pack": b"on 65536"}

Script = Callable[[socket.socket, bytes], bool]


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
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                while packet := self._packet(connection):
                    self.seen.append(packet)
                    if not self._script(connection, packet) and packet.startswith(b"CMSG "):
                        key, _, value = packet[5:].partition(b"\0")
                        word = b"pong" if key == b"ping" else key
                        with suppress(BrokenPipeError):  # the client has left
                            connection.send(b"CMSG %b\0%b" % (word, ANSWERS.get(key, value)))

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
        self._thread.join()
