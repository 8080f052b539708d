"""A small program beside the daemon, for the tests of what all of them have in common."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bccnd.beside.program import Program, Start
from bccnd.errors import UnavailableError
from bccnd.process.one_table import OneTable
from bccnd.process.settings import LogFormat, LogLevel, MetricsAddress, ProgramSettings, whole


class LampSettings(ProgramSettings):
    watts: int = whole(5, 0, 100, "power")
    colour: str = "white"
    metrics: MetricsAddress = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"


TABLE = OneTable("lamp", LampSettings, "lamp", "LAMP_", Path("/no/such/lamp.toml"), "Give light.", "", {})


def doubts(settings: LampSettings) -> Iterator[tuple[str, str]]:
    if not settings.watts:
        yield "it gives no light", "more watts"


class Lamp(Program[LampSettings]):
    """``did``: what was asked of it, in order."""

    def __init__(self, start: Start[LampSettings]) -> None:
        super().__init__(start)
        self.did: list[str] = []

    async def _open(self) -> None:
        self.did.append("open")
        if self._settings.colour == "taken":
            raise UnavailableError("another lamp has the socket")

    def _begin(self) -> None:
        self.did.append("begin")
        if self._settings.colour == "broken":
            self._start(self._burn_out())

    async def _burn_out(self) -> None:
        raise LookupError("no filament")

    def _report(self, *, ending: bool = False) -> None:
        if ending:
            self.did.append("report")

    def _applicable(self, wanted: LampSettings) -> tuple[LampSettings, list[str], list[str]]:
        return TABLE.applicable(self._settings, wanted, ["colour"])

    async def _change(self, settings: LampSettings) -> dict[str, Any]:
        if settings.watts == 100:
            raise UnavailableError("no such bulb is left")
        self.did.append(f"{settings.watts} watts")
        return {"bulbs": 1}

    async def _hand_over(self) -> None:
        self.did.append(f"hand over, {self._unready()}")

    async def _close(self) -> None:
        self.did.append("close")

    def _about(self) -> dict[str, Any]:
        return {"watts": self._settings.watts}

    def _summary(self) -> str:
        return "bright"

    def _reason(self) -> str:
        return "dark" if not self._settings.watts else ""

    def _metrics(self, accept: str) -> tuple[bytes, str]:
        return accept.encode(), "text/plain"
