"""What the peer sends: whether each chunk may come now, and what it costs. ``arrivals`` does what it says.

A chunk is judged when its head is there: the entity it names, the credit it spends, the total it was announced with.
Only then is anything of its payload kept. Whatever could not have been sent by a peer that follows the rules raises
``BpmuxError``.
"""

from bpmux import actions, chunks
from bpmux.arrivals import OF_HEADS, OF_PAYLOADS, OURS, asked, channel_of, require
from bpmux.chunks import TOP, Reader
from bpmux.connection import Connection
from bpmux.entities import HEARD, Channel, State
from bpmux.errors import BpmuxError
from bpmux.events import Message
from bpmux.limits import OPENING_WORK
from bpmux.payloads import TOO_LONG, Payload

# Which kinds of channel have a way for what their opener receives, and for what it sends.
READ_BY_OPENER = (chunks.STREAM, chunks.DUPLEX)
WRITTEN_BY_OPENER = (chunks.SINK, chunks.DUPLEX)
_MESSAGES = (chunks.MESSAGE, chunks.MESSAGE_PEER)


class Incoming:
    """It keeps where the stream of bytes is, and nothing else. ``work``: how much so far, as chunks.

    ``is_behind``: the last call of ``receive`` stopped before the end of what has come.
    """

    __slots__ = ("_announced", "_connection", "_current", "_payer", "_reader", "is_behind", "work")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reader = Reader()
        self._announced: int | None = None
        self._current = Payload(chunks.MESSAGE, TOP, 0)  # of the chunk that is coming in
        self._payer = connection.tables.top  # whoever paid for it
        self.work = 0
        self.is_behind = False

    @property
    def unread(self) -> int:
        """Bytes that have come and were not judged."""
        return self._reader.unread

    def receive(self, data: bytes, most: int) -> None:
        """Do so much work, but for the last chunk."""
        connection, end = self._connection, self.work + most
        self.is_behind = False
        if connection.is_finished:
            return
        for kind, ident, number, piece, rest in self._reader.feed(data):
            if kind < 0:
                self._add(self._current, piece, rest)
            elif kind in _MESSAGES:
                self.work += 1
                self._message(kind, ident, number, piece, rest)
            elif kind <= chunks.DUPLEX:
                self.work += OPENING_WORK
                self._carry(kind, ident, number, piece, rest)
            else:
                self.work += 1
                self._head(kind, ident, number)
            if connection.is_finished:
                return
            if self.work >= end:
                self.is_behind = self.unread > 0
                return

    def _head(self, kind: int, ident: int, number: int) -> None:
        """A chunk without a payload."""
        if self._announced is not None:
            raise BpmuxError("partial", f"a total is followed by {chunks.NAMES[kind]}")
        if kind == chunks.PARTIAL:
            self._announced = number
        else:
            OF_HEADS[kind](self._connection, kind, ident, number)

    def _message(self, kind: int, ident: int, length: int, piece: bytes, rest: int) -> None:
        """The short way for a message that is whole, and then the same as ``_carry``."""
        connection = self._connection
        tables = connection.tables
        channel = (tables.theirs if kind == chunks.MESSAGE else tables.ours).get(ident)
        if (
            channel is None
            or channel.receiving is not State.OPEN
            or rest
            or not 0 < length <= channel.credit
            or self._announced is not None
            or connection.unfinished
            or length > connection.limits.payload
            or not channel.is_open
        ):
            self._carry(kind, ident, length, piece, rest)
            return
        channel.credit -= length
        if channel.window:
            channel.held += length
        connection.events.append(Message(channel, piece))

    def _carry(self, kind: int, ident: int, length: int, piece: bytes, rest: int) -> None:
        connection = self._connection
        announced, self._announced = self._announced, None
        payload = connection.unfinished.get(kind, ident)
        payer = self._admit(kind, ident, is_new=payload is None)
        if length > payer.credit:
            raise BpmuxError("credit", f"{length} bytes for {payer}, which has {payer.credit}")
        payer.credit -= length
        connection.chatter += not length
        if payload is None:
            total = length if announced is None else announced
            payload = connection.unfinished.begin(kind, ident, total)
        elif announced is not None:
            raise BpmuxError("partial", f"a {chunks.NAMES[kind]} of {ident} is under way already")
        payload.promise(length)
        self._current, self._payer = payload, payer
        self._add(payload, piece, rest)

    def _add(self, payload: Payload, piece: bytes, rest: int) -> None:
        """A piece of the chunk that is coming in, of which ``rest`` is still to come."""
        connection = self._connection
        connection.unfinished.add(payload, piece)
        if not payload.is_kept:
            self._stop(payload)
        if payload.is_whole:
            kept = bytes(payload.kept)
            connection.unfinished.end(payload.kind, payload.id)
            OF_PAYLOADS[payload.kind](connection, payload.kind, payload.id, kept, payload.is_kept)
        if not rest:
            connection.top_up(self._payer)

    def _stop(self, payload: Payload) -> None:
        """Have the peer send no more of what is too long, where it can be told before the end."""
        connection = self._connection
        if payload.kind == chunks.RESPONSE:
            request = asked(connection, payload.kind, payload.id)
            if request.state is State.OPEN:
                actions.refuse(connection, request, TOO_LONG)
        elif payload.kind in _MESSAGES:
            channel = channel_of(connection, payload.kind, payload.id)
            if channel.receiving is State.OPEN:
                actions.refuse(connection, channel, TOO_LONG)

    # --- what may come now ---

    def _admit(self, kind: int, ident: int, *, is_new: bool) -> Channel:
        """Whose credit pays. Raises ``BpmuxError`` if no such chunk may come now."""
        connection = self._connection
        tables, unfinished = connection.tables, connection.unfinished
        if kind in _MESSAGES:
            channel = channel_of(connection, kind, ident)
            is_closed = ident == TOP and chunks.CLOSE in connection.heard
            require(channel.receiving in HEARD and not is_closed, kind, ident)
            return channel
        if kind in (chunks.SINK, chunks.STREAM, chunks.DUPLEX):
            if is_new and (ident in tables.theirs or unfinished.opening(ident)):
                raise BpmuxError("id", f"a channel {ident} is open already")
        elif kind == chunks.REQUEST:
            if is_new and (ident in tables.requests or unfinished.get(chunks.CANCEL_REQUEST, ident)):
                raise BpmuxError("id", f"a request {ident} is open already")
        elif kind in (chunks.RESPONSE, chunks.CLOSE_RESPONSE):
            asked(connection, kind, ident)
        elif kind != chunks.CANCEL_REQUEST:
            self._admit_ending(kind, ident)
        return tables.top

    def _admit_ending(self, kind: int, ident: int) -> None:
        connection = self._connection
        is_cancel = kind in (chunks.CANCEL, chunks.CANCEL_PEER)
        if ident == TOP:
            require(kind not in connection.heard, kind, ident)
        elif kind in OURS or ident in connection.tables.theirs:
            channel = channel_of(connection, kind, ident)
            require((channel.sending if is_cancel else channel.receiving) in HEARD, kind, ident)
        else:
            opening = connection.unfinished.opening(ident)
            fitting = READ_BY_OPENER if is_cancel else WRITTEN_BY_OPENER
            require(opening is not None and opening.kind in fitting, kind, ident)
