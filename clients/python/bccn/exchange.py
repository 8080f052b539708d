"""Request and reply, as every client of the bus does it (PROTOCOL.md, "Request and reply"). No I/O, no clock.

Rules:
1. A request is a message whose first line is a token; the replies are directed to who sent it and begin with the
   same line. Tokens cannot be guessed, and belong to one client: what begins like ours is a reply, perhaps late.
2. A request is published once. Who listens on this host the daemon says at once. If nobody does, and no reply came
   within ASK_AFTER, the daemons of the other hosts are asked: those with listeners answer, the others do not. Asked
   QUESTIONS times without any answer, nobody listens: one lost datagram is not taken for that.
3. Replies beyond those wanted, and to requests that nobody waits for any more, are dropped.
"""

from __future__ import annotations

import os
from collections import deque

from bccn.errors import BacklogError, InvalidError, NobodyListensError, RejectedError, TimedOutError
from bccn.pending import Pending
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


class Request(Message):
    """What somebody asks of this program: a message whose ``payload`` is what stands behind its ``token``."""

    __slots__ = ("token",)

    def __init__(self, message: Message) -> None:
        """Raises InvalidError for a message that is no request, or does not say whose it is."""
        token, newline, payload = message.payload.partition(b"\n")
        if message.src is None:
            raise InvalidError('who asks is only known with format="full"')
        if not newline or len(token) > TOKEN_LIMIT or message.src == "?" or "*" in message.src:
            raise InvalidError(f"the message on {message.channel} from {message.src} is no request")
        for field in Message.__slots__:
            setattr(self, field, getattr(message, field))
        self.payload = payload
        self.token = token

    def reply(self, payload: bytes | str) -> tuple[str, bytes]:
        """Channel and payload of the message that answers it."""
        return f"!{self.src}", _first_line(self.token, payload)


def request_in(message: Message) -> Request | None:
    """The request that a message is, if it is one."""
    try:
        return Request(message)
    except InvalidError:
        return None


class Exchange:
    """One request of ours and what came of it. ``news`` is done when something did.

    ``wanted``: how many replies, None for all that come within ``timeout`` seconds. ``now``: monotonic seconds.
    """

    def __init__(
        self,
        token: bytes,
        channel: str,
        payload: bytes | str,
        now: float,
        timeout: float,
        wanted: int | None,
        anyway: bool,
    ) -> None:
        if wanted is not None and wanted < 1:
            raise InvalidError(f"{wanted} replies: must be 1 or more, or None for all")
        self.token = token
        self.channel = channel
        self.packet = build_msg(channel, _first_line(token, payload))
        self.timeout = timeout
        self.deadline = now + timeout
        self.wanted = wanted
        self.question = f"{channel} {token.decode()}?"  # the value of CMSG listeners
        self.replies: deque[Message] = deque()
        self._came = 0
        self.on_its_way = False  # to the daemon, which may complain
        self.rejection: RejectedError | None = None
        self.news = Pending()
        self._settled = anyway  # somebody listens, or it is not to be known
        self._questions_left = QUESTIONS
        self._due = FOREVER

    def published(self, listeners: str, now: float) -> None:
        """The daemon has taken it, unless it complained, and says how many listen on this host."""
        self.on_its_way = False
        if self.rejection is not None:
            raise self.rejection
        self._settled = self._settled or listeners != "0"
        self._due = now + ASK_AFTER

    def must_ask(self, now: float) -> bool:
        """Whether it is time to ask the other hosts. NobodyListensError: they were asked, and nobody answered."""
        if self._settled or now < self._due:
            return False
        if not self._questions_left:
            raise NobodyListensError(f"nobody listens to {self.channel}")
        self._questions_left -= 1
        self._due = now + ASK_EVERY
        return True

    def asked(self, answer: str) -> None:
        """What the daemon said to the question: ``<n>``, ``<n> asked`` or ``<n> busy``."""
        listeners, _, outcome = answer.partition(" ")
        self._settled = self._settled or listeners != "0" or outcome == "busy"
        if not self._settled and outcome != "asked":
            raise NobodyListensError(
                f"nobody on this host listens to {self.channel}, which does not leave it"
            )

    @property
    def until(self) -> float:
        """When to look again, unless something comes before."""
        return self.deadline if self._settled else min(self.deadline, self._due)

    def take(self, message: Message | None) -> None:
        """A reply, without its token; None: a daemon has somebody who listens."""
        self._settled = True
        if message is not None and self._came != self.wanted and len(self.replies) <= REPLIES_LIMIT:
            self.replies.append(message)
            self._came += 1
        self.news.finish()

    def next_reply(self) -> Message | None:
        """None: there is none yet. BacklogError: there are too many."""
        if len(self.replies) > REPLIES_LIMIT:
            raise BacklogError(
                f"more than {REPLIES_LIMIT} replies to one request on {self.channel} wait to be taken"
            )
        return self.replies.popleft() if self.replies else None

    def over(self, now: float) -> bool:
        """Whether no more replies are to come. TimedOutError: there are fewer than were wanted."""
        if self._came == self.wanted:
            return not self.replies
        if now < self.deadline:
            return False
        if self.wanted is not None:
            came = f"{self._came} of {self.wanted} replies" if self._came else "no reply"
            raise TimedOutError(f"{came} on {self.channel} within {self.timeout:g} s")
        return True


class Exchanges:
    """The requests of one client that are under way."""

    def __init__(self) -> None:
        self.listening = False  # has been said, for the replies
        self._prefix = b""
        self._count = 0
        self._open: dict[bytes, Exchange] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(
        self,
        channel: str,
        payload: bytes | str,
        now: float,
        timeout: float,
        *,
        wanted: int | None,
        anyway: bool,
    ) -> Exchange:
        self._prefix = self._prefix or os.urandom(TOKEN_BYTES).hex().encode() + b"."
        self._count += 1
        token = b"%b%d" % (self._prefix, self._count)
        self._open[token] = exchange = Exchange(token, channel, payload, now, timeout, wanted, anyway)
        return exchange

    def end(self, exchange: Exchange) -> None:
        self._open.pop(exchange.token, None)

    def wake(self) -> None:
        """Have all who wait look again."""
        for exchange in self._open.values():
            exchange.news.finish()

    def take(self, message: Message) -> bool:
        """Whether it is a reply to a request of this client, in time or late; its exchange has it then.

        It is not when it came on the channel of the request: that one also goes to who asked all.
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

    def blame(self, text: str, error: RejectedError) -> bool:
        """Whether it is a request of this client that the daemon rejected just now."""
        for exchange in self._open.values():
            if exchange.on_its_way and text.startswith(f"MSG {exchange.channel}:"):
                exchange.rejection = error
                return True
        return False


def _first_line(token: bytes, payload: bytes | str) -> bytes:
    return token + b"\n" + (payload.encode() if isinstance(payload, str) else payload)
