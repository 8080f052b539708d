"""What a gateway says that it has lost, ended and refused."""

from collections import Counter

from bccnd.dndm.account import closed, counted, faults, latencies, lost
from bccnd.dndm.link import Link
from bccnd.wire.dndm.peers import parse


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


def test_strangers_have_one_latency_together() -> None:
    """Whoever connects under one new name after the other makes no more of them."""
    dial, device = parse("tcp://robot:9000/arm"), parse("serial:///dev/ttyS0")
    strangers = [parse(f"tcp://10.1.0.{n}:1") for n in range(4, 8)]
    whence = dict(enumerate([dial, device, *strangers]))
    links = [Link(number, None, "tcp", 0.0, peer=dial) for number in whence]
    for link, latency in zip(links, (0.1, 0.2, 0.3, 0.6, 0.5, None), strict=True):
        link.latency = latency
    links[4].peer = None  # its handshake is not done
    found = latencies(links, whence, [dial, device])
    assert found == {str(dial): 0.1, str(device): 0.2, "others": 0.6}
