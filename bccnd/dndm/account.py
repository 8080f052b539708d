"""The counters of a gateway, for metrics, and the losses among them."""

from collections import Counter
from collections.abc import Iterable, Mapping

from bccnd.dndm.link import Link
from bccnd.wire.dndm.peers import Peer

# Counters of a link: messages that did not go where somebody wanted them.
LOST = ("slow", "too large", "too large for the host", "too large for the segment")
# Counters of the bus.
LOST_THERE = {
    "missed": "missed",
    "refused": "refused by the daemon",
    "away": "no daemon",
    "not taken": "daemon too slow",
}
# Counters of a link that are no fault of the peer.
QUIET = ("faults", "again", "hops", "pong", "RESULT", "NOTIFY_INTENT")


# The label of peers that the settings do not name: each could bring a new name with every connection.
OTHERS = "others"


def counted(ended: Counter[str], links: Iterable[Link]) -> Counter[str]:
    """The counts of all links, ended ones included."""
    counts = ended.copy()
    for link in links:
        counts.update(link.counts)
    return counts


def lost(counts: Counter[str], bus: Counter[str]) -> dict[str, int]:
    """How many messages were lost, by reason."""
    there = {reason: bus[name] for name, reason in LOST_THERE.items()}
    return {name: counts[name] for name in LOST} | there


def closed(counts: Counter[str]) -> dict[str, int]:
    """Connections that the gateway has ended, by reason."""
    prefix = "closed: "
    return {name.removeprefix(prefix): count for name, count in counts.items() if name.startswith(prefix)}


def faults(counts: Counter[str]) -> dict[str, int]:
    """Frames, adverts and messages of peers that were refused, by reason."""
    others = {*LOST, *QUIET}
    return {
        name: count
        for name, count in counts.items()
        if name not in others and not name.startswith("closed: ")
    }


def latencies(links: Iterable[Link], whence: Mapping[int, Peer], named: Iterable[Peer]) -> dict[str, float]:
    """Seconds from a PING to its PONG, the last time: of each ``named`` peer, and the longest of ``OTHERS``.

    ``whence``: where links lead, by number, which no peer can choose.
    """
    names = {peer.place: str(peer) for peer in named}
    found: dict[str, float] = {}
    for link in links:
        if link.peer is not None and link.latency is not None:
            name = names.get(whence[link.number].place, OTHERS)
            found[name] = max(link.latency, found.get(name, 0.0))
    return found
