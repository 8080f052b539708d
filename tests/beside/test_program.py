"""A program from its start to its end, in the loop of the test."""

import asyncio
import os
import signal
from typing import Any

import pytest
from structlog.testing import capture_logs

from bccnd.beside.program import UNLIMITED, Start
from bccnd.errors import ConfigError, UnavailableError
from bccnd.process.log_limit import LogLimit
from tests.beside.lamp import Lamp, LampSettings
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("own_signals", "configured")


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The levels that reloads set for the log, which stays as it is."""
    levels: list[str] = []
    monkeypatch.setattr("bccnd.process.logs.configure", lambda level, *_, **__: levels.append(level))
    return levels


def lamp(*wanted: LampSettings | ConfigError, **settings: Any) -> Lamp:
    """``wanted``: what each reload reads."""
    following = iter(wanted)

    def read_again() -> LampSettings:
        settings = next(following)
        if isinstance(settings, ConfigError):
            raise settings
        return settings

    doubts = (("it may not be meant", "do that"),)
    return Lamp(Start(LampSettings(**settings), read_again, LogLimit(UNLIMITED), doubts=doubts))


async def test_signals_reload_and_end_it(configured: list[str]) -> None:
    wanted = LampSettings(watts=7, colour="red", log_level="debug")
    one = lamp(ConfigError("watts: too bright\ncolour: unknown"), wanted)
    with capture_logs() as said:
        serving = asyncio.create_task(one.serve())
        await until(lambda: "begin" in one.did)
        for lines in 2, 4:
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda wanted=lines: len(_of_reloads(said)) == wanted)  # type: ignore[misc]
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
    assert one.did == ["open", "begin", "7 watts", "hand over, stopping", "close", "report"]
    assert [line["event"] for line in said] == [
        "serving", "it may not be meant", *2 * ["not reloaded, the old settings stay"], "needs a restart", "reloaded",
        "stopped",
    ]  # fmt: skip
    assert (said[0]["watts"], said[1]["remedy"]) == (5, "do that")
    assert [line["fault"] for line in said[2:4]] == ["watts: too bright", "colour: unknown"]
    assert (said[4]["settings"], said[5]["changed"], said[5]["bulbs"]) == (
        ["colour"], ["watts", "log_level"], 1,
    )  # fmt: skip
    assert configured == ["debug"]


def _of_reloads(said: Any) -> list[Any]:
    return [line for line in said if "reload" in line["event"] or "restart" in line["event"]]


async def test_a_reload_waits_until_it_serves_and_is_done_once() -> None:
    one = lamp(LampSettings(watts=7))
    opening, opened = asyncio.Event(), asyncio.Event()

    async def open_slowly() -> None:
        opening.set()
        await opened.wait()

    heard: list[int] = []
    wanted = one._reload_wanted.set
    one._reload_wanted.set = lambda: heard.append(1) or wanted()  # type: ignore[func-returns-value, method-assign]
    one._open = open_slowly  # type: ignore[method-assign]
    with capture_logs() as said:
        serving = asyncio.create_task(one.serve())
        await opening.wait()
        for count in 1, 2:
            os.kill(os.getpid(), signal.SIGHUP)
            await until(lambda count=count: len(heard) == count)  # type: ignore[misc]
        opened.set()
        await until(lambda: _of_reloads(said))
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
    assert one.did == ["begin", "7 watts", "hand over, stopping", "close", "report"]
    assert [line["event"] for line in said] == ["serving", "it may not be meant", "reloaded", "stopped"]


async def test_a_reload_neither_begins_nor_delays_the_end_of_it() -> None:
    one = lamp(LampSettings(watts=7))
    changing, stopping = asyncio.Event(), asyncio.Event()

    async def never(_: LampSettings) -> dict[str, Any]:
        changing.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def hand_over() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await until(one._reload_wanted.is_set)
        stopping.set()

    one._change, one._hand_over = never, hand_over  # type: ignore[method-assign]
    with capture_logs() as said:
        serving = asyncio.create_task(one.serve())
        await until(lambda: "begin" in one.did)
        os.kill(os.getpid(), signal.SIGHUP)
        await changing.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
    assert stopping.is_set()
    assert [line["event"] for line in said] == ["serving", "it may not be meant", "stopped"]


async def test_nothing_is_read_again_once_it_stops() -> None:
    one = lamp()  # which has no settings for a reload

    async def hand_over() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: one._reload_wanted.is_set() or one._tasks == set())

    one._hand_over = hand_over  # type: ignore[method-assign]
    with capture_logs() as said:
        serving = asyncio.create_task(one.serve())
        await until(lambda: "begin" in one.did)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
    assert [line["event"] for line in said] == ["serving", "it may not be meant", "stopped"]


async def test_a_change_that_fails_leaves_the_settings() -> None:
    one = lamp(LampSettings(watts=100), LampSettings(watts=0))
    await one._reload()
    assert (one._settings.watts, one._unready()) == (5, "")
    await one._reload()
    assert (one._settings.watts, one._unready()) == (0, "dark")


async def test_what_a_task_raises_ends_it() -> None:
    one = lamp(colour="broken")
    with pytest.raises(LookupError, match="no filament"):
        await one.serve()
    assert one.did == ["open", "begin", "hand over, stopping", "close", "report"]


async def test_what_cannot_begin_is_closed_and_never_served() -> None:
    one = lamp(colour="taken")
    with capture_logs() as said, pytest.raises(UnavailableError, match="another lamp"):
        await one.serve()
    assert (one.did, said) == (["open", "close", "report"], [])


async def test_each_second_it_looks_after_itself() -> None:
    one = lamp()
    looked: list[str] = []
    one._look = lambda: looked.append("look")  # type: ignore[method-assign]
    one._faults.count()
    one._tick()
    assert (looked, one._faults._since_tick) == (["look"], 0)
    assert one._ticking
    one._ticking.cancel()
