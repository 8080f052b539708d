"""Two hosts joined by one veth pair, and datagrams made beforehand for the bare sender.

    namespace ...-near                      namespace ...-far
        eth0 10.98.0.1/24 ================= eth0 10.98.0.2/24

The pair is made between the namespaces and never appears on the machine's own interfaces.
"""

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.programs import MeasurementError
from tests.hosts.segment import Host, ip, remove_stale
from tests.plain_bccn import datagram

BROADCAST = "10.98.0.255"
PORT = 5400
KEY = b"the-key-that-both-hosts-of-this-measurement-share"
CHANNEL, END = "bench/load", "bench/end"
MARKERS = 20  # datagrams on the channel END, sent one by one once the load is sent
RECEIVE_BYTES = 4 << 20  # the daemon's default, for the bare receiver as well

_count = itertools.count()


@contextmanager
def joined() -> Iterator[tuple[Host, Host]]:
    """Two hosts, near and far; gone with the block."""
    if os.geteuid() or not shutil.which("ip", path=os.defpath + ":/usr/sbin:/sbin"):
        raise MeasurementError("network namespaces need root and ip (iproute2)")
    remove_stale()
    prefix = f"bccnd-test-{os.getpid()}-{next(_count)}-"
    hosts = [Host(name, prefix + name, f"10.98.0.{n}") for n, name in enumerate(("near", "far"), start=1)]
    made: list[str] = []
    try:
        for host in hosts:
            ip("netns", "add", host.namespace)
            made.append(host.namespace)
        near, far = hosts
        ip(
            "-n",
            near.namespace,
            "link",
            "add",
            "eth0",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            far.namespace,
        )
        for host in hosts:
            ip("-n", host.namespace, "address", "add", f"{host.address}/24", "brd", "+", "dev", "eth0")
            for link in ("lo", "eth0"):
                ip("-n", host.namespace, "link", "set", link, "up")
        yield near, far
    finally:
        for namespace in made:
            ip("netns", "del", namespace)


def key_file(folder: Path) -> Path:
    path = folder / "keys"
    path.write_bytes(KEY + b"\n")
    path.chmod(0o600)
    return path


def write_datagrams(path: Path, count: int, size: int, *, sources: int = 1, kept: bool = False) -> None:
    """`count` signed datagrams, `size` bytes of payload each, then MARKERS, for ``datagrams.c``.

    Of several `sources` none sends twice in a row, and each has a channel of its own. ``kept``: before them one more,
    in which a daemon says that it keeps what the first source sends (``bccnd/wire/REPAIR.md``).
    """
    first = 1_700_000_000_000_000
    payload = b"x" * size
    with path.open("wb") as file:
        if kept:
            said = b"last\nfar/bench/0 %d-%d" % (first, first)
            packet = datagram("far/bccnd/1/repair", first, "!bccnd/repair", said, KEY)
            file.write(len(packet).to_bytes(2, "little") + packet)
        for number in range(count + MARKERS):
            turn, source = divmod(number, sources)
            channel = CHANNEL if sources == 1 else f"{CHANNEL}/{source}"
            chan, body = (channel, payload) if number < count else (END, b".")
            packet = datagram(f"far/bench/{source}", first + turn, chan, body, KEY)
            file.write(len(packet).to_bytes(2, "little") + packet)
