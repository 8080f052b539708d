"""The whole relay against a naive one, packet by packet.

An input is a script: settings, then clients that connect, send packets and whole batches of them, read slowly, vanish
and leave, and datagrams of the segment. ``Model`` does what the README says in the simplest way: no cache, no runs,
no queues. It learns three things from the relay: in which order packets were read, how datagrams were judged, and
which last values gave way to others (the tables of sources and of last values have tests of their own). At the end

- every client that stayed has got each of its messages, in order, or a notice at the right place of how many are
  missing; one that was closed has got a beginning of that;
- every request has one answer, in order, and every wrong packet the right error;
- every message that is not local has gone to the segment, in order;
- nothing is left of anybody (``Bus.assert_idle``).
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from bccnd.relay import effects
from bccnd.relay.client_input import Left
from bccnd.relay.effects import Spans
from bccnd.relay.identity import LocalSource
from bccnd.relay.moment import Moment
from bccnd.relay.options import Policy
from bccnd.relay.retained import Kept
from bccnd.relay.rights import AccessList, Grant, unrestricted
from bccnd.relay.session import Session
from bccnd.wire import sbus
from bccnd.wire.bccn1 import RECEIVE_LIMIT, Integrity, Level
from bccnd.wire.verdict import Verdict
from tests.fuzz.fuzzer import Script
from tests.fuzz.relay_model import Model
from tests.relay.fakes import ELSEWHERE, UNLIMITED, Bus, FakeClient

CHANNELS = [
    b"a", b"a/b", b"a/bc", b"a/", b"local/x", b"local/", b"!", b"!here", b"!here/p/11", b"!here/p/11/*", b"!?",
    b"a b", b"", b"a.b", b"x" * 1024, b"!here/q", b"bccnd/ask", b"!here/bccnd", b"!/cred/1/2/3/x",
]  # fmt: skip
PATTERNS = [
    b"heartbeat/>", b"local/presence/>",
    b"a", b"a/b", b"a/b*", b"a/>", b"a/", b">", b"", b"*", b"a*b", b"local/>", b"a.b", b"a.>", b"a\n", b"x*", b"!>",
    b"a/b\0ignored",
]  # fmt: skip
CONTROLS = [
    b"ping", b"ping\0x", b"whoami", b"format\0plain", b"format\0full", b"format\0lines", b"pack\0on", b"pack\0off",
    b"separator\0.", b"separator\0/", b"echo/on", b"echo/off", b"queue\0packets=2 policy=drop-newest",
    b"queue\0policy=block packets=3", b"queue\0policy=disconnect packets=3", b"queue\0policy=drop-oldest packets=3",
    b"listen", b"tap\0on", b"tap\0off", b"status", b"clients", b"sources", b"bogus", b"", b"!/cred/whoami",
    b"format x", b"heartbeat\x001", b"heartbeat\x005 at work", b"heartbeat\0off", b"heartbeat\0x",
    b"blocking/soft/block", b"blocking/hard/discard", b"order/stack", b"listeners\0!/cred/1/2/3/x t",
    b"peer\0x", b"peer\x001 2 3", b"listeners\0a/b", b"listeners\0! t", b"listeners\0!here/p/11 t",
    b"watch\0a/b", b"watch\0a/>", b"watch\0local/>", b"watch\0!", b"unwatch\0a/>",
]  # fmt: skip
NAMES = [
    b"here/p/11/tag",
    b"here/p/x/11",
    b"here/p/12/11",
    b"here/p/11/c/2/12",
    b"here/bccnd/7",
    b"here/q",
    b"here/p/12",
    b"?",
    b"a b",
    b"here/p/11",
]
SOURCES = [b"there/x/1", b"there/y/2", b"?", b"here/p/11", b"here/q", b"a b"]
SEQS = [0, 1, 2, 3, 5, 9, 20, 2**63, 2**64 - 1, 2**64]
KEY = b"0123456789abcdef"
LOCAL = ["local/>"]
RETAIN = ["a/>", "local/"]
RESTRICTED = [
    Grant(publish=(b"a/>", b"a", b"!", b"!here/>", b"local/"), subscribe=(b"a/*", b"a/>", b"local/", b"!")),
    Grant(uid=0, publish=(b"x*",), subscribe=(b"a.>",), tap=True, bridge=True, name=(b"here/q",)),
    Grant(program=b"q*", resident=True, publish=(b">",), block=True, observe=True),
]
MOST_CLIENTS = 5
# Datagrams that find room in the region for them: fewer than what is read together, so that inputs come to its end.
SEALED_LIMIT = 3


class Play:
    """One script on one bus, with the model beside it."""

    def __init__(self, script: Script) -> None:
        self.script = script
        keyed, small = script.number(2), script.number(2)
        self.integrity = Integrity([KEY], Level.HMAC) if keyed else Integrity()
        self.bus = RoomyBus(
            self.integrity,
            local=LOCAL,
            retain=RETAIN,
            clients=MOST_CLIENTS - 1,
            subscriptions=5,
            local_payload=1500,
            channels_cached=(64, 2)[small],
            queue_packets=(64, 4)[small],
            queue_bytes=(1 << 20, 3000)[small],
            max_packets=100,
            max_bytes=1 << 20,
            total_bytes=(1 << 20, 5000)[script.number(2)],
            policy=list(Policy)[script.number(4)],
            retain_channels=2,
            sanity=10,
            sources=(100, 4)[small],
            reorder=(0, 3)[script.number(2)],
            unknown=("deliver", "by-address", "drop")[script.number(3)],
        )
        self.access = AccessList((unrestricted([0]), RESTRICTED)[script.number(2)])
        self.bus.reconfigure(access=self.access)
        self.model = Model(self.integrity, self.bus.options)
        self.clients: list[FakeClient] = []
        self.got: defaultdict[int, list[bytes]] = defaultdict(list)  # by port
        self.last_packet = b"MSG a\0"
        observe(self.bus, self.model)
        self.bus.begin()

    def run(self) -> None:
        while self.script:
            self.step()
            self.model.assert_same_state(self.bus.relay.sessions)
        self.finish()

    def step(self) -> None:
        script, bus = self.script, self.bus
        action = script.number(16)
        if action == 0 or not self.clients:
            self.connect()
            return
        client = self.clients[script.number(len(self.clients))]
        match action:
            case 1:
                bus.hear(*(self.heard_datagram()[: RECEIVE_LIMIT + 1] for _ in range(script.number(6) + 1)))
            case 2:
                client.stop_reading(script.number(4))
            case 3:
                self.take(client, script.number(8))
            case 4:
                self.take(client)
            case 5:
                bus.tick((0.1, 1.0, 6.0, 90000.0)[script.number(4)])
            case 6:
                client.leave()
            case 7 if script.number(4) == 0:
                client.vanish()
            case _ if client.connected:
                client.say(*(self.packet() for _ in range(script.number(8) + 1)))

    def connect(self) -> None:
        flags = self.script.number(8)
        client = self.bus.try_connect(
            pid=(11, 12, 0, 13)[flags % 4],
            program=b"p",
            uid=0 if flags & 4 else 1000,
            privileged=bool(flags & 4),
        )
        assert (client is None) == (len(self.model.connected) >= MOST_CLIENTS - 1)
        self.model.say()
        if client is not None:
            self.model.connect(client.session)
            self.clients.append(client)

    def packet(self) -> bytes:
        """Not longer than what the daemon reads."""
        self.last_packet = self.some_packet(depth=0)[: self.bus.relay.state.rules.packet_limit]
        return self.last_packet

    def some_packet(self, depth: int) -> bytes:
        script = self.script
        match script.number(16):
            case 0 | 1 | 2 | 3:
                return b"MSG %b\0%b" % (self.one_of(CHANNELS), self.payload())
            case 4:
                return b"MSG %b %b\n" % (self.one_of(CHANNELS), self.payload())
            case 5 | 6:
                return b"SUB " + self.one_of(PATTERNS)
            case 7:
                return b"UNSUB " + self.one_of(PATTERNS)
            case 8 | 9:
                return b"CMSG " + self.one_of(CONTROLS)
            case 10:
                return b"CMSG name\0" + self.one_of(NAMES)
            case 11:
                return self.heard_datagram()
            case 12 if depth < 2:
                return sbus.pack([self.some_packet(depth + 1) for _ in range(script.number(6))])
            case 13 if depth < 2:
                return sbus.pack([self.some_packet(depth + 1)]) + script.chunk()[:8]
            case 14:
                return script.chunk()
        return self.last_packet

    def one_of(self, table: list[bytes]) -> bytes:
        choice = self.script.number(32)
        return table[choice] if choice < len(table) else self.script.chunk()

    def payload(self) -> bytes:
        return self.script.chunk() * (1, 1, 1, 40)[self.script.number(4)]

    def heard_datagram(self) -> bytes:
        script = self.script
        match script.number(4):
            case 0:
                return script.chunk()
            case 1:
                return self.integrity.seal(script.chunk())
        src, seq = SOURCES[script.number(len(SOURCES))], SEQS[script.number(len(SEQS))]
        body = b"%b:%d:%b|%b" % (src, seq, self.one_of(CHANNELS), self.payload())
        return self.integrity.seal(body)

    def take(self, client: FakeClient, packets: int = UNLIMITED) -> None:
        self.got[client.port] += client.take(packets)

    def finish(self) -> None:
        """Everybody reads all there is; what was held up by that goes on, until nothing is left to do."""
        for _ in range(1000):
            for client in self.clients:
                if client.connected:
                    self.take(client)
            self.bus.read()
            if not any(
                client.connected and (client.unread or client.session.outbox) for client in self.clients
            ):
                break
        else:
            raise AssertionError("somebody is held for ever")
        for client in self.clients:
            stayed = client.connected and client.port not in self.bus.transport.gone
            self.model.judge(client.session.number, self.got[client.port] + client.heard(), stayed)
        self.model.judge_sent(self.bus.sent)
        for client in self.clients:
            client.leave()
        self.bus.assert_idle()


class RoomyBus(Bus):
    """A publisher that is held by ``block`` is taken beyond the limit, so the sum may pass the small ones here.

    What was read of a client is worked off before the next is read, as in the model. (Turns are held against a model
    of their own in ``tests/relay/test_interleaving.py``.)
    """

    def from_client(self, session: Session, packets: Left) -> Left | None:
        left: Left | None = packets
        while left and session.number in self.relay.sessions:
            left = super().from_client(session, left)
            self.settle()
        return None

    def assert_consistent(self) -> None:
        ledger = self.relay.state.ledger
        limit, ledger.limit = ledger.limit, 1 << 30
        super().assert_consistent()
        ledger.limit = limit


def observe(bus: Bus, model: Model) -> None:
    """Show the model what the relay is given, and how it judges datagrams, when the relay has acted on it."""
    relay: Any = bus.relay
    segment, publisher, retained = relay._segment_input, relay._publisher, relay.state.retained
    judge, say, keep = segment.judge, publisher.say, retained.keep
    from_client, from_segment = relay.from_client, relay.from_segment
    disconnect, on_deadline = relay.disconnect, relay.on_deadline
    # Other hosts are asked about watches by the clock, which the model does not have.
    relay.watches._leaves = lambda _key: False
    judged: deque[Verdict] = deque()  # the verdict on each sound datagram
    read_all = [True]  # whether nothing is left of what was read before
    # What the client that is being read has sent and the model has not taken yet, each with where it begins.
    unread: list[tuple[int, bytes]] = []

    def judging(*arguments: Any) -> tuple[Verdict, int]:
        verdict, count = judge(*arguments)
        judged.extend([verdict] * count)
        return verdict, count

    def packets_at(starts: list[int], ends: list[int]) -> list[bytes]:
        return [bus.memory[start:end] for start, end in zip(starts, ends, strict=True)]

    def reading(
        session: Session,
        moment: Moment,
        packets: Spans,
        at: int = 0,
        unpacked: bool = False,
    ) -> Left | None:
        if read_all[-1]:
            unread[:] = zip(packets[0], packets_at(*packets), strict=True)
            model.begin(session.number)
        left = from_client(session, moment, packets, at, unpacked)
        read_all[:] = [left is None]
        taken = taken_before(unread, left[0][0][left[1]] if left else 1 << 60)
        model.read(session.number, taken, judged, moment.unix_ns)
        assert not judged
        assert not model.own_words
        return left

    def hearing(
        starts: list[int], ends: list[int], peer: Callable[[int], bytes], moment: Moment, interface: bytes
    ) -> None:
        datagrams = packets_at(starts, ends)
        from_segment(starts, ends, peer, moment, interface)
        model.hear(datagrams, judged, ELSEWHERE, moment.unix_ns)
        assert not judged

    def disconnecting(session: Session, moment: Moment) -> None:
        disconnect(session, moment)
        model.say()
        model.disconnect(session)

    def ticking(moment: Moment) -> None:
        on_deadline(moment)
        model.say()

    def saying(source: LocalSource, chan: bytes, payload: bytes, moment: Moment) -> None:
        model.own_words.append((source.name, chan, payload))
        say(source, chan, payload, moment)

    def keeping(chan: bytes, message: Kept, user: int | None = None) -> None:
        before = set(retained._messages)
        keep(chan, message, user)
        gone = {*before, chan} - retained._messages.keys()
        model.kept.append((chan, message.msg(chan).payload, gone))

    segment.judge, publisher.say, retained.keep = judging, saying, keeping
    relay.repair.say = lambda _payload, _moment: None  # nobody here asks for what was lost
    relay.from_client, relay.from_segment = reading, hearing
    relay.disconnect, relay.on_deadline = disconnecting, ticking


def taken_before(unread: list[tuple[int, bytes]], end: int) -> list[bytes]:
    """Take what lies before this place out of ``unread``. Of a PACK, or of several lines, it may be a part."""
    taken = []
    while unread and unread[0][0] < end:
        start, packet = unread.pop(0)
        if start + len(packet) > end and packet.startswith(sbus.PACK):
            size = end - sbus.LENGTH.size - start
            unread.insert(0, (start + size - len(sbus.PACK), sbus.PACK + packet[size:]))
            return [*taken, packet[:size]]
        if start + len(packet) > end:
            unread.insert(0, (end, packet[end - start :]))
        taken.append(packet[: end - start])
    return taken


@contextmanager
def small_region() -> Iterator[None]:
    before, effects.SEALED_LIMIT = effects.SEALED_LIMIT, SEALED_LIMIT
    try:
        yield
    finally:
        effects.SEALED_LIMIT = before


def one_input(data: bytes) -> None:
    with small_region():
        Play(Script(data)).run()


def seeds() -> Iterable[bytes]:
    """Scripts by the tables above; each begins with the settings (8 numbers)."""
    settings = [
        bytes(7),
        bytes([1, 1, 1, 1, 1, 1, 1]),
        bytes([0, 1, 0, 2, 0, 0, 2]),
        bytes([0, 1, 0, 3, 1, 0, 0]),
    ]
    reader = bytes([0, 4, 8, 0, 1, 5, 6])  # connect, and SUB ""
    for setting in settings:
        for kind in range(16):
            for choice in range(len(CONTROLS) if kind == 8 else 3):
                say = bytes([8, 1, 2, kind, choice, 3, 97, 98, 99, 0, 0, 1, 2, 120, 121, 0, 0, 1, 0, 0])
                yield setting + reader + bytes([0, 5]) + say
        for room in range(4):
            slow = bytes([2, 0, room]) + bytes([8, 1, 7]) + bytes([0, 1, 2, 65, 66, 0]) * 8 + bytes([3, 0, 2])
            yield setting + reader + bytes([0, 5]) + slow + slow
        heard = bytes([1, 3]) + b"".join(bytes([2, 0, seq, 1, 1, 65, 0]) for seq in range(4))
        yield setting + reader + heard + heard
        many = bytes([8, 0, 7]) + bytes([0, 1, 2, 65, 66, 0]) * 8
        yield setting + reader + many + many
