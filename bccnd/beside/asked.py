"""Answers questions about a program on the bus, over a connection of its own.

That connection has the format ``full``, which shows who asks. It shares no queue and no limit with the program's
other connection. So it answers even while the daemon takes no more subscriptions of the program, or while messages
wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog

import bccn
from bccn.transport import pauses
from bccnd.beside.answers import CHANNEL, Answering

# Seconds until the next try with a daemon that did not allow it.
REFUSED_SECONDS = 60.0
WHO_MAY = "[[rights]] in the daemon's settings say who may"
# Seconds between two checks whether the program has its connection.
LOOK_SECONDS = 0.1

log = structlog.get_logger()


class Asked:
    """``answer``: makes the messages of an answer; it gets the name of the sender. ``named``: whether the program's
    own connection is there: that comes first, so that it gets the plain name.
    """

    def __init__(
        self, path: str, named: Callable[[], bool], answer: Callable[[str], Sequence[bytes]]
    ) -> None:
        self._path = path
        self._named = named
        self._answer = answer
        self._answering = Answering()

    async def run(self) -> None:
        """Answer until cancelled, whether or not there is a daemon. If the daemon does not allow it, say so once, and
        try again.
        """
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
                await client.serve(CHANNEL, partial(self._reply, client))
                wait, refusal = pauses(), ""
                while True:
                    await client.receive()
            except bccn.RejectedError as error:
                pause = REFUSED_SECONDS
                if error.text != refusal:
                    refusal = error.text
                    log.warning("bccn doctor gets no answer", reason=refusal, remedy=WHO_MAY)
            except bccn.BccnError:
                pass  # the other connection reports why
            finally:
                await client.close()
            await asyncio.sleep(pause or next(wait))

    async def _reply(self, client: bccn.AsyncClient, request: bccn.Request) -> None:
        now = asyncio.get_running_loop().time()
        if not self._answering.may(now):
            return
        parts = self._answer(client.name)
        self._answering.took(len(parts))
        with suppress(bccn.BccnError):
            for part in parts:
                await client.reply(request, part)
