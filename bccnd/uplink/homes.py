"""Knows in which segment a host is, as far as the links say.

Rules
- A host of this segment is in this segment, whatever a link says.
- A link names its hosts in its status, and by the sources of what it carries. The last link to name a host counts.
- A host that no link has named for HOME_SECONDS is nowhere.
- A link has a bounded number of hosts, and so have all together. Beyond that, the link with most hosts loses the one
  that was named longest ago.
"""

from collections import OrderedDict
from collections.abc import Iterable

# A status names as many hosts as it has room for; with HOSTS_LIMIT hosts of 30 bytes it takes a minute to name all.
HOME_SECONDS = 180.0
# Hosts of one link, some 300 bytes each.
HOSTS_LIMIT = 2048
ALL_HOSTS_LIMIT = 1 << 15


class Homes:
    def __init__(self) -> None:
        self._here: frozenset[bytes] = frozenset()
        self._links: dict[bytes, OrderedDict[bytes, float]] = {}
        self._count = 0  # of all links
        self._where: dict[bytes, bytes] = {}  # host -> link

    def set_here(self, hosts: Iterable[bytes]) -> None:
        self._here = frozenset(hosts)

    def is_here(self, host: bytes) -> bool:
        """Whether the host is in this segment."""
        return host in self._here

    @property
    def any(self) -> bool:
        return bool(self._where)

    def heard(self, link: bytes, host: bytes, now: float) -> None:
        """A message of the host came by ``link``: the same as ``name``, but fast for a known host."""
        if self._where.get(host) != link or now - self._links[link][host] > 1.0:
            self.name(link, host, now)

    def name(self, link: bytes, host: bytes, now: float) -> None:
        """``link`` says that the host is in its segment."""
        hosts: OrderedDict[bytes, float] = self._links.setdefault(link, OrderedDict())
        self._count += host not in hosts
        hosts[host] = now
        hosts.move_to_end(host)
        self._where[host] = link
        oldest, since = next(iter(hosts.items()))
        if len(hosts) > HOSTS_LIMIT or now - since > HOME_SECONDS:
            self._drop(link, oldest)
        elif self._count > ALL_HOSTS_LIMIT:
            fullest = max(self._links, key=lambda each: len(self._links[each]))
            self._drop(fullest, next(iter(self._links[fullest])))

    def forget(self, link: bytes) -> None:
        for host in list(self._links.get(link, ())):
            self._drop(link, host)
        self._links.pop(link, None)

    def away(self, host: bytes, now: float) -> bool:
        """Whether the host is known to be in another segment."""
        link = self._where.get(host)
        if link is None or host in self._here:
            return False
        return now - self._links[link][host] <= HOME_SECONDS

    def of(self, link: bytes, now: float) -> list[bytes]:
        """The hosts that a link has named."""
        hosts = self._links.get(link) or OrderedDict()
        return [host for host, since in hosts.items() if now - since <= HOME_SECONDS]

    def _drop(self, link: bytes, host: bytes) -> None:
        del self._links[link][host]
        self._count -= 1
        if self._where.get(host) == link:
            del self._where[host]
