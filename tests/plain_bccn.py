"""A plain BCCN program, written from ``bccn.txt`` alone: nothing here comes from the code under test."""

import hashlib
import hmac
import os
import socket
import struct


def datagram(src: str, seq: int, chan: str, payload: bytes = b"", key: bytes | None = None) -> bytes:
    """One BCCN1 datagram, with an hmac if there is a `key`."""
    body = f"{src}:{seq}:{chan}|".encode() + payload
    integrity = ":hmac=" + hmac.new(key, body, hashlib.sha256).hexdigest()[:16] if key else ""
    return f"BCCN1[{len(body)}{integrity}]".encode() + body


def plain_socket(port: int, *, seconds: float = 10) -> socket.socket:
    """Bound to 0.0.0.0:`port` beside others (SO_REUSEADDR), may broadcast; waits up to `seconds`."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.settimeout(seconds)
        sock.bind(("0.0.0.0", port))  # noqa: S104  # the document's way: broadcasts arrive only here
    except BaseException:
        sock.close()
        raise
    return sock


def free_port() -> int:
    """A UDP port nobody holds at this moment, outside the range that the system hands out by itself."""
    for _ in range(1000):
        port = struct.unpack("H", os.urandom(2))[0] % 20000 + 10000
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                sock.bind(("0.0.0.0", port))  # noqa: S104
            except OSError:
                continue
            return port
    raise RuntimeError("no free UDP port between 10000 and 30000")
