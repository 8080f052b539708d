"""The owner of carriers, in the test's own loop: what they said to it."""

from typing import Any

from bccnd.dndm.carriers import Carriers
from bccnd.dndm.settings import EVERYWHERE
from bccnd.wire.dndm.peers import Peer


class Owner:
    """``said``: what happened, each as a tuple that begins with its name."""

    def __init__(self, loop: Any, accept: Any = EVERYWHERE, bus: str = "") -> None:
        self.said: list[tuple[Any, ...]] = []
        self.whence: dict[int, str] = {}
        self.carriers = Carriers(loop, self, accept, bus)

        # Routes that somebody is interested in.
        self.interests: set[str] = set()

    def opened(
        self, number: int, scheme: str, dialled: Peer | None, whence: Peer, *, broadcast: bool = False
    ) -> None:
        self.whence[number] = str(whence)
        self.said.append(("opened", number, scheme, dialled, *["broadcast"] * broadcast))

    def wants(self, number: int, route: str) -> bool:
        return bool(number) and route in self.interests

    def not_reached(self, peer: Peer, reason: str, *, dialled: bool = True) -> None:
        self.said.append(("not reached", str(peer), reason, dialled))

    def heard(self, number: int, data: bytes) -> None:
        self.said.append(("heard", number, data))

    def wrote(self, number: int) -> None:
        self.said.append(("wrote", number))

    def ended(self, number: int, reason: str) -> None:
        self.said.append(("ended", number, reason))

    def of(self, what: str) -> list[tuple[Any, ...]]:
        return [rest for name, *rest in self.said if name == what]

    def data(self, number: int) -> bytes:
        return b"".join(data for which, data in self.of("heard") if which == number)
