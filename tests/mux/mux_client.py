"""A client of the door that does one thing after the other: an endpoint on a blocking stream socket."""

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from bpmux.endpoint import Endpoint
from bpmux.entities import Channel, Request
from bpmux.events import Cancelled, Closed, Event, Message, Responded
from tests.packet_client import PATIENCE

WINDOW = 256 * 1024


class MuxClient:
    """``events``: what came and nobody has asked for."""

    def __init__(
        self, path: Path | str, connected: socket.socket | None = None, seconds: float = PATIENCE
    ) -> None:
        if connected is None:
            connected = socket.socket(socket.AF_UNIX)
            connected.settimeout(seconds)
            connected.connect(str(path))
        self.socket = connected
        self.socket.settimeout(seconds)
        self.endpoint = Endpoint(time.monotonic())
        self.events: list[Event] = []
        self.has_ended = False

    # --- bytes ---

    def flush(self) -> None:
        while data := self.endpoint.data_to_send():
            self.socket.sendall(data)
        self.events += self.endpoint.events()

    def read(self) -> None:
        """What comes next; it must come."""
        data = self.socket.recv(1 << 18)
        self.has_ended = not data
        self.events += self.endpoint.receive(data, time.monotonic())
        self.flush()

    def until(self, found: Callable[[Event], bool]) -> Event:
        """The next event of this kind, taken out."""
        self.flush()
        while True:
            for index, event in enumerate(self.events):
                if found(event):
                    return self.events.pop(index)
            assert not self.has_ended, f"the connection has ended after {self.events}"
            self.read()

    # --- sessions ---

    def bus(self, window: int = WINDOW) -> "BusSession":
        channel = self.endpoint.open_duplex(b"bus", window)
        assert channel
        self.flush()
        return BusSession(self, channel)

    def subscription(self, pattern: str, window: int = WINDOW) -> Channel:
        return self.open(f"SUB {pattern}", window)

    def open(self, what: str, window: int = WINDOW) -> Channel:
        """A stream."""
        channel = self.endpoint.open_stream(what.encode(), window)
        assert channel
        self.flush()
        return channel

    def ask(self, what: bytes) -> bytes:
        """The response to a request; one that is closed begins with ``closed ``."""
        request = self.endpoint.request(what)
        event = self.until(lambda each: isinstance(each, Responded | Closed) and _about(each) is request)
        assert isinstance(event, Responded | Closed)
        return event.payload if isinstance(event, Responded) else b"closed " + event.payload

    def message(self, channel: Channel) -> bytes:
        event = self.until(lambda each: isinstance(each, Message) and each.channel is channel)
        assert isinstance(event, Message)
        self.endpoint.consumed(channel, len(event.payload))
        self.flush()
        return event.payload

    def ending(self, channel: Channel) -> bytes:
        """Why the door has closed it."""
        event = self.until(lambda each: isinstance(each, Closed) and each.entity is channel)
        assert isinstance(event, Closed)
        return event.payload

    def farewell(self) -> bytes:
        """What the door says of the whole connection before it ends."""
        return self.ending(self.endpoint.top)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BusSession:
    """One session, packet by packet."""

    def __init__(self, client: MuxClient, channel: Channel) -> None:
        self.client = client
        self.channel = channel

    def send(self, *packets: bytes) -> None:
        for packet in packets:
            assert self.client.endpoint.send(self.channel, packet)
        self.client.flush()

    def receive(self) -> bytes:
        return self.client.message(self.channel)

    def request(self, key: str, value: str = "") -> str:
        self.send(f"CMSG {key}".encode() + (b"\0" + value.encode() if value else b""))
        head, _, rest = self.receive().partition(b"\0")
        assert head == f"CMSG {key}".encode(), (head, rest)
        return rest.decode()

    def drain(self) -> list[bytes]:
        """All packets up to the answer to a ping."""
        self.send(b"CMSG ping\0drained")
        packets: list[bytes] = []
        while (packet := self.receive()) != b"CMSG pong\0drained":
            packets.append(packet)
        return packets

    def ending(self) -> bytes:
        return self.client.ending(self.channel)


def _about(event: Responded | Closed | Cancelled) -> Channel | Request:
    return event.request if isinstance(event, Responded) else event.entity
