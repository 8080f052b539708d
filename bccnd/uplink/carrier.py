"""What the uplink needs of whatever carries its link datagrams, and what that tells it.

    core --- publish, say, taken ---> carrier ---> the other uplinks
         <-- published, came, complete, changed ---

Rules
- A carrier puts the link datagrams of all uplinks into one order: each has a position, and positions rise. They come
  in any order, and more than once.
- What is published is repeated by the carrier until it is safe there, and only then ``published``. A datagram that is
  published twice under one number is one datagram to those that get it: its number says so.
- A carrier that is cut off has no room. What waits for it waits in the journal of the uplink.
- Nothing is called from another thread.
"""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Facts:
    """How a carrier is. ``reason``: why it is cut off, empty while it is not; ``round_trip``: seconds, None before it
    is known; ``behind``: positions that are known to be still to come. Since the start: ``asked``, positions that
    were missing and asked for; ``repaired``, those of them that came; ``lost``, those that nobody keeps any more;
    ``answered``, those that others missed and got from here; ``repeated``, datagrams that were published again;
    ``skipped``, positions passed over as probably never used; ``given_up``, datagrams that are too large for it.
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
        """Carry a datagram of the link, until ``published``. ``channel``: that of the first message in it."""
        ...

    def say(self, datagram: bytes) -> None:
        """Carry a datagram without a number, once. It may be lost, and gets a position all the same."""
        ...

    def taken(self, position: int) -> None:
        """Everything below has reached the segment, or waits for what a link still owes: there is room for more."""
        ...

    async def run(self, position: int) -> None:
        """Connect, and again whenever the connection is lost, until cancelled. Wanted is what is at or above
        ``position``; 0 for what comes from now on.
        """
        ...

    def facts(self) -> Facts: ...


class Hearer(Protocol):
    """The core, as a carrier sees it."""

    def came(self, position: int, datagram: bytes) -> None: ...

    def complete(self, position: int) -> None:
        """Nothing below is still to come: it came, or is lost for good."""
        ...

    def published(self, number: int) -> None: ...

    def changed(self) -> None:
        """There is room again, or the carrier was connected or cut off."""
        ...


class Archive(Protocol):
    """What came lately, for a carrier whose clients repair each other. Bounded; the oldest goes first."""

    def keep(self, position: int, datagram: bytes) -> None: ...

    def kept(self, first: int, last: int) -> list[tuple[int, bytes]]:
        """Those from ``first`` to ``last``, both included, that are kept, each with its position."""
        ...
