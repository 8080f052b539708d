"""The sockets that a daemon serves: opened afresh, or taken over from the daemon that it replaces."""

import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Self

from bccnd.net.bindings import Binding
from bccnd.net.broadcast import SegmentSocket
from bccnd.net.listener import Listener


@dataclass(frozen=True, slots=True)
class Endpoints:
    """``segments`` come and go with the links of the host."""

    listener: Listener
    segments: list[SegmentSocket]

    @classmethod
    def open(cls, bindings: Sequence[Binding], receive_bytes: int, listener: Callable[[], Listener]) -> Self:
        """Open all of them or none: a failure leaves nothing open."""
        with contextlib.ExitStack() as undo:
            segments = []
            for binding in bindings:
                segments.append(SegmentSocket(binding, receive_bytes=receive_bytes))
                undo.callback(segments[-1].close)
            opened = cls(listener(), segments)
            undo.pop_all()
        return opened

    @classmethod
    def succeed(
        cls,
        bindings: Sequence[Binding],
        receive_bytes: int,
        state: dict[str, Any],
        descriptors: Mapping[str, int],
    ) -> Self:
        """The sockets of a predecessor, from its ``state`` and its ``descriptors``.

        The listener stays what it was. A binding that hears the same as before keeps its socket, even if it sends to
        another address from now on. The socket of any other binding is opened, and one that nobody wants is closed.
        """
        listener = Listener.succeed(state["listener"], descriptors)
        inherited = {
            Binding(*binding).hears: socket.socket(fileno=descriptors[f"segment/{number}"])
            for number, binding in enumerate(state["segments"])
        }
        segments = [
            SegmentSocket(binding, receive_bytes=receive_bytes, inherited=inherited.pop(binding.hears, None))
            for binding in bindings
        ]
        for unwanted in inherited.values():
            unwanted.close()
        return cls(listener, segments)

    def state(self) -> dict[str, Any]:
        """What a successor needs besides the ``descriptors``, in plain values."""
        return {
            "listener": self.listener.state(),
            "segments": [astuple(segment.binding) for segment in self.segments],
        }

    @property
    def descriptors(self) -> dict[str, int]:
        """By name: those of the listener, and ``segment/<number>`` in the order of ``segments``."""
        segments = {f"segment/{number}": segment.fileno() for number, segment in enumerate(self.segments)}
        return self.listener.descriptors | segments
