"""Who has come to listen to more, and when: what ``lookout`` looks at again, instead of at everybody.

Rules
- To note a change costs the same whoever watches what.
- Only who gains can become the first listener of a channel. Who loses is missed by those that counted on it.
"""

from collections.abc import Callable

from bccnd.relay.session import Session


def _nobody_asks() -> None:
    pass


class Listeners:
    """``version``: of who listens to what; ``on_change``: called at each change."""

    def __init__(self) -> None:
        self.version = 0
        self.on_change: Callable[[], None] = _nobody_asks
        self._gained: dict[Session, int] = {}  # the version at its last gain; the latest last

    def gain(self, session: Session) -> None:
        """It holds one more pattern, or its patterns count from now on."""
        self._gained.pop(session, None)
        self.version += 1
        self._gained[session] = self.version
        self.on_change()

    def lose(self) -> None:
        """Somebody holds a pattern less, or its patterns count no more."""
        self.version += 1
        self.on_change()

    def again(self) -> None:
        """Patterns may count that did not, and the other way round."""
        self.version += 1
        self._gained = dict.fromkeys(self._gained, self.version)
        self.on_change()

    def leave(self, session: Session) -> None:
        if self._gained.pop(session, None) is not None:
            self.lose()

    def since(self, version: int) -> list[Session]:
        """Who has gained after this version, the first of them last."""
        found = []
        for session, gained in reversed(self._gained.items()):
            if gained <= version:
                break
            found.append(session)
        return found
