"""Two endpoints with nothing between them."""

from typing import Any

from bpmux.endpoint import Endpoint
from bpmux.events import Event
from bpmux.limits import Limits


class Joined:
    """``here`` and ``there``; ``settle`` lets them talk until both are silent."""

    def __init__(self, here: Limits | None = None, there: Limits | None = None) -> None:
        self.here, self.there = Endpoint(0.0, here), Endpoint(0.0, there)
        self.settle()

    def settle(self) -> tuple[list[Event], list[Event]]:
        """What each has seen."""
        seen: tuple[list[Event], list[Event]] = (self.here.events(), self.there.events())
        while self.here.has_data_to_send or self.there.has_data_to_send:
            seen[1].extend(self.there.receive(self.here.data_to_send(), 0.0))
            seen[0].extend(self.here.receive(self.there.data_to_send(), 0.0))
        seen[0].extend(self.here.events())
        seen[1].extend(self.there.events())
        return seen

    def opened(self, kind: str, **options: Any) -> tuple[Any, Any]:
        """The handles of both sides of a new channel."""
        mine = getattr(self.here, f"open_{kind}")(b"", **options)
        return mine, self.settle()[1][-1].channel  # type: ignore[union-attr]

    def asked(self) -> tuple[Any, Any]:
        mine = self.here.request(b"")
        return mine, self.settle()[1][-1].request  # type: ignore[union-attr]
