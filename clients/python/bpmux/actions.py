"""What this side does to its channels and requests; each function is an action on a ``Connection``.

An action on what the peer has just ended does nothing, as nobody can know that in time. An action that never made
sense (a message into a stream of ours) is a ``ValueError``.
"""

from collections.abc import Sequence

from bpmux import chunks
from bpmux.chunks import NUMBER_LIMIT, TOP
from bpmux.connection import Connection
from bpmux.entities import Channel, Request, State, Step, after
from bpmux.errors import BpmuxError
from bpmux.events import Entity, Refused
from bpmux.limits import ITEM_BYTES, Limits

# --- to open and to ask ---


def open_channel(connection: Connection, kind: int, payload: bytes, window: int = 0) -> Channel | None:
    """None: as many are open as may be."""
    if kind not in (chunks.SINK, chunks.STREAM, chunks.DUPLEX):
        raise ValueError(f"{kind} is no kind of channel")
    _check_size(connection, payload)
    if len(connection.tables.ours) >= connection.limits.channels:
        return None
    channel = connection.tables.new_channel(kind)
    connection.outgoing.add(channel.lane, kind, payload)
    if window:
        set_window(connection, channel, window)
    return channel


def ask(connection: Connection, payload: bytes) -> Request | None:
    """None: as many wait as may."""
    _check_size(connection, payload)
    if len(connection.tables.asked) >= connection.limits.requests:
        return None
    request = connection.tables.new_request()
    connection.outgoing.add(request.lane, chunks.REQUEST, payload)
    return request


def answer(connection: Connection, request: Request, payload: bytes) -> bool:
    """False: it is answered or ended already."""
    if request.ours:
        raise ValueError("a request of our own is answered by the peer")
    _check_size(connection, payload)
    if request.state is not State.OPEN or request.answered:
        return False
    request.answered = True
    connection.outgoing.add(request.lane, chunks.RESPONSE, payload)
    return True


# --- messages and credit ---


def send(connection: Connection, channel: Channel, payloads: Sequence[bytes]) -> int:
    """How many are taken, the first ones: not all if the peer takes no more, or if as much waits as may."""
    lane, limits = channel.lane, connection.limits
    longest = max(map(len, payloads), default=0)
    if longest > limits.payload:
        raise _too_long(longest, limits)
    if channel.sending is not State.OPEN or (channel.id == TOP and chunks.CANCEL in connection.heard):
        if channel.sending is State.ABSENT:
            raise ValueError(f"{channel} is not to be written")
        return 0
    taken = _fitting(payloads, lane.size, limits.queue)
    if taken < len(payloads):
        channel.is_full = True
        payloads = payloads[:taken]
    connection.outgoing.add(lane, chunks.MESSAGE if channel.ours else chunks.MESSAGE_PEER, *payloads)
    return taken


def _fitting(payloads: Sequence[bytes], size: int, limit: int) -> int:
    """How many go into a queue of ``size`` bytes. One goes into an empty queue, however long it is."""
    if size + sum(map(len, payloads)) + ITEM_BYTES * len(payloads) <= limit:
        return len(payloads)
    for taken, payload in enumerate(payloads):
        with_it = size + len(payload) + ITEM_BYTES
        if size and with_it > limit:
            return taken
        size = with_it
    return len(payloads)


def room(channel: Channel) -> int:
    return max(0, channel.room) if channel.is_open and channel.sending is State.OPEN else 0


def grant(connection: Connection, channel: Channel, amount: int) -> None:
    if channel.receiving is State.ABSENT:
        raise ValueError(f"{channel} is not to be read")
    if amount <= 0 or channel.credit + channel.pending + amount >= NUMBER_LIMIT:
        raise ValueError(f"a grant of {amount}")
    connection.grant(channel, amount)


def set_window(connection: Connection, channel: Channel, window: int) -> None:
    if window >= NUMBER_LIMIT:
        raise ValueError(f"a window of {window}")
    channel.window = window
    connection.top_up(channel)


def consume(connection: Connection, channel: Channel, size: int) -> None:
    channel.held = max(0, channel.held - size)
    connection.top_up(channel)


# --- to end ---


def close(connection: Connection, entity: Entity, payload: bytes, *, at_once: bool = False) -> None:
    _check_size(connection, payload)
    outgoing = connection.outgoing
    if isinstance(entity, Request):
        if entity.ours:
            raise ValueError("a request of our own is cancelled, not closed")
        if entity.state is State.OPEN and (at_once or not entity.answered):
            entity.state = after(entity.state, Step.LEAVE)
            outgoing.clear(entity.lane)
            outgoing.add(entity.lane, chunks.CLOSE_RESPONSE, payload)
        return
    if entity.sending is State.ABSENT:
        raise ValueError(f"{entity} is not to be written")
    if entity.sending is State.OPEN:
        entity.sending = after(entity.sending, Step.LEAVE)
        if at_once:
            outgoing.clear(entity.lane)
        outgoing.add(entity.lane, chunks.CLOSE if entity.ours else chunks.CLOSE_PEER, payload)


def cancel(connection: Connection, entity: Entity, payload: bytes) -> None:
    _check_size(connection, payload)
    if isinstance(entity, Request):
        if not entity.ours:
            raise ValueError("a request of the peer is closed, not cancelled")
        if entity.state is State.OPEN:
            entity.state = after(entity.state, Step.LEAVE)
            connection.outgoing.add(entity.lane, chunks.CANCEL_REQUEST, payload)
        return
    if entity.receiving is State.ABSENT:
        raise ValueError(f"{entity} is not to be read")
    if entity.receiving is State.OPEN:
        entity.receiving = after(entity.receiving, Step.LEAVE)
        kind = chunks.CANCEL if entity.ours else chunks.CANCEL_PEER
        connection.outgoing.add(entity.cancelling, kind, payload)


def refuse(connection: Connection, entity: Entity, reason: bytes) -> None:
    """End it on all sides, for a limit that the peer went beyond. Raises ``BpmuxError`` for too many of these."""
    connection.events.append(Refused(entity, reason))
    if not entity.is_refused:
        entity.is_refused = True
        connection.tables.refused += 1
    if connection.tables.refused > connection.limits.refused:
        raise BpmuxError("limit", "the peer goes beyond limits and does not read that it did")
    if isinstance(entity, Request):
        (cancel if entity.ours else close)(connection, entity, reason)
        return
    if entity.sending is not State.ABSENT and entity.id != TOP:
        close(connection, entity, reason, at_once=True)
    if entity.receiving is not State.ABSENT:
        cancel(connection, entity, reason)


def _check_size(connection: Connection, payload: bytes) -> None:
    if len(payload) > connection.limits.payload:
        raise _too_long(len(payload), connection.limits)


def _too_long(size: int, limits: Limits) -> ValueError:
    return ValueError(f"a payload of {size} bytes, at most {limits.payload}")
