"""A listening stream socket for this host alone: of a loopback address, or a Unix socket with a path."""

import contextlib
import os
import socket
import stat
from errno import EADDRINUSE, ECONNREFUSED

from bccnd.errors import ConfigError, RefusedError, UnavailableError

BACKLOG = 64  # connections waiting to be accepted


def listen(where: str, mode: int) -> socket.socket:
    """``where``: ``127.0.0.1:PORT``, ``[::1]:PORT`` or a path, which gets this file mode. Non-blocking.

    Raises ``UnavailableError``, ``RefusedError`` or ``ConfigError``, which name it.
    """
    is_path = where.startswith("/")
    family = socket.AF_UNIX if is_path else socket.AF_INET6 if where.startswith("[") else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        if is_path:
            _bind_path(made, where, mode)
        else:
            host, _, port = where.rpartition(":")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((host.strip("[]"), int(port)))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        if error.errno == EADDRINUSE:
            raise UnavailableError(f"metrics.listen {where}: is taken by another program") from None
        if isinstance(error, PermissionError):
            raise RefusedError(f"metrics.listen {where}: {error.strerror}") from None
        raise ConfigError(f"metrics.listen {where}: {error.strerror or error}") from None
    return made


def _bind_path(made: socket.socket, path: str, mode: int) -> None:
    """A socket that nobody listens on any more is replaced, any other file stays."""
    before = os.umask(0o777)  # nobody connects until the mode is right
    try:
        try:
            made.bind(path)
        except OSError as error:
            if error.errno != EADDRINUSE or not _is_stale(path):
                raise
            os.unlink(path)  # noqa: PTH108
            made.bind(path)
    finally:
        os.umask(before)
    os.chmod(path, mode)  # noqa: PTH101


def _is_stale(path: str) -> bool:
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        return probe.connect_ex(path) == ECONNREFUSED


def close(listening: socket.socket) -> None:
    """Also removes the path, if it has one."""
    if listening.family == socket.AF_UNIX:
        with contextlib.suppress(OSError):
            os.unlink(listening.getsockname())  # noqa: PTH108
    listening.close()
