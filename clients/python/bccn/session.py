"""The session of a client with the daemon, over one socket after the other. It does not wait; a driver waits for it.

    away ----- a transport is made -----> greeting ----- all answered -----> ready
      ^  (``_due``: the next attempt)        | (``_due``: it takes too long)     |
      |                                     |                                  |
      +-------------------------------------+----------------------------------+
                    the transport ends; with ``reconnect=False`` for good

A driver is a subclass. It waits until the transport is readable while it ``_wants_packets``, or has room while
something is ``_unsent``, or the time is ``_due``, and then has it ``_work``. Coroutines wait in ``_wait`` only.

Rules (``clients/PROTOCOL.md``, "Control requests", "Connecting again"):
1. What is wanted (``_wishes``, subscriptions) outlives a connection. The greeting says all of it to a new one first.
2. All else is ``_held`` until it is sent. What is ``_unsent`` goes as there is room: the greeting, then that queue
   itself. Answers come in the order of the requests: ``_asked`` is a queue, too. A complaint about a SUB or UNSUB
   belongs to the request sent after it.
3. What was published is with the daemon once a later request is answered; else it is in doubt when the connection
   breaks, and the next barrier says so.
4. A connection that ends is read to its end. What it did not answer is asked again on the next one, but for an UNSUB,
   which the greeting makes needless; unsent messages wait.
5. A child of fork never touches its parent's connection.
6. One thread at a time. Only ``close`` and ``_send``, which sends a packet at once or not at all, are for any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from os import PathLike, environ, fspath, getpid, register_at_fork
from time import monotonic
from weakref import WeakSet

from bccn import errors
from bccn.errors import BccnError, ProtocolError, RejectedError, UnavailableError
from bccn.exchange import FOREVER, Entry, Exchanges, Pending
from bccn.inbox import MESSAGE_COST, NOTICES_LIMIT, Inbox, Notice
from bccn.protocol import PACK, Batches, Message, build_control, build_sub, is_number, parse, unpack
from bccn.transport import BUSY, NO_SIGNAL, PACKET_LIMIT, READABLE, WRITABLE, Credentials, Transport, pauses

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from bccn.options import Format, Queue, Separator, Tap
    from bccn.readiness import Readiness

# What the address of a door begins with; all else is the path of a daemon's socket.
DOORS = ("unix:", "tls:", "ws:", "wss:")
# Bytes of messages read but not taken. A client that waits for an answer reads on above it; it asks nothing more.
BACKLOG_LIMIT = 64 * 1024 * 1024
# Bytes of messages above which such a client drops them. What a daemon queues before an answer is less.
FLOOD_LIMIT = 2 * BACKLOG_LIMIT
# Packets that who waits for a message or an answer reads at once: each look at how things stand has a price, too.
READ_LIMIT = 64


def transport_to(path: str | PathLike[str] | None, credentials: Credentials) -> Transport:
    """A connection to the daemon at a socket, or through the door at an address; None: as the environment says.

    $BCCN_SOCKET goes before $BCCN_CONNECT: who sets both means the latter for programs that need a door.
    """
    address = fspath(path or environ.get("BCCN_SOCKET") or environ.get("BCCN_CONNECT", ""))
    if not address.startswith(DOORS):
        return Transport(address)
    from bccn_door.carrier import StreamTransport  # few programs need it

    return StreamTransport(address, credentials)


def cannot_send(_packet: bytes, _flags: int) -> int:
    raise BlockingIOError


class Session:
    """What both clients are, and the feed of the recorder. ``_due``: when to call ``_advance``."""

    # Python finds attributes fast while there are less than 30 others than these.
    __slots__ = (
        "__dict__", "__weakref__", "_asked", "_batches", "_credentials", "_due", "_exchanges", "_held", "_inbox",
        "_memory", "_news", "_notices", "_path", "_timeout", "_transport", "_unsent", "_watches", "_wishes",
    )  # fmt: skip

    _read_ahead = BACKLOG_LIMIT  # bytes of messages that wait
    _closed = ""  # why, once it is
    _receives = False  # somebody has called ``receive``
    _alarm = FOREVER  # when the first of those who wait has waited for long enough, or earlier
    _shows_messages = False  # a loop wakes for those that wait here
    _reading = True  # a loop wakes for those that come
    # When to give up the first connection, and where a daemon is busy; None: there was one.
    _until: tuple[float, float] | None = FOREVER, FOREVER

    def __init__(
        self, path: str | PathLike[str] | None = None, *, name: str | None = None,
        format: Format = "plain",  # noqa: A002 - the protocol's word
        pack: bool = False, echo: bool = True, separator: Separator = "/",
        queue: Queue | None = None, tap: Tap = "off", reconnect: bool = True,
        timeout: float = 5.0, wait: float = 0.0, on_notice: Callable[[Notice], object] | None = None,
        ca: str | PathLike[str] | None = None, cert: str | PathLike[str] | None = None,
        key: str | PathLike[str] | None = None, server_name: str | None = None,
    ) -> None:  # fmt: skip
        """The options are those of ``clients/PROTOCOL.md``, "The functions of a client".

        path           the daemon's socket, or the address of a door: ``unix:PATH``, ``tls://HOST:PORT``.
                       None: $BCCN_SOCKET, else $BCCN_CONNECT, else the usual places (``socket_path``)
        name           own src; None: the daemon's ``<host>/<program>/<pid>``
        format         ``full``: messages have src, seq, peer and time, too
        queue          what may wait in the daemon: ``{"packets": 1000, "bytes": 10**6, "policy": "drop-oldest"}``
        timeout, wait  seconds: a call waits for the daemon; the first connection is tried for
        on_notice      called with each ``Notice``; None: they are warnings of the logger ``bccn``
        ca, cert, key  of TLS, files (PEM): who may vouch for the door, who we are. None: $BCCN_TLS_CA and so on
        server_name    what the door's certificate must be for, if that is not HOST

        It also has ``connected``, whether there is a connection, as far as known without looking, and ``lost``, how
        many messages the daemon dropped because this client read too slowly.
        """
        self._credentials = ca, cert, key, server_name
        limits = " ".join(f"{key}={value}" for key, value in (queue or {}).items())
        # What differs from the first value is asked for; where there are others, it must be one of them.
        wishes: tuple[tuple[str, str | None, *tuple[str | None, ...]], ...] = (
            ("name", name, None), ("separator", separator, "/", "."), ("format", format, "plain", "full"),
            ("pack", "on" if pack else "", ""), ("echo/off", "" if echo else None, ""), ("queue", limits, ""),
            ("tap", tap, "off", "on", "interface"),
        )  # fmt: skip
        for option, value, *values in wishes:
            if len(values) > 1 and value not in values:
                raise errors.InvalidError(f"{option} {value!r}: must be {' or '.join(map(str, values))}")
        self._wishes = {option: value for option, value, *values in wishes if value != values[0]}
        self._path, self._reconnect, self._timeout, self._first_wait = path, reconnect, timeout, wait
        self._inbox, self.on_notice = Inbox(separator), on_notice
        self._watches: dict[str, tuple[Callable[[str, bool], object], bool | None]] = {}  # and what was told
        self._memory = memoryview(bytearray(PACKET_LIMIT))
        self._begin_life()
        _sessions.add(self)
        self._begin()

    def _begin_life(self) -> None:
        """What belongs to this process."""
        self._transport: Transport | None = None
        self._send: Callable[[bytes, int], int] = cannot_send
        self._readiness: Readiness | None = None
        self._due = FOREVER
        self.connected = self._was_connected = False
        self._granted: dict[str, str] = {}  # the answers to the greeting, while connected
        self._batches = Batches()
        self._exchanges = Exchanges()
        self._notices: deque[Notice] = deque(maxlen=NOTICES_LIMIT)
        self._news: dict[str, bool] = {}  # of watches
        self.lost = 0  # messages the daemon dropped for us, ever
        self._published = self._confirmed = 0  # messages, ever
        self._in_doubt, self._doubt_reason = 0, ""  # messages since the last barrier; why the daemon left
        self._rejection: RejectedError | None = None  # the first since the last barrier
        self._rejection_count = 0
        self._held: deque[Entry] = deque()  # what the program wants sent
        self._unsent: deque[Entry] = deque()  # what may be sent now
        self._asked: deque[Entry] = deque()
        self._greeting: list[Entry] = []
        self._fault = UnavailableError("there is no connection to the daemon")
        self._said = ""  # why the daemon closes the connection
        self._pauses = pauses()
        self._inbox.clear()

    # --- for drivers ---

    # Wait until ``pending`` is done, or ``deadline`` (monotonic seconds) has passed.
    async def _wait(self, pending: Pending, deadline: float) -> None: ...
    # Among many messages: let others have their turn.
    async def _give_way(self) -> None: ...
    def _begin(self) -> None: ...  # the client is made
    def _changed(self) -> None: ...  # the connection came, went or was closed

    def _forked(self) -> None:
        """In a child of fork: keep what is wanted, and nothing of the parent's (BCCN1.md, "Forked programs")."""
        if self._transport is not None:
            self._transport.close()
        if self._granted:
            self._wishes["name"] = f"{self._granted['whoami']}/{getpid()}"
        self._until = None
        self._begin_life()
        self._due = 0.0

    @property
    def name(self) -> str:
        """Own src, as others see it; empty while there is no connection."""
        return self._granted.get("whoami", "")

    def _is_over(self) -> bool:
        return bool(self._closed)

    @property
    def _wants_packets(self) -> bool:
        """Whether to read: who asks reads on, or both sides could wait for each other."""
        return self._inbox.waiting_size <= self._read_ahead or bool(self._asked or self._exchanges)

    @property
    def _unsettled(self) -> bool:
        """Whether a barrier could have something to say about what was published."""
        return self._published != self._confirmed or bool(self._in_doubt or self._rejection_count)

    def _settle(self) -> None:
        """At the end of a step: pass on notices, have a loop know what to wait for."""
        while self._notices:
            (self.on_notice or Notice.log)(self._notices.popleft())
        while self._news and (changed := self._news.keys() & self._watches.keys()):
            callback, told = self._watches[pattern := changed.pop()]
            if (wanted := self._news.pop(pattern)) is not told:
                self._watches[pattern] = callback, wanted
                callback(pattern, wanted)
        if self._readiness is not None and not self._closed:
            self._reading = self._wants_packets
            events = READABLE * self._reading | WRITABLE * bool(self._unsent)
            self._readiness.watch(self._transport.fileno() if self._transport and events else -1, events)
            due = 0.0 if self._shows_messages and self._inbox else min(self._due, self._alarm)
            self._readiness.set_timer(due)

    def _check(self, *, asks: bool = False) -> None:
        """Raise why there is nothing to wait for. Who asks reads on, and must not do only that."""
        if self._closed:
            raise errors.ClosedError(self._closed)
        if self._transport is None and self._due == FOREVER:
            raise self._fault.with_traceback(None)
        if asks and self._inbox.waiting_size > BACKLOG_LIMIT:
            raise errors.BacklogError(f"{len(self._inbox)} messages wait to be received: call receive()")

    # --- one connection after the other ---

    async def _connect(self) -> None:
        """Make the first connection; tries for ``wait`` seconds, or ``timeout`` where a daemon is busy."""
        now, self._due = monotonic(), 0.0
        self._until = now + self._first_wait, now + max(self._first_wait, self._timeout)
        try:
            await self._available(FOREVER)
        except BaseException:
            self._let_go(self._fault)
            raise

    def _advance(self) -> None:
        """Do what is due: connect and greet, or give up a greeting that is not answered."""
        if monotonic() < self._due or self._closed:
            return
        try:
            if self._transport is not None:
                raise UnavailableError("the daemon does not answer")
            self._transport = transport_to(self._path, self._credentials)
        except (RejectedError, UnavailableError) as error:
            self._end(error)
            return
        self._due, self._said = monotonic() + self._timeout, ""
        subscriptions = [build_sub(each.pattern) for each in self._inbox.held]
        self._greeting = [Entry(build_control(key, value), key=key) for key, value in self._wishes.items()]
        self._greeting += [Entry(build_control("watch", pattern), key="watch") for pattern in self._watches]
        self._greeting.append(Entry(*subscriptions, build_control("whoami"), key="whoami"))
        self._unsent.extend(self._greeting)
        for entry in self._held:  # the greeting says all but a SUB that was to be sent before a request
            entry.sent = 0 if entry.subscription is not None else max(0, len(entry.packets) - 1)
        self._flush()

    def _greeted(self) -> None:
        complaints = [entry.error for entry in self._greeting if isinstance(entry.error, RejectedError)]
        # Our old connection may still hold our name: a little later it is granted.
        taken = self._was_connected and any(each.code == "name-taken" for each in complaints)
        if complaints and (taken or self._until is not None):
            self._end(complaints[0])
            return
        self._granted = {entry.expected: entry.value for entry in self._greeting}
        if self._was_connected:
            self._notify(Notice("reconnected", "connected to the daemon again"))
        for each in complaints:
            self._notify(Notice("rejected", str(each), 1, each))
        self._pauses, self._due, self._until = pauses(), FOREVER, None
        self.connected = self._was_connected = True
        self._unsent = self._held
        self._flush()
        self._changed()

    def _end(self, error: BccnError) -> None:
        """The transport has ended and was read to its end, or none could be made."""
        if self._said and isinstance(error, UnavailableError):
            text = str(error) if self.connected else f"the daemon closes the connection: {self._said}"
            error = UnavailableError(text, self._said)
        self._fault = error if isinstance(error, UnavailableError) else UnavailableError(str(error))
        self._due = monotonic()
        if self.connected:
            doubt = self._published - self._confirmed
            self._in_doubt, self._doubt_reason = self._in_doubt + doubt, self._fault.reason
            self._notify(Notice("disconnected", str(error), doubt))
        else:
            self._due += next(self._pauses)
        if self._until is not None:
            may_pass = error is self._fault or error.code == "limit"
            in_vain = self._due > self._until[self._fault.reason == BUSY] or not may_pass
        else:
            in_vain = self._was_connected and not self._reconnect
        self._let_go(error if in_vain else None)

    def _let_go(self, error: BccnError | None) -> None:
        """Close the transport, if there is one. Who waits gets the ``error`` where there will be no other."""
        self._send, transport, self._transport = cannot_send, self._transport, None
        if self._readiness is not None:
            self._readiness.watch(-1)
        if transport is not None:
            transport.close()
        self._inbox.withdrawn = set()  # a new connection knows nothing of it, and is no tap yet
        self._inbox.set_tap("off")
        waiting = (*self._asked, *self._held) if self.connected else self._held
        self._held, self._unsent = deque(entry for entry in waiting if not entry.done), deque()
        self._asked.clear()
        self.connected, self._granted, self._confirmed = False, {}, self._published
        if error is not None:
            self._due = FOREVER
            while self._held:
                self._held.popleft().finish(error)
            self._exchanges.wake()
        self._changed()

    def _close(self) -> None:
        """Let go of the connection at once; calls that wait for it raise ClosedError."""
        self._closed = "the client is closed"
        self._let_go(errors.ClosedError(self._closed))

    # --- what comes ---

    def _read(self, limit: int = READ_LIMIT) -> bool:
        """Take so many packets that are there; False: none. The connection may end with it, also by ProtocolError."""
        if (transport := self._transport) is None:
            return False
        memory = self._memory
        for taken in range(limit):
            try:
                size = transport.receive_into(memory)
                if size is None:
                    return taken > 0
                self._feed(memory[:size].tobytes())
            except BccnError as error:  # a door is asked after it was taken for there, and may refuse
                self._end(error)
                if isinstance(error, ProtocolError):
                    raise
                return True
            if not self.connected and self._greeting[-1].done:
                self._greeted()
                return True
        return True

    def _work(self, limit: int) -> bool:
        """Do what can be done without waiting: what is due, send what is unsent, read so many packets, if any."""
        if self._due != FOREVER:
            self._advance()
        if self._unsent:
            self._flush()
        return self._wants_packets and self._read(limit)

    def _feed(self, packet: bytes) -> None:
        """One packet from the daemon: messages to the inbox, news to ``_notices``, answers to requests."""
        inbox, is_full = self._inbox, False
        if inbox.waiting_size > BACKLOG_LIMIT:
            self._exchanges.wake()
            is_full = inbox.waiting_size > FLOOD_LIMIT
        for event in map(parse, unpack(packet)) if packet[:5] == PACK else (parse(packet),):
            if not isinstance(event, Message):
                self._control(*event)
            elif event.channel[:1] == "!" and self._exchanges.take(event):
                continue
            elif is_full:
                self._lose(1)
            elif not inbox.is_choosy or not inbox.is_unwanted(event.channel):
                if inbox.lost:
                    event.lost, inbox.lost = inbox.lost, 0
                (inbox.backlog if inbox.has_routes else inbox.received).append(event)
                inbox.waiting_size += len(event.payload) + MESSAGE_COST

    def _control(self, key: str, value: str) -> None:
        if key == "error":
            self._error(errors.rejected(value))
        elif key == "dropped" and is_number(value):
            self._lose(int(value))
        elif key == "revoked":
            if value == "CMSG tap":
                self._inbox.set_tap("off")
            self._notify(Notice("revoked", f"no longer allowed: {value}", 1))
        elif key == "wanted":
            where, _, pattern = value.partition(" ")
            self._news[pattern] = where != "no"
        elif key == "closing":
            self._said = value
            self._notify(Notice("closing", f"the daemon closes the connection: {value}"))
        elif self._asked and self._asked[0].expected == key:
            entry = self._asked.popleft()
            if key in ("watch", "unwatch"):
                self._news.pop(value, None)  # of an earlier one
            self._confirmed = max(self._confirmed, entry.published)
            entry.value = value
            if key == "tap":
                self._inbox.set_tap(value)
            if entry.subscription is not None and entry.error is None:
                entry.subscription.pending = False
            entry.finish()

    def _error(self, error: RejectedError) -> None:
        asked = self._asked or self._unsent  # the SUB of a request may be sent, and the request not yet
        if error.text.startswith("CMSG ") and self._asked:
            self._asked.popleft().finish(error)
        elif error.text.startswith(("SUB ", "UNSUB ")) and asked:
            asked[0].error = asked[0].error or error
        elif not self._exchanges.blame(error):
            self._rejection = self._rejection or error
            self._rejection_count += 1
            self._notify(Notice("rejected", str(error), 1, error))

    def _lose(self, count: int) -> None:
        """The daemon dropped so many messages, or there is no place for them here. In a row they are one notice."""
        self.lost += count
        self._inbox.lost += count
        if self._notices and self._notices[-1].kind == "lost":
            count += self._notices.pop().count
        text = f"{count} message{'s' * (count != 1)} lost: they came faster than they were read"
        self._notify(Notice("lost", text, count))

    def _drop_unclaimed(self) -> None:
        """Messages for which nobody calls ``receive`` must not stop those of callbacks and other streams."""
        if not self._receives and (count := self._inbox.drop(self._inbox.received)):
            text = f"{count} messages dropped that no callback takes, and nobody has called receive() for"
            self._notify(Notice("unclaimed", text, count))

    def _raise_rejections(self) -> None:
        """Raise what a barrier found: what is not, or may not be, on the bus."""
        first, count, doubt = self._rejection, self._rejection_count, self._in_doubt
        self._rejection, self._rejection_count, self._in_doubt = None, 0, 0
        if first is not None:
            more = f"; {count - 1} more rejected" if count > 1 else ""
            raise errors.rejected(f"{first.code} {first.text}{more}")
        if doubt:
            some = "1 message" if doubt == 1 else f"up to {doubt} messages"
            text = f"the daemon went away: {some} may not have been published"
            raise errors.UnconfirmedError(text, self._doubt_reason)

    def _notify(self, notice: Notice) -> None:
        """Have the program know; whoever waits for replies passes it on at once. Equal refusals are one notice."""
        newest = self._notices[-1] if self._notices else None
        if notice.error is not None and newest is not None and newest.text == notice.text:
            newest.count += notice.count
        else:
            self._notices.append(notice)
        self._exchanges.wake()

    # --- what goes ---

    def _flush(self) -> None:
        """Send what is queued, as far as there is room. Then programs may send for themselves (``_send``)."""
        self._send = cannot_send
        while (transport := self._transport) and self._unsent:
            entry = self._unsent[0]
            try:
                while entry.sent < len(entry.packets):
                    if not transport.send(entry.packets[entry.sent]):
                        return
                    entry.sent += 1
            except UnavailableError as error:
                while self._transport is not None:  # what still came, before it goes
                    if not self._read():
                        self._end(error)
            except RejectedError as error:  # too large for any socket
                self._unsent.popleft()
                entry.finish(error)
                if not self.connected:
                    self._end(error)
            else:
                self._unsent.popleft()
                self._published += entry.messages
                if entry.expected:
                    entry.published = self._published
                    self._asked.append(entry)
                else:
                    entry.finish()
        if transport is not None and self.connected:
            self._send = transport.send_raw

    async def _available(self, timeout: float | None = None) -> None:
        if not self.connected:
            await self._deliver(Entry(), timeout)

    async def _transmit(self, *packets: tuple[bytes, int], timeout: float | None = None) -> None:
        """Publish, through reconnections and a full socket, each in time: packets with so many messages."""
        for packet, messages in packets:
            try:
                self._send(packet, NO_SIGNAL)
            except OSError:
                await self._deliver(Entry(packet, messages=messages), timeout)
            else:
                self._published += messages

    async def _ask(self, key: str, value: str | None = None, timeout: float | None = None) -> str:
        """Make a control request; returns its answer."""
        return await self._deliver(Entry(build_control(key, value), key=key), timeout)

    async def _deliver(self, entry: Entry, timeout: float | None = None) -> str:
        """Send it, in its turn, and wait until it is done. Raises what the daemon had against it."""
        deadline = monotonic() + (self._timeout if timeout is None else timeout)
        if self._batches and entry.expected:
            await self._transmit(*self._batches.flush(), timeout=timeout)
        self._check(asks=bool(entry.expected))
        self._held.append(entry)
        self._flush()
        try:
            await self._wait(entry, deadline)
            if not entry.done:
                raise self._why_not(unsent=entry.sent < len(entry.packets))
        except BaseException:
            entry.done = True  # for nobody: it is neither sent any more nor asked again
            if entry in self._held and not (entry.sent and self.connected):
                self._held.remove(entry)
            raise
        if entry.error is not None:
            raise entry.error
        return entry.value

    def _why_not(self, *, unsent: bool) -> BccnError:
        """Why something was not done in time."""
        if not self.connected:
            return self._fault.with_traceback(None)
        answer = "takes no more messages: this one was not sent" if unsent else "does not answer"
        return errors.TimedOutError(f"the daemon {answer}")


# A child of fork must not use the connections of its parent.
_sessions: WeakSet[Session] = WeakSet()


def _in_child() -> None:
    for session in list(_sessions):
        session._forked()  # noqa: SLF001 - not for programs


register_at_fork(after_in_child=_in_child)
