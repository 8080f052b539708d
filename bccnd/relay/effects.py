"""What the relay wants done after a call: the only way out, except for packets to clients (``Transport``).

Rules
- The caller takes the effects after each call and carries them out in the order of the fields.
- Datagrams lie in a region of the arena that the next call writes into: the caller sends or copies them first.
- ``asked`` is a request that the caller completes: it applies ``taps`` before it answers ``CMSG tap``, so that a
  client sees everything from the answer on, finds a place for who has ``moved`` before it answers ``CMSG peer``, and
  puts ``CMSG status`` together. The relay reads no further packet of that client until then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from bccnd.relay.identity import Peer
from bccnd.relay.meter import Meter
from bccnd.relay.session import Session
from bccnd.wire.batch import Codec
from bccnd.wire.bccn1 import SEND_LIMIT
from bccnd.wire.sbus import Cmsg, Memory

# Datagrams sealed in one go: what one system call sends, and small enough to stay in the processor's cache.
SEALED_LIMIT = 1024
SEALED_BYTES = SEALED_LIMIT * SEND_LIMIT

Spans = tuple[list[int], list[int]]  # where packets or datagrams begin and end in the memory
Sealed = Spans | list[bytes]  # where they lie, or the datagrams themselves


@dataclass(slots=True)
class OfClients:
    """``watch``, ``unwatch``: call ``writable`` when the client has room, or no more; ``resume``: read it again;
    ``close``: disconnect it (``Session.closing`` says why); ``taps``: whether anybody taps now, None for no change;
    ``moved``: a client that is somebody else now, and who it was.
    """

    watch: list[Session] = field(default_factory=list)
    unwatch: list[Session] = field(default_factory=list)
    resume: list[Session] = field(default_factory=list)
    close: list[Session] = field(default_factory=list)
    taps: bool | None = None
    moved: tuple[Session, Peer] | None = None
    asked: tuple[Session, Cmsg] | None = None


@dataclass(slots=True)
class Effects:
    """Datagrams to the segment: those at the spans ``starts``, ``ends`` of the arena, then those ``beyond`` it.
    ``clients``: what is to be done with clients, which can have further effects.
    """

    starts: list[int]
    ends: list[int]
    beyond: list[bytes]
    clients: OfClients | None


class Outgoing(Meter):
    """Gathers the effects of a call. Datagrams are sealed side by side in ``region``, SEALED_BYTES of the memory."""

    def __init__(self, memory: Memory, region: int) -> None:
        super().__init__()
        self._memory = memory
        self._region, self._end = region, region + SEALED_BYTES
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._beyond: list[bytes] = []
        # Most calls want nothing done with clients.
        self._clients: OfClients | None = None

    @property
    def clients(self) -> OfClients:
        """What is to be done with clients, to be added to."""
        if self._clients is None:
            self._clients = OfClients()
        return self._clients

    @property
    def is_asked(self) -> bool:
        """Whether a request waits for the caller."""
        return self._clients is not None and self._clients.asked is not None

    @property
    def taps_change(self) -> bool:
        return self._clients is not None and self._clients.taps is not None

    @property
    def somebody_moved(self) -> bool:
        return self._clients is not None and self._clients.moved is not None

    def take(self) -> Effects | None:
        """What has come together, None for nothing; from here on it comes together anew."""
        if not self._starts and self._clients is None and not self._beyond:
            return None
        effects = Effects(self._starts, self._ends, self._beyond, self._clients)
        if self._starts or self._beyond:
            self._starts, self._ends, self._beyond = [], [], []
        self._clients = None
        return effects

    @property
    def room(self) -> int:
        """How many more datagrams find room in the region, whatever their length."""
        return 0 if self._beyond else SEALED_LIMIT - len(self._starts)

    def seal(self, codec: Codec, src: bytes, seq: int, packets: Spans) -> Sealed:
        """Send the MSG packets at these spans as datagrams of ``src``, numbered from ``seq``."""
        if self._beyond or len(self._starts) + len(packets[0]) > SEALED_LIMIT:
            datagrams = codec.datagrams(src, seq, self._memory, *packets)
            self._beyond += datagrams
            return datagrams
        free = self._ends[-1] if self._ends else self._region
        spans = codec.seal(src, seq, self._memory, packets[0], packets[1], (free, self._end))
        self._starts += spans[0]
        self._ends += spans[1]
        return spans

    def add(self, datagram: bytes) -> None:
        """Send a datagram of somebody else, as it is."""
        if self.room:
            free = self._ends[-1] if self._ends else self._region
            self._memory[free : free + len(datagram)] = datagram
            self._starts.append(free)
            self._ends.append(free + len(datagram))
        else:
            self._beyond.append(datagram)


def as_bytes(memory: Memory, starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
    """Copies of what lies at these spans."""
    return [memory[start:end] for start, end in zip(starts, ends, strict=True)]
