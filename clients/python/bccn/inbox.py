"""What a program listens to, the messages that have come for it, and what it is told of its connection.

The daemon does not say which patterns a message matched: to find its callbacks the client matches it again, by the
same rules (``clients/PROTOCOL.md``, "Channels and patterns"). Nothing is lost here: the client stops reading.
"""

from collections import deque
from collections.abc import Callable

from bccn.errors import InvalidError, RejectedError
from bccn.protocol import Message

Callback = Callable[[Message], object]
Subscription = tuple[str, Callback | None]

# Bytes that a message costs besides its payload, about.
MESSAGE_COST = 512
# Channels whose callbacks are remembered.
ROUTES_LIMIT = 1024
# Notices that wait to be passed on; the oldest give way. The daemon can send a refusal for every message.
NOTICES_LIMIT = 1024


def matches(pattern: str, channel: str, separator: str = "/") -> bool:
    """Whether a subscription to ``pattern`` brings messages of ``channel``. Those to ``!`` go by name instead."""
    if channel.startswith("!"):
        return False
    *head, last = pattern.split(separator)
    tokens = channel.split(separator, len(head))  # the last one holds all the rest, separators too
    if len(tokens) <= len(head) or not all(map(_token_matches, head, tokens)):
        return False
    rest = tokens[-1]
    if last in ("", ">"):
        return last == "" or rest != ""
    return separator not in rest and _token_matches(last, rest)


def _without(subscriptions: list[Subscription], *others: Subscription) -> list[Subscription]:
    return [each for each in subscriptions if not any(each is other for other in others)]


def _token_matches(pattern: str, token: str) -> bool:
    star = pattern.find("*")
    if star < 0:
        return pattern == token
    return star == len(pattern) - 1 and token.startswith(pattern[:-1])  # a ``*`` elsewhere never matches


class Notice:
    """Something that happened to the connection; ``str()`` is a line for a person.

    kind          what                                                         count
    lost          the daemon dropped messages because this client reads slowly how many
    rejected      the daemon rejected something published, or wanted again     how often; ``error`` says why
    revoked       a right was taken back, and what rested on it has ended      1
    closing       the daemon says that it closes the connection, and why       0
    disconnected  the connection ended                                         published, perhaps not taken
    reconnected   there is one again, with every subscription in force         0
    unclaimed     messages to all or to us had no callback (AsyncClient)       how many
    """

    __slots__ = ("count", "error", "kind", "text")

    def __init__(self, kind: str, text: str, count: int = 0, error: RejectedError | None = None) -> None:
        self.kind, self.text, self.count, self.error = kind, text, count, error

    def __str__(self) -> str:
        return self.text if self.error is None or self.count == 1 else f"{self.text}, {self.count} times"

    def __repr__(self) -> str:
        return f"Notice({self.kind!r}, {self.text!r}, count={self.count})"

    def log(self) -> None:
        """Where nobody else looks; without logging configured Python shows warnings on stderr."""
        import logging

        logging.getLogger("bccn").warning("%s", self)


class Inbox:
    """``received`` waits for ``receive``; while there are callbacks, ``backlog`` waits for ``take`` before that.

    ``waiting_size``: bytes in both. ``lost``: how many the daemon dropped since the last message.
    ``pending``: subscriptions that the daemon has not agreed to yet. ``withdrawn``: subscriptions that were given up,
    until their UNSUB is answered; what comes for them alone reaches nobody.
    """

    def __init__(self, separator: str) -> None:
        self.subscriptions: list[Subscription] = []
        self.pending: list[Subscription] = []
        self.withdrawn: list[Subscription] = []
        self.overhears = False  # a SUB that was withdrawn makes the daemon deliver ``!``
        self.listening = False
        self.listener: Callback | None = None
        self.has_callbacks = False  # or ever had
        self.backlog: deque[Message] = deque()
        self.received: deque[Message] = deque()
        self.waiting_size = self.lost = 0
        self._separator = separator
        self._routes: dict[str, tuple[tuple[Callback, ...], bool]] = {}

    def __len__(self) -> int:
        return len(self.backlog) + len(self.received)

    def clear(self) -> None:
        self.backlog.clear()
        self.received.clear()
        self.waiting_size = 0

    def put(self, message: Message) -> None:
        if self.lost:
            message.lost, self.lost = self.lost, 0
        (self.backlog if self.has_callbacks else self.received).append(message)
        self.waiting_size += len(message.payload) + MESSAGE_COST

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

    def route(self, channel: str) -> tuple[tuple[Callback, ...], bool]:
        """The callbacks whose pattern matches; whether a pattern without one does, or no callback at all."""
        found = [call for pattern, call in self.subscriptions if matches(pattern, channel, self._separator)]
        if channel.startswith("!"):
            found = [self.listener]
        callbacks = tuple(callback for callback in found if callback is not None)
        route = callbacks, None in found or not callbacks
        if len(self._routes) >= ROUTES_LIMIT:
            self._routes.clear()
        self._routes[channel] = route
        return route

    def subscribe(self, pattern: str, callback: Callback | None) -> Subscription:
        subscription = (pattern, callback)
        self.subscriptions.append(subscription)
        self.has_callbacks |= callback is not None
        self._routes.clear()
        return subscription

    def unsubscribe(self, pattern: str, callback: Callback | None = None) -> Subscription:
        """Remove the last subscription to ``pattern`` (with that callback, where one is given)."""
        for subscription in reversed(self.held):
            if subscription[0] == pattern and callback in (None, subscription[1]):
                self.forget(subscription)
                return subscription
        raise InvalidError(f"pattern {pattern!r}: not subscribed")

    @property
    def held(self) -> list[Subscription]:
        """The subscriptions that the daemon has agreed to."""
        return _without(self.subscriptions, *self.pending)

    def settle(self, subscription: Subscription) -> None:
        """The daemon has answered its SUB, or the UNSUB that withdrew it."""
        self.pending = _without(self.pending, subscription)
        self.withdrawn = _without(self.withdrawn, subscription)

    def forget(self, subscription: Subscription) -> None:
        self.subscriptions = _without(self.subscriptions, subscription)
        self.pending = _without(self.pending, subscription)
        self._routes.clear()

    def disconnect(self) -> None:
        """A new connection knows nothing of what was withdrawn."""
        self.withdrawn, self.overhears = [], False

    def newest(self) -> list[Message]:
        """The last message of each queue."""
        return [queue[-1] for queue in (self.backlog, self.received) if queue]

    def withdraw(self, subscription: Subscription, newest: list[Message]) -> None:
        """Drop what comes for nothing else, and what has come behind those that were the ``newest``."""
        self.withdrawn.append(subscription)
        self.overhears = True
        for queue in (self.backlog, self.received):
            messages, lost = list(queue), 0
            new = 1 + next((at for at, each in enumerate(messages) if any(each is old for old in newest)), -1)
            queue.clear()
            for at, message in enumerate(messages):
                if at >= new and self.is_unwanted(message.channel):
                    self.waiting_size -= len(message.payload) + MESSAGE_COST
                    lost += message.lost
                else:
                    message.lost, lost = message.lost + lost, 0
                    queue.append(message)
            self.lost += lost

    def is_unwanted(self, channel: str) -> bool:
        """Whether a message came for nothing but what was withdrawn."""
        if channel.startswith("!"):
            return self.overhears and not (self.listening or self.subscriptions)
        return self._is_for(self.withdrawn, channel) and not self._is_for(self.held, channel)

    def _is_for(self, subscriptions: list[Subscription], channel: str) -> bool:
        return any(matches(pattern, channel, self._separator) for pattern, _ in subscriptions)

    def listen(self, callback: Callback | None) -> None:
        self.listening, self.listener = True, callback
        self.has_callbacks |= callback is not None
        self._routes.clear()
