"""A daemon that is the test, in the test's own loop, and the way to wait there."""

import asyncio
import socket
from pathlib import Path

from tests.packet_client import PATIENCE
from tests.waiting import until

__all__ = ["JOINED", "TestDaemon", "until"]

JOINED = b"CMSG peer\0here/node/1"


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
