"""The two sides of a handshake, and the rules by which a peer is refused.

dialler                        acceptor
   | INITIAL me you  ------------> |
   | <----- FINAL me you adverts - |     and PEERS
   | FINAL me you adverts -------> |     and PEERS
"""

from collections.abc import Iterable

from bccnd.dndm.link import Link
from bccnd.errors import DndmError
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm import peers
from bccnd.wire.dndm.peers import Peer

# The parameter of an address that names the bus of a gateway.
BUS_PARAM = "bccn"


def own_address(me: Peer, link: Link) -> str:
    """Our address for a peer: public peers refuse an address with another scheme than the link's."""
    if link.scheme == me.scheme:
        return str(me)
    place = link.dialled.address if link.dialled else "gateway"
    bus = me.param(BUS_PARAM)
    return f"{link.scheme}://{place}/{me.path}{f'?{BUS_PARAM}={bus}' if bus else ''}"


def message(me: Peer, link: Link, peer: Peer, stage: pb.Stage) -> pb.Handshake:
    """A handshake of ours, without adverts."""
    return pb.Handshake(me=own_address(me, link), you=str(peer), stage=stage)


def refusal(me: Peer, link: Link, said: pb.Handshake, others: Iterable[Link], *, strict: bool) -> str:
    """Why the handshake is refused: me, you, stage, self, bus, or nothing."""
    try:
        peer = peers.parse(said.me)
    except DndmError:
        return "me"
    if link.peer is not None:
        return "" if link.peer.place == peer.place else "me"
    if peer.scheme != link.scheme:
        return "me"
    if has_identity(peer) and peer.place == me.place:
        return "self"
    bus = peer.param(BUS_PARAM)
    buses = {other.peer.param(BUS_PARAM) for other in others if other.peer and other.peer.place != peer.place}
    if bus and (bus == me.param(BUS_PARAM) or bus in buses):
        return "bus"
    return _strictly(me, link, peer, said) if strict else ""


def _strictly(me: Peer, link: Link, peer: Peer, said: pb.Handshake) -> str:
    """The checks for peers that are not trusted: through a router, an address may look different."""
    if link.dialled and has_identity(link.dialled) and peer.place != link.dialled.place:
        return "me"
    if said.stage != (pb.FINAL if link.dialled else pb.INITIAL):
        return "stage"
    try:
        you = peers.parse(said.you)
    except DndmError:
        return "you"
    return "" if not has_identity(me) or link.scheme != me.scheme or you.place == me.place else "you"


def has_identity(peer: Peer) -> bool:
    """Whether the address identifies the peer: hosts share names of devices, and some peers have no address."""
    host, _, port = peer.address.rpartition(":")
    return peer.scheme != "serial" and bool(host) and port.isdecimal()


def rival_loses(me: Peer, link: Link, rival: Link, peer: Peer, *, strict: bool) -> bool:
    """Whether ``rival`` is closed, of two links to ``peer``; both ends decide the same.

    The link that the lower address dialled stays. If one end dialled both, the newer one stays: the older is dead,
    and nobody has noticed. A peer that is not trusted cannot push out another in this way.
    """
    mine = me.place if link.dialled else peer.place
    other = me.place if rival.dialled else peer.place
    return not strict if mine == other else mine < other
