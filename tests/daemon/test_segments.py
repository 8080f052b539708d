"""The network side: several bindings to the segment, what congests them, what a successor gets of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import astuple
from typing import Any

import pytest

from bccnd.daemon.segments import Segments
from bccnd.net.bindings import Binding
from bccnd.net.broadcast import Segment
from bccnd.net.mmsg import Arena
from tests.daemon_process import LOOPBACK_BROADCAST
from tests.plain_bccn import datagram, free_port, plain_socket
from tests.relay.fakes import Bus


class Bindings:
    """Two bindings to the loopback segment, as if by two interfaces, and the relay of a test behind them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, opened: ExitStack) -> None:
        self.bus = Bus()
        self.ports = [free_port(), free_port()]
        segments = [
            Segment(Binding(LOOPBACK_BROADCAST, port, None), receive_bytes=1 << 20) for port in self.ports
        ]
        self.relieved = 0
        self.segments: Any = Segments(
            loop,
            self.bus.relay,
            segments,
            Arena(1 << 20),
            receive_bytes=1 << 20,
            copies=1,
            spread=0.0,
            settle=lambda: None,
            on_relief=self._relieve,
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


async def test_every_datagram_goes_out_on_every_way_and_the_list_is_empty_afterwards(
    bindings: Bindings,
) -> None:
    outgoing = [datagram("a", 1, "demo/x"), datagram("a", 2, "demo/x")]
    wanted = list(outgoing)
    bindings.segments.send(outgoing)
    assert outgoing == []
    for listener in bindings.listeners:
        assert [listener.recv(2048), listener.recv(2048)] == wanted
    bindings.segments.count()
    assert bindings.bus.relay.counters.sent == 4


async def test_relief_is_when_no_way_is_congested_any_more(bindings: Bindings) -> None:
    first, second = bindings.segments._egresses
    first.congested = second.congested = True
    first.congested = False
    bindings.segments._relieved()
    assert (bindings.relieved, bindings.segments.congested) == (0, True)
    second.congested = False
    bindings.segments._relieved()
    assert (bindings.relieved, bindings.segments.congested) == (1, False)


async def test_what_waited_goes_out_by_the_successor_and_is_counted_once(bindings: Bindings) -> None:
    """What waited on a binding that the successor does not have is given up, and counted."""
    relay = bindings.bus.relay
    relay.counters.sent = 7
    kept = {"pending": [datagram("a", 1, "demo/x")], "copies": []}
    gone = {"pending": [datagram("a", 1, "demo/x")] * 3, "copies": []}
    bindings.segments.inherit(
        [
            (astuple(Binding(LOOPBACK_BROADCAST, bindings.ports[0])), kept),
            (astuple(Binding(LOOPBACK_BROADCAST, 1, "gone0")), gone),
        ]
    )
    bindings.segments.resume()
    assert await asyncio.to_thread(bindings.listeners[0].recv, 2048) == kept["pending"][0]
    bindings.segments.count()
    assert (relay.counters.sent, relay.counters.unsent) == (8, 3)
