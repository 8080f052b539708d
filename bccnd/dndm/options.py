"""The options of the gateway's core."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

Network = IPv4Network | IPv6Network

# Intents, and as many interests, of one peer. With LINKS_LIMIT of them the bus has some 16,000 patterns.
ROUTES_LIMIT = 256
LINKS_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Options:
    """``me``: our address for peers; its parameter ``bccn`` names the bus, the same for all gateways of the bus.

    ``strict``: peers are not trusted (``bccnd/dndm/README.md``, "Strictness"). ``discover``: networks in which peers
    that others name are dialled. ``room``: bytes of channel and payload together that fit a datagram, whatever the
    gateway's name. ``local``: most bytes of payload on a channel of this host. Longer messages go to peers only.
    ``backlog``: bytes that may wait for a peer before messages for it are dropped.
    """

    me: str
    peers: tuple[str, ...] = ()
    strict: bool = False
    discover: tuple[Network, ...] = ()
    room: int = 1200
    local: int = 65_536
    backlog: int = 1 << 20
    routes: int = ROUTES_LIMIT
    links: int = LINKS_LIMIT
