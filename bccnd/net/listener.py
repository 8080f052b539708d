"""The local listener: a Unix SOCK_SEQPACKET socket at a path, at an abstract name, or handed down.

Rules
- A socket file belongs to the daemon that holds the lock beside it (``<path>.lock``). A second daemon cannot take the
  lock, and leaves the file alone. A file whose lock is free is replaced, unless some other program serves it.
- A file that goes while the daemon runs (``is_gone``) is made again (``reopen``) as long as the lock is the daemon's.
  It was removed by mistake, as by a cleaner of temporary files: who wants to keep clients out changes its mode. The
  file of a socket that was handed down belongs to whoever made it, who alone can make it again.
- ``close`` removes the file only if it is still the one that this listener made. It does not remove a socket that
  was handed down; an abstract one has no file.
"""

import contextlib
import fcntl
import grp
import os
import pwd
import socket
from collections.abc import Callable, Mapping
from errno import EACCES, EADDRINUSE, ECONNREFUSED, ENOENT
from pathlib import Path
from typing import Any

from bccnd.errors import ConfigError, RefusedError, UnavailableError

# Connections that may wait to be accepted. The kernel makes it net.core.somaxconn, so it is as large as that allows:
# whoever finds the queue full is refused by the kernel (EAGAIN), without a reason.
BACKLOG = 2**31 - 1

# Clients accepted in one turn: about a millisecond, as each is looked up and announced.
ACCEPTS = 16

# Clients that are accepted at a socket whose file has gone: those that connected before, and a bound for others.
LAST_ACCEPTS = 65536


class Listener:
    """A bound, listening, non-blocking socket. ``name`` is the address that clients connect to.

    Every way to open one raises ``ConfigError``, ``RefusedError`` or ``UnavailableError``, which names the address.
    """

    def __init__(
        self,
        listening: socket.socket,
        name: str,
        path: Path | None = None,
        lock: int = -1,
        made: tuple[int, int] | None = None,
    ) -> None:
        """``path``: the file of the socket, if it has one; ``made``: its ``_identity`` when the socket was bound."""
        self.socket = listening
        self.name = name
        self.path = path
        self._made = tuple(made) if made else None
        self._lock = lock
        listening.setblocking(False)
        listening.listen(BACKLOG)

    @classmethod
    def open(cls, where: str, mode: int, owner: str | None = None, group: str | None = None) -> "Listener":
        """Open a listener at a path, ``@name`` (abstract), ``@`` (a free abstract name) or ``fd:N`` (handed down).

        ``mode``, ``owner`` and ``group`` are for the file at a path.
        """
        handed_down = where.startswith("fd:")
        listening = _inherited(where) if handed_down else _new_socket()
        try:
            if handed_down:
                return cls._handed_down(listening, where)
            if where.startswith("@"):
                return cls._abstract(listening, where)
            return cls._file(listening, Path(where), mode, owner, group)
        except BaseException:
            listening.close()
            raise

    @classmethod
    def _handed_down(cls, inherited: socket.socket, where: str) -> "Listener":
        inherited.set_inheritable(False)
        name = inherited.getsockname() if inherited.family == socket.AF_UNIX else ""
        if inherited.type != socket.SOCK_SEQPACKET or not name:
            raise ConfigError(f"--socket {where}: not a bound Unix SOCK_SEQPACKET socket")
        # A relative path is one of the directory of whoever bound it.
        path = Path(name) if isinstance(name, str) and name.startswith("/") else None
        try:
            made = _identity(path) if path else None
        except OSError:
            made = None
        try:
            return cls(inherited, _shown(name), path, made=made)
        except OSError as error:  # a connection is bound too, but cannot listen
            raise ConfigError(f"--socket {where}: cannot listen ({error.strerror})") from None

    @classmethod
    def _abstract(cls, listening: socket.socket, where: str) -> "Listener":
        try:
            # An empty address makes the kernel choose a free abstract name.
            listening.bind("\0" + where[1:] if len(where) > 1 else "")
        except OSError as error:
            if error.errno == EADDRINUSE:
                raise UnavailableError(f"{where}: another daemon serves this socket") from None
            raise ConfigError(f"{where}: {error.strerror or error}") from None
        return cls(listening, _shown(listening.getsockname()))

    @classmethod
    def _file(
        cls, listening: socket.socket, path: Path, mode: int, owner: str | None, group: str | None
    ) -> "Listener":
        if len(os.fsencode(path)) > 107:
            raise ConfigError(f"{path}: a socket path has at most 107 bytes")
        uid, gid = _uid(owner), _gid(group)
        _make_directory(path.parent)
        with contextlib.ExitStack() as undo:
            lock = _lock(path)
            undo.callback(os.close, lock)
            _bind(listening, path)
            # A failure from here on leaves no file: without permissions, the next start could not probe it.
            undo.callback(path.unlink, missing_ok=True)
            _admit(path, uid, gid, mode)
            listener = cls(listening, str(path), path, lock, _identity(path))
            undo.pop_all()
            return listener

    def state(self) -> dict[str, Any]:
        """What a successor needs besides the ``descriptors``, in plain values."""
        return {"name": self.name, "path": str(self.path) if self.path else None, "made": self._made}

    @property
    def descriptors(self) -> dict[str, int]:
        """By name: the socket, and the lock if there is one. Whoever holds them serves."""
        return {"listener": self.socket.fileno()} | ({"lock": self._lock} if self._lock >= 0 else {})

    @classmethod
    def succeed(cls, state: dict[str, Any], descriptors: Mapping[str, int]) -> "Listener":
        """The listener of a predecessor, from its ``state`` and its ``descriptors``."""
        path = Path(state["path"]) if state["path"] else None
        listening = socket.socket(fileno=descriptors["listener"])
        return cls(listening, state["name"], path, descriptors.get("lock", -1), state["made"])

    def accept(self, look: Callable[[socket.socket], bool] = lambda _: True) -> list[socket.socket]:
        """The clients that wait, at most ACCEPTS. Raises ``OSError`` when the first cannot be accepted.

        ``look`` is called with each before the next is accepted; False: that one has to wait.
        """
        clients: list[socket.socket] = []
        while len(clients) < ACCEPTS:
            try:
                client, _ = self.socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                break
            except OSError:
                if not clients:
                    raise
                break
            goes_on = look(client)
            client.setblocking(False)
            clients.append(client)
            if not goes_on:
                break
        return clients

    @property
    def is_gone(self) -> bool:
        """Whether the file that clients connect to is no longer that of this socket."""
        if self.path is None:
            return False
        try:
            return _identity(self.path) != self._made
        except OSError:
            return True

    def beside(self, suffix: str) -> Path | None:
        """The path of a file that belongs to the socket; None for a socket without a path."""
        return self.path and Path(f"{self.path}.{suffix}")

    @property
    def handed_down(self) -> bool:
        """Whether somebody else made the socket."""
        return self._lock < 0

    def reopen(
        self, mode: int, owner: str | None, group: str | None, look: Callable[[socket.socket], bool]
    ) -> None:
        """Make the file again, with a new socket. ``look`` gets the clients that had connected to the old one.

        Raises ``BccndError``, and changes nothing, when the path or the lock is somebody else's.
        """
        if self.path is None or self.handed_down:
            raise UnavailableError(f"{self.name}: only whoever made the socket can make it again")
        uid, gid = _uid(owner), _gid(group)
        _make_directory(self.path.parent)
        with contextlib.ExitStack() as undo:
            lock = self._lock if self._holds_lock() else _lock(self.path)
            if lock != self._lock:
                undo.callback(os.close, lock)
            listening = _new_socket()
            undo.callback(listening.close)
            _bind(listening, self.path)
            undo.callback(self.path.unlink, missing_ok=True)
            _admit(self.path, uid, gid, mode)
            made = _identity(self.path)
            listening.listen(BACKLOG)
            undo.pop_all()
        self._accept_last(look)
        self.socket.close()
        if lock != self._lock:
            os.close(self._lock)
        self.socket, self._lock, self._made = listening, lock, made

    def _holds_lock(self) -> bool:
        """Whether the file of the lock is still the one that this listener holds."""
        held = os.fstat(self._lock)
        try:
            return _identity(Path(f"{self.path}.lock")) == (held.st_dev, held.st_ino)
        except OSError:
            return False

    def _accept_last(self, look: Callable[[socket.socket], bool]) -> None:
        accepted = 0
        with contextlib.suppress(OSError):
            while accepted < LAST_ACCEPTS and (clients := self.accept(look)):
                accepted += len(clients)

    def close(self) -> None:
        if self.path is not None and not self.handed_down:
            with contextlib.suppress(OSError):
                # While the socket is open, its inode number cannot go to another file.
                if _identity(self.path) == self._made:
                    self.path.unlink()
        self.socket.close()
        if self._lock >= 0:
            os.close(self._lock)


def _new_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)


def _inherited(where: str) -> socket.socket:
    try:
        return socket.socket(fileno=int(where.removeprefix("fd:")))
    except (ValueError, OSError) as error:
        raise ConfigError(f"--socket {where}: not an open socket ({error})") from None


def _lock(path: Path) -> int:
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise RefusedError(
            f"{path}.lock: {error.strerror}; choose another --socket or run as its owner"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            raise UnavailableError(f"{path}: another daemon serves this socket") from None
        raise RefusedError(f"{path}.lock: cannot be locked ({error.strerror})") from None
    return lock


def _make_directory(directory: Path) -> None:
    """Make the last level only, such as ``/run/bccnd``: if more is missing, the path is probably mistyped."""
    try:
        if not directory.exists():
            directory.mkdir(mode=0o755, exist_ok=True)
    except OSError as error:
        raise RefusedError(f"{directory}: {error.strerror}; make it or choose another --socket") from None


def _bind(listening: socket.socket, path: Path) -> None:
    try:
        if path.is_socket():
            _unlink_stale(path)
        # Without any permissions, so that nobody connects before owner and mode are right.
        before = os.umask(0o777)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        if error.errno == EADDRINUSE:
            raise UnavailableError(
                f"{path}: exists and is not a socket; remove it or choose another path"
            ) from None
        raise RefusedError(f"{path}: {error.strerror}") from None


def _unlink_stale(path: Path) -> None:
    """Remove a socket that nobody serves. One that is served without our lock is not ours to take."""
    with _new_socket() as probe:
        answer = probe.connect_ex(str(path))
    if answer in (ECONNREFUSED, ENOENT):
        path.unlink(missing_ok=True)
    elif answer == EACCES:
        raise RefusedError(
            f"{path}: exists, and this user may not see who serves it; remove it or run as its owner"
        )
    else:  # connected; or the server is too busy to accept (EAGAIN), or speaks another type (EPROTOTYPE)
        raise UnavailableError(f"{path}: another program serves this socket")


def _admit(path: Path, uid: int, gid: int, mode: int) -> None:
    """Set owner, group and mode, which decide who may connect; an id of -1 changes nothing."""
    try:
        if (uid, gid) != (-1, -1):  # a hardened unit allows no chown at all
            os.chown(path, uid, gid)
        path.chmod(mode)
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RefusedError(
            f"{path}: cannot be given to socket_owner and socket_group ({reason}); "
            "only root, and for a group its members, can do that"
        ) from None


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode, which identify a file."""
    status = path.lstat()
    return status.st_dev, status.st_ino


def _uid(owner: str | None) -> int:
    if not owner:
        return -1
    try:
        return int(owner) if owner.isdecimal() else pwd.getpwnam(owner).pw_uid
    except (KeyError, ValueError):
        raise ConfigError(f"socket_owner: there is no user {owner!r}") from None


def _gid(group: str | None) -> int:
    if not group:
        return -1
    try:
        return int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
    except (KeyError, ValueError):
        raise ConfigError(f"socket_group: there is no group {group!r}") from None


def _shown(name: str | bytes) -> str:
    """The address in printable text; an abstract name after an @."""
    raw = b"@" + name[1:] if isinstance(name, bytes) else os.fsencode(name)
    text = raw.decode(errors="backslashreplace")
    return "".join([char if char.isprintable() else ascii(char)[1:-1] for char in text])
