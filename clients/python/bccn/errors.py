"""What can go wrong on the bus, one tree. ``str()`` of each is one line for a person.

BccnError
|-- InvalidError       an argument cannot be sent at all (also a ValueError)
|-- RejectedError      the daemon rejects it; ``code`` says why: bad-channel, too-large, name-taken, ...
|   |-- RefusedError     this program has no right to it (code ``refused``)
|-- UnavailableError   no daemon, or it went away and did not come back in time (also a ConnectionError)
|   |-- UnconfirmedError   the connection broke, and messages sent on it may not have been published
|-- TimedOutError      the daemon, or another program, does not answer in time (also a TimeoutError)
|-- NobodyListensError nobody on this host, nor on another with a daemon, would get the request
|-- BacklogError       this program makes requests and does not receive the messages that wait for it
|-- ClosedError        the client was closed, or belongs to another process
|-- ProtocolError      the daemon sent a packet that is not of this protocol
"""

from __future__ import annotations


class BccnError(Exception): ...


class InvalidError(BccnError, ValueError): ...


class RejectedError(BccnError):
    """``code``: a word of the protocol (``clients/PROTOCOL.md``, "Errors"); ``text`` begins with the packet."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} ({self.code})"


class RefusedError(RejectedError): ...


class UnavailableError(BccnError, ConnectionError): ...


class UnconfirmedError(UnavailableError): ...


class TimedOutError(BccnError, TimeoutError): ...


class NobodyListensError(BccnError): ...


class BacklogError(BccnError): ...


class ClosedError(BccnError): ...


class ProtocolError(BccnError): ...


def rejected(value: str) -> RejectedError:
    """The error that ``CMSG error`` NUL ``<code> <text>`` stands for."""
    code, _, text = value.partition(" ")
    return (RefusedError if code == "refused" else RejectedError)(code, text)
