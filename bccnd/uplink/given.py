"""Which messages a daemon has given, so that the next one has none of them carried a second time.

A daemon that was restarted knows nothing of what the one before it had. What another uplink of the segment brings
late, or another host sends again, is new to it; here it was carried, or is kept back.

By message and connection: within one connection the daemon itself drops what comes twice. A source that begins anew
within SANITY of its last number loses what it numbers as before: so it would have at the daemon before.
"""

# Messages of one generation, some 200 bytes each; two are kept. What comes twice comes within seconds, as what was
# heard (``heard.py``).
GENERATION = 1 << 16
# So far behind the last a number that no clock has made is a source that began anew
# (``bccnd/wire/BCCN1.md``, "Duplicates and restarts").
SANITY = 1000
# A clock of microseconds has passed it, and no counter has come so far (``bccnd/relay/dedup.py``).
CLOCKED = 10**15


class Given:
    """``add`` and ``before`` take ``<src>:<seq>``. The last GENERATION are remembered, and twice as many at most."""

    def __init__(self) -> None:
        self._connection = 0
        self._new: dict[bytes, int] = {}
        self._old: dict[bytes, int] = {}

    def joined(self) -> None:
        """What is added from now on another daemon may have given."""
        self._connection += 1

    def add(self, message: bytes) -> None:
        self._new[message] = self._connection
        if len(self._new) >= GENERATION:
            self._old, self._new = self._new, {}

    def before(self, message: bytes) -> bool:
        """Whether it was given on an earlier connection, and on this one not yet."""
        found = self._new.get(message)
        return (self._old.get(message, self._connection) if found is None else found) != self._connection


def is_late(seq: int, last: int) -> bool:
    """Whether a number is not above the ``last`` of its source, -1 when that is not known, and the source did not
    begin anew.
    """
    return seq <= last and (seq >= CLOCKED or last - seq < SANITY)
