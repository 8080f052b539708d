"""Notes which sessions listen to more than before, so that ``lookout`` looks at these again, not at all sessions.

Rules
- Noting a change costs the same, whatever is watched.
- Only a session that gains a pattern can become the first listener of a channel. A loss matters only to watches whose
  witness it was.
"""

from collections.abc import Callable

from bccnd.relay.session import Session


def _nobody_asks() -> None:
    pass


class Listeners:
    """``version``: rises with each change of what sessions listen to; ``on_change``: called at each change."""

    def __init__(self) -> None:
        self.version = 0
        self.on_change: Callable[[], None] = _nobody_asks
        self._gained: dict[Session, int] = {}  # the version at its last gain; the latest last

    def gain(self, session: Session) -> None:
        """The session holds one more pattern, or its patterns count from now on."""
        self._gained.pop(session, None)
        self.version += 1
        self._gained[session] = self.version
        self.on_change()

    def lose(self) -> None:
        """A session holds one pattern less, or its patterns do not count any more."""
        self.version += 1
        self.on_change()

    def again(self) -> None:
        """Patterns may count that did not before, and others may not count any more."""
        self.version += 1
        self._gained = dict.fromkeys(self._gained, self.version)
        self.on_change()

    def leave(self, session: Session) -> None:
        if self._gained.pop(session, None) is not None:
            self.lose()

    def since(self, version: int) -> list[Session]:
        """The sessions that gained a pattern after this version, the first of them last."""
        found = []
        for session, gained in reversed(self._gained.items()):
            if gained <= version:
                break
            found.append(session)
        return found
