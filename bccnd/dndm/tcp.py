"""TCP: listening for peers, and dialling them."""

import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable
from errno import EADDRINUSE, EMFILE, ENFILE, ENOBUFS, ENOMEM

import structlog

from bccnd.errors import ConfigError, RefusedError, UnavailableError
from bccnd.wire.dndm.peers import Peer

BACKLOG = 64
# Connections that are accepted in a turn of the loop.
ACCEPTS = 16
# Seconds until a host that had no descriptor or memory for a connection is tried again.
AGAIN_SECONDS = 1.0

log = structlog.get_logger()

Accepted = Callable[[socket.socket, str], None]


def endpoint(peer: Peer) -> tuple[str, int]:
    host, _, port = peer.address.rpartition(":")
    return host.strip("[]"), int(port)


def bound(peer: Peer, kind: socket.SocketKind) -> socket.socket:
    """A socket bound to the address of ``peer``, which must be one of this host.

    Raises ``UnavailableError``, ``RefusedError`` or ``ConfigError``, which name it.
    """
    host, port = endpoint(peer)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(kind == socket.SOCK_STREAM))
        made.bind((host, port))
    except OSError as error:
        made.close()
        if error.errno == EADDRINUSE:
            raise UnavailableError(f"listen {peer}: is taken by another program") from None
        if isinstance(error, PermissionError):
            raise RefusedError(f"listen {peer}: {error.strerror}") from None
        raise ConfigError(f"listen {peer}: {error.strerror or error}") from None
    return made


class Listener:
    """Calls ``accepted`` with each connection and its address."""

    def __init__(self, loop: AbstractEventLoop, peer: Peer, accepted: Accepted) -> None:
        self._loop = loop
        self._accepted = accepted
        self.socket = bound(peer, socket.SOCK_STREAM)
        self.socket.listen(BACKLOG)
        self._go_on()

    def stop(self) -> None:
        self.close()

    def close(self) -> None:
        if self.socket.fileno() >= 0:
            self._loop.remove_reader(self.socket)
            self.socket.close()

    def _go_on(self) -> None:
        if self.socket.fileno() >= 0:
            self._loop.add_reader(self.socket, self._on_readable)

    def _on_readable(self) -> None:
        for _ in range(ACCEPTS):
            try:
                made, address = self.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (EMFILE, ENFILE, ENOBUFS, ENOMEM):
                    log.warning("no peer can come", reason=error.strerror)
                    self._loop.remove_reader(self.socket)
                    self._loop.call_later(AGAIN_SECONDS, self._go_on)
                    return
                continue  # the peer has already gone
            prepare(made)
            self._accepted(made, address[0])


async def dial(loop: AbstractEventLoop, peer: Peer) -> socket.socket:
    """A connection to a peer. Raises the ``OSError`` of the last address that was tried."""
    host, port = endpoint(peer)
    failure = OSError("has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        made = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)
        try:
            await loop.sock_connect(made, address)
        except OSError as error:
            made.close()
            failure = error
        except BaseException:
            made.close()
            raise
        else:
            prepare(made)
            return made
    raise failure


def prepare(made: socket.socket) -> None:
    made.setblocking(False)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
