"""What a client wants of the daemon, what it has asked, and what has come: the part of both clients without I/O.

Rules:
1. What is wanted (name, format, subscriptions, ...) is kept here and outlives a connection; ``greeting`` says
   all of it to a new one (``clients/PROTOCOL.md``, "Connecting again").
2. Every request has exactly one answer, and answers come in the order of the requests: ``_asked`` is a queue.
   A complaint about a SUB or UNSUB arrives before the answer to the request sent after it, and belongs to that.
3. A MSG is answered only when it is rejected. What was published is known to be with the daemon once a later
   request is answered; what was not known when the connection broke is in doubt, and the next barrier says so.
4. Messages wait in ``backlog`` until they are taken; nothing is dropped here. The client stops reading, the
   daemon bounds its queue, and ``Message.lost`` of the next one says how many are missing.
5. A reply goes to the request that it answers (``exchange``). A client that listens only for its replies does not
   see the other messages to all and to this program.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from bccn.errors import BccnError, InvalidError, RejectedError, UnavailableError, UnconfirmedError, rejected
from bccn.exchange import Exchanges, Pending
from bccn.pattern import matches
from bccn.protocol import PACK, Message, Packer, answer_key, build_control, build_sub, parse, unpack

Callback = Callable[[Message], object]

# Bytes of messages read but not taken. A client that waits for an answer reads on above it; it asks nothing more.
BACKLOG_LIMIT = 64 * 1024 * 1024
# Bytes that a message costs besides its payload, about.
MESSAGE_COST = 512
# Channels whose callbacks are remembered.
ROUTES_LIMIT = 1024
# Digits of a number that the daemon sends: 64 bits.
NUMBER_DIGITS = 20
FORMATS = ("plain", "full")


class Notice:
    """Something that happened to the connection; ``str()`` is a line for a person.

    kind          what                                                         count
    lost          the daemon dropped messages because this client reads slowly how many
    rejected      the daemon rejected something published, or wanted again     1; ``error`` says why
    revoked       a right was taken back, and what rested on it has ended      1
    closing       the daemon says that it closes the connection, and why       0
    disconnected  the connection ended                                         published, perhaps not taken
    reconnected   there is one again, with every subscription in force         0
    unclaimed     messages to all or to us had no callback (AsyncClient)       how many
    """

    __slots__ = ("count", "error", "kind", "text")

    def __init__(self, kind: str, text: str, count: int = 0, error: RejectedError | None = None) -> None:
        self.kind = kind
        self.text = text
        self.count = count
        self.error = error

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Notice({self.kind!r}, {self.text!r}, count={self.count})"


class Question(Pending):
    """A control request on its way; ``expected`` is the key of its answer."""

    __slots__ = ("complaint", "expected", "published", "value")

    def __init__(self, key: str, published: int) -> None:
        super().__init__()
        self.expected = answer_key(key)
        self.published = published
        self.value = ""
        self.complaint: RejectedError | None = None

    def result(self) -> str:
        """The answer. Raises what the daemon had against it, or against the SUB or UNSUB sent with it."""
        error = self.error or self.complaint
        if error is not None:
            raise error
        return self.value


class Session:
    """State of one client. Not thread-safe, as the clients are not."""

    def __init__(
        self,
        *,
        name: str | None = None,
        format: str = "plain",  # noqa: A002 - the protocol's word
        pack: bool = False,
        echo: bool = True,
        separator: str = "/",
        queue: Mapping[str, int | str] | None = None,
        tap: bool = False,
    ) -> None:
        if format not in FORMATS:
            raise InvalidError(f"format {format!r}: must be plain or full")
        if separator not in ("/", "."):
            raise InvalidError(f"separator {separator!r}: must be / or .")
        limits = " ".join(f"{key}={value}" for key, value in (queue or {}).items())
        settings = (
            ("separator", separator, separator != "/"),
            ("format", format, format != "plain"),
            ("pack", "on", pack),
            ("echo/off", None, not echo),
            ("queue", limits, queue),
            ("tap", "on", tap),
        )
        self.wanted_name = name
        self.format = format
        self.separator = separator
        self._settings = [(key, value) for key, value, wanted in settings if wanted]
        self.heartbeat = ""  # as it was asked for: seconds and text
        self.listening = False
        self.subscriptions: list[tuple[str, Callback | None]] = []
        self.listener: Callback | None = None
        self.has_callbacks = False

        self.name: str | None = None  # as the daemon knows us; None while not connected
        self.pack_limit = 0  # bytes; 0: not agreed
        self.packer: Packer | None = None  # what an open batch has gathered
        self.backlog: deque[Message] = deque()
        self.received: deque[Message] = deque()  # taken from the backlog, for ``receive``
        self.waiting_size = 0  # bytes in both
        self.lost = 0  # messages the daemon dropped for us, ever
        self.exchanges = Exchanges()
        self.notices: deque[Notice] = deque()
        self.on_notice: Callable[[Notice], object] | None = None
        self.rejections: list[RejectedError] = []  # the first since the last barrier
        self.rejection_count = 0
        self.published = 0
        self._confirmed = 0
        self._in_doubt = 0
        self._lost_before_next = 0
        self._asked: deque[Question] = deque()
        self._greeted: list[Question] = []
        self._routes: dict[str, tuple[tuple[Callback, ...], bool]] = {}

    # --- what to say ---

    def ask(self, key: str, value: str | None = None) -> tuple[bytes, Question]:
        """A control request: the packet to send, and where its answer will be."""
        packet = build_control(key, value)
        question = Question(key, self.published)
        self._asked.append(question)
        return packet, question

    def withdraw(self, question: Pending) -> None:
        """The packet of ``ask`` was not sent after all."""
        if question in self._asked:
            self._asked.remove(question)  # type: ignore[arg-type] # it is one, then

    @property
    def asking(self) -> bool:
        """Whether an answer or a reply is awaited."""
        return bool(self._asked or self.exchanges)

    def greeting(self) -> list[bytes]:
        """All that a new connection begins with, in order; the last request is answered when all of it is done."""
        wishes: list[tuple[str, str | None]]
        wishes = [] if self.wanted_name is None else [("name", self.wanted_name)]
        wishes += self._settings
        if self.heartbeat:
            wishes.append(("heartbeat", self.heartbeat))
        if self.listening or self.exchanges.listening:
            wishes.append(("listen", None))
        asked = [self.ask(key, value) for key, value in wishes]
        subscribe = [build_sub(pattern) for pattern, _ in self.subscriptions]
        closing, whoami = self.ask("whoami")
        self._greeted = [*(question for _, question in asked), whoami]
        return [*(packet for packet, _ in asked), *subscribe, closing]

    def greeted(self) -> list[BccnError] | None:
        """None until the greeting is answered; then what the daemon had against it."""
        if not self._greeted[-1].done:
            return None
        self.name = self._greeted[-1].value or None
        for question in self._greeted:
            if question.expected == "pack" and question.error is None:
                state, _, limit = question.value.partition(" ")
                self.pack_limit = int(limit) if state == "on" and _is_number(limit) else 0
        found = (error for question in self._greeted for error in (question.error, question.complaint))
        return [error for error in found if error is not None]

    # --- what came ---

    def feed(self, packet: bytes) -> None:
        """One packet from the daemon: messages to ``backlog``, news to ``notices``, answers to requests."""
        for part in unpack(packet) if packet.startswith(PACK) else (packet,):
            event = parse(part)
            if isinstance(event, Message):
                if event.channel[:1] != "!" or self._is_wanted(event):
                    event.lost, self._lost_before_next = self._lost_before_next, 0
                    self.backlog.append(event)
                    self.waiting_size += len(event.payload) + MESSAGE_COST
            else:
                self._control(event.key, event.value)
        if self.waiting_size > BACKLOG_LIMIT:
            self.exchanges.wake()

    def _is_wanted(self, message: Message) -> bool:
        """Whether a message to all or to us is for ``backlog``."""
        if self.exchanges.take(message):
            return False
        return self.listening or bool(self.subscriptions) or not self.exchanges.listening

    def _control(self, key: str, value: str) -> None:
        if key == "error":
            self._error(*value.partition(" ")[::2])
        elif key == "dropped" and _is_number(value):
            count = int(value)
            self.lost += count
            self._lost_before_next += count
            plural = "message" if count == 1 else "messages"
            self.notify("lost", f"{count} {plural} lost: they came faster than they were read", count)
        elif key == "revoked":
            self.notify("revoked", f"no longer allowed: {value}", 1)
        elif key == "closing":
            self.notify("closing", f"the daemon closes the connection: {value}")
        elif self._asked and self._asked[0].expected == key:
            question = self._asked.popleft()
            self._confirmed = max(self._confirmed, question.published)
            question.value = value
            question.finish()
        # Anything else is a notice of a newer daemon.

    def _error(self, code: str, text: str) -> None:
        error = rejected(code, text)
        if text.startswith("CMSG ") and self._asked:
            self._asked.popleft().finish(error)
        elif text.startswith(("SUB ", "UNSUB ")) and self._asked:
            self._asked[0].complaint = self._asked[0].complaint or error
        elif not self.exchanges.blame(text, error):
            if not self.rejections:
                self.rejections.append(error)
            self.rejection_count += 1
            self.notify("rejected", str(error), 1, error)

    def notify(self, kind: str, text: str, count: int = 0, error: RejectedError | None = None) -> None:
        """Have the program know; whoever waits for replies passes it on at once."""
        self.notices.append(Notice(kind, text, count, error))
        self.exchanges.wake()

    def pass_on_notices(self) -> None:
        while self.notices:
            (self.on_notice or log_notice)(self.notices.popleft())

    def disconnected(self, reason: str) -> None:
        """The connection is gone: nobody answers what was asked."""
        doubt = self.published - self._confirmed
        self._in_doubt += doubt
        self.unconnected(reason)
        self.notify("disconnected", reason, doubt)

    def unconnected(self, reason: str) -> None:
        """There is no connection, or an attempt at one failed on the way."""
        self._confirmed = self.published
        self.name = None
        self.pack_limit = 0
        asked, self._asked = self._asked, deque()
        for question in asked:
            question.finish(UnavailableError(reason))

    def forked(self, pid: int) -> None:
        """We are a child of the process this was made in: a sender of our own, with nothing of the parent's.

        Its name is the parent's and our pid (``bccnd/wire/BCCN1.md``, "Forked programs").
        """
        if self.name is not None:
            self.wanted_name = f"{self.name}/{pid}"
        self.published = 0
        self.unconnected("this process was forked")
        self._in_doubt = self._lost_before_next = self.lost = self.waiting_size = self.rejection_count = 0
        self.packer = None
        self.exchanges = Exchanges()
        for pending in (self.backlog, self.received, self.notices, self.rejections):
            pending.clear()

    # --- what to do with it ---

    def take(self) -> tuple[Message, tuple[Callback, ...]]:
        """The oldest message and its callbacks; it is now in ``received`` if it is (also) for ``receive``."""
        message = self.backlog.popleft()
        callbacks, wanted = self._routes.get(message.channel) or self.route(message.channel)
        if wanted:
            self.received.append(message)
        else:
            self.waiting_size -= len(message.payload) + MESSAGE_COST
        return message, callbacks

    def next_received(self) -> Message:
        message = self.received.popleft()
        self.waiting_size -= len(message.payload) + MESSAGE_COST
        return message

    @property
    def waiting(self) -> bool:
        """Whether there is something to take or to receive."""
        return bool(self.backlog or self.received)

    @property
    def unconfirmed(self) -> bool:
        """Whether the daemon may not have processed yet what was published."""
        return self.published > self._confirmed

    @property
    def unsettled(self) -> bool:
        """Whether a barrier could have something to say about what was published."""
        return self.unconfirmed or bool(self._in_doubt or self.rejection_count)

    def route(self, channel: str) -> tuple[tuple[Callback, ...], bool]:
        """The callbacks whose pattern matches; whether a pattern without one does, or no callback at all."""
        if channel.startswith("!"):
            found: list[Callback | None] = [self.listener]
        else:
            found = [
                callback
                for pattern, callback in self.subscriptions
                if matches(pattern, channel, self.separator)
            ]
        callbacks = tuple(callback for callback in found if callback is not None)
        route = callbacks, None in found or not callbacks
        if len(self._routes) >= ROUTES_LIMIT:
            self._routes.clear()
        self._routes[channel] = route
        return route

    def subscribe(self, pattern: str, callback: Callback | None) -> None:
        self.subscriptions.append((pattern, callback))
        self.has_callbacks |= callback is not None
        self._routes.clear()

    def unsubscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Remove the last subscription to ``pattern`` (with that callback, where one is given)."""
        for at in range(len(self.subscriptions) - 1, -1, -1):
            entry = self.subscriptions[at]
            if entry[0] == pattern and callback in (None, entry[1]):
                del self.subscriptions[at]
                self._routes.clear()
                return
        raise InvalidError(f"pattern {pattern!r}: not subscribed")

    def listen(self, callback: Callback | None) -> None:
        self.listening, self.listener = True, callback
        self.has_callbacks |= callback is not None
        self._routes.clear()

    def require_full(self) -> None:
        """Raise InvalidError in any format but ``full``: only that says where a request comes from."""
        if self.format != "full":
            raise InvalidError('serving needs the client to be made with format="full"')

    def raise_rejections(self) -> None:
        """What a barrier found: what was published before it and is not, or may not be, on the bus."""
        first, count = self.rejections[:1], self.rejection_count
        doubt, self._in_doubt = self._in_doubt, 0
        self.rejections, self.rejection_count = [], 0
        if first:
            more = f"; {count - 1} more rejected" if count > 1 else ""
            raise rejected(first[0].code, first[0].text + more)
        if doubt:
            some = "1 message" if doubt == 1 else f"up to {doubt} messages"
            raise UnconfirmedError(f"the daemon went away: {some} may not have been published")


def _is_number(text: str) -> bool:
    """Whether ``int`` takes it for sure: it knows neither every digit of Unicode nor thousands of them."""
    return text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS


def log_notice(notice: Notice) -> None:
    """Where nobody else looks; without logging configured Python shows warnings on stderr."""
    import logging

    logging.getLogger("bccn").warning("%s", notice)
