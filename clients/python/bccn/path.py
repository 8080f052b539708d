"""Where the daemon's socket is."""

from __future__ import annotations

import os

SERVICE_SOCKET = "/run/bccnd/bus.sock"


def socket_path(path: str | os.PathLike[str] | None = None) -> str:
    """The argument, else $BCCN_SOCKET, else the first that exists of the service's and the user's own socket.

    ``@name`` is an abstract name. Where neither exists the result is the service's, for the error message.
    """
    chosen = os.fspath(path) if path else os.environ.get("BCCN_SOCKET")
    if chosen:
        return chosen
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    own = f"{runtime}/bccnd/bus.sock" if runtime else ""
    return own if own and not _exists(SERVICE_SOCKET) and _exists(own) else SERVICE_SOCKET


def _exists(path: str) -> bool:
    return os.access(path, os.F_OK)


def socket_address(path: str) -> str | bytes:
    """The address for connect(2), where an abstract name begins with a NUL."""
    return b"\0" + os.fsencode(path[1:]) if path.startswith("@") else path
