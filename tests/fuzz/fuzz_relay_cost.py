"""What inputs cost the relay, in steps (``steps.py``): no input of N bytes may cost more than so many a byte.

An input is a script: how crowded the relay is, then clients that connect, send packets and leave, and datagrams of
the segment. A crowded relay knows a thousand sources and channels, last values, and subscribers. Whoever sends a
packet pays for none of that, only for what comes of it:

    steps <= STEPS_A_BYTE x (bytes in + FRAME for each packet in)
             + STEPS_A_PACKET_OUT x (packets that clients get of it, and datagrams that go to the segment)
             + STEPS_A_BYTE_OUT x (their bytes)

A client that leaves pays with what it sent before. The time that nobody asked for (``tick``) is not judged.

``KNOWN`` are the inputs that cost more today where the relay is crowded, each with a least example. Such packets
are not judged there. The suite holds that each example still costs too much, so that whoever mends one takes its line
away.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from bccnd.wire import sbus
from bccnd.wire.bccn1 import RECEIVE_LIMIT, Integrity
from tests.fuzz.fuzzer import Script
from tests.fuzz.steps import Steps
from tests.relay.fakes import Bus, FakeClient, datagram

# A packet of a few bytes (SUB a, MSG a) costs a hundred lines of decisions, and a pattern or channel a few for each
# token, which is two bytes at least: 33 a byte, for a pattern of 200 tokens that comes and goes.
STEPS_A_BYTE = 40

# Bytes that a packet counts for beside its own: its length in a PACK, and the part of a system call without one.
FRAME = 4

# Queueing or sending one packet to one client, whatever its size: the fan-out that a publisher is allowed, as each
# of its subscribers wanted that. A last value, which is matched, packed and sent alone, costs some 60.
STEPS_A_PACKET_OUT = 80

# A row of a page is some 40 lines and 300 bytes of JSON.
STEPS_A_BYTE_OUT = 0.2

# More than a packet of a few bytes may cost, so that one look at each of them is too much.
SOURCES, CHANNELS, VALUES, READERS = 1000, 1000, 100, 20
MOST_CLIENTS = 6
# What a short run must manage (``test_fuzz.py``): steps are counted slowly.
EXECUTIONS = 10
# One input in eight begins with this number, as others take the time of a few.
CROWDED = 7
LONGEST_PACK = 12

CHANNELS_OF_ALL = [b"a", b"a/b", b"c/7", b"v/7", b"new/", b"local/x", b"!", b"!here/p/11", b"!here/bccnd",
                   b"heartbeat/x", b"bccnd/ask", b"/".join([b"a"] * 200)]  # fmt: skip
PATTERNS = [b"a", b"a/b*", b"c*", b"z*", b">", b"", b"v/>", b"v/*/x", b"*/*", b"local/presence/>", b"heartbeat/>",
            b"/".join([b"*"] * 200), b"x" * 500]  # fmt: skip
CONTROLS = [b"ping", b"ping\0" + b"x" * 500, b"whoami", b"format\0full", b"format\0plain", b"pack\0on", b"pack\0off",
            b"separator\0.", b"separator\0/", b"echo/off", b"queue\0packets=2 policy=drop-newest", b"listen",
            b"queue\0packets=100000", b"tap\0on", b"tap\0off", b"status", b"clients", b"clients\x0030", b"sources",
            b"sources\0far/2", b"sources\0~", b"bogus", b"heartbeat\x001 x", b"heartbeat\0off", b"listeners\0a",
            b"watch\0a/>", b"watch\0*/b", b"watch\0a", b"unwatch\0a",
            b"listeners\0new/x t", b"name\0here/p/11/x", b"name\0here/p/11", b"name\0here/q"]  # fmt: skip


@dataclass(frozen=True)
class Known:
    """``packets``: the least example, sent by one client; ``heads``: how packets begin that it excuses, none
    if only several together cost too much; ``crowded``: whether others have to be there.
    """

    reason: str
    heads: tuple[bytes, ...]
    packets: tuple[bytes, ...]
    crowded: bool = True


def branching(count: int, tokens: int) -> list[bytes]:
    """Patterns that differ in their first ten tokens, and all match ``a/a/a...``."""
    heads = ([b"a*" if number >> at & 1 else b"a" for at in range(10)] for number in range(count))
    return [b"/".join([*head, *[b"*"] * (tokens - 10)]) for head in heads]


KNOWN = [
    Known("SUB with a wildcard looks at all last values", (b"SUB ",), (b"SUB v/*/x",)),
    Known(
        "a message is held against each token of each pattern, again for each way to its place",
        (),
        (*(b"SUB " + each for each in branching(10, 20)), b"MSG %b\0" % b"/".join([b"a"] * 20)),
        crowded=False,
    ),
]


class CostlyError(AssertionError):
    """An input costs more than its bytes and what came of them allow."""


class Crowd:
    """A relay with or without others on it, and what a call on it costs."""

    def __init__(self, *, crowded: bool) -> None:
        self.steps = Steps()
        self.bus = Bus(
            local=["local/>"], retain=["v/>"], clients=READERS + MOST_CLIENTS, subscriptions=64, sources=65536
        )
        self.bus.begin()
        self._paid_before: dict[int, float] = {}
        if crowded:
            self._fill()

    def _fill(self) -> None:
        bus = self.bus
        bus.hear(
            *(datagram(b"far/%d" % number, 1, b"c/%d" % (number % CHANNELS)) for number in range(SOURCES))
        )
        bus.hear(*(datagram(b"far/x", number + 1, b"v/%d" % number, b"on") for number in range(VALUES)))
        for number in range(READERS):
            bus.connect(b"SUB r/%d" % number, b"SUB r%d/*" % number)

    def judge(
        self, who: object, call: Callable[[], object], packets: Iterable[bytes], paid: float = 0
    ) -> int:
        """Make the call, and hold its cost against what went in and what came of it. How many steps it took."""
        before, bytes_before = self._out()
        self.steps.count = 0
        with self.steps.counting():
            call()
        after, bytes_after = self._out()
        given = sum(len(packet) + FRAME for packet in packets)
        limit = paid + given * STEPS_A_BYTE
        limit += (after - before) * STEPS_A_PACKET_OUT + (bytes_after - bytes_before) * STEPS_A_BYTE_OUT
        if self.steps.count > limit:
            raise CostlyError(f"{self.steps.count} steps, at most {limit:.0f}: {who}")
        return self.steps.count

    def _out(self) -> tuple[int, int]:
        """Packets and their bytes, that clients have taken or that wait for them; and datagrams to the segment.

        What waits and is dropped later has been paid for once.
        """
        taken = [packet for packets in self.bus.transport.taken.values() for packet in packets]
        inside = sum(len(sbus.Pack.parse(each[5:]).packets) for each in taken if each.startswith(sbus.PACK))
        ledger = self.bus.relay.state.ledger
        packets = len(taken) + inside + ledger.packets + ledger.dropped + len(self.bus.sent)
        return packets, sum(map(len, taken)) + ledger.bytes + sum(map(len, self.bus.sent))


class Play:
    """One script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.crowded = script.number(CROWDED + 1) == CROWDED
        self.crowd = Crowd(crowded=self.crowded)
        self.clients: list[FakeClient] = []
        self.given: dict[int, int] = {}  # what each client has sent, in bytes

    def run(self) -> None:
        while self.script:
            self.step()

    def step(self) -> None:
        script, bus = self.script, self.crowd.bus
        action = script.number(8)
        if not self.clients or (action == 0 and len(self.clients) < MOST_CLIENTS):
            privileged = bool(script.number(2))
            client = bus.try_connect(pid=11, program=b"p", privileged=privileged)
            assert client is not None
            self.clients.append(client)
            self.given[client.port] = 0
            return
        client = self.clients[script.number(len(self.clients))]
        match action:
            case 1:
                datagrams = [self.heard() for _ in range(script.number(8) + 1)]
                self.crowd.judge(datagrams, lambda: bus.hear(*datagrams), datagrams)
            case 2:
                client.stop_reading(script.number(4))
            case 3:
                client.take()
            case 4:
                bus.tick((0.1, 1.0, 6.0)[script.number(3)])
            case 5:
                self.clients.remove(client)
                paid = self.given[client.port] * STEPS_A_BYTE
                self.crowd.judge("a client that leaves", client.leave, [b""] * 10, paid)
            case _ if client.connected:
                packet = self.packet()
                self.given[client.port] += len(packet) + FRAME
                packets = contents(packet)
                if self.crowded and is_known(packets):
                    client.say(packet)
                else:
                    self.crowd.judge(packet[:200], lambda: client.say(packet), packets)

    def packet(self) -> bytes:
        script = self.script
        if script.number(4):
            return self.single()
        pieces = [self.single() for _ in range(script.number(4) + 1)]
        return sbus.pack(pieces * (script.number(LONGEST_PACK) + 1))[
            : self.crowd.bus.relay.state.rules.packet_limit
        ]

    def single(self) -> bytes:
        script = self.script
        match script.number(8):
            case 0 | 1:
                return b"MSG %b\0%b" % (self.one_of(CHANNELS_OF_ALL), script.chunk())
            case 2:
                return b"SUB " + self.one_of(PATTERNS)
            case 3:
                return b"UNSUB " + self.one_of(PATTERNS)
            case 4 | 5:
                return b"CMSG " + self.one_of(CONTROLS)
            case 6:
                return self.heard()
        return script.chunk()

    def one_of(self, table: list[bytes]) -> bytes:
        choice = self.script.number(40)
        return table[choice] if choice < len(table) else self.script.chunk()

    def heard(self) -> bytes:
        script = self.script
        if script.number(4) == 0:
            return script.chunk()[:RECEIVE_LIMIT]
        src = (b"far/1", b"far/new/%d" % script.number(256), b"here/p/11", b"?")[script.number(4)]
        body = b"%b:%d:%b|%b" % (src, script.number(256), self.one_of(CHANNELS_OF_ALL), script.chunk())
        return Integrity().seal(body)[:RECEIVE_LIMIT]


def contents(packet: bytes) -> list[bytes]:
    """The packets in a PACK; any other packet alone."""
    if packet.startswith(sbus.PACK):
        try:
            return [b"", *sbus.Pack.parse(packet[len(sbus.PACK) :]).packets]
        except ValueError:
            pass
    return [packet]


def is_known(packets: Iterable[bytes]) -> bool:
    heads = tuple(head for known in KNOWN for head in known.heads)
    return any(packet.startswith(heads) for packet in packets)


def cost_of_example(known: Known) -> None:
    """Judges the least example. Raises ``CostlyError`` as long as it costs too much."""
    crowd = Crowd(crowded=known.crowded)
    client = crowd.bus.connect()
    for packet in known.packets:
        crowd.judge(packet, partial(client.say, packet), [packet])


def one_input(data: bytes) -> None:
    Play(Script(data)).run()


def seeds() -> Iterable[bytes]:
    """Each kind of packet, alone and a dozen times in a PACK, on an empty and on a crowded relay."""
    for crowded in (0, CROWDED):
        begin = bytes([crowded, 0, 1])
        pack_on = bytes([6, 0, 1, 4, 5])
        for kind, table in ((0, CHANNELS_OF_ALL), (2, PATTERNS), (4, CONTROLS)):
            singles = [bytes([kind, choice]) + b"\x03abc" * (kind == 0) for choice in range(len(table))]
            yield begin + b"".join(bytes([6, 0, 1]) + single for single in singles)
            many = [bytes([6, 0, 0, 0]) + single + bytes([LONGEST_PACK - 1]) for single in singles]
            yield begin + pack_on + b"".join(many)
        both = [bytes([6, 0, 0, 1, 2, at, 3, at, LONGEST_PACK - 1]) for at in range(len(PATTERNS))]
        yield begin + pack_on + b"".join(both)
        yield begin + bytes([1, 0, 3, 1, 1, 7, 1, 1, 2, 97, 98] * 4)
