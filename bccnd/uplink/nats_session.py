"""One connection to a NATS server, from its first byte to its end: publishing, asking, pulling, acknowledgements.

Rules
- A connection that fails is given up, and the next one starts from nothing. nats-py's own reconnecting is off: it
  keeps pending messages and subscriptions although the server has lost them.
- Every failure is a ``CutOffError``, whose text is the line that says why. That includes a consumer that is gone, a
  message that is missing on its way from the consumer, and a server that is silent.
- The connection is alive if messages to ourselves come back. nats-py's ``flush`` and ``rtt`` are not used: a late
  answer silently stops nats-py's reader, and once the reader has stopped, both succeed.
- At most one and a half BATCH messages are pulled, and each batch is asked for: a slow reader delays nobody else.
- Messages of strangers below our subjects reach us as well. None of their bytes may end a connection: it would end
  again after each reconnect, as long as the stream keeps the message. nats-py is patched where it would end.
- Readers of what we publish see the inbox of its acknowledgements. Pulled messages come to another inbox, which only
  the server knows: a message there moves the place in the stream, or ends the connection.
- One task writes. nats-py swallows a cancellation while it waits for room, so that task ends when its client ends.
"""

import asyncio
import json
import logging
import os
import re
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from bccnd.errors import BccndError, ConfigError
from bccnd.uplink import nats_stream
from bccnd.uplink.nats_options import NatsOptions
from bccnd.uplink.nats_stream import Answer

try:
    from nats.aio.client import Client, RawCredentials
    from nats.aio.msg import Msg
    from nats.errors import AuthorizationError, Error, NoRespondersError, StaleConnectionError
    from nats.protocol import parser
    from nkeys import NkeysError
except ImportError as missing:
    raise ConfigError(
        f"nats-py cannot be loaded ({missing}); install it: pip install 'bccnd[nats]'"
    ) from None

# For the server only a blank or a tab ends a subject. nats-py's own patterns end it at other white space, too.
parser.MSG_RE = re.compile(rb"\AMSG[ \t]+([^ \t\r\n]+)[ \t]+(\d+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)\r\n")
parser.HMSG_RE = re.compile(
    rb"\AHMSG[ \t]+([^ \t\r\n]+)[ \t]+(\d+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)[ \t]+(\d+)\r\n"
)

# Seconds for each step of a connection, and for an answer of JetStream, which may be choosing a leader.
CONNECT_SECONDS = 5
ANSWER_SECONDS = 5.0

# Seconds for nats-py to end its tasks.
CLOSE_SECONDS = 2.0

# Seconds between two checks, counted and not measured: a machine that was stopped has not been silent.
TICK_SECONDS = 1.0
SILENT_TICKS = 10

# Messages of one pull, at most 128 KiB each.
BATCH = 256

# A pull ends after so many seconds; while it brings nothing, the consumer sends a heartbeat every so many seconds.
PULL_SECONDS = 30.0
HEARTBEAT_SECONDS = 2.0
QUIET_TICKS = 7

# Seconds after which the server forgets the consumer of an uplink that has gone.
CONSUMER_SECONDS = 60.0

# Datagrams without a number that wait here, of ours and of all others. Further ones are dropped: the next comes in a
# second.
SAID_LIMIT = 1024
SAID_BYTES = 4 << 20

# The header with the position of a datagram without a number.
POSITION = "Bccn-Position"

NOT_CLUSTERED = 10074
NO_STREAM = 10059

# What nats-py raises for bytes that are no NATS, and for a file without credentials.
_STUMBLES = (
    OSError, Error, NkeysError, ValueError, TypeError, LookupError, AttributeError, AssertionError,
)  # fmt: skip


# Of a subscription.
Callback = Callable[[Msg], Awaitable[None]]


class CutOffError(BccndError):
    """Why there is no connection, or why it ends."""


class JetStreamError(CutOffError):
    """JetStream refuses a request, with this ``code``."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Owner(Protocol):
    """The owner of the session. Nothing of it is called after ``close``."""

    def delivered(self, number: int, to_come: int, datagram: bytes) -> None:
        """The next message of the stream, and how many follow it now."""
        ...

    def acknowledged(self, number: int, answer: Answer) -> None:
        """The answer of the stream, or of a stranger in its name, to a message sent with ``reply_to(number)``."""
        ...

    def heard(self, position: int, datagram: bytes) -> None:
        """A datagram without a number; ``position``: after the last message that its sender knew in the stream."""
        ...

    def complained(self, text: str) -> None:
        """The server forbids publishing this; everything else goes on."""
        ...


class _Client(Client):
    """``demands_tls``: send nothing before TLS. nats-py leaves that to the server, whatever the URL says."""

    demands_tls = False

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and self.demands_tls and not info.get("tls_required"):
            raise Error("it offers no TLS")
        await super()._process_info(info, initial_connection)

    async def _process_headers(self, headers: bytes) -> dict[str, str] | None:
        try:
            return await super()._process_headers(headers)
        except (ValueError, LookupError):
            return None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        if not subject.isascii():
            subject = subject.decode("latin-1").encode()
        message: Msg = super()._build_message(sid, subject, reply, data, headers)
        return message

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """Close without waiting for a server that takes nothing more: that could take minutes.

        Messages that were not acknowledged are sent again, so nothing is lost.
        """
        self._pending, self._pending_data_size = [], 0
        if writer := getattr(self._transport, "_io_writer", None):
            writer.transport.abort()
        await super()._close(status, do_cbs)


class Session:
    def __init__(self, options: NatsOptions, server: str, name: str, owner: Owner) -> None:
        logging.getLogger("nats").setLevel(logging.CRITICAL + 1)  # its owner says why in one line
        self.round_trip: float | None = None
        self.paused = False  # one batch a tick is pulled, no more
        self._options, self._server, self._name, self._owner = options, server, name, owner
        self._client = _Client()
        self._ended = asyncio.Event()
        self._first: Exception | None = None  # the first failure, which explains the rest
        self._fault: Exception | None = None  # of ours
        self._left = False
        self._queue: deque[tuple[str, bytes, str, dict[str, str] | None]] = deque()
        self._more = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._inbox = self._secret_inbox = self._pull_subject = ""
        self._came = 0  # the number in the consumer of the last message
        self._wanted = 0  # how many have been asked for and have not come
        self._echo_at: float | None = None
        self._unanswered = self._quiet = 0

    @property
    def message_limit(self) -> int:
        """Bytes of a message with its headers."""
        return min(self._client.max_payload, nats_stream.MESSAGE_BYTES)

    async def open(self) -> dict[str, Any]:
        """Connect. Returns the stream as JetStream describes it; makes it if it is missing."""
        client, options = self._client, self._options
        try:
            login = options.login()
            if "user_credentials" in login:
                login["user_credentials"] = RawCredentials(login["user_credentials"])
            client.demands_tls = options.demands_tls(self._server)
            async with asyncio.timeout(3 * CONNECT_SECONDS):
                await client.connect(
                    [self._server],
                    name=self._name,
                    tls=options.tls(),
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=CONNECT_SECONDS,
                    error_cb=self._on_error,
                    closed_cb=self._on_closed,
                    **login,
                )
        except BccndError as error:
            raise CutOffError(str(error)) from None
        except _STUMBLES as error:
            raise self._cut_off(error) from None
        if not client.is_connected:
            raise self._cut_off(StaleConnectionError())
        return await self._stream()

    async def read_from(self, first: int) -> None:
        """Get messages from the stream number ``first`` on, and datagrams without a number."""
        stream, subscribe = self._options.stream, self._client.subscribe
        self._inbox, self._secret_inbox = self._client.new_inbox(), self._client.new_inbox()
        try:
            await subscribe(f"{self._inbox}.ack.*", cb=self._ours(self._on_ack))
            await subscribe(f"{self._secret_inbox}.echo", cb=self._ours(self._on_echo))
            await subscribe(f"{self._secret_inbox}.message", cb=self._ours(self._on_message))
            await subscribe(
                f"{stream}.*",
                cb=self._ours(self._on_said),
                pending_msgs_limit=SAID_LIMIT,
                pending_bytes_limit=SAID_BYTES,
            )
        except _STUMBLES as error:
            raise self._cut_off(error) from None
        made = await self._ask(
            f"CONSUMER.CREATE.{stream}", nats_stream.consumer(stream, first, CONSUMER_SECONDS)
        )
        self._pull_subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{made['name']}"
        self._writer = asyncio.create_task(self._write())
        self._pull()
        self._send_echo()

    async def tick(self) -> None:
        """Wait for a second, then check the connection."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TICK_SECONDS):
                await self._ended.wait()
        if self._fault:
            raise self._fault
        if self._ended.is_set() or self._client.is_closed:
            raise self._cut_off(self._client.last_error or StaleConnectionError())
        self._unanswered += 1
        self._quiet += 1
        if self._unanswered > SILENT_TICKS:
            raise CutOffError(f"{self._server} does not answer any more")
        if self._quiet > QUIET_TICKS:
            raise CutOffError(f"{self._server}: our consumer of the stream {self._options.stream} is gone")
        if self._echo_at is None:
            self._send_echo()
        self._pull(slowly=True)

    def send(self, subject: str, datagram: bytes, reply: str, headers: dict[str, str] | None) -> None:
        self._queue.append((subject, datagram, reply, headers))
        self._more.set()

    def reply_to(self, number: int) -> str:
        return f"{self._inbox}.ack.{number}"

    def resume(self) -> None:
        """Pull without pauses again."""
        self.paused = False
        self._pull()

    def say(self, subject: str, datagram: bytes, position: int) -> None:
        if len(self._queue) < SAID_LIMIT:
            self.send(subject, datagram, "", {POSITION: str(position)})

    async def close(self) -> None:
        self._left = True
        with suppress(*_STUMBLES):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._client.close()
        if self._writer:
            self._writer.cancel()
            await asyncio.wait({self._writer}, timeout=CLOSE_SECONDS)

    # --- JetStream ---

    async def _stream(self) -> dict[str, Any]:
        stream = self._options.stream
        try:
            described = await self._ask(f"STREAM.INFO.{stream}")
        except JetStreamError as error:
            if error.code != NO_STREAM:
                raise
            described = await self._make_stream()
        if why := nats_stream.unfit(stream, described["config"]):
            raise CutOffError(f"the stream {stream} cannot carry a link: {why}")
        return described

    async def _make_stream(self) -> dict[str, Any]:
        options = self._options
        for replicas in [options.replicas] if options.replicas else [3, 1]:
            wanted = nats_stream.configuration(options.stream, replicas, options.max_bytes, options.max_age)
            try:
                return await self._ask(f"STREAM.CREATE.{options.stream}", wanted)
            except JetStreamError as error:
                if error.code != NOT_CLUSTERED or replicas == 1 or options.replicas:
                    raise CutOffError(f"the stream {options.stream} cannot be made: {error}") from None
        raise AssertionError

    async def _ask(self, what: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        payload = json.dumps(request).encode() if request else b""
        try:
            reply = await self._client.request(f"$JS.API.{what}", payload, timeout=ANSWER_SECONDS)
            answer: dict[str, Any] = json.loads(reply.data)
        except NoRespondersError:
            raise CutOffError(f"{self._server} has no JetStream for us") from None
        except TimeoutError:
            raise self._cut_off(CutOffError(f"{self._server}: JetStream does not answer")) from None
        except _STUMBLES as error:
            raise self._cut_off(error) from None
        if refused := answer.get("error"):
            raise JetStreamError(
                refused.get("err_code", 0), f"{self._server}: {refused.get('description', 'refused')}"
            )
        return answer

    def _pull(self, *, slowly: bool = False) -> None:
        if self._wanted < BATCH // 2 and (slowly or not self.paused):
            self._wanted += BATCH
            request = json.dumps(nats_stream.pull(BATCH, PULL_SECONDS, HEARTBEAT_SECONDS)).encode()
            self.send(self._pull_subject, request, f"{self._secret_inbox}.message", None)

    # --- what comes ---

    def _ours(self, function: Callback) -> Callback:
        """Wrap a callback: what it raises is a fault of ours, which nats-py would not tell from its own."""

        async def call(message: Msg) -> None:
            try:
                await function(message)
            except Exception as error:  # noqa: BLE001 - ``tick`` raises it
                self._fault = self._fault or error
                self._ended.set()

        return call

    async def _on_message(self, message: Msg) -> None:
        self._quiet = self._unanswered = 0
        if self._left:
            return
        try:
            number, in_consumer, to_come = nats_stream.place(message.reply)
        except ValueError:  # only a message of the stream has a place
            self._on_status(message.headers or {})
            return
        if in_consumer != self._came + 1:
            self._end(CutOffError(f"{self._server}: messages are missing on their way to us"))
            return
        self._came = in_consumer
        self._wanted -= 1
        self._owner.delivered(number, to_come, message.data)
        self._pull()

    def _on_status(self, headers: Mapping[str, str]) -> None:
        """100: nothing has come lately; 404 and 408: a pull has ended; anything else: the consumer has."""
        status = headers.get("Status")
        if status in ("404", "408"):
            pending = headers.get("Nats-Pending-Messages", "")
            left = int(pending) if re.fullmatch(r"[0-9]{1,9}", pending) else self._wanted
            self._wanted -= min(self._wanted, left)
            self._pull()
        elif status != "100":
            why = headers.get("Description", "nobody has it")
            self._end(CutOffError(f"{self._server}: our consumer of the stream has ended: {why}"))

    async def _on_ack(self, message: Msg) -> None:
        self._unanswered = 0
        try:
            number = int(message.subject.rpartition(".")[2])
            answer = nats_stream.answer(message.data)
        except ValueError:
            return
        if not self._left:
            self._owner.acknowledged(number, answer)

    async def _on_echo(self, _message: Msg) -> None:
        self._unanswered = 0
        if self._echo_at is not None:
            self.round_trip = time.monotonic() - self._echo_at
            self._echo_at = None

    async def _on_said(self, message: Msg) -> None:
        position = (message.headers or {}).get(POSITION, "")
        if re.fullmatch(r"[0-9]{1,18}", position) and not self._left:
            self._owner.heard(int(position), message.data)

    def _send_echo(self) -> None:
        self._echo_at = time.monotonic()  # the loop's own clock stands still within a turn
        self.send(f"{self._secret_inbox}.echo", b"", "", None)

    # --- the end ---

    async def _write(self) -> None:
        try:
            while True:
                while self._queue:
                    await self._client.publish(*self._queue.popleft())
                self._more.clear()
                await self._more.wait()
        except _STUMBLES as error:
            self._end(error)

    async def _on_error(self, error: Exception) -> None:
        """Take any error of nats-py; the cause may be the bytes of a stranger."""
        text = _one_line(error)
        if f'permissions violation for publish to "{self._options.stream.lower()}.' in text:
            self._owner.complained(f"{self._server}: {text}")
        elif "permissions violation" in text:
            self._end(CutOffError(f"{self._server}: {text}"))
        else:
            self._first = self._first or error

    async def _on_closed(self) -> None:
        self._ended.set()

    def _end(self, error: Exception) -> None:
        self._first = self._first or error
        self._ended.set()

    def _cut_off(self, error: Exception) -> CutOffError:
        error = self._first or error
        return error if isinstance(error, CutOffError) else CutOffError(explanation(self._server, error))


def explanation(server: str, error: Exception) -> str:
    """One line that says why a connection failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{server}: its certificate is not to be trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"{server}: no TLS: {getattr(error, 'reason', '') or _one_line(error)}"
    if isinstance(error, AuthorizationError) or "authorization violation" in str(error).lower():
        return f"{server} does not let us in: check the credentials"
    if isinstance(error, StaleConnectionError | ConnectionResetError | BrokenPipeError):
        return f"{server} closed the connection"
    if isinstance(error, TimeoutError | asyncio.CancelledError):
        return f"{server} does not answer"
    if isinstance(error, socket.gaierror):
        return f"{server}: no such host: {error.strerror}"
    if isinstance(error, OSError) and error.errno:
        return f"{server} cannot be reached: {os.strerror(error.errno)}"
    return f"{server}: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).removeprefix("nats: ").split()).strip("'") or type(error).__name__
    return text[:200]
