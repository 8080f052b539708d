"""The daemon's CPU time per foreign datagram, with the kernel's filter and without it.

    python tests/bench/filter.py [DATAGRAMS]

It sends two daemons on the loopback datagrams that are not BCCN, as fast as they can follow.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.daemon_process import LOOPBACK_BROADCAST
from tests.packet_client import PacketClient
from tests.plain_bccn import free_port, plain_socket
from tests.replaceable_daemon import ReplaceableDaemon

BURST, PAUSE = 100, 0.004  # datagrams, and seconds between two bursts: 25000 a second at most
FOREIGN = b"M-SEARCH * HTTP/1.1\r\n" + bytes(79)
WITHOUT = "from bccnd.net import filter\nfilter.attach = lambda *_: None\n"


def cpu_seconds(pid: int) -> float:
    """What the process has used, in nanoseconds' resolution (/proc/<pid>/schedstat)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def cost(pid: int, client: PacketClient, port: int, datagrams: int) -> float:
    """Microseconds of the daemon for each datagram."""
    client.drain()
    before = cpu_seconds(pid)
    with plain_socket(0) as sock:
        for number in range(datagrams):
            sock.sendto(FOREIGN, (LOOPBACK_BROADCAST, port))
            if number % BURST == 0:
                time.sleep(PAUSE)
    client.drain()
    return (cpu_seconds(pid) - before) / datagrams * 1e6


def measured(folder: Path, datagrams: int, begin_with: str) -> float:
    port = free_port()
    flags = ("--host", "bench", "--broadcast", LOOPBACK_BROADCAST, "--port", str(port))
    with (
        ReplaceableDaemon(folder, *flags, begin_with=begin_with) as daemon,
        PacketClient(daemon.socket) as client,
    ):
        return cost(daemon.pid, client, port, datagrams)


def main() -> int:
    datagrams = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        without = measured(Path(one), datagrams, WITHOUT)
        with_filter = measured(Path(other), datagrams, "")
    print(f"without {without:.3f} us, with {with_filter:.3f} us: {without / with_filter:.0f} times less")
    return 0


if __name__ == "__main__":
    sys.exit(main())
