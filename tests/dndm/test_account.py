"""What a gateway says that it has lost, ended and refused."""

from collections import Counter

from bccnd.dndm.account import closed, counted, faults, lost
from bccnd.dndm.link import Link


def test_links_that_are_there_count_as_those_that_went() -> None:
    link = Link(1, None, "tcp", 0.0)
    link.counts["slow"] = 2
    assert counted(Counter(slow=1), [link])["slow"] == 3


def test_what_is_counted_is_told_apart() -> None:
    counts = Counter(
        {"slow": 1, "too large": 2, "closed: frame": 3, "route": 4, "again": 5, "PONG": 0, "faults": 6}
    )
    bus = Counter(missed=7, refused=8, away=9)
    found = lost(counts, bus)
    assert (found["slow"], found["too large"], found["missed"], found["refused by the daemon"]) == (
        1,
        2,
        7,
        8,
    )
    assert (found["no daemon"], found["daemon too slow"]) == (9, 0)
    assert closed(counts) == {"frame": 3}
    assert +Counter(faults(counts)) == {"route": 4}
