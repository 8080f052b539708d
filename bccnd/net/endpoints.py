"""The sockets that a daemon serves: opened afresh, or those of the daemon that it succeeds."""

import contextlib
import socket
from collections.abc import Callable, Sequence
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
        cls, ways: Sequence[Way], receive_bytes: int, state: dict[str, Any], descriptors: list[int]
    ) -> Self:
        """Takes its ``descriptors`` from the front of the list.

        The listener stays what it was. A segment keeps its socket, whatever address it sends to from now on, if that
        hears what it is to hear; one that is wanted no more is closed, a new one is opened.
        """
        count = state["listener"]["descriptors"]
        listener = Listener.succeed(state["listener"], descriptors[:count])
        del descriptors[:count]
        inherited = {Way(*way).hears: socket.socket(fileno=descriptors.pop(0)) for way in state["segments"]}
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
            "listener": self.listener.state() | {"descriptors": len(self.listener.descriptors)},
            "segments": [astuple(segment.way) for segment in self.segments],
        }

    @property
    def descriptors(self) -> list[int]:
        return [*self.listener.descriptors, *(segment.fileno() for segment in self.segments)]
