"""A relay among fakes: clients that take as many packets as the test lets them, a segment that is two lists.

``Bus`` does what the daemon does around the relay (read in batches, stop reading from a client that is held, watch
the backlogged ones for room, disconnect who is to be closed), in memory and one step at a time.
"""

import json
import mmap
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import fields
from itertools import accumulate
from typing import Any

from bccnd.daemon.turns import Leftover
from bccnd.relay.client_input import Left
from bccnd.relay.core import Regions, Relay
from bccnd.relay.delivery import GONE
from bccnd.relay.effects import Effects, OfClients, as_bytes
from bccnd.relay.identity import LocalSource, Peer
from bccnd.relay.listing import as_json
from bccnd.relay.moment import Moment
from bccnd.relay.options import Dedup, Heartbeat, Limits, Options, Queue, Repair, Retain
from bccnd.relay.outbox import ENTRY_BYTES
from bccnd.relay.rights import AccessList, unrestricted
from bccnd.relay.router import Route, Router
from bccnd.relay.session import Session
from bccnd.relay.state import Rules, packet_limit
from bccnd.wire import sbus
from bccnd.wire.bccn1 import RECEIVE_LIMIT, Integrity, Message
from bccnd.wire.repair import CHANNEL
from bccnd.wire.sbus import Cmsg

BATCH = 64  # packets a read
UNLIMITED = 1 << 60
CLOCK = 1_800_000_000_000_000  # microseconds since the epoch
HOST = b"here"
HERE = b"10.0.0.1:5400"
ELSEWHERE = b"10.0.0.2:5400"
INTERFACE = b"eth0"


def options(**values: Any) -> Options:
    """The defaults but for ``values``, each by its name in the settings: ``clients``, or ``queue_packets`` where two
    tables have one of the name. ``retain``: its patterns. Here the daemon does not beat of itself, nor repair.
    """
    tables: dict[str, dict[str, Any]] = {
        "heartbeat": {"seconds": 0},
        "dedup": {"replays": "accept"},
        "repair": {"on": False},
    }
    for name, value in values.items():
        first, _, rest = name.partition("_")
        if name == "retain":
            tables.setdefault("retain", {})["patterns"] = tuple(value)
        elif name != "local":
            table, field = (first, rest) if first in TABLES else (TABLE_OF[name], name)
            tables.setdefault(table, {})[field] = value
    made = {name: TABLES[name](**table) for name, table in tables.items()}
    return Options(tuple(values.get("local", Options().local)), **made)


TABLES: dict[str, Any] = {
    "repair": Repair,
    "queue": Queue,
    "limits": Limits,
    "retain": Retain,
    "dedup": Dedup,
    "heartbeat": Heartbeat,
}
TABLE_OF = {field.name: name for name, table in TABLES.items() for field in fields(table)}


def datagram(
    src: bytes, seq: int, chan: bytes, payload: bytes = b"", integrity: Integrity | None = None
) -> bytes:
    return (integrity or Integrity()).seal(Message(src, seq, chan, payload).serialize())


def recv_of(packet: bytes) -> sbus.Recv:
    """A RECV packet taken apart, or the line that a tap of the format ``lines`` has in its place."""
    if line := _LINE.fullmatch(packet):
        datagram = _ESCAPE.sub(lambda found: _MEANS.get(found[1]) or bytes([int(found[1][1:], 16)]), line[2])
        packet = line[1] + b"\0" + datagram
    return sbus.Recv.parse(packet.removeprefix(b"RECV "))


_LINE = re.compile(rb"(RECV \S+ \d+ [^\s\0]+(?: (?:eth0|-)(?= ))?) ([^\0\n]*)\n")
_ESCAPE = re.compile(rb"\\(x..|.)")
_MEANS = {b"n": b"\n", b"r": b"\r", b"0": b"\0", b"\\": b"\\"}


def messages(*numbers: int) -> list[bytes]:
    """To the channel ``a``, each with its number."""
    return [b"MSG a\0%d" % number for number in numbers]


def value_of(answers: list[bytes], key: bytes) -> Any:
    """The JSON in the one answer there is."""
    (answer,) = answers
    head = b"CMSG %b\0" % key
    assert answer.startswith(head)
    return json.loads(answer.removeprefix(head))


def routes_of(router: Router) -> list[Route]:
    """All that it remembers, for channels and to share."""
    generations = [router.cached, *(routes for _, routes in router._aged)]
    return [route for routes in (*generations, router._shared) for route in routes.values()]


class FakeTransport:
    """Keeps what each port takes: ``room[port]`` packets more, any number unless the test says otherwise."""

    def __init__(self, memory: sbus.Memory) -> None:
        self._memory = memory
        self.room: defaultdict[int, int] = defaultdict(lambda: UNLIMITED)
        self.gone: set[int] = set()
        self.taken: defaultdict[int, list[bytes]] = defaultdict(list)
        self.unread_bytes: defaultdict[int, int] = defaultdict(int)
        self.senders: dict[int, FakeClient] = {}

    def unread(self, port: int) -> int:
        return self.unread_bytes[port]

    def unsaid(self, port: int) -> int:
        return sum(map(len, self.senders[port].unread))

    def send(self, port: int, packet: bytes) -> int:
        return self.send_each(port, [packet])

    def send_each(self, port: int, packets: Sequence[bytes]) -> int:
        if port in self.gone:
            return GONE
        went = min(self.room[port], len(packets))
        self.room[port] -= went
        self.taken[port] += map(bytes, packets[:went])
        return went

    def send_group(self, ports: Sequence[int], starts: list[int], ends: list[int]) -> dict[int, int]:
        packets = [self._memory[start:end] for start, end in zip(starts, ends, strict=True)]
        went = {port: self.send_each(port, packets) for port in ports}
        return {port: count for port, count in went.items() if count != len(packets)}


class FakeClient:
    """One client of a ``Bus``. What it sends while it is held waits in ``unread``, as in its socket; ``left`` is what
    was read of it and waits for its next turn.
    """

    def __init__(self, bus: "Bus", session: Session) -> None:
        self.bus = bus
        self.session = session
        self.port = session.port
        self.unread: list[bytes] = []
        self.left: Leftover | None = None

    @property
    def name(self) -> bytes:
        return self.session.name

    @property
    def connected(self) -> bool:
        return self.session.number in self.bus.relay.sessions

    @property
    def held(self) -> bool:
        return bool(self.session.waits_for)

    def next_packets(self) -> Left:
        """What the relay is to be given next."""
        if self.left:
            return self.left.lay_out(self.bus.memory, self.bus._client_slots[0])
        packets, self.unread = self.unread[:BATCH], self.unread[BATCH:]
        return self.bus._lay(packets, self.bus._client_slots), 0, 0

    def say(self, *packets: bytes) -> None:
        """Send packets, which are read together unless the client is held."""
        self.unread += packets
        self.bus.read()

    def heard_packets(self) -> list[bytes]:
        """What came since the last look, as it came."""
        return self.bus.transport.taken.pop(self.port, [])

    def shown(self) -> list[sbus.Recv]:
        """What came since the last look, where all of it are datagrams."""
        return [recv_of(packet) for packet in self.heard()]

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
            self.bus.relay.writable(self.session, self.bus.moment)
            self.bus.settle()
        return self.heard()

    def take_a_turn(self) -> list[bytes]:
        """Make room for everything, and give what the daemon sends in one turn, as it comes."""
        self.bus.transport.room[self.port] = UNLIMITED
        self.bus.relay.writable(self.session, self.bus.moment)
        self.bus.settle()
        return self.heard_packets()

    def vanish(self) -> None:
        """Be gone without the daemon having noticed."""
        self.bus.transport.gone.add(self.port)

    def leave(self) -> None:
        if self.connected:
            self.bus.end(self.session)
            self.bus.settle()


class Bus:
    """``now``: monotonic seconds, ``unix_us``: the clock; the test turns both. ``sent``: datagrams to the segment.

    ``addresses``: of this host, ``host``: its name; ``values``: settings, as ``options`` takes them.
    """

    def __init__(
        self,
        integrity: Integrity | None = None,
        addresses: frozenset[bytes] | None = frozenset([b"10.0.0.1"]),
        *,
        host: bytes = HOST,
        **values: Any,
    ) -> None:
        self.host = host
        self.options = options(**values)
        self.integrity = integrity or Integrity()
        stride = packet_limit(self.options) + 256
        segment = BATCH * stride
        free = segment + BATCH * (RECEIVE_LIMIT + 256)
        self._client_slots = range(0, segment, stride)
        self._datagram_slots = range(segment, free, RECEIVE_LIMIT + 256)
        *regions, size = accumulate(Regions.sizes(BATCH), initial=free)
        self._regions = Regions(*regions)
        self.memory = mmap.mmap(-1, size)
        self.transport = FakeTransport(self.memory)
        self.access = AccessList(unrestricted([0]))
        self.relay = self.new_relay()
        self.relay.state.addresses = addresses
        self.now = 1000.0
        self.unix_us = CLOCK
        self.clients: dict[int, FakeClient] = {}  # by the number of their session
        self.watched: set[Session] = set()  # for room
        self.sent: list[bytes] = []
        self.closed: dict[bytes, str] = {}  # name -> why the relay had it disconnected
        self.tapped = False
        self._reading = False
        self._next_port = 10

    def new_relay(self) -> Relay:
        """One with the settings of this bus, which knows of nothing yet."""
        return Relay(
            self.memory,
            self._regions,
            self.transport,
            Rules(self.options, self.integrity, self.access),
            batch=BATCH,
            host=self.host,
            version=b"1.2.3",
        )

    @property
    def messages_sent(self) -> list[bytes]:
        """The datagrams but for what the daemon says to others about loss."""
        return [sent for sent in self.sent if CHANNEL not in sent]

    @property
    def numbers_sent(self) -> list[int]:
        return [self.integrity.open(sent)[1] for sent in self.sent]

    @property
    def moment(self) -> Moment:
        return Moment(self.now, self.unix_us * 1000)

    def begin(self, offset: float = 0.0) -> None:
        self.relay.begin(self.moment, offset)

    def say(self, source: LocalSource, chan: bytes, payload: bytes) -> None:
        """What the daemon says by itself, in the name of a source."""
        self.relay._publisher.say(source, chan, payload, self.moment)

    def reconfigure(self, **changes: Any) -> None:
        """As a reload does; ``changes``: options, integrity, access."""
        for name, value in changes.items():
            setattr(self, name, value)
        self.relay.reconfigure(self.options, self.integrity, self.access, self.moment)
        self.settle()

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

    def connect_stuck(self, *packets: bytes, uid: int = 1000) -> FakeClient:
        """A client that takes nothing more until it is told to."""
        client = self.connect(*packets, uid=uid)
        client.stop_reading()
        return client

    def try_connect(
        self, *, pid: int | None = None, program: bytes = b"prog", uid: int = 1000, privileged: bool = False
    ) -> FakeClient | None:
        self._next_port += 1
        pid = self._next_port if pid is None else pid
        peer = Peer(pid, 0 if privileged else uid, 100, program, resident=True)
        session = self.relay.connect(self._next_port, peer, self.moment)
        if session is None:
            return None
        client = self.clients[session.number] = FakeClient(self, session)
        self.transport.senders[session.port] = client
        self.settle()
        return client

    def read(self) -> None:
        """Give every client that is not held its turns, until nothing is left to read."""
        if self._reading:
            return
        self._reading = ready = True
        while ready:
            ready = [each for each in self.clients.values() if (each.left or each.unread) and not each.held]
            for client in ready:
                if client.connected and not client.held:
                    left = self.from_client(client.session, client.next_packets())
                    client.left = Leftover.of(self.memory, left) if left else None
                    self.settle()
        self._reading = False
        for client in list(self.clients.values()):
            if client.session.closing == "gone" and not (client.left or client.unread):
                self.end(client.session)
                self.settle()

    def from_client(self, session: Session, packets: Left) -> Left | None:
        """Give the relay packets of a client; what is left of them."""
        return self.relay.from_client(session, self.moment, *packets)

    def end(self, session: Session) -> None:
        client = self.clients.pop(session.number, None)
        if client is not None:
            self.watched.discard(session)
            self.relay.disconnect(session, self.moment)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.unix_us += int(seconds * 1e6)
        while self.relay.alarm.due <= self.now:
            self.relay.on_deadline(self.moment)
            self.settle()

    # -- the segment

    def hear(self, *datagrams: bytes, peer: bytes = ELSEWHERE, interface: bytes = INTERFACE) -> None:
        """Datagrams from the segment, read together."""
        for first in range(0, len(datagrams), BATCH):
            starts, ends = self._lay(datagrams[first : first + BATCH], self._datagram_slots)
            self.relay.from_segment(starts, ends, lambda _: peer, self.moment, interface)
            self.settle()

    # -- what the relay asks for

    def settle(self) -> None:
        resumed = False
        while (effects := self.relay.take_effects()) is not None:
            self.sent += self.datagrams_of(effects)
            clients = effects.clients or OfClients()
            resumed |= bool(clients.resume)  # read() looks for itself
            if clients.taps is not None:
                self.tapped = clients.taps
            self.watched |= {session for session in clients.watch if self.relay.is_backlogged(session)}
            self.watched -= {session for session in clients.unwatch if not self.relay.is_backlogged(session)}
            if clients.asked:
                session, answer = clients.asked
                if answer.key == b"status":
                    answer = Cmsg(answer.key, as_json(self.relay.status()))
                self.relay.answer(session, answer, self.moment)
            for session in clients.close:
                self.closed[session.name] = session.closing
                if session.closing == "gone":
                    resumed = True  # it is read to the end first
                else:
                    self.end(session)
        self.assert_consistent()
        if resumed:
            self.read()

    def datagrams_of(self, effects: Effects) -> list[bytes]:
        return as_bytes(self.memory, effects.starts, effects.ends) + effects.beyond

    def assert_consistent(self) -> None:
        """What holds after each step, whatever happened."""
        state, delivery, ledger = self.relay.state, self.relay._delivery, self.relay.state.ledger
        sessions = set(state.sessions.values())
        assert self.watched == delivery.backlogged <= sessions
        assert delivery.backlogged == {session for session in sessions if session.outbox}
        assert {(a, b) for a in sessions for b in a.waits_for} == {(a, b) for b in sessions for a in b.holds}
        assert ledger.packets == sum(session.outbox.packets for session in sessions)
        boxes = [session.outbox for session in sessions]
        assert ledger.bytes == sum(box.size + box.answers_size for box in boxes)
        assert ledger.left == sum(box.left for box in boxes)
        assert ledger.bytes + ledger.left + ledger.entries * ENTRY_BYTES == sum(box.held for box in boxes)
        assert ledger.bytes <= ledger.limit
        assert state.router.subscriptions == sum(sum(s.subscriptions.values()) for s in sessions)
        assert len(state.names) - 2 == len(sessions) == len(state.ports)  # beside its own
        assert state.taps == [session for session in state.sessions.values() if session.tap]

    def assert_idle(self) -> None:
        """Nobody is connected, and nothing is left of those who were."""
        state, delivery, router = self.relay.state, self.relay._delivery, self.relay.state.router
        self.assert_consistent()
        assert not self.clients
        assert not state.sessions
        assert not state.ports
        assert not delivery.backlogged
        assert not self.watched
        assert (state.ledger.packets, state.ledger.bytes) == (0, 0)
        assert state.router.subscriptions == 0
        assert all(index.empty() for index in router._indexes.values())
        assert not router._listening
        assert not any(route.members for route in routes_of(router))
        assert len(state.names) == 2  # its own

    def _lay(self, packets: Sequence[bytes], slots: range) -> tuple[list[int], list[int]]:
        """Put packets into the memory, where what was there before is left behind them."""
        ends = []
        for packet, start in zip(packets, slots, strict=False):
            self.memory[start : start + len(packet)] = packet
            ends.append(start + len(packet))
        return list(slots[: len(packets)]), ends


def slow(bus: Bus, policy: str, packets: int = 4, chan: bytes = b"", uid: int = 1000) -> FakeClient:
    """A subscriber, to everything but for ``chan``, that takes nothing until it is told to."""
    queue = b"CMSG queue\0packets=%d policy=%b" % (packets, policy.encode())
    return bus.connect_stuck(b"SUB " + chan, queue, uid=uid)
