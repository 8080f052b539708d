"""What becomes of an exception in a callback of the loop that nobody expected.

Rules
- Memory that is used up ends the process (``process.fatal``), and so does a callback that fails for ever.
- Any other fault is logged, by what failed, and the rest goes on.
- A fault while a client or a batch of datagrams is served ends there (``bus``, ``segments``), and does not come here.
"""

from asyncio import AbstractEventLoop
from collections.abc import Awaitable, Callable
from typing import Any

from bccnd import report
from bccnd.process.fatal import Faults, unless_out_of_memory


class Watch:
    """Handles the exceptions of ``loop``. Call ``tick`` about once a second."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._faults = Faults()
        self.tick = self._faults.tick
        loop.set_exception_handler(self._on_exception)

    def _on_exception(self, _loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        unless_out_of_memory(error)
        report.fault(error, context["message"])
        self._faults.count()

    async def keep(self, step: Callable[[], Awaitable[None]], where: str) -> None:
        """Do ``step`` for ever: a fault in it costs that one step."""
        while True:
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - logged; what else ticks must go on
                unless_out_of_memory(error)
                report.fault(error, where)
                self._faults.count()
