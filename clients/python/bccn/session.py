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
2. All else is ``_held`` until then, and ``_unsent`` until there is room. Answers come in the order of the requests:
   ``_asked`` is a queue, too. A complaint about a SUB or UNSUB belongs to the request sent after it.
3. What was published is with the daemon once a later request is answered; else it is in doubt when the connection
   breaks, and the next barrier says so.
4. A connection that ends is read to its end. What it did not answer is asked again on the next one, but for an UNSUB,
   which the greeting makes needless; unsent messages wait.
5. A child of fork never touches its parent's connection.
6. One thread at a time: see ``_claim``. Only ``close`` may be called from any.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from collections.abc import Callable, Sequence
from os import PathLike, getpid, register_at_fork
from sys import _current_frames
from time import monotonic
from weakref import WeakSet

from bccn import errors
from bccn.errors import BccnError, ProtocolError, RejectedError, UnavailableError
from bccn.exchange import FOREVER, Exchanges, Pending
from bccn.inbox import NOTICES_LIMIT, Held, Inbox, Notice
from bccn.protocol import PACK, Message, Packer, build_control, build_sub, is_number, parse, unpack
from bccn.transport import BUSY, NO_SIGNAL, RECEIVE_LIMIT, Transport, pauses

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from bccn.options import Format, NoticeKind, Queue, Separator, Tap

# Bytes of messages read but not taken. A client that waits for an answer reads on above it; it asks nothing more.
BACKLOG_LIMIT = 64 * 1024 * 1024
# Packets that who waits for a message or an answer reads at once: each look at how things stand has a price, too.
READ_LIMIT = 64


class Entry(Pending):
    """Packets that leave together: messages, done when sent, or a request, done when answered."""

    sent = 0  # of the packets
    published = 0  # of all messages, before the request
    value = ""  # of the answer
    subscription: Held | None = None  # that its SUB makes

    def __init__(self, *packets: bytes, key: str = "", messages: int = 0) -> None:
        """``key``: what the last of the ``packets`` asks for; else they publish so many ``messages``."""
        self.packets, self.messages = packets, messages
        self.expected = "pong" if key == "ping" else key


class Session:
    """What both clients are, and the feed of the recorder. ``_due``: when to call ``_advance``."""

    # Python finds attributes fast while there are less than 30 others than these.
    __slots__ = (
        "__dict__", "__weakref__", "_asked", "_due", "_exchanges", "_held", "_inbox", "_memory", "_notices",
        "_packer", "_path", "_timeout", "_transport", "_unsent", "_wishes",
    )  # fmt: skip

    _read_ahead = BACKLOG_LIMIT  # bytes of messages that wait
    _closed = ""  # why, once it is
    _receives = False  # somebody has called ``receive``
    # When to give up the first connection, and where a daemon is busy; None: there was one.
    _until: tuple[float, float] | None = FOREVER, FOREVER

    def __init__(
        self, path: str | PathLike[str] | None = None, *, name: str | None = None,
        format: Format = "plain",  # noqa: A002 - the protocol's word
        pack: bool = False, echo: bool = True, separator: Separator = "/",
        queue: Queue | None = None, tap: Tap = "off", reconnect: bool = True,
        timeout: float = 5.0, wait: float = 0.0, on_notice: Callable[[Notice], object] | None = None,
    ) -> None:  # fmt: skip
        """
        path       the daemon's socket; None: $BCCN_SOCKET, else the usual places (``socket_path``)
        name       own src; None: the daemon's ``<host>/<program>/<pid>``
        format     ``plain``: channel and payload; ``full``: src, seq, peer, time too
        pack       agree on packed packets: many times the throughput for bursts
        echo       receive own messages that match
        separator  of the tokens in patterns, ``/`` or ``.``
        queue      the daemon's queue for us: ``{"packets": 1000, "bytes": 10**6, "policy": "drop-oldest"}``;
                   the policies are drop-oldest, drop-newest, block, disconnect
        tap        ``on``: also receive every datagram of the segment, with the daemon's verdict; needs the right;
                   ``interface``: with the interface that it came by, too
        reconnect  False: calls raise UnavailableError once the connection is gone
        timeout    seconds a call waits for the daemon: to be there again, to answer, to take a message
        wait       seconds to keep trying for the first connection
        on_notice  called with each ``Notice``; None: they are warnings of the logger ``bccn``

        It also has ``connected``, whether there is a connection, as far as known without looking, and ``lost``, how
        many messages the daemon dropped because this client read too slowly.
        """
        for option, value, values in (
            ("format", format, ("plain", "full")), ("separator", separator, ("/", ".")),
            ("tap", tap, ("off", "on", "interface")),
        ):  # fmt: skip
            if value not in values:
                raise errors.InvalidError(f"{option} {value!r}: must be {' or '.join(values)}")
        limits = " ".join(f"{key}={value}" for key, value in (queue or {}).items())
        wishes: tuple[tuple[str, str | None, object], ...] = (
            ("name", name, name is not None), ("separator", separator, separator != "/"),
            ("format", format, format != "plain"), ("pack", "on", pack), ("echo/off", None, not echo),
            ("queue", limits, queue), ("tap", tap, tap != "off"),
        )  # fmt: skip
        self._wishes = {key: value for key, value, is_wanted in wishes if is_wanted}  # for every connection
        self._path, self._reconnect, self._timeout, self._first_wait = path, reconnect, timeout, wait
        self._inbox, self.on_notice = Inbox(separator), on_notice
        self._memory = memoryview(bytearray(RECEIVE_LIMIT))
        self._begin_life()
        _sessions.add(self)
        self._begin()

    def _begin_life(self) -> None:
        """What belongs to this process."""
        self._transport: Transport | None = None
        self._due = FOREVER
        self._disown()
        self.connected = self._was_connected = False
        self._granted: dict[str, str] = {}  # the answers to the greeting, while connected
        self._packer: Packer | None = None  # what open batches have gathered
        self._exchanges = Exchanges()
        self._notices: deque[Notice] = deque(maxlen=NOTICES_LIMIT)
        self.lost = 0  # messages the daemon dropped for us, ever
        self._published = self._confirmed = 0  # messages, ever
        self._in_doubt, self._doubt_reason = 0, ""  # messages since the last barrier; why the daemon left
        self._rejection: RejectedError | None = None  # the first since the last barrier
        self._rejection_count = 0
        self._held: deque[Entry] = deque()  # until a connection is ready
        self._unsent: deque[Entry] = deque()  # on this connection
        self._asked: deque[Entry] = deque()
        self._greeting: list[Entry] = []
        self._fault = UnavailableError("there is no connection to the daemon")
        self._said = ""  # why the daemon closes the connection
        self._pauses = pauses()
        self._inbox.clear()
        self._inbox.disconnect()
        self._inbox.lost = 0

    # --- for drivers ---

    # Wait until ``pending`` is done, or ``deadline`` (monotonic seconds) has passed.
    async def _wait(self, pending: Pending, deadline: float) -> None: ...
    # Among many messages: let others have their turn, see what the daemon says.
    async def _give_way(self) -> None: ...
    def _begin(self) -> None: ...  # the client is made
    def _changed(self) -> None: ...  # the connection came, went or was closed
    def _closing(self, transport: Transport, /) -> None: ...  # it is about to be closed

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

    @property
    def _wants_packets(self) -> bool:
        """Whether to read: who asks reads on, or both sides could wait for each other."""
        return self._inbox.waiting_size <= self._read_ahead or bool(self._asked or self._exchanges)

    @property
    def _unsettled(self) -> bool:
        """Whether a barrier could have something to say about what was published."""
        return self._published != self._confirmed or bool(self._in_doubt or self._rejection_count)

    def _disown(self) -> None:
        """The next caller may be any thread."""
        self._owner, self._claims = 0, dict[int, int]()

    def _claim(self) -> None:
        """A client is its first caller's, as long as that thread lives: what two did at once would be mixed up."""
        caller = get_ident()
        owner = self._claims.setdefault(0, caller)  # one of those who come at once is the first
        if owner != caller and owner in _current_frames():
            raise errors.InvalidError("another thread uses this client: make a client for each thread")
        self._claims[0] = self._owner = caller

    def _check(self, *, asks: bool = False) -> None:
        """Raise why there is nothing to wait for. Who asks reads on, and must not do only that."""
        self._claim()
        if self._closed:
            raise errors.ClosedError(self._closed)
        if self._transport is None and self._due == FOREVER:
            raise self._fault.with_traceback(None)
        if asks and self._inbox.waiting_size > BACKLOG_LIMIT:
            raise errors.BacklogError(f"{len(self._inbox)} messages wait to be received: call receive()")

    # --- one connection after the other ---

    async def _connect(self) -> None:
        """Make the first connection; tries for ``wait`` seconds, or ``timeout`` where a daemon is busy."""
        if self._closed:
            raise errors.ClosedError(self._closed)
        now, self._due = monotonic(), 0.0
        self._until = now + self._first_wait, now + max(self._first_wait, self._timeout)
        try:
            await self._available(FOREVER)
        except BaseException:
            self._let_go(self._fault)
            raise

    def _advance(self) -> None:
        """Do what is due: connect and greet, or give up a greeting that is not answered."""
        if monotonic() < self._due:
            return
        if self._transport is not None:
            self._end(UnavailableError("the daemon does not answer"))
            return
        try:
            self._transport = Transport(self._path)
        except (RejectedError, UnavailableError) as error:
            self._end(error)
            return
        self._due, self._said = monotonic() + self._timeout, ""
        subscriptions = [build_sub(each.pattern) for each in self._inbox.held]
        self._greeting = [Entry(build_control(key, value), key=key) for key, value in self._wishes.items()]
        self._greeting.append(Entry(*subscriptions, build_control("whoami"), key="whoami"))
        self._unsent.extend(self._greeting)
        for entry in self._held:  # the greeting says all but a SUB that was to be sent before a request
            entry.sent = 0 if entry.subscription is not None else max(0, len(entry.packets) - 1)
        self._flush()

    def _greeted(self) -> None:
        """The greeting is answered."""
        complaints = [entry.error for entry in self._greeting if isinstance(entry.error, RejectedError)]
        # Our old connection may still hold our name: a little later it is granted.
        taken = self._was_connected and any(each.code == "name-taken" for each in complaints)
        if complaints and (taken or self._until is not None):
            self._end(complaints[0])
            return
        self._granted = {entry.expected: entry.value for entry in self._greeting}
        if self._was_connected:
            self._notify("reconnected", "connected to the daemon again")
        for each in complaints:
            self._notify("rejected", str(each), 1, each)
        self._pauses, self._due, self._until = pauses(), FOREVER, None
        self.connected = self._was_connected = True
        self._unsent, self._held = self._held, self._unsent
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
            self._notify("disconnected", str(error), doubt)
        else:
            self._due += next(self._pauses)
        if self._until is not None:
            in_vain = self._due > self._until[self._fault.reason == BUSY] or error is not self._fault
        else:
            in_vain = self._was_connected and not self._reconnect
        self._let_go(error if in_vain else None)
        self._changed()

    def _let_go(self, error: BccnError | None) -> None:
        """Close the transport, if there is one. Who waits gets the ``error`` where there will be no other."""
        transport, self._transport = self._transport, None
        if transport is not None:
            self._closing(transport)
            transport.close()
        self._inbox.disconnect()
        waiting = (*self._asked, *self._unsent) if self.connected else self._held
        self._held = deque(entry for entry in waiting if not entry.done)
        self._asked.clear()
        self._unsent.clear()
        self.connected, self._granted, self._confirmed = False, {}, self._published
        if error is not None:
            self._due = FOREVER
            while self._held:
                self._held.popleft().finish(error)
            self._exchanges.wake()

    def _close(self) -> None:
        """Let go of the connection at once; calls that wait for it raise ClosedError."""
        self._closed = "the client is closed"
        self._let_go(errors.ClosedError(self._closed))
        self._changed()

    # --- what comes ---

    def _read(self, limit: int = READ_LIMIT) -> bool:
        """Take so many packets that are there; False when there is none. Raises ProtocolError if one is none.

        The connection may end with the last one.
        """
        for taken in range(limit):
            if (transport := self._transport) is None:
                return taken > 0
            try:
                size = transport.receive_into(self._memory)
                if size is None:
                    return taken > 0
                self._feed(self._memory[:size].tobytes())
            except (UnavailableError, ProtocolError) as error:
                self._end(error)
                if isinstance(error, ProtocolError):
                    raise
            else:
                if not self.connected and self._greeting[-1].done:
                    self._greeted()
        return True

    def _work(self, limit: int) -> None:
        """Do what can be done without waiting: what is due, send what is unsent, read so many packets."""
        if self._due != FOREVER:
            self._advance()
        self._flush()
        if self._wants_packets:
            self._read(limit)

    def _feed(self, packet: bytes) -> None:
        """One packet from the daemon: messages to the inbox, news to ``_notices``, answers to requests.

        A client that listens only for replies sees no other messages to all or to us.
        """
        inbox, exchanges = self._inbox, self._exchanges
        for event in map(parse, unpack(packet)) if packet[:5] == PACK else (parse(packet),):
            if not isinstance(event, Message):
                self._control(*event)
            elif event.channel[:1] == "!" and (
                exchanges.take(event)
                or ("listen" in self._wishes and not (inbox.listening or inbox.subscriptions))
            ):
                continue
            elif not inbox.overhears or not inbox.is_unwanted(event.channel):
                inbox.put(event)
        if inbox.waiting_size > BACKLOG_LIMIT:
            exchanges.wake()

    def _control(self, key: str, value: str) -> None:
        if key == "error":
            self._error(errors.rejected(value))
        elif key == "dropped" and is_number(value):
            count = int(value)
            self.lost += count
            self._inbox.lost += count
            plural = "message" if count == 1 else "messages"
            self._notify("lost", f"{count} {plural} lost: they came faster than they were read", count)
        elif key == "revoked":
            self._notify("revoked", f"no longer allowed: {value}", 1)
        elif key == "closing":
            self._said = value
            self._notify("closing", f"the daemon closes the connection: {value}")
        elif self._asked and self._asked[0].expected == key:
            entry = self._asked.popleft()
            self._confirmed = max(self._confirmed, entry.published)
            entry.value = value
            if entry.subscription is not None and entry.error is None:
                self._inbox.settle(entry.subscription)
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
            self._notify("rejected", str(error), 1, error)

    def _drop_unclaimed(self) -> None:
        """Messages for which nobody calls ``receive`` must not stop those of callbacks and other streams."""
        if not self._receives and (count := self._inbox.drop(self._inbox.received)):
            text = f"{count} messages dropped that no callback takes, and nobody has called receive() for"
            self._notify("unclaimed", text, count)

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

    def _notify(
        self, kind: NoticeKind, text: str, count: int = 0, error: RejectedError | None = None
    ) -> None:
        """Have the program know; whoever waits for replies passes it on at once. Equal refusals are one notice."""
        newest = self._notices[-1] if self._notices else None
        if error is not None and newest is not None and newest.text == text:
            newest.count += count
        else:
            self._notices.append(Notice(kind, text, count, error))
        self._exchanges.wake()

    def _pass_on_notices(self) -> None:
        while self._notices:
            (self.on_notice or Notice.log)(self._notices.popleft())

    # --- what goes ---

    def _send_now(self, packet: bytes, messages: int = 1) -> bool:
        """Send at once what publishes so many messages; False when it must wait: for its turn, room, a connection."""
        if self._unsent or not self.connected or self._transport is None or get_ident() != self._owner:
            return False
        try:
            self._transport.send_raw(packet, NO_SIGNAL)
        except OSError:  # ``flush`` meets it again and deals with it
            return False
        self._published += messages
        return True

    def _flush(self) -> None:
        """Send what is queued, as far as there is room."""
        while (transport := self._transport) and self._unsent:
            entry = self._unsent[0]
            if entry.done and not entry.sent:  # for nobody
                self._unsent.popleft()
                continue
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

    async def _available(self, timeout: float | None = None) -> None:
        """Wait until there is a connection."""
        if not self.connected:
            await self._deliver(Entry(), timeout)

    async def _transmit(self, packet: bytes, messages: int = 1) -> None:
        """Publish, through reconnections and a full socket, within ``_timeout``."""
        if not self._send_now(packet, messages):
            await self._deliver(Entry(packet, messages=messages))

    async def _open_batch(self) -> None:
        """Gather what is published from now on, where packing was agreed. Batches nest."""
        self._check()
        if not self.connected:
            await self._available()
        state, _, limit = self._granted.get("pack", "").partition(" ")
        if self._packer is None and state == "on" and is_number(limit):
            self._packer = Packer(int(limit))
        if self._packer is not None:
            self._packer.batches += 1

    async def _close_batch(self) -> None:
        if (packer := self._packer) is not None:
            packer.batches -= 1
            if not packer.batches:
                self._packer = None
            for full, messages in packer.flush():
                await self._transmit(full, messages)

    async def _ask(
        self, key: str, value: str | None = None, *, before: Sequence[bytes] = (), timeout: float | None = None
    ) -> str:  # fmt: skip
        """Send ``before`` and a request; returns its answer."""
        await self._send_gathered()
        return await self._deliver(Entry(*before, build_control(key, value), key=key), timeout)

    async def _send_gathered(self) -> None:
        """Have what an open batch has gathered go before a request."""
        if self._packer is not None:
            for full, messages in self._packer.flush():
                await self._transmit(full, messages)
        self._check(asks=True)

    async def _deliver(self, entry: Entry, timeout: float | None = None) -> str:
        """Send it, in its turn, and wait until it is done. Raises what the daemon had against it."""
        self._check()
        (self._unsent if self.connected else self._held).append(entry)
        self._flush()
        try:
            await self._wait(entry, monotonic() + (self._timeout if timeout is None else timeout))
            if not entry.done:
                if not self.connected:
                    raise self._fault.with_traceback(None)
                unsent = entry.sent < len(entry.packets)
                answer = "takes no more messages: this one was not sent" if unsent else "does not answer"
                raise errors.TimedOutError(f"the daemon {answer}")
        except BaseException:
            entry.done = True  # for nobody: it is not asked again
            raise
        if entry.error is not None:
            raise entry.error
        return entry.value


# A child of fork must not use the connections of its parent.
_sessions: WeakSet[Session] = WeakSet()


def _in_child() -> None:
    for session in list(_sessions):
        session._forked()  # noqa: SLF001 - not for programs


register_at_fork(after_in_child=_in_child)
