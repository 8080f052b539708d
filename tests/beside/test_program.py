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
