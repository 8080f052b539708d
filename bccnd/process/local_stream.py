"""A listening stream socket for this host alone: at a loopback address, or a Unix socket with a path.

Rules
- The file at a path is known by its inode: one that another program has put there since is not ours to remove.
- A file that has gone, or is another program's, is seen (``is_gone``); whoever serves the socket makes a new one.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Sequence
from errno import EADDRINUSE, EADDRNOTAVAIL, ECONNREFUSED, ENOENT

from bccnd.errors import ConfigError, RefusedError, UnavailableError

# Connections that wait to be accepted.
BACKLOG = 64

Identity = tuple[int, int]  # device and inode of a file


class Listening(socket.socket):
    """``made``: its file, if it has one; while the socket is open, no other file gets that inode."""

    made: Identity | None = None

    @classmethod
    def succeed(cls, descriptor: int, made: Sequence[int] | None) -> "Listening":
        """The socket of a predecessor; ``made``: as it was there, or None if that did not say."""
        listening = cls(fileno=descriptor)
        if listening.family == socket.AF_UNIX:
            listening.made = (made[0], made[1]) if made else _identity(listening)
        return listening


def listen(where: str, mode: int, setting: str = "metrics.listen") -> Listening:
    """A non-blocking socket at ``where``: ``127.0.0.1:PORT``, ``[::1]:PORT``, or a path, whose file gets ``mode``.
    Its faults name the ``setting``.

    Raises ``UnavailableError``, ``RefusedError`` or ``ConfigError``, which name the address.
    """
    is_path = where.startswith("/")
    family = socket.AF_UNIX if is_path else socket.AF_INET6 if where.startswith("[") else socket.AF_INET
    made = Listening(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        if is_path:
            _bind_path(made, where, mode)
            made.made = _identity(made)
        else:
            host, _, port = where.rpartition(":")
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((host.strip("[]"), int(port)))
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        if error.errno == EADDRINUSE:
            taken = "is a file, and no socket" if os.path.isfile(where) else "is taken by another program"  # noqa: PTH113
            raise UnavailableError(f"{setting} {where}: {taken}") from None
        if isinstance(error, PermissionError):
            raise RefusedError(f"{setting} {where}: {error.strerror}") from None
        raise ConfigError(f"{setting} {where}: {_said(error, where)}") from None
    return made


def _said(error: OSError, where: str) -> str:
    if error.errno == ENOENT:
        return f"there is no folder {os.path.dirname(where)}; make it first"  # noqa: PTH120
    if error.errno == EADDRNOTAVAIL:
        return "no interface of this host has that address"
    return error.strerror or str(error)


def _bind_path(made: socket.socket, path: str, mode: int) -> None:
    """Bind to the path. A socket that nobody listens on any more is replaced; any other file stays."""
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


def is_gone(listening: Listening) -> bool:
    """Whether the file that programs connect to is no longer that of this socket."""
    return listening.made is not None and _identity(listening) != listening.made


def close(listening: Listening) -> None:
    """Close the socket, and remove its file if it has one."""
    if listening.made is not None and not is_gone(listening):
        with contextlib.suppress(OSError):
            os.unlink(listening.getsockname())  # noqa: PTH108
    listening.close()


def _identity(listening: socket.socket) -> Identity | None:
    """What is at its path; None for nothing, or what may not be seen."""
    try:
        status = os.lstat(listening.getsockname())
    except OSError:
        return None
    return status.st_dev, status.st_ino
