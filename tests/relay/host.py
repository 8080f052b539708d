"""A router and its sessions, as the tests of ``router`` need them."""

from bccnd.relay.identity import Names, Peer
from bccnd.relay.rights import Rights
from bccnd.relay.router import Router
from bccnd.relay.session import Session


class Host:
    """A router and the names of its sessions."""

    def __init__(self, cache_limit: int = 1000) -> None:
        self.names = Names(b"here")
        self.router = Router(self.names, ["local/>", "private"], cache_limit=cache_limit)
        self.connected = 0

    def session(self, *subscriptions: bytes) -> Session:
        self.connected += 1
        peer = Peer(self.connected, 0, 0, b"prog")
        session = Session(self.connected, self.connected + 100, peer, rights=Rights(), now=0.0)
        session.name = self.names.assign(peer, session)
        for pattern in subscriptions:
            self.router.subscribe(session, pattern)
        return session

    def members(self, channel: bytes) -> list[Session]:
        route = self.router.route(channel)
        members = route.full + route.lines + route.single
        assert len(members) == route.size
        assert sorted(route.plain + route.packed, key=id) == sorted(route.single, key=id)
        assert route.single_ports == [session.port for session in route.single]
        assert route.plain_ports == [session.port for session in route.plain]
        return sorted(members, key=lambda session: session.number)
