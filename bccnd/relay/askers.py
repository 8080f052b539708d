"""Finds hosts that ask for much of what this host sends: their link or their receive buffer has a problem.

Rules
- A window begins with the first number that somebody asks for, and is over after WINDOW_SECONDS. A host that asked
  for more than LEAST numbers in it, and for more than SHARE of what was sent, asks for much.
- It is reported once in AGAIN_SECONDS. It stays in the status as long, from the window in which it asked last.
- Hosts are told apart by address; the name is the one that a host gives itself. Beyond HOSTS_LIMIT no host is
  counted until the window is over: one that asks for much soon asks again.
"""

from dataclasses import asdict, dataclass
from typing import Any

from bccnd.wire.sbus import shown

# Longer than a burst on a link, which is no trouble.
WINDOW_SECONDS = 10.0
# A few losses are none, however little was sent. A sound wired link loses a thousandth of SHARE.
LEAST = 100
SHARE = 0.01
AGAIN_SECONDS = 60.0
# More than a segment has; some 300 bytes each, for at most as many windows as fit into AGAIN_SECONDS.
HOSTS_LIMIT = 256
# Rows in the status: a link or switch that is at fault has many behind it, and the first tell which.
ROWS = 5


@dataclass(slots=True)
class Asker:
    """A host that asked for ``asked`` numbers, while so many were ``sent``. ``peer``: its address."""

    host: str
    peer: str
    asked: int = 0
    sent: int = 0
    seconds: float = 0.0


class Askers:
    def __init__(self) -> None:
        self._window: dict[bytes, Asker] = {}
        self._began = 0.0
        self._sent_before = 0
        self._much: dict[str, tuple[float, Asker]] = {}  # peer -> when it last asked for much
        self._reported: dict[str, float] = {}

    def count(self, address: bytes, host: bytes, asked: int, sent: int, now: float) -> None:
        """``sent``: how many numbers this host has sent since its start."""
        if not self._window:
            self._began, self._sent_before = now, sent
        asker = self._window.get(address)
        if asker is None:
            if len(self._window) >= HOSTS_LIMIT:
                return
            asker = self._window[address] = Asker(shown(host).decode(), shown(address).decode())
        asker.asked += asked

    def take(self, sent: int, now: float) -> list[Asker]:
        """The hosts to be reported, those that asked for most first; ``sent`` as above."""
        self._much = {peer: each for peer, each in self._much.items() if now - each[0] < AGAIN_SECONDS}
        self._reported = {peer: at for peer, at in self._reported.items() if now - at < AGAIN_SECONDS}
        seconds = now - self._began
        if not self._window or seconds < WINDOW_SECONDS:
            return []
        window, self._window = self._window, {}
        sent -= self._sent_before
        new = []
        for asker in sorted(window.values(), key=_asked, reverse=True):
            if asker.asked > max(LEAST, SHARE * sent):
                asker.sent, asker.seconds = sent, round(seconds, 3)
                self._much[asker.peer] = now, asker
                if asker.peer not in self._reported:
                    self._reported[asker.peer] = now
                    new.append(asker)
        return new

    def rows(self) -> list[dict[str, Any]]:
        """The hosts that asked for much lately, ROWS at most, those that asked for most first."""
        askers = sorted([asker for _, asker in self._much.values()], key=_asked, reverse=True)
        return [asdict(asker) for asker in askers[:ROWS]]


def _asked(asker: Asker) -> int:
    return asker.asked
