"""Decides which adverts of peers get room: the daemon bounds the subscriptions and watches of each client.

Rules
- If there is no room for a route, the link with most gives up its newest route for it, as long as it keeps as many as
  the other then has. So a peer may take everything that is free, but no more than its share from others.
- A route counts for one link: of those that advertise it, the one with least.
- Routes without room wait. When there is room, the link with least is next.
"""

from collections.abc import Collection


class Shares:
    """Routes by id, and links by number."""

    def __init__(self) -> None:
        # Route -> the link that it counts for; link -> its routes in order: those with room, and those that wait.
        self._owners: dict[str, int] = {}
        self._heard: dict[int, dict[str, None]] = {}
        self._waiting: dict[int, dict[str, None]] = {}

    def account(self, route_id: str, links: Collection[int]) -> None:
        """These links advertise a route. If it waits, it is tried again for a link that it did not count for."""
        before = self._owners.get(route_id)
        counted = route_id in self._heard.get(-1 if before is None else before, ())
        others = {link: self._has(link) - (counted and link == before) for link in links}
        now = min(others, key=lambda link: (others[link], link != before), default=None)
        if before == now:
            return
        if before is not None:
            self._leave(route_id)
        if now is not None:
            self._join(self._heard, now, route_id)

    def waits(self, route_id: str) -> bool:
        return route_id in self._waiting.get(self._owners.get(route_id, -1), ())

    def refuse(self, route_id: str) -> str | None:
        """There is no room for a route. It waits, or another one waits in its place, which is returned."""
        owner = self._owners[route_id]
        self._leave(route_id)
        most = max(self._heard, key=self._has, default=owner)
        if self._has(most) <= self._has(owner) + 1:
            self._join(self._waiting, owner, route_id)
            return None
        giver = next(reversed(self._heard[most]))
        self._leave(giver)
        self._join(self._waiting, most, giver)
        self._join(self._heard, owner, route_id)
        return giver

    def resume(self) -> str | None:
        """The next waiting route, which gets room now; None if none waits."""
        if not self._waiting:
            return None
        link = min(self._waiting, key=self._has)
        route_id = next(iter(self._waiting[link]))
        self._leave(route_id)
        self._join(self._heard, link, route_id)
        return route_id

    @property
    def waiting(self) -> int:
        """How many routes wait."""
        return sum(map(len, self._waiting.values()))

    def _has(self, link: int) -> int:
        return len(self._heard.get(link, ()))

    def _join(self, table: dict[int, dict[str, None]], link: int, route_id: str) -> None:
        self._owners[route_id] = link
        table.setdefault(link, {})[route_id] = None

    def _leave(self, route_id: str) -> None:
        link = self._owners.pop(route_id)
        for table in (self._heard, self._waiting):
            routes = table.get(link, {})
            routes.pop(route_id, None)
            if not routes:
                table.pop(link, None)
