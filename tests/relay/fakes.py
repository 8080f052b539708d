"""A relay among fakes: clients that take as many packets as the test lets them, a segment that is two lists.

``Bus`` does what the daemon does around the relay (read in batches, stop reading from a client that is held, watch
the backlogged ones for room, disconnect who is to be closed), in memory and one step at a time.
"""

import mmap
from collections import defaultdict
from collections.abc import Sequence

from bccnd.relay.core import Relay
from bccnd.relay.delivery import GONE
from bccnd.relay.heartbeat import Rhythm
from bccnd.relay.identity import Peer
from bccnd.relay.limits import Limits
from bccnd.relay.session import Session
from bccnd.wire import sbus
from bccnd.wire.bccn1 import RECEIVE_LIMIT, Integrity, Message

BATCH = 64  # packets a read
UNLIMITED = 1 << 60
CLOCK = 1_800_000_000_000_000  # microseconds since the epoch
HOST = b"here"
ELSEWHERE = b"10.0.0.2:5400"
INTERFACE = b"eth0"


def datagram(
    src: bytes, seq: int, chan: bytes, payload: bytes = b"", integrity: Integrity | None = None
) -> bytes:
    return (integrity or Integrity()).seal(Message(src, seq, chan, payload).serialize())


class FakeTransport:
    """Keeps what each port takes: ``room[port]`` packets more, any number unless the test says otherwise."""

    def __init__(self, memory: sbus.Memory) -> None:
        self._memory = memory
        self.room: defaultdict[int, int] = defaultdict(lambda: UNLIMITED)
        self.gone: set[int] = set()
        self.taken: defaultdict[int, list[bytes]] = defaultdict(list)

    def send(self, port: int, packet: bytes) -> int:
        return self.send_each(port, [packet])

    def send_each(self, port: int, packets: Sequence[bytes]) -> int:
        if port in self.gone:
            return GONE
        went = min(self.room[port], len(packets))
        self.room[port] -= went
        self.taken[port] += map(bytes, packets[:went])
        return went

    def send_run(self, ports: Sequence[int], starts: list[int], ends: list[int]) -> dict[int, int]:
        packets = [self._memory[start:end] for start, end in zip(starts, ends, strict=True)]
        went = {port: self.send_each(port, packets) for port in ports}
        return {port: count for port, count in went.items() if count != len(packets)}


class FakeClient:
    """One client of a ``Bus``. What it sends while it is held waits in ``unread``, as in its socket."""

    def __init__(self, bus: "Bus", session: Session) -> None:
        self.bus = bus
        self.session = session
        self.port = session.port
        self.unread: list[bytes] = []

    @property
    def name(self) -> bytes:
        return self.session.name

    @property
    def connected(self) -> bool:
        return self.session.number in self.bus.relay.sessions

    @property
    def held(self) -> bool:
        return bool(self.session.waits_for)

    def say(self, *packets: bytes) -> None:
        """Send packets, which are read together unless the client is held."""
        self.unread += packets
        self.bus.read()

    def heard_packets(self) -> list[bytes]:
        """What came since the last look, as it came."""
        return self.bus.transport.taken.pop(self.port, [])

    def heard(self) -> list[bytes]:
        """What came since the last look, every PACK taken apart."""
        heard: list[bytes] = []
        for packet in self.heard_packets():
            heard += sbus.Pack.parse(packet[5:]).packets if packet.startswith(sbus.PACK) else [packet]
        return heard

    def ask(self, *packets: bytes) -> list[bytes]:
        """What comes in answer to ``packets``."""
        self.heard()
        self.say(*packets)
        return self.heard()

    def stop_reading(self, room: int = 0) -> None:
        """Take ``room`` packets more, then none."""
        self.bus.transport.room[self.port] = room

    def take(self, packets: int = UNLIMITED) -> list[bytes]:
        """Make room for so many packets more, and give what has come since the last look."""
        transport, port = self.bus.transport, self.port
        transport.room[port] = min(UNLIMITED, transport.room[port] + packets)
        while transport.room[port] and self.session in self.bus.watched:
            self.bus.relay.delivery.now = self.bus.now
            self.bus.relay.delivery.writable(self.session)
            self.bus.settle()
        return self.heard()

    def vanish(self) -> None:
        """Be gone without the daemon having noticed."""
        self.bus.transport.gone.add(self.port)

    def leave(self) -> None:
        if self.connected:
            self.bus.end(self.session)
            self.bus.settle()


class Bus:
    """``now``: monotonic seconds, ``unix_us``: the clock; the test turns both. ``sent``: datagrams to the segment."""

    def __init__(
        self,
        *,
        integrity: Integrity | None = None,
        limits: Limits | None = None,
        local: Sequence[bytes] = (b"local/>",),
        retain: Sequence[bytes] = (),
        rhythm: Rhythm | None = None,
    ) -> None:
        limits = limits or Limits()
        stride = Relay.packet_limit_for(limits) + 256
        segment = BATCH * stride
        room = segment + BATCH * (RECEIVE_LIMIT + 256)
        self.memory = mmap.mmap(-1, room + BATCH * RECEIVE_LIMIT)
        self._client_slots = range(0, segment, stride)
        self._datagram_slots = range(segment, room, RECEIVE_LIMIT + 256)
        self.integrity = integrity or Integrity()
        self.transport = FakeTransport(self.memory)
        self.relay = Relay(
            self.memory,
            self.transport,
            self.integrity,
            host=HOST,
            room=(room, len(self.memory)),
            local=local,
            retain=retain,
            limits=limits,
            rhythm=rhythm,
            version=b"1.2.3",
        )
        self.now = 1000.0
        self.unix_us = CLOCK
        self.clients: dict[int, FakeClient] = {}  # by the number of their session
        self.watched: set[Session] = set()  # for room
        self.sent: list[bytes] = []
        self.closed: dict[bytes, str] = {}  # name -> why the relay had it disconnected
        self._next_port = 10

    # -- clients

    def connect(
        self,
        *packets: bytes,
        pid: int | None = None,
        program: bytes = b"prog",
        uid: int = 1000,
        privileged: bool = False,
    ) -> FakeClient:
        """A client that has sent ``packets`` and read what came of them; ``pid``: by default, one of its own."""
        client = self.try_connect(pid=pid, program=program, uid=uid, privileged=privileged)
        assert client is not None
        client.say(*packets)
        client.heard()
        return client

    def try_connect(
        self, *, pid: int | None = None, program: bytes = b"prog", uid: int = 1000, privileged: bool = False
    ) -> FakeClient | None:
        self._next_port += 1
        pid = self._next_port if pid is None else pid
        peer = Peer(pid, 0 if privileged else uid, 100, program, resident=True)
        session = self.relay.connect(self._next_port, peer, now=self.now, unix_us=self.unix_us)
        if session is None:
            return None
        client = self.clients[session.number] = FakeClient(self, session)
        self.settle()
        return client

    def read(self) -> None:
        """Read from every client that is not held, until nothing is left to read."""
        ready = True
        while ready:
            ready = [client for client in self.clients.values() if client.unread and not client.held]
            for client in ready:
                if client.connected and not client.held:
                    packets, client.unread = client.unread[:BATCH], client.unread[BATCH:]
                    starts, ends = self._lay(packets, self._client_slots)
                    self.relay.from_client(client.session, starts, ends, self.now, self.unix_us * 1000)
                    self.settle()

    def end(self, session: Session) -> None:
        client = self.clients.pop(session.number, None)
        if client is not None:
            self.watched.discard(session)
            self.relay.disconnect(session, self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.unix_us += int(seconds * 1e6)
        self.relay.tick(self.now, self.unix_us * 1000)
        self.settle()

    # -- the segment

    def hear(self, *datagrams: bytes, peer: bytes = ELSEWHERE, interface: bytes = INTERFACE) -> None:
        """Datagrams from the segment, read together."""
        for first in range(0, len(datagrams), BATCH):
            starts, ends = self._lay(datagrams[first : first + BATCH], self._datagram_slots)
            self.relay.from_segment(starts, ends, lambda _: peer, self.now, self.unix_us * 1000, interface)
            self.settle()

    # -- what the relay asks for

    def settle(self) -> None:
        delivery = self.relay.delivery
        self.sent += self.relay.outgoing
        self.relay.outgoing.clear()
        resumed = False
        while delivery.stuck or delivery.drained or delivery.resumed or delivery.closing:
            resumed |= bool(delivery.resumed)
            stuck, delivery.stuck = delivery.stuck, []
            drained, delivery.drained = delivery.drained, []
            closing, delivery.closing = delivery.closing, []
            delivery.resumed.clear()  # read() looks for itself
            self.watched |= {session for session in stuck if session in delivery.backlogged}
            self.watched -= {session for session in drained if session not in delivery.backlogged}
            for session in closing:
                self.closed[session.name] = session.closing
                self.end(session)
            self.sent += self.relay.outgoing  # last words of a client
            self.relay.outgoing.clear()
        self.assert_consistent()
        if resumed:
            self.read()

    def assert_consistent(self) -> None:
        """What holds after each step, whatever happened."""
        relay, delivery = self.relay, self.relay.delivery
        sessions = set(relay.sessions.values())
        assert self.watched == delivery.backlogged <= sessions
        assert delivery.backlogged == {session for session in sessions if session.outbox}
        assert {(a, b) for a in sessions for b in a.waits_for} == {(a, b) for b in sessions for a in b.holds}
        assert delivery.ledger.packets == sum(session.outbox.packets for session in sessions)
        assert delivery.ledger.bytes == sum(session.outbox.size for session in sessions)
        assert delivery.ledger.bytes <= delivery.ledger.limit
        assert relay.router.subscriptions == sum(sum(s.subscriptions.values()) for s in sessions)
        assert len(relay.names) - 1 == len(sessions) == len(delivery.ports)  # beside its own
        assert delivery.taps == [session for session in relay.sessions.values() if session.tap]

    def assert_idle(self) -> None:
        """Nobody is connected, and nothing is left of those who were."""
        relay, delivery = self.relay, self.relay.delivery
        self.assert_consistent()
        assert not self.clients
        assert not relay.sessions
        assert not delivery.ports
        assert not delivery.backlogged
        assert not self.watched
        assert (delivery.ledger.packets, delivery.ledger.bytes) == (0, 0)
        assert relay.router.subscriptions == 0
        assert all(index.empty() for index in relay.router._indexes.values())
        assert not relay.router._listening
        assert not any(audience.size for audience in relay.router._young.values())
        assert not any(audience.size for audience in relay.router._old.values())
        assert not any(audience.size for audience in relay.router._shared.values())
        assert len(relay.names) == 1  # its own

    def _lay(self, packets: Sequence[bytes], slots: range) -> tuple[list[int], list[int]]:
        """Put packets into the memory, where what was there before is left behind them."""
        ends = []
        for packet, start in zip(packets, slots, strict=False):
            self.memory[start : start + len(packet)] = packet
            ends.append(start + len(packet))
        return list(slots[: len(packets)]), ends
