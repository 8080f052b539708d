"""Sockets that connect to a listener."""

import socket

from bccnd.net.listener import Listener
from tests.packet_client import PATIENCE


def seqpacket_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.settimeout(PATIENCE)
    return made


def connected(listener: Listener) -> socket.socket:
    client = seqpacket_socket()
    name = listener.name
    client.connect("\0" + name[1:] if name.startswith("@") else name)
    return client
