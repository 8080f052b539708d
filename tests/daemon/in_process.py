"""A daemon on the test's own loop, and one that stands still for a while."""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bccnd.daemon.service import Daemon
from tests.daemon_process import DaemonProcess
from tests.packet_client import PacketClient, wait_until
from tests.waiting import until


@contextmanager
def stopped(daemon: DaemonProcess) -> Iterator[None]:
    """The daemon finds at once whatever happened meanwhile."""
    daemon.process.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{daemon.process.pid}/stat")
    wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the daemon to stop")
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


class InProcess:
    """A daemon on the test's own loop; clients talk to it from other threads, or while the loop stands still."""

    def __init__(self, daemon: Daemon, path: Path) -> None:
        self.daemon = daemon
        self.path = path
        self.opened = ExitStack()

    async def client(self) -> PacketClient:
        return self.opened.enter_context(await asyncio.to_thread(PacketClient, self.path))

    def client_at_the_door(self) -> PacketClient:
        """Connected, and not served yet, as the loop stands still."""
        return self.opened.enter_context(PacketClient(self.path))

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition)
