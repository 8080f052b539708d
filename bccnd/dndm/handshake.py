"""Who may be a peer: the two sides of a handshake, and when one is refused.

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
    """As the peer is given it: public peers refuse an address of another scheme than the link's."""
    if link.scheme == me.scheme:
        return str(me)
    place = link.dialled.address if link.dialled else "gateway"
    bus = me.param(BUS_PARAM)
    return f"{link.scheme}://{place}/{me.path}{f'?{BUS_PARAM}={bus}' if bus else ''}"


def message(me: Peer, link: Link, peer: Peer, stage: pb.Stage) -> pb.Handshake:
    """One of ours, without adverts."""
    return pb.Handshake(me=own_address(me, link), you=str(peer), stage=stage)


def refusal(me: Peer, link: Link, said: pb.Handshake, others: Iterable[Link], *, strict: bool) -> str:
    """Why the link must not go on, or nothing: me, you, stage, self, or bus."""
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
    """What is not asked of trusted peers: an address may look otherwise from beyond a router."""
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
    """Whether nobody else has its address: two hosts have a device of the same name, or none."""
    host, _, port = peer.address.rpartition(":")
    return peer.scheme != "serial" and bool(host) and port.isdecimal()


def rival_loses(me: Peer, link: Link, rival: Link, peer: Peer, *, strict: bool) -> bool:
    """Which of two links to ``peer`` goes; both ends decide the same.

    The one stays that the lower address dialled. Of two that the same end dialled the newer one: the other is dead,
    and nobody has noticed. A peer that is not trusted cannot send another away like that.
    """
    mine = me.place if link.dialled else peer.place
    other = me.place if rival.dialled else peer.place
    return not strict if mine == other else mine < other
