"""The patterns that came and went lately: whether they concern a channel that was looked up before (``router``)."""

from bccnd.relay import pattern as patterns
from bccnd.relay.meter import Meter
from bccnd.relay.pattern import PatternIndex

# Changed patterns, and ``*`` in their middle, that are compared with a channel: fewer than one client may hold.
CHANGES_LIMIT = 256


class Changes:
    """The patterns that were added or removed lately, each with the version that this made; ``last``: the last."""

    def __init__(self, meter: Meter) -> None:
        self.last = 0
        self._indexes = {separator: PatternIndex[int](separator, meter) for separator in patterns.SEPARATORS}
        self._versions: dict[tuple[bytes, bytes], int] = {}
        self._weight = 0

    def full(self) -> bool:
        return self._weight >= CHANGES_LIMIT

    def add(self, separator: bytes, pattern: bytes, version: int) -> None:
        before = self._versions.get((separator, pattern))
        if before is None:
            self._weight += 1 + patterns.inner_stars(pattern)
        else:
            self._indexes[separator].remove(pattern, before)
        self._versions[separator, pattern] = self.last = version
        self._indexes[separator].add(pattern, version)

    def concern(self, channel: bytes, version: int) -> bool:
        """Whether one that matches the channel was added or removed after this version."""
        return self.last > version and any(
            changed > version
            for index in self._indexes.values()
            if not index.empty()
            for changed in index.match(channel)
        )
