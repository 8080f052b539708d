"""What a program listens to, the messages that have come for it, and what it is told of its connection.

The daemon does not say which patterns a message matched: to find its callbacks the client matches it again, by the
same rules (``clients/PROTOCOL.md``, "Channels and patterns"). Nothing is lost here: the client stops reading.
"""

from collections import deque
from collections.abc import Callable

from bccn.errors import InvalidError, RejectedError
from bccn.protocol import Message

Callback = Callable[[Message], object]

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
    """

    def __init__(self, separator: str) -> None:
        self.subscriptions: list[tuple[str, Callback | None]] = []
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

    def subscribe(self, pattern: str, callback: Callback | None) -> None:
        self.subscriptions.append((pattern, callback))
        self.has_callbacks |= callback is not None
        self._routes.clear()

    def unsubscribe(self, pattern: str, callback: Callback | None = None) -> None:
        """Remove the last subscription to ``pattern`` (with that callback, where one is given)."""
        for at, (subscribed, called) in reversed(list(enumerate(self.subscriptions))):
            if subscribed == pattern and callback in (None, called):
                del self.subscriptions[at]
                self._routes.clear()
                return
        raise InvalidError(f"pattern {pattern!r}: not subscribed")

    def listen(self, callback: Callback | None) -> None:
        self.listening, self.listener = True, callback
        self.has_callbacks |= callback is not None
        self._routes.clear()
