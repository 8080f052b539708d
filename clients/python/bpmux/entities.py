"""Channels and requests, and how each way of one ends.

A channel has a way for what we send, a way for what we receive, or both. Each way has two ends: its sender may close
it, its receiver may cancel it, and the other side acknowledges. Both may do so at once; then each acknowledges, and
each waits for its own acknowledgement. So the table is the same for a sender that closes and a receiver that cancels:

    OPEN ---- leave ----> LEAVING ---- sent ----> LEFT ------- acknowledged ---> OVER
      | peer                 | peer                 | peer                        ^
      +----> OVER            +----> OVER            +----> CROSSED --- acknowledged

An id is free once both ways of its channel are over. Since chunks arrive in order, the peer has then come to the same
conclusion before it can see the id again. A request has one way, that of its response: whoever asked may cancel it,
whoever was asked may close it. A response that was sent ends it without any acknowledgement.
"""

from collections import OrderedDict, deque
from enum import Enum
from heapq import heappop, heappush

from bpmux import chunks
from bpmux.chunks import TOP
from bpmux.errors import BpmuxError
from bpmux.limits import ITEM_BYTES


class State(Enum):
    """Of one way. ABSENT: there is none, or the opening is not sent yet."""

    ABSENT = "absent"
    OPEN = "open"
    LEAVING = "leaving"
    LEFT = "left"
    CROSSED = "crossed"
    OVER = "over"


class Step(Enum):
    """What happens to a way: LEAVE, we end it; SENT, our Close or Cancel is on its way; PEER, the peer ends it."""

    LEAVE = "leave"
    SENT = "sent"
    PEER = "peer"
    ACKNOWLEDGED = "acknowledged"


NEXT = {
    (State.OPEN, Step.LEAVE): State.LEAVING,
    (State.OPEN, Step.PEER): State.OVER,
    (State.LEAVING, Step.SENT): State.LEFT,
    (State.LEAVING, Step.PEER): State.OVER,
    (State.LEFT, Step.PEER): State.CROSSED,
    (State.LEFT, Step.ACKNOWLEDGED): State.OVER,
    (State.CROSSED, Step.ACKNOWLEDGED): State.OVER,
}

# In these the peer may still say something on the way.
HEARD = frozenset({State.OPEN, State.LEAVING, State.LEFT})
# In these nothing more is said about it.
SILENT = frozenset({State.ABSENT, State.OVER})


def after(state: State, step: Step) -> State:
    """Raises ``BpmuxError`` for what the peer cannot have meant."""
    following = NEXT.get((state, step))
    if following is None:
        raise BpmuxError("state", f"{step.value} in the state {state.value}")
    return following


class Account:
    """Credit that the peer has given, and the lanes that wait for more of it, in turn."""

    __slots__ = ("credit", "waiting")

    def __init__(self) -> None:
        self.credit = 0
        self.waiting: OrderedDict[Lane, None] = OrderedDict()


class Lane:
    """Payloads that go out one behind the other. ``at``: how much of the first is sent; ``size``: what waits.

    ``place``: where the lane waits for its turn or for credit; None if it has nothing to send.
    """

    __slots__ = ("announced", "at", "entity", "items", "place", "size")

    def __init__(self, entity: "Channel | Request") -> None:
        self.entity = entity
        self.items: deque[tuple[int, bytes]] = deque()
        self.at = 0
        self.announced = False
        self.size = 0
        self.place: OrderedDict[Lane, None] | None = None


class Channel:
    """A sink, stream or duplex; ``ours``: this side opened it. Opaque to programs, but for what is read-only here.

    ``credit``: what the peer may still send; ``held``: bytes of messages that the program has not consumed.
    """

    __slots__ = (
        "account", "cancelling", "credit", "held", "id", "is_full", "is_open", "is_refused", "is_starved", "kind",
        "lane", "ours", "pending", "receiving", "sending", "window",
    )  # fmt: skip

    def __init__(self, ident: int, kind: int, *, ours: bool) -> None:
        self.id = ident
        self.kind = kind
        self.ours = ours
        self.is_open = False
        self.is_refused = False
        self.is_full = False
        self.is_starved = False
        self.sending = self.receiving = State.ABSENT
        if kind == chunks.DUPLEX or (kind == chunks.SINK) is ours:
            self.sending = State.OPEN
        if kind == chunks.DUPLEX or (kind == chunks.STREAM) is ours:
            self.receiving = State.OPEN
        self.account = Account()
        self.lane = Lane(self)
        self.cancelling = Lane(self)
        self.credit = self.window = self.held = self.pending = 0

    def __repr__(self) -> str:
        if self.id == TOP:
            return "<the top level>"
        return f"<{chunks.NAMES[self.kind]} {self.id} of {'ours' if self.ours else 'the peer'}>"

    @property
    def is_over(self) -> bool:
        return self.sending in SILENT and self.receiving in SILENT

    @property
    def room(self) -> int:
        """Credit that nothing in the lane waits for; less than 0 if more waits than there is credit for."""
        waiting = self.lane.size - ITEM_BYTES * len(self.lane.items) - self.lane.at
        return self.account.credit - waiting


class Request:
    """``ours``: this side waits for the response. ``state``: of the way of the response.

    ``answered``: the response is queued, or has come while our Cancel, which is then finished, was under way.
    """

    __slots__ = ("answered", "id", "is_open", "is_refused", "lane", "ours", "state")

    def __init__(self, ident: int, *, ours: bool) -> None:
        self.id = ident
        self.ours = ours
        self.is_open = False
        self.is_refused = False
        self.answered = False
        self.state = State.OPEN
        self.lane = Lane(self)

    def __repr__(self) -> str:
        return f"<request {self.id} of {'ours' if self.ours else 'the peer'}>"

    @property
    def is_over(self) -> bool:
        return self.state is State.OVER


class Ids:
    """The lowest first, so that they stay narrow; one that was given back may be given again."""

    __slots__ = ("_free", "_next")

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    def take(self) -> int:
        if self._free:
            return heappop(self._free)
        self._next += 1
        return self._next - 1

    def give_back(self, ident: int) -> None:
        heappush(self._free, ident)


class Tables:
    """What there is on a connection, by who opened it. Whatever is over is in none of them."""

    __slots__ = ("_channel_ids", "_request_ids", "asked", "ours", "refused", "requests", "theirs", "top")

    def __init__(self) -> None:
        self.top = Channel(TOP, chunks.DUPLEX, ours=True)
        self.top.is_open = True
        self.ours: dict[int, Channel] = {}
        self.theirs: dict[int, Channel] = {}
        self.asked: dict[int, Request] = {}  # by us
        self.requests: dict[int, Request] = {}  # by the peer
        self.refused = 0
        self._channel_ids = Ids()
        self._request_ids = Ids()

    def new_channel(self, kind: int) -> Channel:
        channel = Channel(self._channel_ids.take(), kind, ours=True)
        self.ours[channel.id] = channel
        return channel

    def new_request(self) -> Request:
        request = Request(self._request_ids.take(), ours=True)
        self.asked[request.id] = request
        return request

    def remove(self, entity: Channel | Request) -> None:
        if isinstance(entity, Channel):
            table: dict[int, Channel] | dict[int, Request] = self.ours if entity.ours else self.theirs
        else:
            table = self.asked if entity.ours else self.requests
        del table[entity.id]
        self.refused -= entity.is_refused
        if entity.ours:
            (self._channel_ids if isinstance(entity, Channel) else self._request_ids).give_back(entity.id)
