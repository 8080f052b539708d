"""How often an asker may have something done: one that asks too much runs out, and nobody else does.

Time enters as monotonic seconds.
"""

from dataclasses import dataclass, field

# What a float loses of one, at most: so that one is left at the very time that ``Allowance.when`` says.
ROUNDING = 1e-6
# Of an asker's share, the part that each host gets of what is kept for those who ask seldom: 2 of 20 pings a second.
# So 40 hosts can use it in the same second, more than ask one daemon by chance.
FIRST_PART = 10
# A host that asks in bursts, as at a start, asks seldom again soon.
CALM_SECONDS = 10.0
# Hosts known to ask much, 100 bytes each: ten times those of a large segment.
FREQUENT_LIMIT = 4096


class Allowance:
    """So many a second, ``burst`` at once, for one asker."""

    __slots__ = ("_burst", "_left", "_per_second", "_since")

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._left, self._since = burst, 0.0

    def has(self, now: float) -> bool:
        """Whether there is one left."""
        self._left = min(self._burst, self._left + self._per_second * max(0.0, now - self._since))
        self._since = now
        return self._left > 1.0 - ROUNDING

    def when(self, now: float, count: int) -> float:
        """When so many are left, if none is taken before. Later than ``now`` unless ``has``."""
        missing = count - self._left - self._per_second * max(0.0, now - self._since)
        return now + max(0.0, missing) / self._per_second

    def take(self, now: float) -> bool:
        """Take one, if there is one left."""
        if not self.has(now):
            return False
        self._left -= 1.0
        return True


@dataclass(slots=True)
class _Host:
    """What a host asked for and got in this second, and each of its askers got."""

    asked: int = 0
    taken: int = 0
    askers: dict[bytes, int] = field(default_factory=dict)


class Shares:
    """At most 8 times ``eight`` in a second for all, shared by host and, within a host, by asker.

    Rules
    - One half is for everybody, in equal parts: a host that asks alone may have half of it, each of two a third, and
      so on; those that asked much lately count as if they asked. Of what its host may have, an asker that asks alone
      may have half, each of two a third. So one asker of one host has ``eight`` a second.
    - The other half is kept for hosts that ask seldom, for the first few that each asks in a second (``FIRST_PART``).
      So a newcomer is answered however many others ask all the time. A host that asks for more in a second asks
      much, until it has not for CALM_SECONDS, and gets nothing of this half. Only as many hosts as share this half,
      all of which ask seldom, can use it up.
    - An asker that is refused leaves nothing behind: memory is bounded by what was granted within a second, and by
      FREQUENT_LIMIT hosts.
    """

    def __init__(self, eight: int) -> None:
        self._half = eight * 4
        self._first = max(1, eight // FIRST_PART)
        self._frequent: dict[bytes, float] = {}  # host -> when it last asked much, the longest ago first
        self._forget(0.0)

    def take(self, host: bytes, asker: bytes, now: float, count: int = 1) -> bool:
        """Whether there are so many left."""
        if not 0.0 <= now - self._since < 1.0:
            self._forget(now)
        here = self._hosts.get(host) or _Host()
        here.asked += count
        if here.asked > self._first:
            self._note_frequent(host, now)
        known = host in self._frequent
        granted = self._take_of_all(host, here, asker, count)
        if not granted and not known and here.taken + count <= self._first and self._kept >= count:
            self._kept -= count
            granted = True
        if granted:
            here.taken += count
            here.askers[asker] = here.askers.get(asker, 0) + count
        if granted or known:
            self._hosts[host] = here
        return granted

    def take_some(self, host: bytes, asker: bytes, now: float, count: int) -> int:
        """Take so many or, if fewer are left, those; how many."""
        taken, step = 0, count
        while step:
            if self.take(host, asker, now, step):
                taken += step
                step = min(step, count - taken)
            else:
                step //= 2
        return taken

    def _take_of_all(self, host: bytes, here: _Host, asker: bytes, count: int) -> bool:
        if count > self._left:
            return False  # in a flood, of most
        hosts = max(len(self._hosts) + (host not in self._hosts), len(self._frequent))
        of_host = max(1, self._half // (hosts + 1))
        if count > of_host - here.taken:
            return False
        of_asker = max(1, of_host // (len(here.askers) + (asker not in here.askers) + 1))
        if count > of_asker - here.askers.get(asker, 0):
            return False
        self._left -= count
        return True

    def _note_frequent(self, host: bytes, now: float) -> None:
        self._frequent.pop(host, None)
        self._frequent[host] = now
        if len(self._frequent) > FREQUENT_LIMIT:
            del self._frequent[next(iter(self._frequent))]

    def _forget(self, now: float) -> None:
        self._since, self._left, self._kept = now, self._half, self._half
        self._hosts: dict[bytes, _Host] = {}
        while self._frequent:
            host, at = next(iter(self._frequent.items()))
            if 0.0 <= now - at < CALM_SECONDS:
                break
            del self._frequent[host]
