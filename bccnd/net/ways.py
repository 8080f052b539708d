"""Which ways to the segment there are to be: a decision of the links that are there, and the settings.

Rules
- A way is one socket: an interface, and the address that datagrams go to by it. On a host that does not tell of its
  links (no netlink) there is one way, by the routing table.
- A link that serves is up, and has an address of the family. By default so do all that can do what the address asks
  for: broadcast or multicast; the loopback only if it is what the address means.
- Left out by default are ports of a bridge or bond, whose master is what counts, and names that ``excluded`` matches:
  those that containers and virtual machines come and go with. Nobody hears the segment there twice, and nothing
  of theirs reaches it. A name that is written out in ``interfaces`` is taken whatever it is.
- A directed broadcast goes where its subnet is; ``subnet`` means that of every link, the first where it has several:
  two sockets on a link would hear everything twice. Several subnets on one wire are for the limited broadcast.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv6Address, ip_address

from bccnd.net.netlink import IFF_BROADCAST, IFF_LOOPBACK, IFF_MULTICAST, IFF_UP, Address, Link

SUBNET = "subnet"  # in place of an address: each link's own broadcast address
LIMITED = IPv4Address("255.255.255.255")
_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Way:
    """``address`` is where datagrams go, by ``interface`` (of number ``index``) or, with None, as routes tell."""

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
        """What has to be joined to hear the segment."""
        return self.address if ip_address(self.address).is_multicast else None

    @property
    def hears(self) -> tuple[object, ...]:
        """Ways in which this is the same can have one socket after the other."""
        return self.family, self.port, self.interface, self.index, self.group


@dataclass(frozen=True, slots=True)
class Choice:
    """What the settings say: where datagrams go, and names or patterns of interfaces (none: all that are fit)."""

    address: str
    port: int
    interfaces: Sequence[str] = ()
    excluded: Sequence[str] = ()


def wanted(choice: Choice, links: Iterable[Link], addresses: Iterable[Address]) -> list[Way]:
    """The ways there are to be now, in the order of the links."""
    of_links: dict[int, list[Address]] = {}
    for address in sorted(addresses, key=lambda each: (each.address.version, int(each.address))):
        of_links.setdefault(address.index, []).append(address)
    return [
        Way(destination, choice.port, link.name, link.index)
        for link in sorted(links, key=lambda link: link.index)
        if link.flags & IFF_UP and _chosen(choice, link)
        if (destination := _destination(choice, link, of_links.get(link.index, [])))
    ]


def without_links(choice: Choice) -> list[Way]:
    """The ways on a host that does not tell of its links."""
    named = [name for name in choice.interfaces if not _is_pattern(name)]
    address = str(LIMITED) if choice.address == SUBNET else choice.address
    return [Way(address, choice.port, name) for name in named] or [Way(address, choice.port)]


def missing(choice: Choice, links: Iterable[Link]) -> list[str]:
    """What is asked for and not there (yet)."""
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
    """Where datagrams go by this link; nowhere if it is not fit for that."""
    own = [each for each in addresses if isinstance(each.address, IPv4Address)]
    if choice.address == SUBNET:
        return next((str(each.broadcast) for each in own if each.broadcast is not None), None)
    address = ip_address(choice.address)
    named = link.name in choice.interfaces
    if isinstance(address, IPv6Address):
        fit = any(
            each.address.is_link_local and each.usable for each in addresses if each.address.version == 6
        )
    elif address == LIMITED:
        fit = bool(own) and (named or bool(link.flags & IFF_BROADCAST))
    elif address.is_multicast:
        fit = bool(own) and (named or bool(link.flags & IFF_MULTICAST))
    elif address.is_loopback:
        fit = bool(own)
    else:
        fit = named or any(each.broadcast == address for each in own)
    return choice.address if fit else None
