"""The sequence numbers of a backbone, which never gives one twice.

Rules
- Numbers begin at 1 and have 48 bits. They follow each other without a gap while the backbone runs.
- A number is given only below a bound that is stored (``bccnd/backbone/state_file.py``). The bound is raised ahead of
  use, so a crash leaves a gap of RESERVE numbers at most and never repeats one.
- At the bound no number is given any more: either the disk takes no higher bound, or the numbers are used up.
"""

from bccnd.wire.fyrehose import SEQ_LIMIT

# Numbers between one bound and the next: with 100,000 messages a second the file is written each two seconds.
RESERVE = 1 << 20

# When so few numbers are left, the bound is raised: more than a backbone gives between two ticks of a second.
MARGIN = RESERVE // 8 * 7


class Numbers:
    """``next``: the number that comes next; ``bound``: no number from it on may be given."""

    def __init__(self, first: int = 1) -> None:
        self.next = self.bound = first

    @property
    def left(self) -> int:
        """How many numbers are left below the bound."""
        return self.bound - self.next

    def take(self, count: int = 1) -> int:
        """The first of the next ``count`` numbers, or 0 if there are not that many."""
        if count > self.left:
            return 0
        self.next += count
        return self.next - count

    @property
    def wanted(self) -> int:
        """The bound that is to be stored now, or 0."""
        if self.left >= MARGIN or self.bound >= SEQ_LIMIT:
            return 0
        return min(self.next + RESERVE, SEQ_LIMIT)

    @property
    def used_up(self) -> bool:
        """Whether all numbers of 48 bits have been given."""
        return self.next >= SEQ_LIMIT
