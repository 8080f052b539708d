"""Answers on the bus what a program is asked about itself, by a connection of its own.

That one has the format ``full``, which says who asks, and shares no queue and no limit with what the program does
otherwise: it answers, too, while the daemon takes no more subscriptions of the program, or while its messages wait.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import bccn
from bccn.transport import pauses
from bccnd.beside.answers import CHANNEL, Answering

# Seconds until a daemon is asked again that did not allow it.
REFUSED_SECONDS = 10.0
# Seconds between two looks whether the program has its connection.
LOOK_SECONDS = 0.1


class Asked:
    """``answer``: makes the messages of an answer; it is called with the name under which they are sent. ``named``:
    whether the program's own connection is there, which so gets the program's plain name.
    """

    def __init__(
        self, path: str, named: Callable[[], bool], answer: Callable[[str], Sequence[bytes]]
    ) -> None:
        self._path = path
        self._named = named
        self._answer = answer
        self._answering = Answering()

    async def run(self) -> None:
        """Answer until cancelled, whether or not there is a daemon. One that does not allow it is asked again."""
        wait = pauses()
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
                wait = pauses()
                while True:
                    await client.receive()
            except bccn.RejectedError:
                pause = REFUSED_SECONDS
            except bccn.BccnError:
                pass  # who has the other connection says why
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
