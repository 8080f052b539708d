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
    """``sent(entity, kind)`` is called when the last byte of a payload went out, or of a run of messages.

    ``waiting``: bytes of payloads in all lanes, with ITEM_BYTES for each; ``stalled``: those that wait for credit.
    """

    __slots__ = ("_is_stopped", "_limit", "_ready", "_replies", "_sent", "_top", "stalled", "waiting")

    def __init__(self, top: Account, limit: int, sent: Callable[[Channel | Request, int], None]) -> None:
        self._top = top
        self._limit = limit
        self._sent = sent
        self._is_stopped = False
        self._replies = bytearray()
        self._ready: OrderedDict[Lane, None] = OrderedDict()
        self.waiting = self.stalled = 0

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

    def add(self, lane: Lane, kind: int, *payloads: bytes) -> None:
        lane.items += [(kind, payload) for payload in payloads]
        self._charge(lane, sum(map(len, payloads)) + ITEM_BYTES * len(payloads))
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
            self.stalled -= lane.size
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
        items, room = lane.items, PIECE_LIMIT
        while items and room > 0:
            room -= self._run(lane, room, out)
            if not items or room <= 0:
                break
            amount = self._part(lane, out)
            if amount < 0:
                account = self._account(lane)
                account.waiting[lane] = None
                lane.place = account.waiting
                self.stalled += lane.size
                return
            room -= amount + ITEM_BYTES
            if lane.at:
                break
        if items:
            self._ready[lane] = None
            lane.place = self._ready

    def _run(self, lane: Lane, room: int, out: bytearray) -> int:
        """The short way for messages that go whole, as many as there is credit and room for. What they take of it."""
        items = lane.items
        kind = items[0][0]
        if kind not in MESSAGES or lane.at or lane.announced:
            return 0
        account, run, left = self._account(lane), list[bytes](), room
        credit = account.credit
        for each, payload in items:
            size = len(payload)
            if left <= 0 or size > credit or size > PIECE_LIMIT or each != kind:
                break
            credit -= size
            left -= size + ITEM_BYTES
            run.append(payload)
        if run:
            heads = {size: head(kind, lane.entity.id, size) for size in set(map(len, run))}
            if len(heads) == 1:
                (first,) = heads.values()
                out += first
                out += first.join(run)
            else:
                for payload in run:
                    out += heads[len(payload)]
                    out += payload
            for _ in run:
                items.popleft()
            account.credit = credit
            self._charge(lane, left - room)
            self._sent(lane.entity, kind)
        return room - left

    def _part(self, lane: Lane, out: bytearray) -> int:
        """As much of the next payload as may go, which is its bytes; -1 if it has to wait for credit."""
        kind, payload = lane.items[0]
        account, size = self._account(lane), len(payload)
        left = size - lane.at
        amount = min(left, account.credit, PIECE_LIMIT)
        if left and not amount:
            return -1
        account.credit -= amount
        if amount == size:
            out += head(kind, lane.entity.id, amount)
            out += payload
        else:
            self._piece(lane, kind, payload, amount, out)
        if amount == left:
            lane.items.popleft()
            lane.at = 0
            lane.announced = False
            self._charge(lane, -size - ITEM_BYTES)
            self._sent(lane.entity, kind)
        return amount

    def _account(self, lane: Lane) -> Account:
        """Who pays for the next payload."""
        entity = lane.entity
        if type(entity) is Channel and lane.items[0][0] in MESSAGES:
            return entity.account
        return self._top

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
        if lane.place is not None and lane.place is not self._ready:
            self.stalled += size
