"""A timer for what is due, with the loop of the test."""

import asyncio
import time
from math import inf

from bccnd.beside.waking import Waking
from tests.waiting import until


class Work:
    """What is due at ``due``; then nothing is, until somebody says so."""

    def __init__(self) -> None:
        self.due = inf
        self.done = 0
        self.waking = Waking(asyncio.get_running_loop(), lambda: self.due, self._do)

    def wants(self, seconds: float) -> None:
        self.due = time.monotonic() + seconds
        self.waking.schedule()

    def _do(self) -> None:
        assert time.monotonic() >= self.due
        self.done += 1
        self.due = inf


async def test_what_is_due_is_done_once() -> None:
    work = Work()
    work.waking.schedule()
    for count, seconds in enumerate((0.0, 0.01, -inf), 1):
        work.wants(seconds)
        await until(lambda wanted=count: work.done == wanted)  # type: ignore[misc]
    assert work.waking._timer is None


async def test_what_is_due_sooner_is_done_sooner() -> None:
    work = Work()
    work.wants(3600.0)
    work.wants(0.001)
    await until(lambda: work.done)


async def test_what_moved_away_is_looked_at_in_vain() -> None:
    work = Work()
    work.wants(0.001)
    work.due = time.monotonic() + 3600.0
    timer = work.waking._timer
    await until(lambda: work.waking._timer is not timer)
    assert not work.done
    work.wants(0.001)
    await until(lambda: work.done)


async def test_what_is_cancelled_is_not_done() -> None:
    work = Work()
    work.wants(0.0)
    work.waking.cancel()
    work.waking.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not work.done
