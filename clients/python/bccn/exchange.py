"""What is under way: to the daemon, and to other programs (PROTOCOL.md, "Request and reply"). No I/O, no clock.

Rules:
1. Tokens cannot be guessed and belong to one client: a message that begins with one of ours is a reply.
2. A request is published once. The other hosts are asked for listeners several times, since datagrams get lost.
3. Replies beyond those wanted, and replies that nobody waits for any more, are dropped.
"""

import os
from collections import deque
from collections.abc import Callable

from bccn import errors
from bccn.inbox import DELIVERED, MESSAGE_COST, Held, Waiting
from bccn.protocol import Message, encoded

# Bytes; the daemons do not answer a question with a longer token.
TOKEN_LIMIT = 128
# Random bytes in a token.
TOKEN_BYTES = 8
QUESTIONS = 3
# Seconds: a reply that comes sooner saves the segment a question.
ASK_AFTER = 0.02
# Seconds between questions; a daemon answers in a fraction of that.
ASK_EVERY = 0.1
# Bytes of replies to all requests of a client that were not taken yet. Beyond that a request may have one that waits.
REPLIES_LIMIT = 64 * 1024 * 1024
FOREVER = float("inf")


class Pending:
    """Something that is waited for. ``wakers`` are called once it is ``done``; ``error``: why it ended in vain."""

    done = False
    error: errors.BccnError | None = None
    wakers: frozenset[Callable[[], None]] = frozenset()

    def finish(self, error: errors.BccnError | None = None) -> None:
        self.error, self.done = error or self.error, True
        for wake in self.wakers:
            wake()


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


class Request(Message):
    """A request to this program: a message whose ``payload`` is what stands behind its ``token``."""

    def __init__(self, message: Message) -> None:
        """Raises InvalidError for a message that is no request, or does not say where it comes from."""
        token, newline, payload = message.payload.partition(b"\n")
        if message.src is None:
            raise errors.InvalidError('only format="full" says where a request comes from')
        if not newline or not 0 < len(token) <= TOKEN_LIMIT or message.src == "?" or "*" in message.src:
            raise errors.InvalidError(f"the message on {message.channel} from {message.src} is no request")
        vars(self).update(vars(message))
        self.token, self.payload = token, payload

    def reply(self, payload: bytes | str) -> tuple[str, bytes]:
        """Channel and payload of the message that replies to it."""
        return f"!{self.src}", with_token(self.token, payload)


def with_token(token: bytes, payload: bytes | str) -> bytes:
    return token + b"\n" + encoded(payload)


class Exchange(Pending):
    """One request of ours and what has come of it: ``done`` when something has, until somebody looks."""

    came = 0  # replies
    on_its_way = False  # to the daemon, which may reject it
    settled = False  # somebody listens, or that cannot be found out

    def __init__(self, token: bytes, channel: str, wanted: int | None) -> None:
        self.token, self.channel, self.wanted = token, channel, wanted
        self.replies: deque[Message] = deque()  # those not taken yet


class Exchanges(dict[bytes, Exchange], Waiting):
    """The requests of one client that are under way, by token, and their replies."""

    _prefix, _count = b"", 0

    def begin(self, channel: str, wanted: int | None) -> Exchange:
        """``wanted``: how many replies, None for all that come in time."""
        if wanted is not None and wanted < 1:
            raise errors.InvalidError(f"{wanted} replies: must be 1 or more, or None for all")
        self._prefix = self._prefix or os.urandom(TOKEN_BYTES).hex().encode() + b"."
        self._count += 1
        token = b"%b%d" % (self._prefix, self._count)
        self[token] = exchange = Exchange(token, channel, wanted)
        return exchange

    def wake(self) -> None:
        """Have every waiting request look again."""
        for exchange in list(self.values()):  # another thread may end one
            exchange.finish()

    def take(self, message: Message) -> bool:
        """Whether it is a reply to a request of this client, in time or late; its exchange has it then.

        A message on the channel of the request is none: a request to all comes back to its sender. With a "?" behind
        the token, a daemon says that it has listeners.
        """
        is_ours = self._prefix and message.payload.startswith(self._prefix)
        if not is_ours or message.verdict not in DELIVERED:
            return False
        token, _, payload = message.payload.partition(b"\n")
        exchange = self.get(token.removesuffix(b"?"))
        if exchange is None:
            return True
        if message.channel == exchange.channel:
            return False
        if token == exchange.token and exchange.came != exchange.wanted and exchange.error is None:
            if exchange.replies and self.waiting_size > REPLIES_LIMIT:
                exchange.error = errors.BacklogError(f"too many replies on {exchange.channel} wait")
            else:
                message.payload = payload
                exchange.replies.append(message)
                exchange.came += 1
                self.waiting_size += len(payload) + MESSAGE_COST
        exchange.settled = True
        exchange.finish()
        return True

    def blame(self, error: errors.RejectedError) -> bool:
        """Whether the daemon rejected a request of this client with this."""
        for exchange in list(self.values()):
            if exchange.on_its_way and error.text.startswith(f"MSG {exchange.channel}:"):
                exchange.error = error
                return True
        return False
