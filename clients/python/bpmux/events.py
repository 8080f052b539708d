"""What an endpoint reports. An event is about a channel or a request; the top level is a channel as well."""

from dataclasses import dataclass

from bpmux.entities import Channel, Request

Entity = Channel | Request


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened a channel."""

    channel: Channel
    payload: bytes


@dataclass(frozen=True, slots=True)
class Message:
    """A whole message; what it cost is consumed once ``Endpoint.consumed`` says so."""

    channel: Channel
    payload: bytes


@dataclass(frozen=True, slots=True)
class Requested:
    """The peer waits for a response."""

    request: Request
    payload: bytes


@dataclass(frozen=True, slots=True)
class Responded:
    """The response to a request of ours, which is over with it."""

    request: Request
    payload: bytes


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The peer takes no more of it. What waited to be sent is gone.

    Like that of ``Closed``, the payload has no more bytes than ``Limits.payload``: what is beyond is left out.
    """

    entity: Entity
    payload: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer sends no more of it; of a request of ours: there will be no response."""

    entity: Entity
    payload: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """Nobody says anything more about a channel, or about a request that was not answered: its id is free."""

    entity: Entity


@dataclass(frozen=True, slots=True)
class Writable:
    """``send`` had taken no more, and does again; or there is credit that was awaited (``await_credit``)."""

    channel: Channel


@dataclass(frozen=True, slots=True)
class Refused:
    """The peer went beyond a limit, and this side ends it: it was told the reason."""

    entity: Entity
    reason: bytes


@dataclass(frozen=True, slots=True)
class Silent:
    """The heartbeats of this went unanswered. It is cancelled; of the top level: the connection is to be dropped."""

    entity: Entity


@dataclass(frozen=True, slots=True)
class Finished:
    """Both sides have closed and cancelled the top level. Whatever was open ended with it, as if cancelled."""


Event = (
    Opened
    | Message
    | Requested
    | Responded
    | Cancelled
    | Closed
    | Ended
    | Writable
    | Refused
    | Silent
    | Finished
)
