"""Sockets at a path, and such as connect to a listener."""

import socket
from collections.abc import Callable

from bccnd.net.listener import Listener
from tests.packet_client import PATIENCE

Listen = Callable[..., Listener]  # the fixture ``listen``


def seqpacket_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.settimeout(PATIENCE)
    return made


def bound(name: str | bytes) -> socket.socket:
    """As another program has it."""
    made = seqpacket_socket()
    made.bind(name)
    return made


def listening_at(name: str | bytes, backlog: int = 128) -> socket.socket:
    """As another program has it that serves."""
    made = bound(name)
    made.listen(backlog)
    return made


def connected(listener: Listener) -> socket.socket:
    client = seqpacket_socket()
    name = listener.name
    client.connect("\0" + name[1:] if name.startswith("@") else name)
    return client


def serves(listener: Listener) -> bool:
    with connected(listener):
        clients = listener.accept()
        for client in clients:
            client.close()
        return len(clients) == 1


def reopened(listener: Listener) -> list[socket.socket]:
    """What waited at the file that went."""
    waited: list[socket.socket] = []
    listener.reopen(0o600, None, None, waited.append)
    return waited
