"""A daemon that is the test, in the test's own loop, and a way to wait for what must come."""

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.packet_client import PATIENCE

JOINED = b"CMSG peer\0here/node/1"


async def until(condition: Callable[[], Any], what: str = "what it waits for") -> Any:
    """Let the loop turn until the condition is true, and return what it gives."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE} s"
        await asyncio.sleep(0.001)
    return found


class TestDaemon:
    """Accepts links, and joins each that says whom it is of, unless it does not ``join``."""

    __test__ = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(str(path))
        self.listening.listen(16)
        self.listening.setblocking(False)

    async def accept(self, *, joins: bool = True) -> socket.socket:
        loop = asyncio.get_running_loop()
        link, _ = await asyncio.wait_for(loop.sock_accept(self.listening), PATIENCE)
        link.setblocking(False)
        if joins:
            assert (await self.receive(link)).startswith(b"CMSG peer\0")
            link.send(JOINED)
        return link

    @staticmethod
    async def receive(link: socket.socket) -> bytes:
        """The next packet; empty when the door has closed the link."""
        loop = asyncio.get_running_loop()
        return await asyncio.wait_for(loop.sock_recv(link, 1 << 18), PATIENCE)

    def close(self) -> None:
        self.listening.close()
