"""The state of one connection to a peer: its stage, what the peer was told, what it costs.

What a link holds is bounded: by the limit of routes (``told``), PINGS_LIMIT, and the reader of its frames.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from functools import partial
from secrets import randbits

from bccnd.relay.allowance import Allowance
from bccnd.wire.dndm.frame import LINE_LIMIT, Frame, Reader
from bccnd.wire.dndm.peers import Peer
from bccnd.wire.dndm.routes import Route

# Adverts a second that are taken from a peer: each can make the gateway talk to all others and to the bus. At once a
# peer may send all that it may advertise.
ADVERTS_PER_SECOND, ADVERTS_BURST = 100.0, 512.0
# Pings without an answer that are remembered.
PINGS_LIMIT = 4


@dataclass(slots=True)
class Told:
    """An advert that the peer has from us. ``fresh``: until when it is certain to hold at the peer."""

    route: Route
    hops: int
    fresh: float


@dataclass(slots=True)
class Link:
    """``dialled``: the peer as we dialled it; ``peer``: as it names itself, None until the handshake is done.

    ``broadcast``: it reaches all peers that hear it; handshakes only say who speaks, and there are no answers.
    """

    number: int
    dialled: Peer | None
    scheme: str
    since: float
    noisy: bool = False
    broadcast: bool = False
    peer: Peer | None = None
    # Seconds between a PING and its PONG, the last time.
    latency: float | None = None
    # When the last sound frame came.
    heard: float = 0.0
    # When the last bytes came.
    fed: float = 0.0
    handshakes: int = 0
    # Bytes that the caller has not written yet.
    backlog: int = 0
    next_ping: float = 0.0
    next_refresh: float = 0.0
    intents: dict[str, Told] = field(default_factory=dict)
    interests: dict[str, Told] = field(default_factory=dict)
    # Routes of the peer's intents, by id, for which it was notified of an interest.
    notified: set[str] = field(default_factory=set)
    # Addresses of other peers that it was told.
    shared: dict[tuple[str, str], str] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    allowance: Allowance = field(default_factory=lambda: Allowance(ADVERTS_PER_SECOND, ADVERTS_BURST))
    reader: Reader = field(init=False)
    # Bytes that wait for their turn: at most one read.
    frames: deque[Frame] = field(default_factory=deque)
    _pings: dict[bytes, float] = field(default_factory=dict)
    # The number of the last ping; it starts at one that nobody can guess.
    _pinged: int = field(default_factory=partial(randbits, 63))

    def __post_init__(self) -> None:
        self.heard = self.since
        self.reader = Reader(LINE_LIMIT, noisy=True) if self.noisy else Reader()

    @property
    def proven(self) -> bool:
        """Whether the peer's address is its own: a datagram may have any sender, so over UDP a PONG proves it."""
        if self.scheme == "udp" and not self.dialled:
            return self.latency is not None
        return self.peer is not None

    def ping(self, now: float) -> bytes:
        """The payload of the next ping: 16 bytes, the least that public peers answer."""
        self._pinged += 1
        payload = self.number.to_bytes(8, "big") + self._pinged.to_bytes(8, "big")
        if len(self._pings) >= PINGS_LIMIT:
            del self._pings[next(iter(self._pings))]
        self._pings[payload] = now
        return payload

    def pong(self, payload: bytes, now: float) -> bool:
        """Whether this payload answers a ping of ours."""
        sent = self._pings.pop(payload, None)
        if sent is None:
            return False
        self.latency = now - sent
        return True
