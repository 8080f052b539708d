"""What can go wrong on the bus, one tree. ``str()`` of each is one line for a person."""


class BccnError(Exception):
    """The root of the tree.

    ``code`` is the word for it, the same in every language (``clients/PROTOCOL.md``, "The functions of a client").
    """

    code = ""

    def __init_subclass__(cls, *, code: str = "") -> None:
        cls.code = code or cls.code


class InvalidError(BccnError, ValueError, code="invalid"):
    """An argument cannot be sent at all."""


class RejectedError(BccnError):
    """The daemon rejects it. ``code`` is a word of the protocol (``clients/PROTOCOL.md``, "Errors")."""

    def __init__(self, code: str, text: str) -> None:
        """``text`` begins with the packet that it is about."""
        super().__init__(code, text)
        self.code, self.text = code, text

    def __str__(self) -> str:
        return f"{self.text} ({self.code})"


class RefusedError(RejectedError):
    """This program has no right to it (code ``refused``)."""


class UnavailableError(BccnError, ConnectionError, code="unavailable"):
    """There is no daemon, or it went away and did not come back in time.

    ``reason``: ``busy`` when the daemon accepts no connection because too many programs connect, or why it closed the
    connection, as it said (``clients/PROTOCOL.md``, "Notices"); empty for anything else.
    """

    def __init__(self, text: str = "", reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class UnconfirmedError(UnavailableError, code="unconfirmed"):
    """Messages sent on a connection that broke may not have been published. ``reason``: why, if the daemon said."""


class TimedOutError(BccnError, TimeoutError, code="timeout"):
    """The daemon does not answer or takes no more, or no reply came."""


class NobodyListensError(BccnError, code="nobody"):
    """Nobody on this host, nor on another with a daemon, would get the request."""


class BacklogError(BccnError, code="backlog"):
    """This program makes requests and does not receive the messages that wait for it."""


class ClosedError(BccnError, code="closed"):
    """The client or the subscription was closed, or the client belongs to another process."""


class ProtocolError(BccnError, code="protocol"):
    """The daemon sent a packet that is not of this protocol."""


def rejected(value: str) -> RejectedError:
    """The error that ``CMSG error`` NUL ``<code> <text>`` stands for."""
    code, _, text = value.partition(" ")
    return (RefusedError if code == "refused" else RejectedError)(code, text)
