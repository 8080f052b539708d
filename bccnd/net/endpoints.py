"""The sockets that a daemon serves: opened afresh, or those of the daemon that it succeeds."""

import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Self

from bccnd.net.broadcast import Segment
from bccnd.net.listener import Listener
from bccnd.net.ways import Way


@dataclass(frozen=True, slots=True)
class Endpoints:
    """``segments`` come and go with their links."""

    listener: Listener
    segments: list[Segment]

    @classmethod
    def open(cls, ways: Sequence[Way], receive_bytes: int, listener: Callable[[], Listener]) -> Self:
        """All of them or none: a failure leaves nothing open."""
        with contextlib.ExitStack() as undo:
            segments = []
            for way in ways:
                segments.append(Segment(way, receive_bytes=receive_bytes))
                undo.callback(segments[-1].close)
            opened = cls(listener(), segments)
            undo.pop_all()
        return opened

    @classmethod
    def succeed(
        cls, ways: Sequence[Way], receive_bytes: int, state: dict[str, Any], descriptors: Mapping[str, int]
    ) -> Self:
        """The sockets of a predecessor, from its ``state`` and its ``descriptors``.

        The listener stays what it was. A binding that hears the same as before keeps its socket, even if it sends to
        another address from now on. The socket of any other binding is opened, and one that nobody wants is closed.
        """
        listener = Listener.succeed(state["listener"], descriptors)
        inherited = {
            Way(*way).hears: socket.socket(fileno=descriptors[f"segment/{number}"])
            for number, way in enumerate(state["segments"])
        }
        segments = [
            Segment(way, receive_bytes=receive_bytes, inherited=inherited.pop(way.hears, None))
            for way in ways
        ]
        for unwanted in inherited.values():
            unwanted.close()
        return cls(listener, segments)

    def state(self) -> dict[str, Any]:
        """What goes with ``descriptors``, in plain values."""
        return {
            "listener": self.listener.state(),
            "segments": [astuple(segment.way) for segment in self.segments],
        }

    @property
    def descriptors(self) -> dict[str, int]:
        segments = {f"segment/{number}": segment.fileno() for number, segment in enumerate(self.segments)}
        return self.listener.descriptors | segments
