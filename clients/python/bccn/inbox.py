"""What a program listens to, the messages that have come for it, and what it is told of its connection.

The daemon does not say which patterns a message matched: to find its callbacks the client matches it again, by the
same rules (``clients/PROTOCOL.md``, "Channels and patterns"). Nothing is lost here: the client stops reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bccn.errors import ClosedError, InvalidError, RejectedError
from bccn.protocol import Message

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from bccn.options import NoticeKind

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
    unclaimed     messages were dropped that had no callback                   how many
    """

    __slots__ = ("count", "error", "kind", "text")

    def __init__(
        self, kind: NoticeKind, text: str, count: int = 0, error: RejectedError | None = None
    ) -> None:
        self.kind, self.text, self.count, self.error = kind, text, count, error

    def __str__(self) -> str:
        return self.text if self.error is None or self.count == 1 else f"{self.text}, {self.count} times"

    def __repr__(self) -> str:
        return f"Notice({self.kind!r}, {self.text!r}, count={self.count})"

    def log(self) -> None:
        """Where nobody else looks; without logging configured Python shows warnings on stderr."""
        import logging

        logging.getLogger("bccn").warning("%s", self)


class Held:
    """A subscription. Its messages go to ``callback``, or to its own ``stream``, or else to that of the client."""

    def __init__(self, pattern: str, callback: Callback | None = None) -> None:
        self.pattern, self.callback = pattern, callback
        self.stream: deque[Message] | None = None
        self.ended = False


class Inbox:
    """``received`` is the stream of the client. Where there are callbacks or other streams, too, messages wait in
    ``backlog`` for ``take`` before that.

    ``waiting_size``: bytes in all of them. ``lost``: how many the daemon dropped since the last message.
    ``pending``: subscriptions that the daemon has not agreed to yet. ``withdrawn``: subscriptions that were given up,
    until their UNSUB is answered; what comes for them alone reaches nobody.
    """

    def __init__(self, separator: str) -> None:
        self.subscriptions: list[Held] = []
        self.pending: list[Held] = []
        self.withdrawn: list[Held] = []
        self.overhears = False  # a SUB that was withdrawn makes the daemon deliver ``!``
        self.listening = False
        self.listener: Callback | None = None
        self.has_routes = False  # there is more than one way for a message, or ever was
        self.backlog: deque[Message] = deque()
        self.received: deque[Message] = deque()
        self.waiting_size = self.lost = 0
        self._separator = separator
        self._routes: dict[str, tuple[tuple[Callback, ...], tuple[deque[Message], ...]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues()))

    def _queues(self) -> list[deque[Message]]:
        own = [each.stream for each in self.subscriptions if each.stream is not None]
        return [self.backlog, self.received, *own]

    def clear(self) -> None:
        for queue in self._queues():
            queue.clear()
        self.waiting_size = 0

    def put(self, message: Message) -> None:
        if self.lost:
            message.lost, self.lost = self.lost, 0
        (self.backlog if self.has_routes else self.received).append(message)
        self.waiting_size += len(message.payload) + MESSAGE_COST

    def take(self) -> tuple[Message, tuple[Callback, ...]]:
        """The oldest message of the backlog and its callbacks; it is now in the streams that it is (also) for."""
        message = self.backlog.popleft()
        callbacks, streams = self._routes.get(message.channel) or self.route(message.channel)
        for stream in streams:
            stream.append(message)
        self.waiting_size += (len(streams) - 1) * (len(message.payload) + MESSAGE_COST)
        return message, callbacks

    def next_of(self, stream: deque[Message]) -> Message:
        message = stream.popleft()
        self.waiting_size -= len(message.payload) + MESSAGE_COST
        return message

    def drop(self, stream: deque[Message]) -> int:
        """Forget what waits there; returns how many."""
        count = len(stream)
        while stream:
            self.next_of(stream)
        return count

    def route(self, channel: str) -> tuple[tuple[Callback, ...], tuple[deque[Message], ...]]:
        """The callbacks whose pattern matches, and the streams: the client's for a pattern without, or for none."""
        if channel.startswith("!"):
            found = [Held("!", self.listener)]
        else:
            found = [each for each in self.subscriptions if self._is_for([each], channel)]
        callbacks = tuple(each.callback for each in found if each.callback is not None)
        streams = [each.stream for each in found if each.stream is not None]
        if len(callbacks) + len(streams) < max(1, len(found)):
            streams.append(self.received)
        if len(self._routes) >= ROUTES_LIMIT:
            self._routes.clear()
        self._routes[channel] = route = callbacks, tuple(streams)
        return route

    def open_stream(self, held: Held) -> deque[Message]:
        """Its own stream, which takes over what waits for it. Raises ClosedError, or InvalidError with a callback."""
        if held.ended:
            raise ClosedError("the subscription is closed")
        if held.callback is not None:
            raise InvalidError(f"the messages of {held.pattern} go to its callback, there is none to receive")
        if held.stream is None:
            held.stream, self.has_routes = deque(), True
            self._routes.clear()
            waiting = list(self.received)
            self.received.clear()
            for message in waiting:
                is_mine = self._is_for([held], message.channel)
                streams = [held.stream] * is_mine
                if not is_mine or any(each is self.received for each in self.route(message.channel)[1]):
                    streams.append(self.received)
                for stream in streams:
                    stream.append(message)
                self.waiting_size += (len(streams) - 1) * (len(message.payload) + MESSAGE_COST)
        return held.stream

    def add(self, held: Held) -> None:
        self.subscriptions.append(held)
        self.has_routes |= held.callback is not None
        self._routes.clear()

    @property
    def fills_stream(self) -> bool:
        """Whether a subscription has its messages in the stream of the client."""
        return any(each.callback is None and each.stream is None for each in self.subscriptions)

    @property
    def held(self) -> list[Held]:
        """The subscriptions that the daemon has agreed to."""
        return [each for each in self.subscriptions if each not in self.pending]

    def settle(self, held: Held) -> None:
        """The daemon has answered its SUB, or the UNSUB that withdrew it."""
        self.pending = [each for each in self.pending if each is not held]
        self.withdrawn = [each for each in self.withdrawn if each is not held]

    def remove(self, held: Held) -> None:
        if held.stream is not None:
            self.drop(held.stream)
        self.subscriptions = [each for each in self.subscriptions if each is not held]
        self.settle(held)
        self._routes.clear()

    def disconnect(self) -> None:
        """A new connection knows nothing of what was withdrawn."""
        self.withdrawn, self.overhears = [], False

    def newest(self) -> list[Message]:
        """The last message of each queue."""
        return [queue[-1] for queue in (self.backlog, self.received) if queue]

    def withdraw(self, held: Held, newest: list[Message]) -> None:
        """Drop what comes for nothing else, and what has come behind those that were the ``newest``."""
        self.withdrawn.append(held)
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

    def _is_for(self, subscriptions: list[Held], channel: str) -> bool:
        return any(matches(each.pattern, channel, self._separator) for each in subscriptions)

    def listen(self, callback: Callback | None) -> None:
        self.listening, self.listener = True, callback
        self.has_routes |= callback is not None
        self._routes.clear()
