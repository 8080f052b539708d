"""How many connections each user has, and how many bytes wait in them.

A place is taken when a connection is accepted and given back when it is gone; the bytes are reported after each turn
of a connection. When a user exceeds its bound, its heaviest connection is named, to be dropped.
"""

from collections import Counter
from collections.abc import Hashable

from bccnd.mux import limits

TOO_MANY = b"limit: the door has too many connections"
TOO_MANY_OF_USER = b"limit: this user has too many connections"


class Accounts:
    """``total`` and ``each``: connections at a time, of all users and of one; ``bytes_each``: bytes of one user."""

    def __init__(self, total: int, each: int, bytes_each: int = limits.USER_BYTES) -> None:
        self.total = total
        self.each = each
        self.bytes_each = bytes_each
        self._places: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()
        self._weights: dict[Hashable, tuple[int, int]] = {}  # connection: its user, its bytes

    def __len__(self) -> int:
        return self._places.total()

    @property
    def held(self) -> int:
        return self._bytes.total()

    def admit(self, uid: int) -> bytes:
        """Why this user gets no place; empty if it has taken one."""
        if len(self) >= self.total:
            return TOO_MANY
        if self._places[uid] >= self.each:
            return TOO_MANY_OF_USER
        self._places[uid] += 1
        return b""

    def give_back(self, uid: int) -> None:
        self._places[uid] -= 1
        if not self._places[uid]:
            del self._places[uid]

    def weigh(self, connection: Hashable, uid: int, weight: int) -> Hashable | None:
        """Note how many bytes a connection holds now. Returns the connection to drop for it, or None."""
        before = self._weights.get(connection, (uid, 0))[1]
        if weight:
            self._weights[connection] = uid, weight
        else:
            self._weights.pop(connection, None)
        if weight == before:
            return None
        self._bytes[uid] += weight - before
        if not self._bytes[uid]:
            del self._bytes[uid]
        if weight < before or self._bytes[uid] <= self.bytes_each:
            return None
        mine = {each: bytes_ for each, (user, bytes_) in self._weights.items() if user == uid}
        return max(mine, key=mine.__getitem__)
