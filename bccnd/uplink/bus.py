"""The uplink as a client of its host's daemon: what it hears from the segment, and what it sends there.

    away --> connected --> subscribed, allowed to bridge --> there --> away ...

Rules
- It waits for the daemon as long as the uplink runs. It does not notice a replacement of the daemon.
- Each connection is a client of its own: the rest of a batch on a connection that ended does not continue, out of
  order, on the next. ``joined`` says that messages between two connections were not heard.
- A right that is taken back ends the connection: an uplink that hears only a part of its exports would look healthy.
  It asks again until it has everything that is wanted.
- A message of the segment is heard once, however many patterns match it. The daemon's queue for the uplink drops the
  oldest: an uplink never holds a publisher.
- Once ``send`` returns, the daemon has the datagrams. Those that a lost daemon may not have taken are sent again
  unchanged: hosts that have them drop them as duplicates. Without the right to bridge, datagrams wait until it is
  granted.
- Duplicates are expected: two uplinks of a segment send the same. They are counted, and so is everything that the
  daemon refuses; the log has no line for each.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial

import structlog

import bccn
from bccn.transport import pauses
from bccnd.beside import answers
from bccnd.beside.asked import Replies
from bccnd.errors import RefusedError

# Queues to ask for, in this order: the daemon grants the first that its limits allow, or keeps its own.
QUEUES: tuple[bccn.Queue, ...] = (
    {"packets": 100_000, "bytes": 64 << 20, "policy": "drop-oldest"},
    {"policy": "drop-oldest"},
)
# Verdicts of the daemon on datagrams that it already has, or does not pass on. Others are ``refused``.
EXPECTED = ("duplicate", "own", "late", "replayed")
# The form of its answer: alone, or once a second with the number since the last answer.
VERDICT = re.compile(r"packet: ([a-z-]+)(?:, and ([0-9]{1,15}) like it.*)?")
# Not a datagram: the answer tells whether the uplink may bridge, before a message is lost for want of the right.
PROBE = b"BCCN1[0]"
# What the daemon says about it, and what to do.
NO_RIGHT = "no right to bridge"
WHO_MAY = "[[rights]] in the daemon's settings say who may"
HOW_MANY = "raise limits.subscriptions in the daemon's settings, then reload bccnd"
OLDER = "the daemon may be older than this uplink"
# The channel of all clients that listen.
ALL = "!"
# Seconds for an answer: the daemon may be waiting for its network.
TIMEOUT = 30.0
# Seconds until the daemon is asked again for what it refused.
REFUSED_SECONDS = 10.0
# Seconds between two looks at the hosts that are there.
LOOK_SECONDS = 10.0
# States of a host that may have moved elsewhere.
GONE = "silent", "left"
# Hosts of one segment; their names go into a digest.
HOSTS_LIMIT = 1024

log = structlog.get_logger()


class Bus:
    """``heard(datagram, retained)`` gets each message of the segment. ``answer()`` makes the replies to a request on
    ``channel``, and to one of ``bccn doctor``. ``joined()`` is called on each connection, before anything is heard.
    ``retained``: whether it also hears the daemon's last values.
    """

    def __init__(
        self,
        socket: str,
        heard: Callable[[bytes, bool], None],
        channel: str,
        answer: Callable[[], Sequence[bytes]],
        *,
        joined: Callable[[], None] = lambda: None,
        retained: bool = False,
    ) -> None:
        self.retained = retained
        self.path = bccn.socket_path(socket or None)
        # Why nothing is heard or sent; empty while everything works.
        self.reason = "not yet connected"
        self.counts = Counter(dict.fromkeys(("heard", "sent", "lost", "refused", *EXPECTED), 0))
        self._joined, self._heard = joined, heard
        self._channel = channel
        self._replies = Replies(lambda _: answer())
        self._patterns: frozenset[str] = frozenset()
        self._bridges = False
        self._queue = 0
        self._client: bccn.AsyncClient | None = None
        self._held: dict[str, bccn.AsyncSubscription | None] = {}
        self._settling = asyncio.Lock()
        self._there = asyncio.Event()
        self._refusal = ""
        self._losing: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The name that the daemon gave the uplink; empty while the daemon is away."""
        return self._client.name if self._client else ""

    async def begin(self, patterns: Collection[str], *, bridges: bool) -> None:
        """Make the first attempt. Raises ``RefusedError`` if a daemon is there and does not grant everything."""
        self._patterns, self._bridges = frozenset(patterns), bridges
        try:
            await self._connect()
        except bccn.BccnError as error:
            await self._lose(str(error))

    async def run(self) -> None:
        """Hear the segment and reply, over one connection after the other, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for work in (self._replies.run(), self._hear()):
                tasks.create_task(work)

    async def _hear(self) -> None:
        wait = pauses()
        while True:
            pause = 0.0
            try:
                if self._client is None:
                    await self._connect()
                wait = pauses()
                await self._read(self._client)
            except bccn.ClosedError:  # the code that closed it has said why
                pass
            except bccn.BccnError as error:
                await self._lose(str(error))
            except RefusedError as error:
                await self._lose(str(error))
                pause = REFUSED_SECONDS
            await asyncio.sleep(pause or next(wait))

    async def close(self) -> None:
        self._there.clear()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def want(self, patterns: Collection[str], *, bridges: bool) -> None:
        """Hear these patterns from now on. Old ones end after the new ones are in force.

        Raises ``RefusedError``, and then nothing has changed. Without a daemon it takes effect once there is one.
        """
        before = self._patterns, self._bridges
        self._patterns, self._bridges = frozenset(patterns), bridges
        try:
            await self._settle_there()
        except RefusedError:
            self._patterns, self._bridges = before
            await self._settle_there()
            raise

    async def send(self, datagrams: Sequence[bytes]) -> None:
        """Have the daemon pass on datagrams of others. Returns once it has looked at all of them."""
        while True:
            await self._there.wait()
            client = self._client
            if client is None:
                continue
            self._refusal = ""
            try:
                async with client.batch():
                    for datagram in datagrams:
                        await client.send_datagram(datagram)
                await client.control("ping")
            except bccn.BccnError as error:
                await self._lose(str(error), client)
                continue
            if NO_RIGHT in self._refusal:
                await self._lose(f"{self._refusal}; {WHO_MAY}", client)
                continue
            self.counts["sent"] += len(datagrams)
            return

    async def say(self, channel: str, payloads: Sequence[bytes]) -> None:
        """Publish these, if the daemon is there and takes them now."""
        client = self._client
        if client is not None and self._there.is_set():
            with suppress(bccn.BccnError):  # of a connection that ends; ``run`` says why
                for payload in payloads:
                    await client.publish(channel, payload)

    async def hosts(self) -> list[str]:
        """The hosts of this segment whose daemons are alive; without the right to observe, only this host.

        Hosts of other segments are heard as well, through uplinks; their sources are relayed.
        """
        own = names = {self.name.partition("/")[0]} - {""}
        if self._client is not None:
            with suppress(bccn.BccnError):
                rows = await self._client.sources()
                there = [
                    row["src"] for row in rows if row.get("state") not in GONE and not row.get("relayed")
                ]
                names = own | {src.partition("/")[0] for src in there if src.split("/")[1:2] == ["bccnd"]}
        return [*own, *sorted(names - own)][:HOSTS_LIMIT]

    # -- one connection after the other

    async def _connect(self) -> None:
        self._client = client = bccn.AsyncClient(
            self.path,
            format="full",
            pack=True,
            echo=False,
            queue=QUEUES[self._queue],
            reconnect=False,
            timeout=TIMEOUT,
            on_notice=self._noticed,
        )
        self._held = {}
        try:
            await client.connect()
        except bccn.RefusedError as error:
            raise RefusedError(f"{error.text}; the group of the socket says who may") from None
        except bccn.RejectedError as error:
            if self._queue + 1 == len(QUEUES):
                raise RefusedError(str(error)) from None
            self._queue += 1
            await self.close()
            await self._connect()
            return
        asked = partial(self._replies.asked, client)
        await client.subscribe(self._channel, asked)
        with suppress(bccn.RefusedError):  # it is for ``bccn doctor`` alone
            await client.subscribe(answers.CHANNEL, asked)
        settled = None
        while settled is not self._patterns:  # a reload may want others meanwhile
            settled = self._patterns
            await self._settle(client)
        if client is not self._client:  # it was lost meanwhile
            return
        self.reason = ""
        self._joined()
        self._there.set()
        log.info("connected to the daemon", socket=self.path, name=client.name)

    async def _settle_there(self) -> None:
        """``_settle`` with the daemon, if it is there; the next connection begins with it."""
        client = self._client
        if client is None or not self._there.is_set():
            return
        try:
            await self._settle(client)
        except bccn.BccnError as error:
            await self._lose(str(error), client)

    async def _settle(self, client: bccn.AsyncClient) -> None:
        """Subscribe to what is wanted and to nothing else; find out whether the daemon takes what is sent."""
        async with self._settling:
            try:
                for pattern in sorted(self._patterns - self._held.keys() - {ALL}):
                    self._held[pattern] = await self._subscribed(client, pattern)
                if ALL in self._patterns:
                    await client.listen()
                for pattern in self._held.keys() - self._patterns:
                    if held := self._held.pop(pattern):
                        await held.close()
                if self._bridges:
                    await self._probe(client)
            except bccn.RefusedError as error:
                raise RefusedError(f"{error.text}; {WHO_MAY}") from None
            except bccn.RejectedError as error:
                raise RefusedError(f"{error}; {HOW_MANY if error.code == 'limit' else OLDER}") from None

    async def _subscribed(self, client: bccn.AsyncClient, pattern: str) -> bccn.AsyncSubscription | None:
        """The subscription; None if it is for directed messages, and the daemon is too old for these."""
        try:
            return await client.subscribe(pattern)
        except bccn.RefusedError:
            raise
        except bccn.RejectedError:
            if not pattern.startswith("!"):
                raise
            log.warning("directed messages are not heard", pattern=pattern, remedy="a newer daemon")
            return None

    async def _probe(self, client: bccn.AsyncClient) -> None:
        counted, self._refusal = self.counts["refused"], ""
        await client.send_datagram(PROBE)
        await client.control("ping")
        self.counts["refused"] = counted
        if self._refusal:
            raise bccn.RefusedError("refused", self._refusal)

    async def _lose(self, reason: str, client: bccn.AsyncClient | None = None) -> None:
        """This connection has ended, or is given up. ``client``: its client, if there may be a newer one by now."""
        if client is not None and client is not self._client:
            return
        if reason != self.reason:
            log.warning("not connected to the daemon, trying again", reason=reason, socket=self.path)
        self.reason = reason
        await self.close()

    def _noticed(self, notice: bccn.Notice) -> None:
        if notice.kind == "lost":
            self.counts["lost"] += notice.count
        elif notice.kind == "revoked" and (self._losing is None or self._losing.done()):
            losing = self._lose(f"{notice.text}; {WHO_MAY}", self._client)
            self._losing = asyncio.get_running_loop().create_task(losing)
        elif notice.kind == "rejected" and notice.error is not None:
            found = VERDICT.search(notice.error.text)
            verdict, more = (found[1], int(found[2] or 0)) if found else ("refused", 0)
            self.counts[verdict if verdict in EXPECTED else "refused"] += notice.count * (1 + more)
            if isinstance(notice.error, bccn.RefusedError) and notice.error.text != self._refusal:
                self._refusal = notice.error.text
                log.warning("refused by the daemon", reason=notice.error.text)

    # -- what comes

    async def _read(self, client: bccn.AsyncClient | None) -> None:
        """Read until the connection ends, which raises."""
        while client is not None:
            message = await client.receive()
            if message is None or message.datagram is None or (message.retained and not self.retained):
                continue
            self.counts["heard"] += 1
            self._heard(message.datagram, message.retained)
