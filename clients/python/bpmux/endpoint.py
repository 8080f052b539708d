"""One side of a connection of bpmux/rel: bytes in, events out, and what is to be sent.

    endpoint = Endpoint(now)
    transport.send(endpoint.data_to_send())             its credit for the top level goes first
    for event in endpoint.receive(bytes, now): ...      and after each call: send what there is now to send
    for event in endpoint.expire(now): ...              at ``endpoint.deadline``

- It has no clock, no socket and no loop. Both sides are the same.
- Sending never waits: what the peer has no credit for is queued, up to a limit, and goes out as credit comes.
- After ``BpmuxError`` the connection is dropped: there is nothing to send, and whatever comes is passed over.
  ``events`` still has what came before the fault.
- The endpoint keeps the top level at ``Limits.reserve`` of credit by itself, acknowledges and answers pings.
- While ``replies`` is large the peer does not read: then do not read from it either. At ``Limits.replies`` whatever
  causes one more raises ``BpmuxError``.
"""

from collections.abc import Sequence

from bpmux import actions, chunks
from bpmux.chunks import NUMBER_LIMIT
from bpmux.connection import Connection
from bpmux.entities import Channel, Request
from bpmux.errors import BpmuxError
from bpmux.events import Entity, Event, Silent
from bpmux.incoming import Incoming
from bpmux.limits import CHANNEL_BYTES, PAYLOAD_BYTES, REQUEST_BYTES, Limits

# Of a cancellation for want of pongs.
NO_PONG = b"no pong came"


class Endpoint:
    """``top``: the channel that is always open. Channels and requests are handles of this endpoint alone."""

    __slots__ = ("_connection", "_incoming")

    def __init__(self, now: float, limits: Limits | None = None) -> None:
        self._connection = Connection(now, limits or Limits())
        self._incoming = Incoming(self._connection)

    # --- bytes, time and events ---

    def receive(self, data: bytes, now: float, most: int = NUMBER_LIMIT) -> list[Event]:
        """What these bytes bring, and whatever else happened since the last call. Raises ``BpmuxError``.

        ``most``: ``work`` that it may do, but for the last chunk. If it then ``is_behind``, the next call goes on.
        """
        if data:
            self._connection.beats.heard(now)
        try:
            self._incoming.receive(data, most)
        except BpmuxError:
            self._connection.drop()
            raise
        return self.events()

    def expire(self, now: float) -> list[Event]:
        """Ping what is due, and give up what did not answer."""
        pings, lost = self._connection.beats.due(now)
        for entity in pings:
            self._ping(entity)
        for entity in lost:
            self._connection.events.append(Silent(entity))
            if entity is not self.top:
                actions.cancel(self._connection, entity, NO_PONG)
        return self.events()

    def events(self) -> list[Event]:
        """What happened outside of ``receive`` and ``expire``: ``Writable``, and ``Finished`` with the last bytes."""
        events, self._connection.events = self._connection.events, []
        return events

    def data_to_send(self, limit: int = 64 * 1024) -> bytes:
        """What may be sent now, about ``limit`` bytes of it; call again once that is gone, until it is empty."""
        return self._connection.outgoing.take(limit)

    @property
    def deadline(self) -> float:
        return self._connection.beats.deadline

    # --- channels ---

    @property
    def top(self) -> Channel:
        return self._connection.tables.top

    def open_sink(self, payload: bytes) -> Channel | None:
        """A channel to send on. None: as many as ``Limits.channels`` are open already."""
        return actions.open_channel(self._connection, chunks.SINK, payload)

    def open_stream(self, payload: bytes, window: int = 0) -> Channel | None:
        """A channel to receive on. With a window the peer has that much credit at once; see ``set_window``."""
        return actions.open_channel(self._connection, chunks.STREAM, payload, window)

    def open_duplex(self, payload: bytes, window: int = 0) -> Channel | None:
        return actions.open_channel(self._connection, chunks.DUPLEX, payload, window)

    def send(self, channel: Channel, payload: bytes) -> bool:
        """False if it is not taken: the peer takes no more, or the queue is full and ``Writable`` will come."""
        return actions.send(self._connection, channel, (payload,)) == 1

    def send_each(self, channel: Channel, payloads: Sequence[bytes]) -> int:
        """How many are taken, the first ones. If not all, it is as if ``send`` had not taken the next."""
        return actions.send(self._connection, channel, payloads)

    def room(self, channel: Channel) -> int:
        """How many bytes of messages the peer has credit for now, besides those that are queued."""
        return actions.room(channel)

    def waiting(self, channel: Channel) -> int:
        """Bytes that are queued on it, with something for each message."""
        return channel.lane.size

    def await_credit(self, channel: Channel) -> None:
        """``Writable`` will come with the next credit: for who sends no more than there is room for."""
        channel.is_starved = True

    def grant(self, channel: Channel, amount: int) -> None:
        """Let the peer send so many bytes more. Not together with a window."""
        actions.grant(self._connection, channel, amount)

    def set_window(self, channel: Channel, window: int) -> None:
        """Keep the peer's credit at ``window`` bytes, less what of its messages is not ``consumed``.

        A message that comes in several chunks is granted anew as it comes, so any window lets any message pass.
        """
        actions.set_window(self._connection, channel, window)

    def consumed(self, channel: Channel, size: int) -> None:
        """So many bytes of messages are dealt with; for channels with a window."""
        actions.consume(self._connection, channel, size)

    # --- requests ---

    def request(self, payload: bytes) -> Request | None:
        """None: as many as ``Limits.requests`` wait already."""
        return actions.ask(self._connection, payload)

    def respond(self, request: Request, payload: bytes) -> bool:
        """False: it is answered or ended already."""
        return actions.answer(self._connection, request, payload)

    # --- to end ---

    def cancel(self, entity: Entity, payload: bytes = b"") -> None:
        """Take no more: of a channel that we receive on, or of a request of ours."""
        actions.cancel(self._connection, entity, payload)

    def close(self, entity: Entity, payload: bytes = b"", *, at_once: bool = False) -> None:
        """Send no more: on a channel once what is queued has gone, or ``at_once``; to a request of the peer."""
        actions.close(self._connection, entity, payload, at_once=at_once)

    # --- heartbeats ---

    def watch(self, entity: Entity, seconds: float, now: float) -> bool:
        """Ping a channel that we receive on, or a request of ours, as long as it is open. False: too many are."""
        return self._connection.beats.watch(entity, seconds, now)

    def _ping(self, entity: Entity) -> None:
        if isinstance(entity, Request):
            kind = chunks.PING_REQUEST
        else:
            kind = chunks.PING if entity.ours else chunks.PING_PEER
        self._connection.outgoing.reply(kind, entity.id)

    # --- what it costs ---

    @property
    def work(self) -> int:
        """How many chunks were judged. One that opens, answers or ends something counts as OPENING_WORK."""
        return self._incoming.work

    @property
    def is_behind(self) -> bool:
        """Whether something has come that was not judged: ``receive(b"", now)`` does."""
        return self._incoming.is_behind

    @property
    def chatter(self) -> int:
        """How many of them moved nothing: without a byte, grants of next to nothing, heartbeats."""
        return self._connection.chatter

    @property
    def replies(self) -> int:
        """Bytes of acknowledgements, grants and pongs that were not taken yet."""
        return self._connection.outgoing.replies

    @property
    def queued(self) -> int:
        """Bytes of payloads that wait for credit or for the transport."""
        return self._connection.outgoing.waiting

    @property
    def ready(self) -> int:
        """Those of them that wait for the transport."""
        return self._connection.outgoing.waiting - self._connection.outgoing.stalled

    @property
    def held(self) -> int:
        """Bytes of payloads that have begun and not ended."""
        return self._connection.unfinished.held

    @property
    def weight(self) -> int:
        """Bytes that the connection holds, about: queued, held and unread, channels, requests, begun payloads."""
        tables, unfinished = self._connection.tables, self._connection.unfinished
        things = CHANNEL_BYTES * (len(tables.theirs) + len(tables.ours))
        things += REQUEST_BYTES * (len(tables.requests) + len(tables.asked))
        return (
            self.queued + unfinished.held + self._incoming.unread + PAYLOAD_BYTES * len(unfinished) + things
        )

    @property
    def has_data_to_send(self) -> bool:
        return self._connection.outgoing.has_more
