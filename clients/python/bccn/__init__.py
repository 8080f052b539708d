"""LISTEN/NOTIFY between the programs of a network segment: the client of the ``bccnd`` bus.

``Client`` blocks, ``AsyncClient`` (imported when first used) awaits. Both reconnect and resubscribe by themselves.
``clients/python/README.md`` has examples.
"""

from bccn.client import Client, Subscription
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
    from bccn.aio import AsyncClient, AsyncSubscription
    from bccn.options import Format, NoticeKind, Policy, Queue, Separator, Tap

__version__ = "0.1.0"

__all__ = [
    "AsyncClient", "AsyncSubscription", "BacklogError", "BccnError", "Client", "ClosedError", "Format",
    "InvalidError", "Message", "NobodyListensError", "Notice", "NoticeKind", "Policy", "ProtocolError", "Queue",
    "RefusedError", "RejectedError", "Request", "Separator", "Subscription", "Tap", "TimedOutError",
    "UnavailableError", "UnconfirmedError", "matches", "socket_path",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import asyncio and typing only for programs that use them: each takes longer than all the rest."""
    if name in __all__:
        import importlib

        module = importlib.import_module("bccn.aio" if name.startswith("Async") else "bccn.options")
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
