"""The interface between the uplink and a carrier of its link datagrams.

    core --- publish, say, taken ---> carrier ---> the other uplinks
         <-- published, came, complete, changed ---

Rules
- A carrier puts the link datagrams of all uplinks into one order: each has a position, and positions rise. Datagrams
  may come in any order, and more than once.
- A carrier repeats a datagram until it is safe there, and only then reports it as ``published``. Receivers treat a
  datagram that is published twice under one number as one.
- A carrier that is cut off has no room. Datagrams for it wait in the journal of the uplink.
- All calls come from one thread.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a carrier. ``reason``: why it is cut off, or empty; ``round_trip``: seconds, None before it is
    known; ``behind``: positions that are known to be still to come. Since the start: ``asked``, missing positions
    that were asked for; ``repaired``, those that then came; ``lost``, those that nobody keeps any more; ``answered``,
    those that others missed and got from here; ``repeated``, datagrams that were published again; ``skipped``,
    positions passed over as probably never used; ``given_up``, datagrams that are too large for it.
    """

    reason: str
    round_trip: float | None = None
    behind: int = 0
    asked: int = 0
    repaired: int = 0
    lost: int = 0
    answered: int = 0
    repeated: int = 0
    skipped: int = 0
    given_up: int = 0


class Carrier(Protocol):
    @property
    def room(self) -> int:
        """How many more datagrams can be published now; 0 while it is cut off."""
        ...

    def publish(self, number: int, datagram: bytes, channel: bytes) -> None:
        """Carry a datagram of the link until it is ``published``. ``channel``: that of its first message."""
        ...

    def say(self, datagram: bytes) -> None:
        """Carry a datagram without a number, once. It may be lost, but it gets a position."""
        ...

    def taken(self, position: int) -> None:
        """There is room for more: everything below has reached the segment, or waits for a missing link datagram."""
        ...

    async def run(self, position: int) -> None:
        """Connect, and reconnect whenever the connection is lost, until cancelled. Deliver positions from
        ``position`` on; 0 for what comes from now on.
        """
        ...

    def facts(self) -> Facts: ...


class Hearer(Protocol):
    """The core, as a carrier sees it."""

    def came(self, position: int, datagram: bytes) -> None: ...

    def complete(self, position: int) -> None:
        """Everything below has come, or is lost for good."""
        ...

    def published(self, number: int) -> None: ...

    def changed(self) -> None:
        """There is room again, or the carrier was connected or cut off."""
        ...


class Archive(Protocol):
    """What came lately, for a carrier whose clients repair each other. It is bounded; the oldest goes first."""

    def keep(self, position: int, datagram: bytes) -> None: ...

    def kept(self, first: int, last: int) -> list[tuple[int, bytes]]:
        """The datagrams kept from ``first`` to ``last``, both included, each with its position."""
        ...
