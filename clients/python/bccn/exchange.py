"""Request and reply, as every client of the bus does it (PROTOCOL.md, "Request and reply"). No I/O, no clock.

Rules:
1. Tokens cannot be guessed and belong to one client: a message that begins with one of ours is a reply.
2. A request is published once. The other hosts are asked for listeners several times, since datagrams get lost.
3. Replies beyond those wanted, and replies that nobody waits for any more, are dropped.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from bccn import errors
from bccn.protocol import Message, build_msg

# Bytes; the daemons do not answer a question with a longer token.
TOKEN_LIMIT = 128
# Random bytes in a token.
TOKEN_BYTES = 8
QUESTIONS = 3
# Seconds: a reply that comes sooner saves the segment a question.
ASK_AFTER = 0.02
# Seconds between questions; a daemon answers in a fraction of that.
ASK_EVERY = 0.1
# Replies to one request that were not taken yet: more are a flood.
REPLIES_LIMIT = 65536
FOREVER = float("inf")


class Pending:
    """Something that is waited for. ``wakers`` are called once it is ``done``; ``error``: why it ended in vain."""

    __slots__ = ("done", "error", "wakers")

    def __init__(self) -> None:
        self.done = False
        self.error: errors.BccnError | None = None
        self.wakers: list[Callable[[], None]] = []

    def finish(self, error: errors.BccnError | None = None) -> None:
        self.error, self.done = error or self.error, True
        for wake in self.wakers:
            wake()


class Request(Message):
    """A request to this program: a message whose ``payload`` is what stands behind its ``token``."""

    __slots__ = ("token",)

    def __init__(self, message: Message) -> None:
        """Raises InvalidError for a message that is no request, or does not say where it comes from."""
        token, newline, payload = message.payload.partition(b"\n")
        if message.src is None:
            raise errors.InvalidError('only format="full" says where a request comes from')
        if not newline or len(token) > TOKEN_LIMIT or message.src == "?" or "*" in message.src:
            raise errors.InvalidError(f"the message on {message.channel} from {message.src} is no request")
        for field in Message.__slots__:
            setattr(self, field, getattr(message, field))
        self.token, self.payload = token, payload

    def reply(self, payload: bytes | str) -> tuple[str, bytes]:
        """Channel and payload of the message that answers it."""
        return f"!{self.src}", _first_line(self.token, payload)


def request_in(message: Message) -> Request | None:
    """The request that a message is, if it is one."""
    try:
        return Request(message)
    except errors.InvalidError:
        return None


class Exchange:
    """One request of ours and what came of it; ``news`` is done when something has come.

    ``wanted``: how many replies, None for all that come within ``timeout`` seconds. ``now``: monotonic seconds.
    """

    def __init__(
        self, token: bytes, channel: str, payload: bytes | str, now: float, timeout: float, wanted: int | None,
        anyway: bool,
    ) -> None:  # fmt: skip
        if wanted is not None and wanted < 1:
            raise errors.InvalidError(f"{wanted} replies: must be 1 or more, or None for all")
        self.token, self.channel = token, channel
        self.packet = build_msg(channel, _first_line(token, payload))
        self.question = f"{channel} {token.decode()}?"  # the value of CMSG listeners
        self.deadline = now + timeout
        self.on_its_way = False  # to the daemon, which may reject it
        self.rejection: errors.RejectedError | None = None
        self.replies: deque[Message] = deque()
        self.news = Pending()
        self._timeout, self._wanted, self._came = timeout, wanted, 0
        self._settled = anyway  # somebody listens, or it cannot be found out
        self._questions_left, self._due = QUESTIONS, FOREVER

    def published(self, listeners: str, now: float) -> None:
        """The daemon has published or rejected it, and says how many listen on this host."""
        self.on_its_way = False
        if self.rejection is not None:
            raise self.rejection
        self._settled = self._settled or listeners != "0"
        self._due = now + ASK_AFTER

    def must_ask(self, now: float) -> bool:
        """Whether it is time to ask the other hosts. Raises NobodyListensError when that was in vain."""
        if self._settled or now < self._due:
            return False
        if not self._questions_left:
            raise errors.NobodyListensError(f"nobody listens to {self.channel}")
        self._questions_left -= 1
        self._due = now + ASK_EVERY
        return True

    def asked(self, answer: str) -> None:
        """The daemon's answer to the question: ``<n>``, ``<n> asked`` or ``<n> busy``."""
        listeners, _, outcome = answer.partition(" ")
        self._settled = self._settled or listeners != "0" or outcome == "busy"
        if not self._settled and outcome != "asked":
            raise errors.NobodyListensError(f"nobody on this host listens to {self.channel}, a local channel")

    @property
    def until(self) -> float:
        """When to look again, unless something comes sooner."""
        return self.deadline if self._settled else min(self.deadline, self._due)

    def take(self, message: Message | None) -> None:
        """A reply, without its token; None: a daemon says that it has listeners."""
        self._settled = True
        if message is not None and self._came != self._wanted and len(self.replies) <= REPLIES_LIMIT:
            self.replies.append(message)
            self._came += 1
        self.news.finish()

    def next_reply(self) -> Message | None:
        """The next reply, None while there is none. Raises BacklogError when too many wait."""
        if len(self.replies) > REPLIES_LIMIT:
            text = f"more than {REPLIES_LIMIT} replies to one request on {self.channel} wait to be taken"
            raise errors.BacklogError(text)
        return self.replies.popleft() if self.replies else None

    def over(self, now: float) -> bool:
        """Whether no more replies are expected. Raises TimedOutError when fewer came than were wanted."""
        if self._came == self._wanted:
            return not self.replies
        if now >= self.deadline and self._wanted is not None:
            came = f"{self._came} of {self._wanted} replies" if self._came else "no reply"
            raise errors.TimedOutError(f"{came} on {self.channel} within {self._timeout:g} s")
        return now >= self.deadline


class Exchanges:
    """The requests of one client that are under way. ``listening``: the daemon delivers their replies."""

    def __init__(self) -> None:
        self.listening = False
        self._prefix, self._count = b"", 0
        self._open: dict[bytes, Exchange] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(
        self, channel: str, payload: bytes | str, now: float, timeout: float, *, wanted: int | None, anyway: bool
    ) -> Exchange:  # fmt: skip
        self._prefix = self._prefix or os.urandom(TOKEN_BYTES).hex().encode() + b"."
        self._count += 1
        token = b"%b%d" % (self._prefix, self._count)
        self._open[token] = exchange = Exchange(token, channel, payload, now, timeout, wanted, anyway)
        return exchange

    def end(self, exchange: Exchange) -> None:
        self._open.pop(exchange.token, None)

    def wake(self) -> None:
        """Have every waiting request look again."""
        for exchange in self._open.values():
            exchange.news.finish()

    def take(self, message: Message) -> bool:
        """Whether it is a reply to a request of this client, in time or late; its exchange has it then.

        A message on the channel of the request is none: a request to all comes back to its sender.
        """
        if not self._prefix or not message.payload.startswith(self._prefix):
            return False
        token, _, payload = message.payload.partition(b"\n")
        exchange = self._open.get(token.removesuffix(b"?"))
        if exchange is not None:
            if message.channel == exchange.channel:
                return False
            message.payload = payload
            exchange.take(None if token.endswith(b"?") else message)
        return True

    def blame(self, error: errors.RejectedError) -> bool:
        """Whether the daemon rejected a request of this client with this."""
        for exchange in self._open.values():
            if exchange.on_its_way and error.text.startswith(f"MSG {exchange.channel}:"):
                exchange.rejection = error
                return True
        return False


def _first_line(token: bytes, payload: bytes | str) -> bytes:
    return token + b"\n" + (payload.encode() if isinstance(payload, str) else payload)
