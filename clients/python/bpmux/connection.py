"""What there is on a connection, as one side knows it: the state that ``actions`` and ``incoming`` share.

``actions`` is what this side does, ``incoming`` judges what comes and ``arrivals`` does it. None of these keeps
anything about a channel or a request: that is all here. So is what follows from the state whoever changed it:

- credit that is used up is granted anew, as far as a window says so;
- an id is free when nobody has anything more to say about what it stood for;
- the connection is finished when both sides have said their farewells.
"""

from bpmux import chunks
from bpmux.chunks import TOP
from bpmux.entities import Channel, State, Step, Tables, after
from bpmux.events import Ended, Entity, Event, Finished, Writable
from bpmux.heartbeats import Heartbeats
from bpmux.limits import Limits
from bpmux.outgoing import Outgoing
from bpmux.payloads import Unfinished

# What each side says of the top level before the connection is finished.
FAREWELL = frozenset({chunks.CLOSE, chunks.CANCEL})


class Connection:
    """``tables``: channels and requests; ``outgoing``: what waits to be sent; ``unfinished``: what has begun to come.

    ``events``: what the program has not been told, in order. ``said`` and ``heard``: the farewells of both sides.
    ``chatter``: chunks that moved nothing, and cost their sender no credit.
    """

    __slots__ = (
        "beats", "chatter", "events", "heard", "is_finished", "limits", "outgoing", "said", "tables", "unfinished",
    )  # fmt: skip

    def __init__(self, now: float, limits: Limits) -> None:
        self.limits = limits
        self.tables = Tables()
        self.unfinished = Unfinished(limits)
        self.outgoing = Outgoing(self.tables.top.account, limits.replies, self._sent)
        self.beats = Heartbeats(self.tables.top, now)
        self.events: list[Event] = []
        self.said: set[int] = set()
        self.heard: set[int] = set()
        self.is_finished = False
        self.chatter = 0
        self.tables.top.window = limits.reserve
        self.top_up(self.tables.top)

    def credited(self, channel: Channel, amount: int) -> None:
        """The peer takes so much more."""
        self.outgoing.credited(channel.account, amount)
        if channel.is_starved:
            channel.is_starved = False
            self.events.append(Writable(channel))

    def grant(self, channel: Channel, amount: int) -> None:
        """Credit for a way on which this side receives: now, or as soon as its opening is sent."""
        if not channel.is_open:
            channel.pending += amount
        elif channel.receiving is State.OPEN or channel.id == TOP:
            self.outgoing.grant(channel, amount)

    def top_up(self, channel: Channel) -> None:
        """Grant anew what is neither the peer's nor held here, once it is half of the window."""
        owed = channel.window - channel.held - channel.credit - channel.pending
        if owed > 0 and 2 * owed >= channel.window and (channel.receiving is State.OPEN or channel.id == TOP):
            self.grant(channel, owed)

    def settle(self, entity: Entity) -> None:
        """If nobody has anything more to say about it, its id is free."""
        if entity.is_over:
            self.tables.remove(entity)
            self.events.append(Ended(entity))

    def finish(self) -> None:
        """If both sides have said their farewells, the connection is finished."""
        if self.said == self.heard == FAREWELL:
            self.drop()
            self.events.append(Finished())

    def drop(self) -> None:
        """Nothing is said or heard any more."""
        self.is_finished = True
        self.outgoing.stop()

    # --- what went out ---

    def _sent(self, entity: Entity, kind: int) -> None:
        """The last byte of a payload of this kind."""
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
