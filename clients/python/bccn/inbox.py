"""What a program listens to, the messages that have come for it, and what it is told of its connection.

The daemon does not say which patterns a message matched: to find its callbacks the client matches it again, by the
same rules (``clients/PROTOCOL.md``, "Channels and patterns"). Nothing is lost here: the client stops reading.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from bccn.errors import ClosedError, InvalidError, RejectedError
from bccn.protocol import Message

TYPE_CHECKING = False  # see bccn/__init__.py
if TYPE_CHECKING:
    from typing import Any

    from bccn.options import NoticeKind

Callback = Callable[[Message], object]

# Bytes that a message costs besides its payload, about.
MESSAGE_COST = 512
# Channels whose callbacks are remembered.
ROUTES_LIMIT = 1024
# Verdicts of what was delivered; any other says why a tap alone has it (``clients/PROTOCOL.md``, "The format full").
DELIVERED = frozenset({None, "ok", "retained", "repaired"})
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

    ``kind`` and ``count``: as in ``clients/PROTOCOL.md``, "The functions of a client". ``error``: of a rejection.
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

    stream: deque[Message] | None = None
    ended = False
    pending = False  # the daemon has not agreed to it yet

    def __init__(self, pattern: str, callback: Callback | None = None, client: Any = None) -> None:
        self.pattern, self.callback, self._client = pattern, callback, client

    def _is_over(self) -> bool:
        return self.ended or self._client._is_over()  # noqa: SLF001 - a part of it


class Waiting:
    """Messages that wait in one queue or another. ``waiting_size``: bytes in all of them."""

    waiting_size = 0

    def next_of(self, queue: deque[Message]) -> Message:
        message = queue.popleft()
        self.waiting_size -= len(message.payload) + MESSAGE_COST
        return message

    def drop(self, queue: deque[Message]) -> int:
        """Forget what waits there; returns how many."""
        count = len(queue)
        while queue:
            self.next_of(queue)
        return count


class Inbox(Waiting):
    """``received`` is the stream of the client. Where there are callbacks or other streams, too, messages wait in
    ``backlog`` for ``take`` before that.

    ``lost``: how many were dropped since the last message. ``withdrawn``: subscriptions that were given up, until the
    UNSUB is answered; what comes for them alone reaches nobody but a tap. What only a tap gets, since it was not
    delivered, is in ``received`` alone.
    """

    def __init__(self, separator: str) -> None:
        self.subscriptions: dict[Held, None] = {}
        self.withdrawn: set[Held] = set()
        self.listener: Held | None = None
        self.overhears = False  # the daemon delivers ``!`` for replies, or for what was withdrawn
        self.is_tap = False  # on this connection
        self.is_choosy = False  # some messages may be unwanted
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
        self.waiting_size = self.lost = 0
        self.withdrawn.clear()
        self.set_tap("off")

    def set_tap(self, state: str) -> None:
        self.is_tap = state != "off"
        self.reroute()

    def take(self) -> tuple[Message, tuple[Callback, ...]]:
        """The oldest message of the backlog and its callbacks; it is now in the streams that it is (also) for."""
        message = self.backlog.popleft()
        if message.verdict in DELIVERED:
            callbacks, streams = self._routes.get(message.channel) or self.route(message.channel)
        else:
            callbacks, streams = (), (self.received,)
        for stream in streams:
            stream.append(message)
        self.waiting_size += (len(streams) - 1) * (len(message.payload) + MESSAGE_COST)
        return message, callbacks

    def route(self, channel: str) -> tuple[tuple[Callback, ...], tuple[deque[Message], ...]]:
        """The callbacks whose pattern matches, and the streams: the client's for a pattern without, or for none."""
        is_plain = not channel.startswith("!")
        wanting = self.subscriptions if is_plain else [self.listener] if self.listener else []
        found = [each for each in wanting if not is_plain or self._is_for([each], channel)]
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
            for message in [self.received.popleft() for _ in range(len(self.received))]:
                streams = self.route(message.channel)[1] if message.verdict in DELIVERED else ()
                moved = [each for each in streams if each is held.stream or each is self.received]
                for stream in moved or [self.received]:
                    stream.append(message)
                self.waiting_size += max(0, len(moved) - 1) * (len(message.payload) + MESSAGE_COST)
        return held.stream

    def add(self, held: Held) -> None:
        self.subscriptions[held] = None
        self.has_routes |= held.callback is not None
        self.reroute()

    def remove(self, held: Held) -> None:
        if held.stream is not None:
            self.drop(held.stream)
        self.subscriptions.pop(held, None)
        self.reroute()

    def listen(self, callback: Callback | None) -> None:
        self.listener = Held("!", callback)
        self.has_routes |= callback is not None
        self.reroute()

    def reroute(self) -> None:
        """What is wanted has changed."""
        self._routes.clear()
        is_unasked = self.overhears and not (self.listener or self.subscriptions)
        self.is_choosy = not self.is_tap and (bool(self.withdrawn) or is_unasked)

    @property
    def fills_stream(self) -> bool:
        """Whether a subscription has its messages in the stream of the client."""
        return any(each.callback is None and each.stream is None for each in self.subscriptions)

    @property
    def held(self) -> list[Held]:
        """The subscriptions that the daemon has agreed to."""
        return [each for each in self.subscriptions if not each.pending]

    def newest(self) -> list[Message]:
        """The last message of each queue."""
        return [queue[-1] for queue in (self.backlog, self.received) if queue]

    def withdraw(self, held: Held, newest: list[Message]) -> None:
        """Drop what comes for nothing else, and what has come behind those that were the ``newest``."""
        self.withdrawn.add(held)
        self.drop_unasked(newest)

    def drop_unasked(self, newest: list[Message]) -> None:
        """Drop what is unwanted, as something has failed, behind those that were the ``newest``."""
        self.overhears = True
        self.reroute()
        for queue in () if self.is_tap else (self.backlog, self.received):
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
        """Whether a message came for nothing but what was withdrawn, or for replies alone."""
        if channel.startswith("!"):
            return self.overhears and not (self.listener or self.subscriptions)
        return self._is_for(self.withdrawn, channel) and not self._is_for(self.held, channel)

    def _is_for(self, subscriptions: Iterable[Held], channel: str) -> bool:
        return any(matches(each.pattern, channel, self._separator) for each in subscriptions)
