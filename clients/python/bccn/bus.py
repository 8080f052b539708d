"""What both clients are made of: a session, a connection that a driver waits for, and how a program makes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from bccn.connection import Connection
from bccn.session import Notice, Session


class Bus:
    """The base of ``Client`` and ``AsyncClient``."""

    _driver: type[Connection]

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
        format: str = "plain",  # noqa: A002 - the protocol's word
        pack: bool = False,
        echo: bool = True,
        separator: str = "/",
        queue: Mapping[str, int | str] | None = None,
        tap: bool = False,
        reconnect: bool = True,
        timeout: float = 5.0,
        wait: float = 0.0,
        on_notice: Callable[[Notice], object] | None = None,
    ) -> None:
        """
        path       the daemon's socket; None: $BCCN_SOCKET, else the usual places (``socket_path``)
        name       own src; None: the daemon's ``<host>/<program>/<pid>``
        format     ``plain``: channel and payload; ``full``: src, seq, peer, time too
        pack       agree on packed packets: many times the throughput for bursts
        echo       receive own messages that match
        separator  of the tokens in patterns, ``/`` or ``.``
        queue      the daemon's queue for us: ``{"packets": 1000, "bytes": 10**6, "policy": "drop-oldest"}``;
                   the policies are drop-oldest, drop-newest, block, disconnect
        tap        also receive every datagram of the segment, with the daemon's verdict on it (needs the right)
        reconnect  False: calls raise UnavailableError once the connection is gone
        timeout    seconds a call waits for the daemon: to be there again, to answer, to take a message
        wait       seconds to keep trying for the first connection
        on_notice  called with each ``Notice``; None: they are warnings of the logger ``bccn``
        """
        self._session = Session(
            name=name, format=format, pack=pack, echo=echo, separator=separator, queue=queue, tap=tap
        )
        self._session.on_notice = on_notice
        self._connection = self._driver(self._session, path, reconnect=reconnect, timeout=timeout)
        self._begin(wait)

    def _begin(self, wait: float) -> None:
        raise NotImplementedError

    @property
    def on_notice(self) -> Callable[[Notice], object] | None:
        """Called with each ``Notice``; None: they are warnings of the logger ``bccn``."""
        return self._session.on_notice

    @on_notice.setter
    def on_notice(self, function: Callable[[Notice], object] | None) -> None:
        self._session.on_notice = function

    @property
    def lost(self) -> int:
        """Messages that the daemon dropped because this client read too slowly."""
        return self._session.lost

    @property
    def connected(self) -> bool:
        """Whether there is a connection, as far as known without looking."""
        return self._connection.connected
