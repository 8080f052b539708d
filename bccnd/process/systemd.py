"""What systemd wants to be told (sd_notify(3)): a datagram to the socket that NOTIFY_SOCKET names."""

import os
import socket


def notify(*lines: str) -> bool:
    """Send the assignments, one a line, such as ``MAINPID=4711``; False where nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    with socket.socket(
        socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
    ) as sender:
        try:
            sender.sendto(
                "\n".join(lines).encode(), address.replace("@", "\0", 1) if address[0] == "@" else address
            )
        except OSError:
            return False
    return True
