"""Decides which sockets to the segment a host has, from its links and the settings.

    settings (Choice) --.
                        +-- wanted() --> a Binding for each link that serves
    links, addresses  --'

Rules
- A binding is one socket: an interface, and the address that datagrams go to by it. A host whose kernel does not
  report its links (no netlink) has one binding, and its routing table chooses the interface.
- A link serves when it is up and has an address of the right family. By default every link serves that can do what
  the address asks for, broadcast or multicast; the loopback serves only when the address is a loopback address.
- By default two kinds of links are left out: ports of a bridge or bond, because their master serves, and names that
  ``excluded`` matches, the links of containers and virtual machines. Otherwise the daemon would hear the segment
  twice, and containers would reach it. A link that ``interfaces`` names in full serves whatever it is.
- A directed broadcast goes out where its subnet is. ``subnet`` stands for the subnet of every link, and for the first
  one of a link that has several: two sockets on one link would hear everything twice. Several subnets on one wire
  need the limited broadcast.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address

from bccnd.net.netlink import IFF_BROADCAST, IFF_LOOPBACK, IFF_MULTICAST, IFF_UP, Address, Link

# In place of an address: the broadcast address of each link.
SUBNET = "subnet"
LIMITED = IPv4Address("255.255.255.255")
LOOPBACK = IPv4Address("127.255.255.255")
_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Binding:
    """Datagrams go to ``address`` by ``interface``, which has the number ``index``; None leaves it to the routes."""

    address: str
    port: int
    interface: str | None = None
    index: int = 0

    @property
    def family(self) -> int:
        """4 or 6."""
        return 6 if ":" in self.address else 4

    @property
    def group(self) -> str | None:
        """The group that the socket joins to hear the segment; None for a broadcast address."""
        return self.address if ip_address(self.address).is_multicast else None

    @property
    def hears(self) -> tuple[object, ...]:
        """What the socket hears. Bindings that hear the same can use the same socket, one after the other."""
        return self.family, self.port, self.interface, self.index, self.group


@dataclass(frozen=True, slots=True)
class Choice:
    """What the settings ask for: where datagrams go, and by which interfaces, as names or patterns; () for all."""

    address: str
    port: int
    interfaces: Sequence[str] = ()
    excluded: Sequence[str] = ()


def wanted(choice: Choice, links: Iterable[Link], addresses: Iterable[Address]) -> list[Binding]:
    """The bindings for these links and addresses, in the order of the links' numbers."""
    of_links: dict[int, list[Address]] = {}
    for address in sorted(addresses, key=lambda each: (each.address.version, int(each.address))):
        of_links.setdefault(address.index, []).append(address)
    return [
        Binding(destination, choice.port, link.name, link.index)
        for link in sorted(links, key=lambda link: link.index)
        if link.flags & IFF_UP and _chosen(choice, link)
        if (destination := _destination(choice, link, of_links.get(link.index, [])))
    ]


def without_links(choice: Choice) -> list[Binding]:
    """The bindings of a host whose kernel does not report its links."""
    named = [name for name in choice.interfaces if not _is_pattern(name)]
    address = str(LIMITED) if choice.address == SUBNET else choice.address
    return [Binding(address, choice.port, name) for name in named] or [Binding(address, choice.port)]


def missing(choice: Choice, links: Iterable[Link]) -> list[str]:
    """The interfaces, as names or patterns, that the settings ask for and the host does not have."""
    names = [link.name for link in links]
    return [pattern for pattern in choice.interfaces if not any(fnmatchcase(name, pattern) for name in names)]


def _is_pattern(name: str) -> bool:
    return not _WILD.isdisjoint(name)


def _chosen(choice: Choice, link: Link) -> bool:
    if link.name in choice.interfaces:
        return True
    if choice.interfaces and not any(fnmatchcase(link.name, pattern) for pattern in choice.interfaces):
        return False
    return (
        not link.master
        and bool(link.flags & IFF_LOOPBACK) == _is_loopback(choice)
        and not any(fnmatchcase(link.name, pattern) for pattern in choice.excluded)
    )


def _is_loopback(choice: Choice) -> bool:
    return choice.address != SUBNET and ip_address(choice.address).is_loopback


def _destination(choice: Choice, link: Link, addresses: Sequence[Address]) -> str | None:
    """Where datagrams go by this link; None when the link cannot carry them."""
    own = [each for each in addresses if isinstance(each.address, IPv4Address)]
    if choice.address == SUBNET:
        return next((str(each.broadcast) for each in own if each.broadcast is not None), None)
    address = ip_address(choice.address)
    named = link.name in choice.interfaces
    if isinstance(address, IPv6Address):
        fit = any(
            each.address.is_link_local and each.usable for each in addresses if each.address.version == 6
        )
    elif address == LIMITED and own and link.flags & IFF_LOOPBACK:
        # What goes to the limited broadcast there comes back from 0.0.0.0, which is nobody's address.
        return str(LOOPBACK)
    elif address == LIMITED:
        fit = bool(own) and (named or bool(link.flags & IFF_BROADCAST))
    elif address.is_multicast:
        fit = bool(own) and (named or bool(link.flags & IFF_MULTICAST))
    elif address.is_loopback:
        fit = bool(own)
    else:
        fit = named or any(each.broadcast == address for each in own)
    return choice.address if fit else None
