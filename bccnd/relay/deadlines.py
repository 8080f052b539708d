"""Timers as data: what is due, and when. The caller, who has a clock, reads ``Alarm.due`` and comes back then.

A key has one deadline. To set another, or to remove it, leaves an entry in the heap that is overtaken; it is dropped
when it comes to the head, or when such entries are more than half of the heap.
"""

import heapq
from collections.abc import Hashable
from itertools import count
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Alarm:
    """The time at which the first of several ``Deadlines`` is due. It may be too early, never too late."""

    __slots__ = ("due",)

    def __init__(self) -> None:
        self.due = 0.0


class Deadlines(Generic[K]):
    """key -> when it is due, in the caller's monotonic seconds. A nearer deadline sets the ``alarm`` back."""

    def __init__(self, alarm: Alarm) -> None:
        self._alarm = alarm
        self._due: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[tuple[float, int], K]] = []
        # Keys that are due together are not compared: they need no order.
        self._order = count()
        # When to call ``pop``. It may be too early, as a deadline can be put off or removed, but is never too late.
        self.next = inf

    def __len__(self) -> int:
        return len(self._due)

    def get(self, key: K) -> float | None:
        entry = self._due.get(key)
        return entry[0] if entry else None

    def set(self, key: K, due: float) -> None:
        self._due[key] = entry = due, next(self._order)
        heapq.heappush(self._heap, (entry, key))
        self.next = min(self.next, due)
        self._alarm.due = min(self._alarm.due, due)
        if len(self._heap) > 64 + 2 * len(self._due):
            self._heap = [(entry, key) for key, entry in self._due.items()]
            heapq.heapify(self._heap)

    def remove(self, key: K) -> None:
        self._due.pop(key, None)

    def pop(self, now: float) -> tuple[K, float] | None:
        """The first key that is due, and since when, which then has no deadline; None when nothing is due."""
        heap = self._heap
        while heap and self._due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        self.next = heap[0][0][0] if heap else inf
        if not heap or self.next > now:
            return None
        (due, _), key = heapq.heappop(heap)
        del self._due[key]
        return key, due
