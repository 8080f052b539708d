"""The carrier by NATS JetStream: a link datagram is a message of a stream, and its place there is its position.

    publish --> window --> stream --> every uplink, this one too --> came, complete
               until acknowledged

Reasons to use it: replicas, TLS, accounts, one outgoing connection, and messages that wait while a site is cut off.
Subjects are readable (``nats_stream``): ``nats sub 'bccn.siteA.factory.>'`` shows BCCN1.

Rules
- A message stays in the window until the stream has acknowledged it. It is sent again under the same ``Nats-Msg-Id``,
  ``<source>:<number>``, even over a new connection. Within its duplicate window the stream keeps one copy; a receiver
  of two knows them by their number. With a key the id also has the sum of the datagram: a stranger who could foresee
  the id could make the stream take our message for a duplicate of his.
- A stream may call a message a duplicate although it lost the original when its leader died (nats-server before
  2.10.20 says so with the number 0). That is no acknowledgement, and after the second time the message goes under a
  new id.
- The reader keeps its own place: each connection has its own consumer, which begins there and acknowledges nothing.
  So a kill -9 of the uplink, a server or both needs no repair: only the position that ``run`` gets matters.
- A stream delivers in order. Numbers that it leaves out were deleted by its limits, and are counted as lost.
- A datagram without a number takes no place in the stream, or one a second would fill it. It carries the position
  after the last message that its sender knows to be there, so that no reader takes later messages for lost. The
  position is not signed, so a reader also counts what it knows to be in the stream as before it.
- A stream that was made again, even while the uplink was down, is read from its first message: the journal keeps the
  time at which the stream was made, with the position. Positions then go on 2**48 higher. A stream that lost its end,
  in a crash of its only server (sync_interval), goes on with lower positions; link numbers tell what is new.
- At most AHEAD messages are on their way to the segment. Beyond that one batch a second is pulled. Messages held
  behind a missing number do not count: one link that never sends it would slow all others.
- Any server will do. They are tried in random order, for ever, with growing pauses.

The user of an uplink needs these rights in NATS: publish ``bccn.>``, ``_INBOX.>``, ``$JS.API.STREAM.INFO.bccn``,
``$JS.API.STREAM.CREATE.bccn`` unless somebody else made the stream, ``$JS.API.CONSUMER.CREATE.bccn`` and
``$JS.API.CONSUMER.MSG.NEXT.bccn.>``; subscribe ``bccn.*`` and ``_INBOX.>``.
"""

import asyncio
import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from bccnd.uplink.carrier import Facts, Hearer
from bccnd.uplink.nats_options import NatsOptions
from bccnd.uplink.nats_session import CutOffError, Session
from bccnd.uplink.nats_stream import Answer, channel_subject, segment_subject

# Messages published and not acknowledged: enough for 100,000 a second at a round trip of 10 ms.
WINDOW = 1024
WINDOW_BYTES = 4 << 20

# Seconds until a message without an answer is sent again, and until a refused one is. Both double each time.
ACK_SECONDS = 2.0
REFUSED_SECONDS = 0.5
AGAIN_LIMIT = 30.0

# Messages between the last that came and the last that reached the segment.
AHEAD = 8192

# Seconds before the next server is tried: a tenth at first, and twice as long after each round through all of them.
# Seconds after which a connection has lasted, so that the pauses start again.
PAUSE_SECONDS = 0.1
PAUSE_LIMIT = 10.0
LASTING_SECONDS = 10.0

# Bytes of the headers of a message, with the longest source.
HEADER_BYTES = 256

# Seconds between two lines about messages that no server takes.
REPORT_SECONDS = 60.0

TOO_LARGE = 10054

# Positions of one stream: numbers of a stream are lower.
ERA = 1 << 48

log = structlog.get_logger()


@dataclass(slots=True)
class _Waiting:
    """A message without an acknowledgement. ``due``: when it is sent again; ``doubts``: how often the stream called
    it a duplicate without an original.
    """

    datagram: bytes
    subject: str
    attempts: int = 0
    due: float = 0.0
    doubts: int = 0


class Place(Protocol):
    """What the journal keeps with the position. ``stream``: when it was made, and the position of its number 0."""

    stream: tuple[str, int]


class NatsCarrier:
    """A ``Carrier``. ``source``: of the link, ``<segment>/uplink/<instance>``. Raises ``BccndError`` for options."""

    def __init__(self, options: NatsOptions, source: bytes, hearer: Hearer, place: Place) -> None:
        options.check()
        self._options, self._hearer, self._kept = options, hearer, place
        self._source = source.decode("latin-1")
        self._segment = source.rpartition(b"/uplink/")[0] or source
        self._session: Session | None = None
        self._window: dict[int, _Waiting] = {}
        self._bytes = 0
        self._full = False  # the core has seen that there is no room
        self._reason = ""
        self._trouble = ""  # why messages are not acknowledged
        self._next = self._taken = 0
        self._made, self._base = place.stream
        self._acknowledged = 0  # the highest number in the stream of a message of ours
        self._behind = self._lost = self._repeated = self._given_up = 0
        self._reported_at = float("-inf")

    # --- Carrier ---

    @property
    def room(self) -> int:
        if self._session is None or self._bytes >= WINDOW_BYTES:
            return 0
        return max(0, WINDOW - len(self._window))

    def publish(self, number: int, datagram: bytes, channel: bytes) -> None:
        if number in self._window:
            return
        subject = channel_subject(self._options.stream, self._segment, channel)
        self._window[number] = _Waiting(datagram, subject)
        self._bytes += len(datagram)
        self._send(number)
        self._full = self._full or not self.room

    def say(self, datagram: bytes) -> None:
        if self._session:
            subject = segment_subject(self._options.stream, self._segment)
            self._session.say(subject, datagram, self._acknowledged + 1)

    def taken(self, position: int) -> None:
        self._taken = position - self._base
        if self._session and self._session.paused and not self._is_ahead():
            self._session.resume()

    async def run(self, position: int) -> None:
        self._next = self._taken = max(1, position - self._base) if position else self._taken
        servers = random.sample(self._options.servers, len(self._options.servers))
        clock = asyncio.get_running_loop().time
        failures = 0
        for server in itertools.cycle(servers):
            began = clock()
            await self._serve(server)
            failures = 1 if clock() - began > LASTING_SECONDS else failures + 1
            pause = min(PAUSE_LIMIT, PAUSE_SECONDS * 2 ** min(failures // len(servers), 10))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - so that uplinks do not come together

    def facts(self) -> Facts:
        return Facts(
            self._reason or self._trouble or ("" if self._session else "not connected yet"),
            self._session.round_trip if self._session else None,
            behind=self._behind,
            lost=self._lost,
            repeated=self._repeated,
            given_up=self._given_up,
        )

    # --- a connection ---

    async def _serve(self, server: str) -> None:
        """Use the connection until it is cut off."""
        session = Session(self._options, server, self._source, self)
        try:
            described = await session.open()
            first = self._place(described)
            await session.read_from(first)
            self._session, self._reason, self._trouble = session, "", ""
            for number in self._window:
                self._send(number)
            self._hearer.complete(self._base + first)
            self._kept.stream = self._made, self._base
            self._hearer.changed()
            while True:
                await session.tick()
                self._send_overdue()
        except CutOffError as error:
            self._session = None
            self._cut_off(str(error))
        finally:
            self._session = None
            await session.close()

    def _place(self, described: Mapping[str, Any]) -> int:
        """The stream number to begin at."""
        made, state = described.get("created", ""), described["state"]
        first, end = max(1, state["first_seq"]), state["last_seq"] + 1
        another = self._next > 0 and (made != self._made if self._made else self._next > end)
        if another:
            log.warning(
                "another stream", stream=self._options.stream, made=made, wanted=self._next, first=first
            )
            self._next = self._taken = first
            self._base += ERA
        elif not self._next:
            self._next = self._taken = end
        self._next = min(self._next, end)
        if self._next < first:
            self._lost += first - self._next
            self._next = first
        self._made, self._acknowledged = made, end - 1
        self._behind = end - self._next
        return self._next

    def _cut_off(self, reason: str) -> None:
        was, self._reason = self._reason, reason
        if not was:
            self._hearer.changed()

    # --- what is published ---

    def _send(self, number: int) -> None:
        waiting, session = self._window[number], self._session
        if session is None:
            return
        if len(waiting.datagram) + HEADER_BYTES > session.message_limit:
            # Not within the call of ``publish``.
            asyncio.get_running_loop().call_soon(self._give_up, number)
            return
        self._repeated += waiting.attempts > 0
        waiting.attempts += 1
        waiting.due = _later(ACK_SECONDS, waiting.attempts)
        name = f"{self._source}:{number}{_sum_of(waiting.datagram)}"
        name += f":{waiting.attempts}" if waiting.doubts > 1 else ""
        session.send(waiting.subject, waiting.datagram, session.reply_to(number), {"Nats-Msg-Id": name})

    def _send_overdue(self) -> None:
        now = asyncio.get_running_loop().time()
        for number in [number for number, each in self._window.items() if each.due <= now]:
            self._send(number)

    def _settle(self, number: int) -> None:
        self._bytes -= len(self._window.pop(number).datagram)
        self._hearer.published(number)
        if self._full and len(self._window) <= WINDOW // 2 and self._bytes <= WINDOW_BYTES // 2:
            self._full = False
            self._hearer.changed()

    def _give_up(self, number: int) -> None:
        if number not in self._window:
            return
        self._given_up += 1
        now = asyncio.get_running_loop().time()
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            size = len(self._window[number].datagram)
            log.warning("too large for NATS", bytes=size, given_up=self._given_up)
        self._settle(number)

    # --- Owner of the session ---

    def acknowledged(self, number: int, answer: Answer) -> None:
        waiting = self._window.get(number)
        if waiting is None:
            return
        if answer.code == TOO_LARGE:
            self._give_up(number)
        elif answer.refused or answer.stream != self._options.stream:
            waiting.due = _later(REFUSED_SECONDS, waiting.attempts)
            self.complained(f"{waiting.subject}: {answer.refused or _taker(answer.stream)}")
        elif not answer.number:
            waiting.doubts += 1
            waiting.due = _later(REFUSED_SECONDS, waiting.attempts)
        else:
            self._acknowledged = max(self._acknowledged, answer.number)
            self._settle(number)
            if self._trouble:
                self._trouble = ""
                self._hearer.changed()

    def delivered(self, number: int, to_come: int, datagram: bytes) -> None:
        self._lost += max(0, number - self._next)
        self._next, self._behind = number + 1, to_come
        if self._session and not self._session.paused:
            self._session.paused = self._is_ahead()
        self._hearer.came(self._base + number, datagram)
        self._hearer.complete(self._base + number + 1)

    def heard(self, position: int, datagram: bytes) -> None:
        self._hearer.came(self._base + max(position, self._next + self._behind), datagram)

    def complained(self, text: str) -> None:
        was, self._trouble = self._trouble, text
        if not was:
            self._hearer.changed()

    def _is_ahead(self) -> bool:
        return self._next - self._taken > AHEAD


def _sum_of(datagram: bytes) -> str:
    """``:<sum>`` of a signed datagram; empty for others."""
    bracket = datagram.partition(b"]")[0]
    return ":" + bracket.partition(b"=")[2].decode("latin-1") if b"=" in bracket else ""


def _taker(stream: str) -> str:
    return f"the stream {stream} takes it" if stream else "nobody takes it"


def _later(seconds: float, attempts: int) -> float:
    return asyncio.get_running_loop().time() + min(AGAIN_LIMIT, seconds * (1 << min(attempts - 1, 10)))
