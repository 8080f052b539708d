"""A plain BCCN program, written from ``bccnd/wire/BCCN1.md`` alone: nothing here comes from the code under test."""

import hashlib
import hmac
import itertools
import socket
from functools import cache

from tests.packet_client import PATIENCE

PORTS = 200  # of a block
_held: list[socket.socket] = []
_taken = itertools.count()


def datagram(src: str, seq: int, chan: str, payload: bytes = b"", key: bytes | None = None) -> bytes:
    """One BCCN1 datagram, with an hmac if there is a `key`."""
    body = f"{src}:{seq}:{chan}|".encode() + payload
    integrity = ":hmac=" + hmac.new(key, body, hashlib.sha256).hexdigest()[:16] if key else ""
    return f"BCCN1[{len(body)}{integrity}]".encode() + body


class PlainSocket(socket.socket):
    """`recv` passes over what daemons say about repair, which comes at moments of their own. `recvfrom` does not."""

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        while (heard := super().recv(bufsize, flags)).startswith(b"BCCN1[") and b":!bccnd/repair|" in heard:
            pass
        return heard


def plain_socket(port: int, *, seconds: float = PATIENCE) -> PlainSocket:
    """Bound to 0.0.0.0:`port` beside others (SO_REUSEADDR), may broadcast; waits up to `seconds`."""
    sock = PlainSocket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.settimeout(seconds)
        sock.bind(("0.0.0.0", port))  # noqa: S104  # broadcasts arrive only here
    except BaseException:
        sock.close()
        raise
    return sock


def free_port(kind: socket.SocketKind = socket.SOCK_DGRAM) -> int:
    """A UDP port that nobody holds at this moment, outside the range that the system hands out by itself; a TCP port
    with SOCK_STREAM.

    Test runs go side by side. Each process takes its ports from a block that no other process has.
    """
    first = _block_of_ports()
    for _ in range(PORTS):
        port = first + next(_taken) % PORTS
        with socket.socket(socket.AF_INET, kind) as sock:
            try:
                sock.bind(("0.0.0.0", port))  # noqa: S104
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port between {first} and {first + PORTS - 1}")


def free_address() -> str:
    """Where on the loopback a program of the test can listen for TCP, as ``host:port``."""
    return f"127.0.0.1:{free_port(socket.SOCK_STREAM)}"


@cache
def _block_of_ports() -> int:
    """The first port of this process's block, of UDP and TCP. An abstract socket holds it until the process ends."""
    for first in range(10000, 30000, PORTS):
        holder = socket.socket(socket.AF_UNIX)
        try:
            holder.bind(f"\0bccnd-test-ports-{first}")
        except OSError:
            holder.close()
            continue
        _held.append(holder)
        return first
    raise RuntimeError("every block of ports between 10000 and 30000 is taken")
