"""What the peer sends: whether each chunk may come now, what it costs, and what it does.

A chunk is judged when its head is there: the entity it names, the credit it spends, the total it was announced with.
Only then is anything of its payload kept. Whatever could not have been sent by a peer that follows the rules raises
``BpmuxError``. Four things look like that and are not, since they may have crossed something of ours:

- a Cancel of a request that is not there: it was answered. It is acknowledged like any other.
- a ping for a request that is not there, for the same reason. It is passed over.
- a pong that nobody waits for. It is passed over.
- messages, responses and closings of what we have just cancelled. They are paid for and dropped.
"""

from collections.abc import Callable
from typing import ClassVar

from bpmux import chunks
from bpmux.actions import Actions
from bpmux.chunks import NUMBER_LIMIT, TOP, Reader
from bpmux.entities import HEARD, Channel, Request, State, Step, after
from bpmux.errors import BpmuxError
from bpmux.events import (
    Cancelled,
    Closed,
    Message,
    Opened,
    Requested,
    Responded,
)
from bpmux.heartbeats import Heartbeats
from bpmux.limits import SMALL_GRANT
from bpmux.payloads import Payload

TOO_LONG = b"limit: a payload is too long"
TOO_MANY = b"limit: too many are open"

# Which kinds of channel have a way for what their opener receives, and for what it sends.
READ_BY_OPENER = (chunks.STREAM, chunks.DUPLEX)
WRITTEN_BY_OPENER = (chunks.SINK, chunks.DUPLEX)
_MESSAGES = (chunks.MESSAGE, chunks.MESSAGE_PEER)
# A chunk about a channel that its receiver opened: that is us.
OURS = frozenset({chunks.MESSAGE_PEER, chunks.CANCEL_PEER, chunks.CLOSE_PEER, chunks.CREDIT_PEER})


class Incoming:
    """``count``: chunks so far; ``chatter``: those of them that moved nothing, and cost their sender no credit."""

    __slots__ = ("_actions", "_announced", "_beats", "_current", "_payer", "_reader", "chatter", "count")

    def __init__(self, actions: Actions, beats: Heartbeats) -> None:
        self._actions = actions
        self._beats = beats
        self._reader = Reader()
        self._announced: int | None = None
        self._current = Payload(chunks.MESSAGE, TOP, 0)  # of the chunk that is coming in
        self._payer = actions.tables.top  # whoever paid for it
        self.count = self.chatter = 0

    def receive(self, data: bytes) -> None:
        if self._actions.is_finished:
            return
        for kind, ident, number, piece, rest in self._reader.feed(data):
            if kind < 0:
                self._add(self._current, piece, rest)
                if self._actions.is_finished:
                    return
                continue
            self.count += 1
            if kind in _MESSAGES:
                self._message(kind, ident, number, piece, rest)
            elif kind <= chunks.DUPLEX:
                self._carry(kind, ident, number, piece, rest)
                if self._actions.is_finished:
                    return
            elif self._announced is None:
                self._OTHERS[kind](self, kind, ident, number)
            else:
                raise BpmuxError("partial", f"a total is followed by {chunks.NAMES[kind]}")

    # --- payloads ---

    def _message(self, kind: int, ident: int, length: int, piece: bytes, rest: int) -> None:
        """The short way for a message that is whole, and then the same as ``_carry``."""
        tables = self._actions.tables
        channel = (tables.theirs if kind == chunks.MESSAGE else tables.ours).get(ident)
        if (
            channel is None
            or channel.receiving is not State.OPEN
            or rest
            or not 0 < length <= channel.credit
            or self._announced is not None
            or self._actions.unfinished
            or length > self._actions.limits.payload
            or not channel.is_open
        ):
            self._carry(kind, ident, length, piece, rest)
            return
        channel.credit -= length
        if channel.window:
            channel.held += length
        self._actions.events.append(Message(channel, piece))

    def _carry(self, kind: int, ident: int, length: int, piece: bytes, rest: int) -> None:
        actions = self._actions
        announced, self._announced = self._announced, None
        payload = actions.unfinished.get(kind, ident)
        payer = self._admit(kind, ident, is_new=payload is None)
        if length > payer.credit:
            raise BpmuxError("credit", f"{length} bytes for {payer}, which has {payer.credit}")
        payer.credit -= length
        self.chatter += not length
        if payload is None:
            total = length if announced is None else announced
            payload = actions.unfinished.begin(kind, ident, total)
        elif announced is not None:
            raise BpmuxError("partial", f"a {chunks.NAMES[kind]} of {ident} is under way already")
        payload.promise(length)
        self._current, self._payer = payload, payer
        self._add(payload, piece, rest)

    def _add(self, payload: Payload, piece: bytes, rest: int) -> None:
        """A piece of the chunk that is coming in, of which ``rest`` is still to come."""
        self._actions.unfinished.add(payload, piece)
        if not payload.is_kept:
            self._stop(payload)
        if payload.is_whole:
            kept = bytes(payload.kept)
            self._actions.unfinished.end(payload.kind, payload.id)
            self._WHOLE[payload.kind](self, payload.kind, payload.id, kept, payload.is_kept)
        if not rest:
            self._actions.top_up(self._payer)

    def _stop(self, payload: Payload) -> None:
        """Have the peer send no more of what is too long, where it can be told before the end."""
        if payload.kind == chunks.RESPONSE:
            request = self._asked(payload.kind, payload.id)
            if request.state is State.OPEN:
                self._actions.refuse(request, TOO_LONG)
        elif payload.kind in _MESSAGES:
            channel = self._channel(payload.kind, payload.id)
            if channel.receiving is State.OPEN:
                self._actions.refuse(channel, TOO_LONG)

    def _admit(self, kind: int, ident: int, *, is_new: bool) -> Channel:
        """Whose credit pays. Raises ``BpmuxError`` if no such chunk may come now."""
        tables, unfinished = self._actions.tables, self._actions.unfinished
        if kind in _MESSAGES:
            channel = self._channel(kind, ident)
            is_closed = ident == TOP and chunks.CLOSE in self._actions.heard
            self._require(channel.receiving in HEARD and not is_closed, kind, ident)
            return channel
        if kind in (chunks.SINK, chunks.STREAM, chunks.DUPLEX):
            if is_new and (ident in tables.theirs or unfinished.opening(ident)):
                raise BpmuxError("id", f"a channel {ident} is open already")
        elif kind == chunks.REQUEST:
            if is_new and (ident in tables.requests or unfinished.get(chunks.CANCEL_REQUEST, ident)):
                raise BpmuxError("id", f"a request {ident} is open already")
        elif kind in (chunks.RESPONSE, chunks.CLOSE_RESPONSE):
            self._asked(kind, ident)
        elif kind != chunks.CANCEL_REQUEST:
            self._admit_ending(kind, ident)
        return tables.top

    def _admit_ending(self, kind: int, ident: int) -> None:
        is_cancel = kind in (chunks.CANCEL, chunks.CANCEL_PEER)
        if ident == TOP:
            self._require(kind not in self._actions.heard, kind, ident)
        elif kind in OURS or ident in self._actions.tables.theirs:
            channel = self._channel(kind, ident)
            self._require((channel.sending if is_cancel else channel.receiving) in HEARD, kind, ident)
        else:
            opening = self._actions.unfinished.opening(ident)
            fitting = READ_BY_OPENER if is_cancel else WRITTEN_BY_OPENER
            self._require(opening is not None and opening.kind in fitting, kind, ident)

    # --- what is whole ---

    def _message_whole(self, kind: int, ident: int, payload: bytes, is_kept: bool) -> None:
        channel = self._channel(kind, ident)
        if channel.receiving is State.OPEN and is_kept:
            if channel.window and ident != TOP:
                channel.held += len(payload)
            self._actions.events.append(Message(channel, payload))

    def _opened(self, kind: int, ident: int, payload: bytes, is_kept: bool) -> None:
        actions = self._actions
        channel = Channel(ident, kind, ours=False)
        channel.is_open = True
        actions.tables.theirs[ident] = channel
        if is_kept and len(actions.tables.theirs) <= actions.limits.channels:
            actions.events.append(Opened(channel, payload))
        else:
            actions.refuse(channel, TOO_MANY if is_kept else TOO_LONG)

    def _requested(self, _kind: int, ident: int, payload: bytes, is_kept: bool) -> None:
        actions = self._actions
        request = Request(ident, ours=False)
        request.is_open = True
        actions.tables.requests[ident] = request
        if is_kept and len(actions.tables.requests) <= actions.limits.requests:
            actions.events.append(Requested(request, payload))
        else:
            actions.refuse(request, TOO_MANY if is_kept else TOO_LONG)

    def _responded(self, kind: int, ident: int, payload: bytes, _is_kept: bool) -> None:
        actions = self._actions
        request = self._asked(kind, ident)
        if request.state is State.OPEN:
            request.state = after(request.state, Step.PEER)
            actions.tables.remove(request)
            actions.events.append(Responded(request, payload))
        else:
            self._met(request)

    def _response_closed(self, kind: int, ident: int, payload: bytes, _is_kept: bool) -> None:
        actions = self._actions
        request = self._asked(kind, ident)
        actions.unfinished.end(chunks.RESPONSE, ident)
        actions.outgoing.reply(chunks.ACK_CLOSE_RESPONSE, ident)
        if request.state is State.OPEN:
            actions.events.append(Closed(request, payload))
        self._met(request)

    def _met(self, request: Request) -> None:
        """The peer ended a request of ours, and our Cancel may be on its way."""
        has_begun = request.lane.at or request.lane.announced
        if request.state is State.LEAVING and has_begun:
            request.answered = True
            return
        self._actions.outgoing.clear(request.lane)
        request.state = after(request.state, Step.PEER)
        self._actions.over(request)

    def _request_cancelled(self, _kind: int, ident: int, payload: bytes, _is_kept: bool) -> None:
        actions = self._actions
        request = actions.tables.requests.get(ident)
        actions.outgoing.reply(chunks.ACK_CANCEL_REQUEST, ident)
        if request is None:
            self.chatter += 1
            actions.unfinished.end(chunks.REQUEST, ident)
            return
        before, request.state = request.state, after(request.state, Step.PEER)
        if before is not State.LEFT:
            actions.outgoing.clear(request.lane)
            self._report(Cancelled(request, payload))
        actions.over(request)

    def _cancelled(self, kind: int, ident: int, payload: bytes, _is_kept: bool) -> None:
        actions = self._actions
        if ident == TOP:
            actions.heard.add(kind)
            top = actions.tables.top
            if top.sending is State.OPEN:
                actions.outgoing.clear(top.lane)
            actions.events.append(Cancelled(top, payload))
            actions.finish()
            return
        actions.outgoing.reply(chunks.ACK_CANCEL if kind in OURS else chunks.ACK_CANCEL_PEER, ident)
        if self._was_opening(kind, ident):
            return
        channel = self._channel(kind, ident)
        before, channel.sending = channel.sending, after(channel.sending, Step.PEER)
        if before is not State.LEFT:
            actions.outgoing.clear(channel.lane)
            self._report(Cancelled(channel, payload))
        actions.over(channel)

    def _closed(self, kind: int, ident: int, payload: bytes, _is_kept: bool) -> None:
        actions = self._actions
        actions.unfinished.end(chunks.MESSAGE_PEER if kind in OURS else chunks.MESSAGE, ident)
        if ident == TOP:
            actions.heard.add(kind)
            actions.events.append(Closed(actions.tables.top, payload))
            actions.finish()
            return
        actions.outgoing.reply(chunks.ACK_CLOSE if kind in OURS else chunks.ACK_CLOSE_PEER, ident)
        if self._was_opening(kind, ident):
            return
        channel = self._channel(kind, ident)
        before, channel.receiving = channel.receiving, after(channel.receiving, Step.PEER)
        if before is not State.LEFT:
            actions.outgoing.clear(channel.cancelling)
            self._report(Closed(channel, payload))
        actions.over(channel)

    def _was_opening(self, kind: int, ident: int) -> bool:
        """Whether the channel was ended before its opening was whole: there never was one."""
        if kind in OURS or ident in self._actions.tables.theirs:
            return False
        for opening in (chunks.SINK, chunks.STREAM, chunks.DUPLEX):
            self._actions.unfinished.end(opening, ident)
        return True

    def _report(self, event: Cancelled | Closed) -> None:
        """What was refused is not known to the program as something that the peer could end."""
        if not event.entity.is_refused:
            self._actions.events.append(event)

    # --- what carries no payload ---

    def _partial(self, _kind: int, _ident: int, total: int) -> None:
        self._announced = total

    def _credit(self, kind: int, ident: int, amount: int) -> None:
        channel = self._channel(kind, ident)
        self._require(channel.sending in HEARD, kind, ident)
        if channel.account.credit + amount >= NUMBER_LIMIT:
            raise BpmuxError("credit", f"{channel} has more than {NUMBER_LIMIT - 1}")
        self.chatter += amount < SMALL_GRANT
        self._actions.credited(channel, amount)

    def _cancel_acknowledged(self, kind: int, ident: int, _number: int) -> None:
        """Of a way on which we received: what had begun on it is not finished any more."""
        is_ours = kind == chunks.ACK_CANCEL_PEER
        channel = self._channel(chunks.MESSAGE_PEER if is_ours else chunks.MESSAGE, ident)
        channel.receiving = after(channel.receiving, Step.ACKNOWLEDGED)
        self._actions.unfinished.end(chunks.MESSAGE_PEER if is_ours else chunks.MESSAGE, ident)
        self._actions.unfinished.end(chunks.CLOSE_PEER if is_ours else chunks.CLOSE, ident)
        self._actions.over(channel)

    def _close_acknowledged(self, kind: int, ident: int, _number: int) -> None:
        is_ours = kind == chunks.ACK_CLOSE_PEER
        channel = self._channel(chunks.MESSAGE_PEER if is_ours else chunks.MESSAGE, ident)
        channel.sending = after(channel.sending, Step.ACKNOWLEDGED)
        self._actions.unfinished.end(chunks.CANCEL_PEER if is_ours else chunks.CANCEL, ident)
        self._actions.over(channel)

    def _request_cancel_acknowledged(self, kind: int, ident: int, _number: int) -> None:
        request = self._actions.tables.asked.get(ident)
        if request is None:
            raise self._nothing_there(kind, ident)
        request.state = after(request.state, Step.ACKNOWLEDGED)
        self._actions.unfinished.end(chunks.RESPONSE, ident)
        self._actions.unfinished.end(chunks.CLOSE_RESPONSE, ident)
        self._actions.over(request)

    def _response_close_acknowledged(self, kind: int, ident: int, _number: int) -> None:
        request = self._actions.tables.requests.get(ident)
        if request is None:
            raise self._nothing_there(kind, ident)
        request.state = after(request.state, Step.ACKNOWLEDGED)
        self._actions.over(request)

    def _ping(self, kind: int, ident: int, _number: int) -> None:
        """No pong once we have said all that we say: the peer may have forgotten the channel by then."""
        self.chatter += 1
        is_ours = kind == chunks.PING_PEER
        channel = self._channel(chunks.MESSAGE_PEER if is_ours else chunks.MESSAGE, ident)
        if ident == TOP or _has_something_to_say(channel.sending) or _has_something_to_say(channel.receiving):
            self._actions.outgoing.reply(chunks.PONG if is_ours or ident == TOP else chunks.PONG_PEER, ident)

    def _pong(self, kind: int, ident: int, _number: int) -> None:
        self.chatter += 1
        tables = self._actions.tables
        channel = (tables.ours if kind == chunks.PONG_PEER else tables.theirs).get(ident)
        if channel is not None:
            self._beats.pong(channel)

    def _ping_of_request(self, _kind: int, ident: int, _number: int) -> None:
        self.chatter += 1
        request = self._actions.tables.requests.get(ident)
        if request is not None and _has_something_to_say(request.state):
            self._actions.outgoing.reply(chunks.PONG_REQUEST, ident)

    def _pong_of_request(self, _kind: int, ident: int, _number: int) -> None:
        self.chatter += 1
        request = self._actions.tables.asked.get(ident)
        if request is not None:
            self._beats.pong(request)

    # --- what there is ---

    def _channel(self, kind: int, ident: int) -> Channel:
        tables = self._actions.tables
        if ident == TOP:
            return tables.top
        channel = (tables.ours if kind in OURS else tables.theirs).get(ident)
        if channel is None or not channel.is_open:
            raise self._nothing_there(kind, ident)
        return channel

    def _asked(self, kind: int, ident: int) -> Request:
        request = self._actions.tables.asked.get(ident)
        if request is None or not request.is_open:
            raise self._nothing_there(kind, ident)
        self._require(request.state in HEARD and not request.answered, kind, ident)
        return request

    @staticmethod
    def _nothing_there(kind: int, ident: int) -> BpmuxError:
        return BpmuxError("state", f"{chunks.NAMES[kind]} of {ident}, which is not there")

    @staticmethod
    def _require(sound: bool, kind: int, ident: int) -> None:
        if not sound:
            raise BpmuxError("state", f"{chunks.NAMES[kind]} of {ident}, which has ended")

    # --- what does which ---

    _WHOLE: ClassVar[dict[int, Callable[["Incoming", int, int, bytes, bool], None]]] = {
        chunks.MESSAGE: _message_whole,
        chunks.MESSAGE_PEER: _message_whole,
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
    _OTHERS: ClassVar[dict[int, Callable[["Incoming", int, int, int], None]]] = {
        chunks.PARTIAL: _partial,
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


def _has_something_to_say(state: State) -> bool:
    return state in (State.OPEN, State.LEAVING)
