"""What a chunk of the peer does to a ``Connection``: a payload that is whole, or a chunk that has none.

Each function is that of some kinds of chunk; ``OF_PAYLOADS`` and ``OF_HEADS`` say of which. ``incoming`` has judged a
payload before; a chunk without one is judged here. Four things look like faults and are none, since they may have
crossed something of ours:

- a Cancel of a request that is not there: it was answered. It is acknowledged like any other.
- a ping for a request that is not there, for the same reason. It is passed over.
- a pong that nobody waits for. It is passed over.
- messages, responses and closings of what we have just cancelled. They are paid for and dropped.
"""

from collections.abc import Callable

from bpmux import actions, chunks
from bpmux.chunks import NUMBER_LIMIT, TOP
from bpmux.connection import Connection
from bpmux.entities import HEARD, Channel, Request, State, Step, after
from bpmux.errors import BpmuxError
from bpmux.events import Cancelled, Closed, Message, Opened, Requested, Responded
from bpmux.limits import SMALL_GRANT
from bpmux.payloads import TOO_LONG

TOO_MANY = b"limit: too many are open"

# A chunk about a channel that its receiver opened: that is us.
OURS = frozenset({chunks.MESSAGE_PEER, chunks.CANCEL_PEER, chunks.CLOSE_PEER, chunks.CREDIT_PEER})


# --- payloads ---


def _message(connection: Connection, kind: int, ident: int, payload: bytes, is_kept: bool) -> None:
    channel = channel_of(connection, kind, ident)
    if channel.receiving is State.OPEN and is_kept:
        if channel.window and ident != TOP:
            channel.held += len(payload)
        connection.events.append(Message(channel, payload))


def _opened(connection: Connection, kind: int, ident: int, payload: bytes, is_kept: bool) -> None:
    channel = Channel(ident, kind, ours=False)
    channel.is_open = True
    theirs = connection.tables.theirs
    theirs[ident] = channel
    if is_kept and len(theirs) <= connection.limits.channels:
        connection.events.append(Opened(channel, payload))
    else:
        actions.refuse(connection, channel, TOO_MANY if is_kept else TOO_LONG)


def _requested(connection: Connection, _kind: int, ident: int, payload: bytes, is_kept: bool) -> None:
    request = Request(ident, ours=False)
    request.is_open = True
    requests = connection.tables.requests
    requests[ident] = request
    if is_kept and len(requests) <= connection.limits.requests:
        connection.events.append(Requested(request, payload))
    else:
        actions.refuse(connection, request, TOO_MANY if is_kept else TOO_LONG)


def _responded(connection: Connection, kind: int, ident: int, payload: bytes, _is_kept: bool) -> None:
    request = asked(connection, kind, ident)
    if request.state is State.OPEN:
        request.state = after(request.state, Step.PEER)
        connection.tables.remove(request)
        connection.events.append(Responded(request, payload))
    else:
        _met(connection, request)


def _response_closed(connection: Connection, kind: int, ident: int, payload: bytes, _is_kept: bool) -> None:
    request = asked(connection, kind, ident)
    connection.unfinished.end(chunks.RESPONSE, ident)
    connection.outgoing.reply(chunks.ACK_CLOSE_RESPONSE, ident)
    if request.state is State.OPEN:
        connection.events.append(Closed(request, payload))
    _met(connection, request)


def _met(connection: Connection, request: Request) -> None:
    """The peer ended a request of ours, and our Cancel may be on its way."""
    has_begun = request.lane.at or request.lane.announced
    if request.state is State.LEAVING and has_begun:
        request.answered = True
        return
    connection.outgoing.clear(request.lane)
    request.state = after(request.state, Step.PEER)
    connection.settle(request)


def _request_cancelled(
    connection: Connection, _kind: int, ident: int, payload: bytes, _is_kept: bool
) -> None:
    request = connection.tables.requests.get(ident)
    connection.outgoing.reply(chunks.ACK_CANCEL_REQUEST, ident)
    if request is None:
        connection.chatter += 1
        connection.unfinished.end(chunks.REQUEST, ident)
        return
    before, request.state = request.state, after(request.state, Step.PEER)
    if before is not State.LEFT:
        connection.outgoing.clear(request.lane)
        _report(connection, Cancelled(request, payload))
    connection.settle(request)


def _cancelled(connection: Connection, kind: int, ident: int, payload: bytes, _is_kept: bool) -> None:
    outgoing = connection.outgoing
    if ident == TOP:
        connection.heard.add(kind)
        top = connection.tables.top
        if top.sending is State.OPEN:
            outgoing.clear(top.lane)
        connection.events.append(Cancelled(top, payload))
        connection.finish()
        return
    outgoing.reply(chunks.ACK_CANCEL if kind in OURS else chunks.ACK_CANCEL_PEER, ident)
    if _was_opening(connection, kind, ident):
        return
    channel = channel_of(connection, kind, ident)
    before, channel.sending = channel.sending, after(channel.sending, Step.PEER)
    if before is not State.LEFT:
        outgoing.clear(channel.lane)
        _report(connection, Cancelled(channel, payload))
    connection.settle(channel)


def _closed(connection: Connection, kind: int, ident: int, payload: bytes, _is_kept: bool) -> None:
    outgoing = connection.outgoing
    connection.unfinished.end(chunks.MESSAGE_PEER if kind in OURS else chunks.MESSAGE, ident)
    if ident == TOP:
        connection.heard.add(kind)
        connection.events.append(Closed(connection.tables.top, payload))
        connection.finish()
        return
    outgoing.reply(chunks.ACK_CLOSE if kind in OURS else chunks.ACK_CLOSE_PEER, ident)
    if _was_opening(connection, kind, ident):
        return
    channel = channel_of(connection, kind, ident)
    before, channel.receiving = channel.receiving, after(channel.receiving, Step.PEER)
    if before is not State.LEFT:
        outgoing.clear(channel.cancelling)
        _report(connection, Closed(channel, payload))
    connection.settle(channel)


def _was_opening(connection: Connection, kind: int, ident: int) -> bool:
    """Whether the channel was ended before its opening was whole: there never was one."""
    if kind in OURS or ident in connection.tables.theirs:
        return False
    for opening in (chunks.SINK, chunks.STREAM, chunks.DUPLEX):
        connection.unfinished.end(opening, ident)
    return True


def _report(connection: Connection, event: Cancelled | Closed) -> None:
    """What was refused is not known to the program as something that the peer could end."""
    if not event.entity.is_refused:
        connection.events.append(event)


# --- what carries no payload ---


def _credit(connection: Connection, kind: int, ident: int, amount: int) -> None:
    channel = channel_of(connection, kind, ident)
    require(channel.sending in HEARD, kind, ident)
    if channel.account.credit + amount >= NUMBER_LIMIT:
        raise BpmuxError("credit", f"{channel} has more than {NUMBER_LIMIT - 1}")
    connection.chatter += amount < SMALL_GRANT
    connection.credited(channel, amount)


def _cancel_acknowledged(connection: Connection, kind: int, ident: int, _number: int) -> None:
    """Of a way on which we received: what had begun on it is not finished any more."""
    is_ours = kind == chunks.ACK_CANCEL_PEER
    channel = channel_of(connection, chunks.MESSAGE_PEER if is_ours else chunks.MESSAGE, ident)
    channel.receiving = after(channel.receiving, Step.ACKNOWLEDGED)
    connection.unfinished.end(chunks.MESSAGE_PEER if is_ours else chunks.MESSAGE, ident)
    connection.unfinished.end(chunks.CLOSE_PEER if is_ours else chunks.CLOSE, ident)
    connection.settle(channel)


def _close_acknowledged(connection: Connection, kind: int, ident: int, _number: int) -> None:
    is_ours = kind == chunks.ACK_CLOSE_PEER
    channel = channel_of(connection, chunks.MESSAGE_PEER if is_ours else chunks.MESSAGE, ident)
    channel.sending = after(channel.sending, Step.ACKNOWLEDGED)
    connection.unfinished.end(chunks.CANCEL_PEER if is_ours else chunks.CANCEL, ident)
    connection.settle(channel)


def _request_cancel_acknowledged(connection: Connection, kind: int, ident: int, _number: int) -> None:
    request = connection.tables.asked.get(ident)
    if request is None:
        raise _nothing_there(kind, ident)
    request.state = after(request.state, Step.ACKNOWLEDGED)
    connection.unfinished.end(chunks.RESPONSE, ident)
    connection.unfinished.end(chunks.CLOSE_RESPONSE, ident)
    connection.settle(request)


def _response_close_acknowledged(connection: Connection, kind: int, ident: int, _number: int) -> None:
    request = connection.tables.requests.get(ident)
    if request is None:
        raise _nothing_there(kind, ident)
    request.state = after(request.state, Step.ACKNOWLEDGED)
    connection.settle(request)


def _ping(connection: Connection, kind: int, ident: int, _number: int) -> None:
    """No pong once we have said all that we say: the peer may have forgotten the channel by then."""
    connection.chatter += 1
    is_ours = kind == chunks.PING_PEER
    channel = channel_of(connection, chunks.MESSAGE_PEER if is_ours else chunks.MESSAGE, ident)
    if ident == TOP or _has_something_to_say(channel.sending) or _has_something_to_say(channel.receiving):
        connection.outgoing.reply(chunks.PONG if is_ours or ident == TOP else chunks.PONG_PEER, ident)


def _pong(connection: Connection, kind: int, ident: int, _number: int) -> None:
    connection.chatter += 1
    tables = connection.tables
    channel = (tables.ours if kind == chunks.PONG_PEER else tables.theirs).get(ident)
    if channel is not None:
        connection.beats.pong(channel)


def _ping_of_request(connection: Connection, _kind: int, ident: int, _number: int) -> None:
    connection.chatter += 1
    request = connection.tables.requests.get(ident)
    if request is not None and _has_something_to_say(request.state):
        connection.outgoing.reply(chunks.PONG_REQUEST, ident)


def _pong_of_request(connection: Connection, _kind: int, ident: int, _number: int) -> None:
    connection.chatter += 1
    request = connection.tables.asked.get(ident)
    if request is not None:
        connection.beats.pong(request)


def _has_something_to_say(state: State) -> bool:
    return state in (State.OPEN, State.LEAVING)


# --- what a chunk is about; each raises ``BpmuxError`` if there is no such thing ---


def channel_of(connection: Connection, kind: int, ident: int) -> Channel:
    tables = connection.tables
    if ident == TOP:
        return tables.top
    channel = (tables.ours if kind in OURS else tables.theirs).get(ident)
    if channel is None or not channel.is_open:
        raise _nothing_there(kind, ident)
    return channel


def asked(connection: Connection, kind: int, ident: int) -> Request:
    """A request of ours that may still be answered."""
    request = connection.tables.asked.get(ident)
    if request is None or not request.is_open:
        raise _nothing_there(kind, ident)
    require(request.state in HEARD and not request.answered, kind, ident)
    return request


def _nothing_there(kind: int, ident: int) -> BpmuxError:
    return BpmuxError("state", f"{chunks.NAMES[kind]} of {ident}, which is not there")


def require(sound: bool, kind: int, ident: int) -> None:
    if not sound:
        raise BpmuxError("state", f"{chunks.NAMES[kind]} of {ident}, which has ended")


# --- which chunk does what ---

OF_PAYLOADS: dict[int, Callable[[Connection, int, int, bytes, bool], None]] = {
    chunks.MESSAGE: _message,
    chunks.MESSAGE_PEER: _message,
    chunks.SINK: _opened,
    chunks.STREAM: _opened,
    chunks.DUPLEX: _opened,
    chunks.REQUEST: _requested,
    chunks.RESPONSE: _responded,
    chunks.CLOSE_RESPONSE: _response_closed,
    chunks.CANCEL_REQUEST: _request_cancelled,
    chunks.CANCEL: _cancelled,
    chunks.CANCEL_PEER: _cancelled,
    chunks.CLOSE: _closed,
    chunks.CLOSE_PEER: _closed,
}
OF_HEADS: dict[int, Callable[[Connection, int, int, int], None]] = {
    chunks.CREDIT: _credit,
    chunks.CREDIT_PEER: _credit,
    chunks.ACK_CANCEL: _cancel_acknowledged,
    chunks.ACK_CANCEL_PEER: _cancel_acknowledged,
    chunks.ACK_CLOSE: _close_acknowledged,
    chunks.ACK_CLOSE_PEER: _close_acknowledged,
    chunks.ACK_CANCEL_REQUEST: _request_cancel_acknowledged,
    chunks.ACK_CLOSE_RESPONSE: _response_close_acknowledged,
    chunks.PING: _ping,
    chunks.PING_PEER: _ping,
    chunks.PONG: _pong,
    chunks.PONG_PEER: _pong,
    chunks.PING_REQUEST: _ping_of_request,
    chunks.PONG_REQUEST: _pong_of_request,
}
