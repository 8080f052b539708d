"""The network side: several bindings to the segment, what congests them, what a successor gets of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import astuple
from typing import Any

import pytest

from bccnd.daemon.segments import Segments
from bccnd.net.bindings import Binding
from bccnd.net.broadcast import SegmentSocket
from bccnd.net.mmsg import Arena
from tests.daemon_process import LOOPBACK_BROADCAST
from tests.plain_bccn import datagram, free_port, plain_socket
from tests.relay.fakes import Bus


class Bindings:
    """Two bindings to the loopback segment, as if by two interfaces, and the relay of a test behind them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, opened: ExitStack) -> None:
        self.bus = Bus()
        self.arena = Arena(1 << 20)
        self.ports = [free_port(), free_port()]
        segments = [
            SegmentSocket(Binding(LOOPBACK_BROADCAST, port, None), receive_bytes=1 << 20)
            for port in self.ports
        ]
        self.relieved = 0
        self.segments: Any = Segments(
            loop,
            self.bus.relay,
            segments,
            self.arena,
            receive_bytes=1 << 20,
            copies=1,
            spread=0.0,
            settle=lambda: None,
            on_relief=self._relieve,
            end_turn=lambda _: None,
        )
        self.listeners = [opened.enter_context(plain_socket(port)) for port in self.ports]

    def _relieve(self) -> None:
        self.relieved += 1


@pytest.fixture
async def bindings() -> AsyncIterator[Bindings]:
    with ExitStack() as opened:
        made = Bindings(asyncio.get_running_loop(), opened)
        yield made
        made.segments.close()


async def test_every_datagram_goes_out_on_every_binding(bindings: Bindings) -> None:
    lying, beyond = datagram("a", 1, "demo/x"), datagram("a", 2, "demo/x")
    start = bindings.arena.slots(1, len(lying))[0]
    bindings.arena.memory[start : start + len(lying)] = lying
    bindings.segments.send([start], [start + len(lying)], [beyond])
    for listener in bindings.listeners:
        assert [listener.recv(2048), listener.recv(2048)] == [lying, beyond]
    assert bindings.segments.sent == 4


async def test_relief_comes_when_no_binding_is_congested(bindings: Bindings) -> None:
    first, second = bindings.segments._egresses
    first.congested = second.congested = True
    first.congested = False
    bindings.segments._relieved()
    assert (bindings.relieved, bindings.segments.congested) == (0, True)
    second.congested = False
    bindings.segments._relieved()
    assert (bindings.relieved, bindings.segments.congested) == (1, False)


async def test_a_successor_sends_what_waited_and_counts_it_once(bindings: Bindings) -> None:
    """What waited on a binding that the successor does not have is given up, and counted."""
    kept = {"pending": [datagram("a", 1, "demo/x")], "copies": []}
    gone = {"pending": [datagram("a", 1, "demo/x")] * 3, "copies": []}
    waiting = [
        (astuple(Binding(LOOPBACK_BROADCAST, bindings.ports[0])), kept),
        (astuple(Binding(LOOPBACK_BROADCAST, 1, "gone0")), gone),
    ]
    bindings.segments.inherit({"sent": 7, "unsent": 0, "waiting": waiting})
    bindings.segments.resume()
    assert await asyncio.to_thread(bindings.listeners[0].recv, 2048) == kept["pending"][0]
    assert (bindings.segments.sent, bindings.segments.unsent) == (8, 3)
