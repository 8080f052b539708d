"""Remembers which messages a daemon has given, so that none is carried again when the next daemon gives it.

A restarted daemon does not know what its predecessor had. A message that another uplink of the segment brings late,
or another host sends again, is new to it; here it was already carried, or is kept back.

Messages are remembered for each connection: within one, the daemon itself drops what comes twice. A source that
starts again within SANITY of its last number loses the messages with old numbers, as it would have at the old daemon.
"""

# Messages of one generation, some 200 bytes each; two are kept. What comes twice comes within seconds, as in
# ``heard.py``.
GENERATION = 1 << 16
# A number without a clock that is this far behind the last means that the source started again
# (``bccnd/wire/BCCN1.md``, "Duplicates and restarts").
SANITY = 1000
# Clocks of microseconds are above this number, and counters below (``bccnd/relay/dedup.py``).
CLOCKED = 10**15


class Given:
    """``add`` and ``before`` take ``<src>:<seq>``. The last GENERATION are remembered, and twice as many at most."""

    def __init__(self) -> None:
        self._connection = 0
        self._new: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}

    def joined(self) -> None:
        """What is added from now on may come from another daemon."""
        self._connection += 1

    def add(self, message: bytes) -> None:
        self._new[message] = self._connection
        if len(self._new) >= GENERATION:
            self._old, self._new = self._new, {}

    def before(self, message: bytes) -> bool:
        """Whether a message was given on an earlier connection, and not yet on this one."""
        found = self._new.get(message)
        return (self._old.get(message, self._connection) if found is None else found) != self._connection


def is_late(seq: int, last: int) -> bool:
    """Whether a number is not above the ``last`` of its source (-1 if unknown), without a restart of the source."""
    return seq <= last and (seq >= CLOCKED or last - seq < SANITY)
