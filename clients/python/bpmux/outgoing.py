"""What waits to be sent: who may go, in turn, and as much of it as the peer's credit allows.

- What costs no credit (acknowledgements, grants, heartbeats) goes first, in the order in which it was caused.
- Each channel and request has a lane. Lanes take turns: a lane sends up to PIECE_LIMIT bytes and goes to the back.
- A lane whose next payload finds no credit waits beside the account that is empty and holds up nobody else.
- A payload that does not go in one chunk is announced (partial mode) and goes in several.
- Nothing is made into bytes before it is asked for: what the transport does not take waits where it can be cancelled.
"""

from collections import OrderedDict
from collections.abc import Callable

from bpmux.chunks import (
    CREDIT,
    CREDIT_PEER,
    DUPLEX,
    MESSAGE,
    MESSAGE_PEER,
    PARTIAL,
    REQUEST,
    SINK,
    STREAM,
    TOP,
    head,
)
from bpmux.entities import Account, Channel, Lane, Request
from bpmux.errors import BpmuxError
from bpmux.limits import ITEM_BYTES, PIECE_LIMIT

MESSAGES = (MESSAGE, MESSAGE_PEER)
OPENINGS = (SINK, STREAM, DUPLEX, REQUEST)


class Outgoing:
    """``sent(entity, kind)`` is called when the last byte of a payload went out."""

    __slots__ = ("_is_stopped", "_limit", "_ready", "_replies", "_sent", "_top", "waiting")

    def __init__(self, top: Account, limit: int, sent: Callable[[Channel | Request, int], None]) -> None:
        self._top = top
        self._limit = limit
        self._sent = sent
        self._is_stopped = False
        self._replies = bytearray()
        self._ready: OrderedDict[Lane, None] = OrderedDict()
        self.waiting = 0  # bytes of payloads in all lanes, with ITEM_BYTES for each

    @property
    def replies(self) -> int:
        """Bytes that need no credit and were not asked for yet."""
        return len(self._replies)

    @property
    def has_more(self) -> bool:
        waits_for_nothing = self._ready or (self._top.waiting and self._top.credit)
        return bool(self._replies or waits_for_nothing) and not self._is_stopped

    def stop(self) -> None:
        """The connection is finished: what is being taken is the last."""
        self._is_stopped = True

    def reply(self, kind: int, ident: int, number: int = 0) -> None:
        """Without credit. Raises ``BpmuxError`` for a peer that causes more than it reads."""
        self._replies += head(kind, ident, number)
        if len(self._replies) > self._limit:
            raise BpmuxError("limit", "the peer does not read the replies that it causes")

    def grant(self, channel: Channel, amount: int) -> None:
        channel.credit += amount
        self.reply(CREDIT if channel.ours else CREDIT_PEER, channel.id, amount)

    def add(self, lane: Lane, kind: int, payload: bytes) -> None:
        lane.items.append((kind, payload))
        self._charge(lane, len(payload) + ITEM_BYTES)
        self.start(lane)

    def start(self, lane: Lane) -> None:
        """Let a lane have its turns once its channel is open; an opening itself goes at once."""
        if lane.place is None and lane.items and (lane.entity.is_open or lane.items[0][0] in OPENINGS):
            self._ready[lane] = None
            lane.place = self._ready

    def clear(self, lane: Lane) -> None:
        """Take back what is not sent, but for an opening, which the peer may have seen the beginning of."""
        kept = lane.items[0] if lane.items and lane.items[0][0] in OPENINGS else None
        self._charge(lane, -lane.size)
        lane.items.clear()
        if kept is not None:
            lane.items.append(kept)
            self._charge(lane, len(kept[1]) + ITEM_BYTES)
            return
        lane.at = 0
        lane.announced = False
        if lane.place is not None:
            del lane.place[lane]
            lane.place = None

    def credited(self, account: Account, amount: int) -> None:
        account.credit += amount
        if account is not self._top and account.credit:
            self._wake(account)

    def _wake(self, account: Account) -> None:
        """Let the lane that has waited longest try again. Each turn wakes one for the top level, and no more: a grant
        of one byte does not set a thousand lanes in motion.
        """
        if account.waiting:
            lane, _ = account.waiting.popitem(last=False)
            self._ready[lane] = None
            lane.place = self._ready

    def take(self, limit: int) -> bytes:
        """Up to about ``limit`` bytes (one piece more at most); empty if nothing may go now."""
        if self._is_stopped:
            return b""
        out, self._replies = self._replies, bytearray()
        while len(out) < limit and not self._is_stopped:
            if self._top.credit:
                self._wake(self._top)
            if not self._ready:
                break
            lane, _ = self._ready.popitem(last=False)
            lane.place = None
            self._turn(lane, out)
        out += self._replies  # credit that waited for an opening
        self._replies.clear()
        return bytes(out)

    def _turn(self, lane: Lane, out: bytearray) -> None:
        entity, items = lane.entity, lane.items
        room = PIECE_LIMIT
        while items and room > 0:
            kind, payload = items[0]
            account = entity.account if kind in MESSAGES and type(entity) is Channel else self._top
            size = len(payload)
            left = size - lane.at
            amount = min(left, account.credit, PIECE_LIMIT)
            if left and not amount:
                account.waiting[lane] = None
                lane.place = account.waiting
                return
            account.credit -= amount
            room -= amount + ITEM_BYTES
            if amount == size:
                if amount < 256 and 0 <= entity.id < 256:
                    out += bytes((kind << 4, entity.id, amount))
                else:
                    out += head(kind, entity.id, amount)
                out += payload
            else:
                self._piece(lane, kind, payload, amount, out)
            if amount < left:
                break
            items.popleft()
            lane.at = 0
            lane.announced = False
            self._charge(lane, -size - ITEM_BYTES)
            self._sent(entity, kind)
        if items:
            self._ready[lane] = None
            lane.place = self._ready

    def _piece(self, lane: Lane, kind: int, payload: bytes, amount: int, out: bytearray) -> None:
        if not lane.announced:
            lane.announced = True
            out += head(PARTIAL, TOP, len(payload))
        out += head(kind, lane.entity.id, amount)
        out += payload[lane.at : lane.at + amount]
        lane.at += amount

    def _charge(self, lane: Lane, size: int) -> None:
        lane.size += size
        self.waiting += size
