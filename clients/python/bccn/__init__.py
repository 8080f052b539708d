"""LISTEN/NOTIFY between the programs of a network segment: the client of the ``bccnd`` bus.

    import bccn

    with bccn.Client() as bus:
        bus.subscribe("sensors/>")
        bus.publish("sensors/kitchen/temperature", "21.5")
        for message in bus:
            print(message.channel, message.text)

``Client`` blocks, ``AsyncClient`` (imported when first used) awaits. Both reconnect and resubscribe by themselves.
"""

from bccn.client import Client
from bccn.errors import (
    BacklogError,
    BccnError,
    ClosedError,
    InvalidError,
    NobodyListensError,
    ProtocolError,
    RefusedError,
    RejectedError,
    TimedOutError,
    UnavailableError,
    UnconfirmedError,
)
from bccn.exchange import Request
from bccn.inbox import Notice, matches
from bccn.protocol import Message
from bccn.transport import socket_path

# Type checkers take this name for true. Importing ``typing`` for it would take longer than importing all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from bccn.aio import AsyncClient

__version__ = "0.1.0"

__all__ = [
    "AsyncClient", "BacklogError", "BccnError", "Client", "ClosedError", "InvalidError", "Message",
    "NobodyListensError", "Notice", "ProtocolError", "RefusedError", "RejectedError", "Request",
    "TimedOutError", "UnavailableError", "UnconfirmedError", "matches", "socket_path",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import asyncio only for programs that use it: that takes five times as long as all the rest."""
    if name == "AsyncClient":
        from bccn.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
