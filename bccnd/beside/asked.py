"""Answers questions about a program on the bus, over a connection of its own.

That connection has the format ``full``, which shows who asks. It shares no queue and no limit with the program's
other connection. So it answers even while the daemon takes no more subscriptions of the program, or while messages
wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from math import inf

import structlog

import bccn
from bccn.transport import pauses
from bccnd.beside.answers import CHANNEL
from bccnd.beside.owed import Owed

# Seconds until the next try with a daemon that did not allow it.
REFUSED_SECONDS = 60.0
WHO_MAY = "[[rights]] in the daemon's settings say who may"
HOW_MANY = "raise limits in the daemon's settings, then reload bccnd"
# Seconds between two checks whether the program has its connection.
LOOK_SECONDS = 0.1
# Messages that are taken before others have their turn in the loop.
TURN = 32

log = structlog.get_logger()


class Replies:
    """Replies to requests, each in its turn. ``answer``: as in ``Asked``."""

    def __init__(self, answer: Callable[[str], Sequence[bytes]]) -> None:
        self._answer = answer
        self._owed: Owed[tuple[bccn.AsyncClient, bccn.Message]] = Owed()
        self._asked = asyncio.Event()

    def asked(self, client: bccn.AsyncClient, message: bccn.Message) -> None:
        """Take a message that may be a request; ``client``: which got it, and replies."""
        if not message.retained:  # a last value was replied to when it was new
            self._owed.ask(str(message.src), (client, message), asyncio.get_running_loop().time())
            self._asked.set()

    async def run(self) -> None:
        """Reply until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._asked.wait()
            self._asked.clear()
            while (due := self._owed.due) < inf:
                await asyncio.sleep(max(0.0, due - loop.time()))
                if owed := self._owed.take(loop.time()):
                    self._owed.took(await self._reply(*owed), loop.time())

    async def _reply(self, client: bccn.AsyncClient, message: bccn.Message) -> int:
        """How many messages the answer has."""
        try:
            request = bccn.Request(message)
        except bccn.InvalidError:
            return 0
        parts = self._answer(client.name)
        with suppress(bccn.BccnError):  # of a connection that ends
            for part in parts:
                await client.reply(request, part)
        return len(parts)


class Asked:
    """``answer``: makes the messages of an answer; it gets the name of the sender. ``named``: whether the program's
    own connection is there: that comes first, so that it gets the plain name.
    """

    def __init__(
        self, path: str, named: Callable[[], bool], answer: Callable[[str], Sequence[bytes]]
    ) -> None:
        self._path = path
        self._named = named
        self._replies = Replies(answer)

    async def run(self) -> None:
        """Answer until cancelled, whether or not there is a daemon. If the daemon does not allow it, say so once, and
        try again.
        """
        async with asyncio.TaskGroup() as tasks:
            for work in (self._replies.run(), self._hear()):
                tasks.create_task(work)

    async def _hear(self) -> None:
        wait, refusal = pauses(), ""
        while True:
            while not self._named():
                await asyncio.sleep(LOOK_SECONDS)
            client = bccn.AsyncClient(
                self._path, format="full", pack=True, reconnect=False, on_notice=lambda _: None
            )
            pause = 0.0
            try:
                await client.connect()
                await client.subscribe(CHANNEL)
                wait, refusal = pauses(), ""
                for turn in count(1):
                    if message := await client.receive():
                        self._replies.asked(client, message)
                    if not turn % TURN:
                        await asyncio.sleep(0)
            except bccn.RejectedError as error:
                pause = REFUSED_SECONDS
                if error.text != refusal:
                    refusal = error.text
                    remedy = HOW_MANY if error.code == "limit" else WHO_MAY
                    log.warning("bccn doctor gets no answer", reason=refusal, remedy=remedy)
            except bccn.BccnError:
                pass  # the other connection reports why
            finally:
                await client.close()
            await asyncio.sleep(pause or next(wait))
