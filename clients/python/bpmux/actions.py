"""What this side does to its channels and requests: each action, and what follows once its bytes went out.

An action on what the peer has just ended does nothing, as nobody can know that in time. An action that never made
sense (a message into a stream of ours) is a ``ValueError``.
"""

from bpmux import chunks
from bpmux.chunks import NUMBER_LIMIT, TOP
from bpmux.entities import Channel, Request, State, Step, Tables, after
from bpmux.errors import BpmuxError
from bpmux.events import Ended, Entity, Event, Finished, Refused, Writable
from bpmux.limits import ITEM_BYTES, Limits
from bpmux.outgoing import Outgoing
from bpmux.payloads import Unfinished

# What each side says of the top level before the connection is finished.
FAREWELL = frozenset({chunks.CLOSE, chunks.CANCEL})


class Actions:
    """``events``: what came of them, in order. ``said`` and ``heard``: the farewells of both sides."""

    __slots__ = ("events", "heard", "is_finished", "limits", "outgoing", "said", "tables", "unfinished")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.tables = Tables()
        self.unfinished = Unfinished(limits)
        self.outgoing = Outgoing(self.tables.top.account, limits.replies, self._sent)
        self.events: list[Event] = []
        self.said: set[int] = set()
        self.heard: set[int] = set()
        self.is_finished = False
        self.set_window(self.tables.top, limits.reserve)

    # --- to open and to ask ---

    def open(self, kind: int, payload: bytes, window: int) -> Channel | None:
        if kind not in (chunks.SINK, chunks.STREAM, chunks.DUPLEX):
            raise ValueError(f"{kind} is no kind of channel")
        self._check_size(payload)
        if len(self.tables.ours) >= self.limits.channels:
            return None
        channel = self.tables.new_channel(kind)
        self.outgoing.add(channel.lane, kind, payload)
        if window:
            self.set_window(channel, window)
        return channel

    def ask(self, payload: bytes) -> Request | None:
        self._check_size(payload)
        if len(self.tables.asked) >= self.limits.requests:
            return None
        request = self.tables.new_request()
        self.outgoing.add(request.lane, chunks.REQUEST, payload)
        return request

    def answer(self, request: Request, payload: bytes) -> bool:
        if request.ours:
            raise ValueError("a request of our own is answered by the peer")
        self._check_size(payload)
        if request.state is not State.OPEN or request.answered:
            return False
        request.answered = True
        self.outgoing.add(request.lane, chunks.RESPONSE, payload)
        return True

    # --- messages and credit ---

    def send(self, channel: Channel, payload: bytes) -> bool:
        self._check_size(payload)
        if channel.sending is State.ABSENT:
            raise ValueError(f"{channel} is not to be written")
        if channel.sending is not State.OPEN or (channel.id == TOP and chunks.CANCEL in self.heard):
            return False
        if channel.lane.size and channel.lane.size + len(payload) + ITEM_BYTES > self.limits.queue:
            channel.is_full = True
            return False
        self.outgoing.add(channel.lane, chunks.MESSAGE if channel.ours else chunks.MESSAGE_PEER, payload)
        return True

    def room(self, channel: Channel) -> int:
        return max(0, channel.room) if channel.is_open and channel.sending is State.OPEN else 0

    def await_credit(self, channel: Channel) -> None:
        channel.is_starved = True

    def credited(self, channel: Channel, amount: int) -> None:
        self.outgoing.credited(channel.account, amount)
        if channel.is_starved:
            channel.is_starved = False
            self.events.append(Writable(channel))

    def grant(self, channel: Channel, amount: int) -> None:
        if channel.receiving is State.ABSENT:
            raise ValueError(f"{channel} is not to be read")
        if amount <= 0 or channel.credit + channel.pending + amount >= NUMBER_LIMIT:
            raise ValueError(f"a grant of {amount}")
        if not channel.is_open:
            channel.pending += amount
        elif channel.receiving is State.OPEN or channel.id == TOP:
            self.outgoing.grant(channel, amount)

    def set_window(self, channel: Channel, window: int) -> None:
        channel.window = window
        self.top_up(channel)

    def consumed(self, channel: Channel, size: int) -> None:
        channel.held = max(0, channel.held - size)
        self.top_up(channel)

    def top_up(self, channel: Channel) -> None:
        """Grant anew what is neither the peer's nor held here, once it is half of the window."""
        owed = channel.window - channel.held - channel.credit - channel.pending
        if owed > 0 and 2 * owed >= channel.window and (channel.receiving is State.OPEN or channel.id == TOP):
            self.grant(channel, owed)

    # --- to end ---

    def close(self, entity: Entity, payload: bytes, *, at_once: bool = False) -> None:
        self._check_size(payload)
        if isinstance(entity, Request):
            if entity.ours:
                raise ValueError("a request of our own is cancelled, not closed")
            if entity.state is State.OPEN and (at_once or not entity.answered):
                entity.state = after(entity.state, Step.LEAVE)
                self.outgoing.clear(entity.lane)
                self.outgoing.add(entity.lane, chunks.CLOSE_RESPONSE, payload)
            return
        if entity.sending is State.ABSENT:
            raise ValueError(f"{entity} is not to be written")
        if entity.sending is State.OPEN:
            entity.sending = after(entity.sending, Step.LEAVE)
            if at_once:
                self.outgoing.clear(entity.lane)
            self.outgoing.add(entity.lane, chunks.CLOSE if entity.ours else chunks.CLOSE_PEER, payload)

    def cancel(self, entity: Entity, payload: bytes) -> None:
        self._check_size(payload)
        if isinstance(entity, Request):
            if not entity.ours:
                raise ValueError("a request of the peer is closed, not cancelled")
            if entity.state is State.OPEN:
                entity.state = after(entity.state, Step.LEAVE)
                self.outgoing.add(entity.lane, chunks.CANCEL_REQUEST, payload)
            return
        if entity.receiving is State.ABSENT:
            raise ValueError(f"{entity} is not to be read")
        if entity.receiving is State.OPEN:
            entity.receiving = after(entity.receiving, Step.LEAVE)
            self.outgoing.add(
                entity.cancelling, chunks.CANCEL if entity.ours else chunks.CANCEL_PEER, payload
            )

    def refuse(self, entity: Entity, reason: bytes) -> None:
        """End it on all sides, for a limit that the peer went beyond."""
        self.events.append(Refused(entity, reason))
        if not entity.is_refused:
            entity.is_refused = True
            self.tables.refused += 1
        if self.tables.refused > self.limits.refused:
            raise BpmuxError("limit", "the peer goes beyond limits and does not read that it did")
        if isinstance(entity, Request):
            (self.cancel if entity.ours else self.close)(entity, reason)
            return
        if entity.sending is not State.ABSENT and entity.id != TOP:
            self.close(entity, reason, at_once=True)
        if entity.receiving is not State.ABSENT:
            self.cancel(entity, reason)

    def over(self, entity: Entity) -> None:
        """If nobody has anything more to say about it, its id is free."""
        if entity.is_over:
            self.tables.remove(entity)
            self.events.append(Ended(entity))

    # --- what went out ---

    def _sent(self, entity: Entity, kind: int) -> None:
        if isinstance(entity, Channel):
            self._channel_sent(entity, kind)
        elif kind == chunks.REQUEST:
            entity.is_open = True
        elif kind == chunks.RESPONSE:
            entity.state = State.OVER
            self.tables.remove(entity)
        else:
            entity.state = after(entity.state, Step.SENT)

    def _channel_sent(self, channel: Channel, kind: int) -> None:
        if kind in (chunks.MESSAGE, chunks.MESSAGE_PEER):
            if channel.is_full and 2 * channel.lane.size <= self.limits.queue:
                channel.is_full = False
                self.events.append(Writable(channel))
        elif kind in (chunks.SINK, chunks.STREAM, chunks.DUPLEX):
            channel.is_open = True
            amount, channel.pending = channel.pending, 0
            if amount:
                self.grant(channel, amount)
            self.outgoing.start(channel.cancelling)
        elif channel.id == TOP:
            self.said.add(kind)
            self.finish()
        elif kind in (chunks.CLOSE, chunks.CLOSE_PEER):
            channel.sending = after(channel.sending, Step.SENT)
        else:
            channel.receiving = after(channel.receiving, Step.SENT)

    def finish(self) -> None:
        if self.said == self.heard == FAREWELL:
            self.drop()
            self.events.append(Finished())

    def drop(self) -> None:
        """Nothing is said or heard any more."""
        self.is_finished = True
        self.outgoing.stop()

    def _check_size(self, payload: bytes) -> None:
        if len(payload) > self.limits.payload:
            raise ValueError(f"a payload of {len(payload)} bytes, at most {self.limits.payload}")
