"""A door whose answers a test chooses: one side of bpmux behind a Unix stream socket, or TLS."""

import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from bpmux.endpoint import Endpoint
from bpmux.entities import Channel
from bpmux.events import Cancelled, Closed, Ended, Message, Opened
from bpmux.limits import Limits
from tests.clients.scripted_daemon import ANSWERS

Script = Callable[["ScriptedDoor", bytes], bool]
Wrap = Callable[[socket.socket], socket.socket]


class ScriptedDoor:
    """Serves one client after the other. ``script(door, packet)`` gets each packet first and returns whether it has
    dealt with it. If not, control requests are answered as a daemon would.

    ``window``: bytes of credit for a session; ``ended``: sessions that both sides have ended.
    """

    def __init__(
        self,
        path: Path,
        script: Script = lambda *_: False,
        *,
        window: int = 1 << 16,
        wrap: Wrap | None = None,
    ) -> None:
        self.address = f"unix:{path}"
        self.seen: list[bytes] = []
        self.ended = 0
        self.endpoint: Endpoint
        self.bus: Channel
        self._script, self._window, self._wrap = script, window, wrap
        self._listener = socket.socket(socket.AF_INET if wrap else socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", 0) if wrap else str(path))
        self._listener.listen()
        self._todo: deque[Callable[[], object]] = deque()
        self.is_dropped = self._is_over = False
        self._thread = threading.Thread(target=self._run)

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def do(self, deed: Callable[[], object]) -> None:
        """Have the thread do it, which alone touches the endpoint."""
        self._todo.append(deed)

    # --- for scripts and deeds ---

    def say(self, packet: bytes) -> None:
        assert self.endpoint.send(self.bus, packet)

    def end(self, reason: bytes) -> None:
        self.endpoint.close(self.bus, reason)
        self.endpoint.cancel(self.bus, reason)

    def turn_away(self, reason: bytes) -> None:
        self.endpoint.close(self.endpoint.top, reason)

    def drop(self) -> None:
        """The connection, once what was said is sent."""
        self.is_dropped = True

    # --- the thread ---

    def _run(self) -> None:
        while not self._is_over:
            if select.select([self._listener], [], [], 0.02)[0]:
                accepted, _ = self._listener.accept()
                with suppress(OSError), self._wrap(accepted) if self._wrap else accepted as stream:
                    self._serve(stream)

    def _serve(self, stream: socket.socket) -> None:
        self.endpoint, self.is_dropped = Endpoint(time.monotonic(), Limits(queue=1 << 24)), False
        while not self._is_over:
            while self._todo:
                self._todo.popleft()()
            while data := self.endpoint.data_to_send():
                stream.sendall(data)
            if self.is_dropped:
                return
            if select.select([stream], [], [], 0.02)[0]:
                data = stream.recv(1 << 16)
                if not data:
                    return
                for event in self.endpoint.receive(data, time.monotonic()):
                    self._see(event)

    def _see(self, event: Any) -> None:
        if isinstance(event, Opened):
            assert event.payload == b"bus"
            self.bus = event.channel
            self.endpoint.set_window(self.bus, self._window)
        elif isinstance(event, Message):
            self.endpoint.consumed(self.bus, len(event.payload))
            self.seen.append(event.payload)
            if not self._script(self, event.payload) and event.payload.startswith(b"CMSG "):
                key, _, value = event.payload[5:].partition(b"\0")
                word = b"pong" if key == b"ping" else key
                self.say(b"CMSG %b\0%b" % (word, ANSWERS.get(key, value)))
        elif isinstance(event, Closed):
            self.endpoint.close(self.bus)
        elif isinstance(event, Ended):
            self.ended += 1
        else:
            assert isinstance(event, Cancelled), event

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        self._listener.close()
