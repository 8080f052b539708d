"""Guests of a door who mean no good, and what the door must be told for them to come in by every way."""

import os
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bpmux.endpoint import Endpoint
from bpmux.errors import BpmuxError
from bpmux.events import Event, Responded
from tests.mux.certificates import Certificates
from tests.plain_bccn import free_port

# Seconds that a polite step may take.
POLITE = 20.0
TOKEN = "hostile-0123456789"  # noqa: S105
# Credit of a megabyte for the top level: without any the door lets nobody stay.
GREETING = bytes.fromhex("ee00100000")
SETTINGS = """\
[mux]
socket_mode = "0666"
"""
FAR = """\
certificate = "{folder}/door.pem"
key = "{folder}/door.key"
authorities = "{folder}/ca.pem"

[[mux.peers]]
name = "guest"
user = 65534
groups = [65534]
"""
WEB = """\
web = "127.0.0.1:{port}"

[[mux.tokens]]
name = "guest"
file = "{folder}/tokens"
user = 65534
groups = [65534]
"""


@contextmanager
def as_user(uid: int | None) -> Iterator[None]:
    """Connections that are made within the block are those of this user."""
    before = os.geteuid()
    if uid is None or before != 0:
        yield
        return
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(before)


class Hall:
    """``way``: by which the door is entered beside its file, ``tls`` or ``web``; at ``port`` of 127.0.0.1."""

    certificates: Certificates

    def __init__(self, folder: Path, way: str = "unix") -> None:
        self.socket = folder / "mux.sock"
        self.port = 0
        self.flags: list[str] = []
        self.settings = SETTINGS
        if way == "tls":
            self.port = free_port(socket.SOCK_STREAM)
            self.certificates = Certificates(folder, "door", "guest")
            self.flags = ["--listen", f"tls://127.0.0.1:{self.port}"]
            self.settings += FAR.format(folder=folder)
        elif way == "web":
            self.port = free_port(socket.SOCK_STREAM)
            tokens = folder / "tokens"
            tokens.touch(0o600)
            tokens.write_text(TOKEN + "\n")
            self.settings += WEB.format(port=self.port, folder=folder)

    def connected(self, uid: int | None) -> socket.socket:
        """Raises BlockingIOError when too many wait before the door for a second."""
        made = socket.socket(socket.AF_UNIX)
        made.setblocking(False)
        until = time.monotonic() + 1.0
        with as_user(uid):
            while True:
                try:
                    made.connect(str(self.socket))
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(0.002)
                else:
                    return made

    @property
    def upgrade(self) -> bytes:
        """What WebSocket begins with."""
        return (
            f"GET /bus HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: bpmux, token.{TOKEN}\r\n\r\n"
        ).encode()


def frame(opcode: int, payload: bytes) -> bytes:
    """A whole frame of WebSocket, short, with a mask of zeros."""
    return bytes((0x80 | opcode, 0x80 | len(payload))) + bytes(4) + payload


class Guest:
    """A connection that sends what goes at once, and throws away what it reads."""

    gone = False

    def __init__(self, connected: socket.socket, begins: bytes = b"") -> None:
        self.socket = connected
        self.socket.setblocking(False)
        self._unsent = begins

    def offer(self, data: bytes) -> bool:
        """Whether anything was taken. What was not goes first the next time, and then nothing new."""
        self._unsent = self._unsent or data
        try:
            went = self.socket.send(self._unsent, socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        except OSError:
            self.gone = True
            return False
        self._unsent = self._unsent[went:]
        return True

    def discard(self) -> int:
        """How many bytes there were, of a read."""
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        self.gone |= not data
        return len(data)

    def hear(self, expected: bytes) -> None:
        """Say what there is to say, until something comes that has this in it."""
        heard, until = b"", time.monotonic() + POLITE
        while expected not in heard:
            self.offer(b"")
            if select.select([self.socket], [], [], 0.01)[0]:
                heard += self.socket.recv(1000)
            assert time.monotonic() < until, heard

    def close(self) -> None:
        self.socket.close()


class Talker(Guest):
    """One that keeps to the protocol: what ``endpoint`` has to say it says."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        self.endpoint = Endpoint(time.monotonic())

    def turn(self) -> list[Event]:
        """Say what there is to say, and hear what has come."""
        while not self.gone and (self._unsent or (data := self.endpoint.data_to_send())):
            if not self.offer(self._unsent or data):
                break
        try:
            data = self.socket.recv(1 << 18)
            self.gone |= not data
            return self.endpoint.receive(data, time.monotonic())
        except BlockingIOError:
            return self.endpoint.events()
        except (OSError, BpmuxError):
            self.gone = True
            return []

    def settle(self) -> None:
        """Until the door knows everything that was to be said."""
        asked = self.endpoint.request(b"version")
        assert asked
        while not any(isinstance(event, Responded) and event.request is asked for event in self.turn()):
            assert not self.gone
            select.select([self.socket], [], [], 0.01)
