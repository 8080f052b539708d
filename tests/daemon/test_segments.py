"""The network side: several ways to the segment, what congests them, what a successor gets of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import astuple
from typing import Any

import pytest

from bccnd.daemon.segments import Segments
from bccnd.net.broadcast import Segment
from bccnd.net.mmsg import Arena
from bccnd.net.ways import Way
from tests.daemon_process import LOOPBACK_BROADCAST
from tests.plain_bccn import datagram, free_port, plain_socket
from tests.relay.fakes import Bus


class Ways:
    """Two ways to the loopback segment, as if by two interfaces, and the relay of a test behind them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, opened: ExitStack) -> None:
        self.bus = Bus()
        self.ports = [free_port(), free_port()]
        segments = [
            Segment(Way(LOOPBACK_BROADCAST, port, None), receive_bytes=1 << 20) for port in self.ports
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
async def ways() -> AsyncIterator[Ways]:
    with ExitStack() as opened:
        made = Ways(asyncio.get_running_loop(), opened)
        yield made
        made.segments.close()


async def test_every_datagram_goes_out_on_every_way_and_the_list_is_empty_afterwards(ways: Ways) -> None:
    outgoing = [datagram("a", 1, "demo/x"), datagram("a", 2, "demo/x")]
    wanted = list(outgoing)
    ways.segments.send(outgoing)
    assert outgoing == []
    for listener in ways.listeners:
        assert [listener.recv(2048), listener.recv(2048)] == wanted
    ways.segments.count()
    assert ways.bus.relay.counters.sent == 4


async def test_relief_is_when_no_way_is_congested_any_more(ways: Ways) -> None:
    first, second = ways.segments._egresses
    first.congested = second.congested = True
    first.congested = False
    ways.segments._relieved()
    assert (ways.relieved, ways.segments.congested) == (0, True)
    second.congested = False
    ways.segments._relieved()
    assert (ways.relieved, ways.segments.congested) == (1, False)


async def test_what_waited_goes_out_by_the_successor_and_is_counted_once(ways: Ways) -> None:
    """What waited on a way that the successor does not have is given up, and counted."""
    relay = ways.bus.relay
    relay.counters.sent = 7
    kept = {"pending": [datagram("a", 1, "demo/x")], "copies": []}
    gone = {"pending": [datagram("a", 1, "demo/x")] * 3, "copies": []}
    ways.segments.inherit(
        [
            (astuple(Way(LOOPBACK_BROADCAST, ways.ports[0])), kept),
            (astuple(Way(LOOPBACK_BROADCAST, 1, "gone0")), gone),
        ]
    )
    ways.segments.resume()
    assert await asyncio.to_thread(ways.listeners[0].recv, 2048) == kept["pending"][0]
    ways.segments.count()
    assert (relay.counters.sent, relay.counters.unsent) == (8, 3)
