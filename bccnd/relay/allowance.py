"""How often somebody may have something done, so that whoever asks too much runs out, and nobody else.

Time enters as monotonic seconds.
"""


class Allowance:
    """So many a second, ``burst`` at once, for one asker."""

    __slots__ = ("_burst", "_left", "_per_second", "_since")

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._left, self._since = burst, 0.0

    def take(self, now: float) -> bool:
        """Whether there is one left."""
        self._left = min(self._burst, self._left + self._per_second * max(0.0, now - self._since))
        self._since = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class Shares:
    """At most 8 times ``eight`` in a second for all, shared by host and, within a host, by asker.

    Rules
    - A host that asks alone may have a quarter of all, each of two a sixth, each of three an eighth, and so on: so
      room is left for whoever comes next, however much the others ask. Of what its host may have, an asker that asks
      alone may have half, each of two a third, and so on. So one asker of one host has ``eight`` a second.
    - An asker that is refused leaves nothing behind: memory is bounded by what was granted within a second.
    """

    def __init__(self, eight: int) -> None:
        self._all = eight * 8
        self._forget(0.0)

    def take(self, host: bytes, asker: bytes, now: float) -> bool:
        """Whether there is one left."""
        if not 0.0 <= now - self._since < 1.0:
            self._forget(now)
        askers = self._hosts.get(host, {})
        of_host = self._all / 2 / (len(self._hosts) + (not askers) + 1)
        of_asker = of_host / (len(askers) + (asker not in askers) + 1)
        taken = askers.get(asker, 0)
        if self._taken >= self._all or self._of_hosts.get(host, 0) >= of_host or taken >= of_asker:
            return False
        self._hosts.setdefault(host, askers)[asker] = taken + 1
        self._of_hosts[host] = self._of_hosts.get(host, 0) + 1
        self._taken += 1
        return True

    def _forget(self, now: float) -> None:
        self._since, self._taken = now, 0
        self._hosts: dict[bytes, dict[bytes, int]] = {}
        self._of_hosts: dict[bytes, int] = {}
