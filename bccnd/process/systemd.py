"""What systemd gives to a service and wants to be told.

Rules
- Told (sd_notify(3)): datagrams to the socket that NOTIFY_SOCKET names, which a successor inherits.
- Given (sd_listen_fds(3), sd_watchdog_enabled(3)): variables that hold for one process only, the one whose pid they
  name. They are taken out of the environment, and what they give is not inherited, so no successor mistakes them.
"""

import os
import socket
from collections.abc import MutableMapping

from bccnd.errors import ConfigError

FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START


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


def take_watchdog(environ: MutableMapping[str, str]) -> float:
    """Within how many seconds ``WATCHDOG=1`` is awaited again and again; 0 when it is not.

    WATCHDOG_PID is taken out, so that WATCHDOG_USEC holds for a successor; with another's pid, both are.
    """
    pid = environ.pop("WATCHDOG_PID", "")
    if pid not in ("", str(os.getpid())):
        environ.pop("WATCHDOG_USEC", None)
    microseconds = environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if microseconds.isdecimal() else 0.0


def take_listening_socket(environ: MutableMapping[str, str]) -> int | None:
    """The descriptor of the one socket that was passed to this process; None when none was.

    Raises ``ConfigError`` when it is none that clients of the bus can connect to, or not the only one.
    """
    pid, number, names = (environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if pid != str(os.getpid()) or not number.isdecimal() or not int(number):
        return None
    if int(number) > 1:
        listed = f" ({names})" if names else ""
        raise ConfigError(f"socket activation: {number} sockets were passed{listed}, one is served")
    os.set_inheritable(FIRST_DESCRIPTOR, False)
    with socket.socket(fileno=os.dup(FIRST_DESCRIPTOR)) as passed:
        kind = passed.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        if passed.family != socket.AF_UNIX or kind != socket.SOCK_SEQPACKET:
            raise ConfigError(
                "socket activation: a Unix SOCK_SEQPACKET socket is needed, not "
                f"{passed.family.name} {socket.SocketKind(kind).name}; in the unit: ListenSequentialPacket="
            )
        if not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ConfigError("socket activation: the socket passed does not listen; in the unit: Accept=no")
    return FIRST_DESCRIPTOR
