"""The gateway as a client of its host's daemon: what it hears and watches there, and what it publishes.

Rules
- It waits for the daemon as long as the gateway runs. After a restart of the daemon, the client library asks again
  for everything that is wanted.
- Changes of what is wanted go to the daemon in their order, CHANGES at a time, without waiting for answers. What the
  daemon refuses is counted, and asked for again on the next connection, or when the hearer wants it once more.
- The client has no echo: what the gateway publishes does not come back to it.
- Messages to publish wait here. Peers whose messages wait are not read (``full``), so at most the last read of each
  peer is added. If the daemon takes nothing for TIMEOUT seconds, or is away, what waits is lost.
- The daemon's queue for the gateway drops the oldest: a gateway never holds a publisher.
"""

import asyncio
from collections import Counter, deque
from typing import Protocol

import structlog

import bccn
from bccn.transport import pauses
from bccnd.dndm.asking import Kind
from bccnd.errors import RefusedError

# Changes that are sent at once, messages that are published at once, and messages that are heard in a turn.
CHANGES = 64
BATCH = 64
TURN = 32
# Bytes that wait to be published, above which peers whose messages wait are not read.
FULL_BYTES = 1 << 20
# About what a message that waits takes in addition to its payload.
COST = 256
# Seconds for an answer, or for room in the daemon's socket. A subscriber may hold publishers as long.
TIMEOUT = 5.0
# Seconds until the next try: with a daemon that went away, and with one that refused the connection.
AWAY_SECONDS = 0.1
REFUSED_SECONDS = 10.0
WHO_MAY = "[[rights]] in the daemon's settings say who may"
# What a new daemon refuses of what the last one had allowed is asked for again on the next connection.
NOT_AGAIN = "raise limits.subscriptions in the daemon's settings, reload bccnd, then restart bccnd-dndm"
HOW_MANY = "raise limits.subscriptions in the daemon's settings, then reload bccnd and bccnd-dndm"

Ask = tuple[Kind, str]

log = structlog.get_logger()


class Hearer(Protocol):
    def came(self, channel: str, payload: bytes) -> None: ...

    def listened(self, channel: str, somebody: bool) -> None: ...

    def crowded(self, kind: Kind, channel: str) -> None:
        """The daemon has no room for this subscription or watch."""

    def roomy(self) -> None:
        """The daemon is there, and may have room for what it refused before."""

    def published(self) -> None:
        """Less waits to be published."""


class Bus:
    """``reason``: why there is no daemon; empty while there is one. ``waiting``: bytes to publish."""

    def __init__(self, socket: str, hearer: Hearer) -> None:
        self.path = bccn.socket_path(socket or None)
        self.reason = "not yet connected"
        self.waiting = 0
        self.counts = Counter(
            dict.fromkeys(("heard", "published", "missed", "refused", "away", "not taken"), 0)
        )
        self._hearer = hearer
        self._client: bccn.AsyncClient | None = None
        self._wanted: set[Ask] = set()
        self._held: dict[Ask, bccn.AsyncSubscription | None] = {}
        self._refused: set[Ask] = set()
        self._known: dict[str, bool] = {}
        # Changes of what is wanted that the daemon may not know yet, in order.
        self._changes: dict[Ask, None] = {}
        self._changed, self._outgoing = asyncio.Event(), asyncio.Event()
        self._queue: deque[tuple[str, bytes]] = deque()
        self._refusals: set[str] = set()

    @property
    def name(self) -> str:
        """The name that the daemon gave the gateway; empty while the daemon is away."""
        return self._client.name if self._client else ""

    @property
    def full(self) -> bool:
        return self.waiting >= FULL_BYTES

    # -- what is wanted

    def want(self, kind: Kind, channel: str) -> None:
        ask = kind, channel
        self._wanted.add(ask)
        self._refused.discard(ask)
        if ask in self._held and channel in self._known:
            # It was wanted before, and the daemon has not been told otherwise yet.
            asyncio.get_running_loop().call_soon(self._tell, channel)
        self._note(ask)

    def leave(self, kind: Kind, channel: str) -> None:
        self._wanted.discard((kind, channel))
        self._refused.discard((kind, channel))
        self._note((kind, channel))

    def publish(self, channel: str, payload: bytes) -> None:
        if self.reason:
            self.counts["away"] += 1
            return
        self._queue.append((channel, payload))
        self.waiting += len(payload) + COST
        self._outgoing.set()

    # -- one connection after the other

    async def begin(self) -> None:
        """Make the first attempt. Raises ``RefusedError`` if this user may not connect to the daemon."""
        await self._connect()

    async def run(self) -> None:
        """Serve until cancelled."""
        for pause in pauses():
            if self._client is not None:
                break
            await asyncio.sleep(pause)
            try:
                await self._connect()
            except RefusedError as error:
                self._away(str(error))
                await asyncio.sleep(REFUSED_SECONDS)
        client = self._client
        if client is not None:
            async with asyncio.TaskGroup() as tasks:
                for work in (self._settle(client), self._send(client), self._read(client)):
                    tasks.create_task(work)

    async def close(self) -> None:
        client, self._client = self._client, None
        self.reason = "closed"
        if client is not None:
            await client.close()

    async def _connect(self) -> None:
        client = bccn.AsyncClient(
            self.path,
            pack=True,
            echo=False,
            queue={"policy": "drop-oldest"},
            timeout=TIMEOUT,
            on_notice=self._noticed,
        )
        try:
            await client.connect()
        except bccn.RefusedError as error:
            await client.close()
            raise RefusedError(f"{error.text}; the group of the socket says who may") from None
        except bccn.BccnError as error:
            await client.close()
            self._away(str(error))
            return
        self._client = client
        self._there()

    def _there(self) -> None:
        self.reason = ""
        self._refused, refused = set(), self._refused
        for ask in refused:
            self._note(ask)
        log.info("connected to the daemon", socket=self.path, name=self.name)
        self._hearer.roomy()

    def _away(self, reason: str) -> None:
        if reason != self.reason:
            log.warning("not connected to the daemon, trying again", reason=reason, socket=self.path)
        self.reason = reason

    def _noticed(self, notice: bccn.Notice) -> None:
        match notice.kind:
            case "disconnected":
                self._away(notice.text)
            case "reconnected":
                self._there()
            case "lost":
                self.counts["missed"] += notice.count
            case "rejected" | "revoked":
                limited = notice.error is not None and notice.error.code == "limit"
                self._refuse(notice.count, notice.text, NOT_AGAIN if limited else WHO_MAY)

    def _refuse(self, count: int, text: str, remedy: str = WHO_MAY) -> None:
        """Log each refusal once: there are as many texts as channels, and the log has its own limit."""
        self.counts["refused"] += count
        if text not in self._refusals and len(self._refusals) < CHANGES:
            self._refusals.add(text)
            log.warning("refused by the daemon", reason=text, remedy=remedy)

    # -- what goes on

    def _note(self, ask: Ask) -> None:
        self._changes.pop(ask, None)  # the last change counts, and may need what comes before it
        self._changes[ask] = None
        self._changed.set()

    async def _settle(self, client: bccn.AsyncClient) -> None:
        """Tell the daemon what is wanted, and what is not wanted any more."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._changes:
                some = list(self._changes)[:CHANGES]
                for ask in some:
                    del self._changes[ask]
                await asyncio.gather(*(self._say(client, ask) for ask in some))

    async def _say(self, client: bccn.AsyncClient, ask: Ask) -> None:
        kind, channel = ask
        is_wanted = ask in self._wanted
        if is_wanted == (ask in self._held) or (is_wanted and ask in self._refused):
            return
        try:
            if not is_wanted:
                await self._end(client, ask)
            elif kind == "subscribe":
                self._held[ask] = await client.subscribe(channel)
            else:
                self._held[ask] = None  # the first answer may come before the call returns
                await client.watch(channel, self._on_watched)
        except bccn.RejectedError as error:
            self._held.pop(ask, None)
            if ask in self._changes:  # it will be asked for again anyway
                return
            self._refused.add(ask)
            limited = error.code == "limit"
            self._refuse(1, f"{kind} {channel}: {error.text}", HOW_MANY if limited else WHO_MAY)
            if limited:
                self._hearer.crowded(kind, channel)
            elif kind == "watch":
                # If nobody can tell whether somebody listens, peers send; if the watch is forbidden, they do not.
                self._hearer.listened(channel, error.code != "refused")
        except bccn.BccnError:
            if kind == "watch" and is_wanted:
                self._held.pop(ask, None)
            self._note(ask)
            await asyncio.sleep(TIMEOUT if client.connected else AWAY_SECONDS)

    async def _end(self, client: bccn.AsyncClient, ask: Ask) -> None:
        kind, channel = ask
        held = self._held.pop(ask)
        if held is not None:
            await held.close()
        elif kind == "watch":
            self._known.pop(channel, None)
            await client.unwatch(channel)

    def _on_watched(self, channel: str, somebody: bool) -> None:
        self._known[channel] = somebody
        self._hearer.listened(channel, somebody)

    def _tell(self, channel: str) -> None:
        if channel in self._known:
            self._hearer.listened(channel, self._known[channel])

    async def _send(self, client: bccn.AsyncClient) -> None:
        while True:
            await self._outgoing.wait()
            self._outgoing.clear()
            while self._queue:
                some = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                try:
                    async with client.batch():
                        for channel, payload in some:
                            await client.publish(channel, payload)
                    self.counts["published"] += len(some)
                except bccn.BccnError:  # the daemon takes nothing, so the rest would fail, too
                    some += self._queue
                    self._queue.clear()
                    self.counts["not taken" if client.connected else "away"] += len(some)
                self.waiting -= sum(len(payload) + COST for _, payload in some)
                self._hearer.published()

    async def _read(self, client: bccn.AsyncClient) -> None:
        """Read messages on channels. Messages to all programs, or to this one, do not concern the gateway."""
        turn = 0
        while True:
            message = await client.receive()
            if message is None or message.channel.startswith("!"):
                continue
            self.counts["heard"] += 1
            self._hearer.came(message.channel, message.payload)
            turn = (turn + 1) % TURN
            if not turn:
                await asyncio.sleep(0)
