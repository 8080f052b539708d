"""Puts what a peer is told into short messages: public peers read each frame with one read."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from bccnd.dndm.handshake import has_identity
from bccnd.dndm.link import Link, Told
from bccnd.wire.dndm import messages_pb2 as pb
from bccnd.wire.dndm.peers import Peer
from bccnd.wire.dndm.routes import Hashed, Route

# Seconds that our adverts live: the usual time of public peers.
TTL_SECONDS = 60.0
TTL_NS = int(TTL_SECONDS * 1e9)
# Bytes of a message with several entries: with its header it fits one packet on Ethernet.
BATCH_BYTES = 1200

Kind = type[pb.Intent] | type[pb.Interest]
Adverts = list[pb.Intent | pb.Interest]


def as_told(route: Route) -> str:
    """The text of a route. A hash alone gets an empty prefix: public peers refuse the form that they send."""
    if isinstance(route, Hashed) and route.prefix is None:
        return str(Hashed("", route.digest))
    return str(route)


def change(
    kind: Kind, told: dict[str, Told], route_id: str, route: Route | None, hops: int | None, fresh: float
) -> pb.Intent | pb.Interest | None:
    """The message for a peer that was ``told`` something else, or nothing. ``hops``: None to take the advert back."""
    before = told.get(route_id)
    if hops is None:
        if before is None:
            return None
        del told[route_id]
        return taken_back(kind, before)
    if before is not None and before.hops == hops:
        return None
    named = before.route if before else route
    if named is None:
        return None
    told[route_id] = Told(named, hops, fresh)
    return advert(kind, told[route_id])


def advert(kind: Kind, told: Told) -> pb.Intent | pb.Interest:
    return kind(route=as_told(told.route), hops=told.hops, ttl=TTL_NS, register=True)


def taken_back(kind: Kind, told: Told) -> pb.Intent | pb.Interest:
    return kind(route=as_told(told.route), register=False)


def farewell(
    intents: Mapping[str, Told], interests: Mapping[str, Told]
) -> Iterator[pb.Intents | pb.Interests]:
    """Messages that take back everything a peer was told."""
    yield from map(_intents, _batches(pb.Intent, intents, taken_back))
    yield from map(_interests, _batches(pb.Interest, interests, taken_back))


def intents_again(told: Mapping[str, Told]) -> Iterator[pb.Intents]:
    """Messages that tell intents again, each as things are when it is taken: others may follow later."""
    yield from map(_intents, _batches(pb.Intent, told, advert))


def interests_again(told: Mapping[str, Told]) -> Iterator[pb.Interests]:
    yield from map(_interests, _batches(pb.Interest, told, advert))


def _intents(batch: Adverts) -> pb.Intents:
    return pb.Intents(intents=[each for each in batch if isinstance(each, pb.Intent)])


def _interests(batch: Adverts) -> pb.Interests:
    return pb.Interests(interests=[each for each in batch if isinstance(each, pb.Interest)])


def _batches(
    kind: Kind, told: Mapping[str, Told], said: Callable[[Kind, Told], pb.Intent | pb.Interest]
) -> Iterator[Adverts]:
    """``said``: of each advert that was told."""
    batch: Adverts = []
    size = 0
    for route_id in list(told):
        if route_id not in told:
            continue
        one = said(kind, told[route_id])
        more = one.ByteSize() + 4
        if batch and size + more > BATCH_BYTES:
            yield batch
            batch, size = [], 0
            if route_id not in told:
                continue
            one = said(kind, told[route_id])
        batch.append(one)
        size += more
    if batch:
        yield batch


def peers_messages(link: Link, about: Iterable[Peer], *, remove: bool) -> Iterator[pb.Peers]:
    """News about other peers that can be dialled, as far as the link does not know it."""
    message = pb.Peers(remove=remove)
    for peer in about:
        if not has_identity(peer) or (link.peer and link.peer.place == peer.place):
            continue
        if remove:
            text = link.shared.pop(peer.place, None)
        else:
            text = None if peer.place in link.shared else str(peer)
            link.shared.setdefault(peer.place, str(peer))
        if text is None:
            continue
        if message.ids and message.ByteSize() + len(text.encode()) + 4 > BATCH_BYTES:
            yield message
            message = pb.Peers(remove=remove)
        message.ids.append(text)
    if message.ids:
        yield message
