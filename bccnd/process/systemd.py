"""The protocol between a service and systemd.

Rules
- To systemd (sd_notify(3)) go datagrams, on the socket that NOTIFY_SOCKET names. A successor inherits the variable.
- From systemd (sd_listen_fds(3), sd_watchdog_enabled(3)) come variables for one process, whose pid they name. They
  are taken out of the environment, and the descriptors are not inheritable, so that no successor takes them for its
  own.
"""

import os
import re
import socket
from collections.abc import MutableMapping

from bccnd.errors import ConfigError

FIRST_DESCRIPTOR = 3  # SD_LISTEN_FDS_START

# A number of systemd's, which has 64 bits.
_NUMBER = re.compile(r"[0-9]{1,20}")


def notify(*lines: str) -> bool:
    """Send assignments, one a line, such as ``MAINPID=4711``. Returns False when nobody listens."""
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
    """Seconds within which systemd wants the next ``WATCHDOG=1``; 0 when it wants none.

    Takes out WATCHDOG_PID, so that WATCHDOG_USEC applies to a successor, and both when they are for another process.
    """
    pid = environ.pop("WATCHDOG_PID", "")
    if pid not in ("", str(os.getpid())):
        environ.pop("WATCHDOG_USEC", None)
    microseconds = environ.get("WATCHDOG_USEC", "")
    return int(microseconds) / 1e6 if _NUMBER.fullmatch(microseconds) else 0.0


def take_listening_socket(environ: MutableMapping[str, str]) -> int | None:
    """The descriptor of the socket that systemd passed to this process; None when it passed none.

    Raises ``ConfigError`` for several sockets, for what is no socket, and for one that no client of the bus can
    connect to.
    """
    pid, number, names = (environ.pop(name, "") for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"))
    if pid != str(os.getpid()) or not _NUMBER.fullmatch(number) or not int(number):
        return None
    if int(number) > 1:
        listed = f" ({names})" if names else ""
        raise ConfigError(f"socket activation: {number} sockets were passed{listed}, one is served")
    try:
        os.set_inheritable(FIRST_DESCRIPTOR, False)
        copy = socket.socket(fileno=os.dup(FIRST_DESCRIPTOR))
    except OSError as error:
        raise ConfigError(
            f"socket activation: descriptor {FIRST_DESCRIPTOR} is no socket ({error.strerror})"
        ) from None
    with copy as passed:
        kind = passed.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE)
        if passed.family != socket.AF_UNIX or kind != socket.SOCK_SEQPACKET:
            raise ConfigError(
                "socket activation: a Unix SOCK_SEQPACKET socket is needed, not "
                f"{passed.family.name} {socket.SocketKind(kind).name}; in the unit: ListenSequentialPacket="
            )
        if not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ConfigError("socket activation: the socket passed does not listen; in the unit: Accept=no")
    return FIRST_DESCRIPTOR
