"""The main property of the relay: whatever happens, in whatever order, each client gets exactly its messages.

A slow, obvious model listens beside the relay. For each client it writes down every message that matches at that
moment, in the form the client asked for. What a client hears must be that list, in that order, but for stretches that
are missing; where one is missing there is a notice with its length. A client whose queue never lacked room has none.
In the end nobody is left, and nothing of anybody.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from bccnd.errors import PacketError
from bccnd.relay import pattern as patterns
from bccnd.wire import sbus
from bccnd.wire.bccn1 import Envelope, Message, matches_target, valid_chan
from tests.relay.fakes import CLOCK, ELSEWHERE, UNLIMITED, Bus, FakeClient, datagram, recv_of

MOST_CLIENTS = 5
CHANNELS = [
    b"a",
    b"b",
    b"a/b",
    b"a/b/c",
    b"a.b",
    b"local/x",
    b"!",
    b"!here",
    b"!here/prog/1",
    b"!here/prog/2/*",
]
PATTERNS = [b"", b"a", b"a/", b"a/>", b"*/b", b"a*", b"a.*", b"local/>", b"b", b">"]
TAILS = [b"", b"\n", b"\0x\r\n", b"|:[]"]
SOURCES = [b"far/prog/1", b"far/prog/2", b"?"]
PEER = b"10.0.0.2:5400"

Item = tuple[bytes, ...]  # a message in the form in which it is heard


class Ledger:
    """What the model knows of one client."""

    def __init__(self, client: FakeClient, small: bool) -> None:
        self.client = client
        self.small = small  # its queue may run full
        self.expected: list[Item] = []
        self.heard: list[bytes] = []
        self.subscriptions: Counter[tuple[bytes, bytes]] = Counter()
        self.separator, self.form, self.chosen = b"/", b"plain", False
        self.listening, self.echo, self.tap, self.told = False, True, False, False

    def wants(self, chan: bytes) -> bool:
        if chan == b"!":
            return self.listening
        if chan.startswith(b"!"):
            return self.listening and matches_target(chan[1:], self.client.name)
        return any(
            patterns.matches(pattern, separator, chan)
            for (separator, pattern), count in self.subscriptions.items()
            if count
        )

    def item(self, src: bytes, chan: bytes, payload: bytes, peer: bytes) -> Item:
        if self.tap or self.form == b"full":
            return b"full", peer, b"ok", src, chan, payload, self.interface(peer)
        if self.form == b"lines":
            shown = payload.replace(b"\n", rb"\n").replace(b"\r", rb"\r").replace(b"\0", rb"\0")
            return b"lines", b"MSG %b %b\n" % (chan, shown)
        return b"plain", chan, payload

    def interface(self, peer: bytes) -> bytes:
        """What it is told of where a datagram came by."""
        return (sbus.NOWHERE if peer == b"local" else b"eth0") if self.told else b""


def as_item(packet: bytes) -> Item | int | None:
    """A packet that was heard: a message, the number of a notice, or None for an answer."""
    if packet.startswith(b"CMSG dropped"):
        return int(packet[13:])
    if packet.startswith(b"CMSG "):
        return None
    if packet.startswith(b"RECV "):
        recv = recv_of(packet)
        if recv.verdict != b"ok":
            return b"rejected", recv.datagram, recv.interface
        message = Message.parse(Envelope.parse(recv.datagram).body)
        return b"full", recv.peer, recv.verdict, message.src, message.chan, message.payload, recv.interface
    head, _, _ = packet.partition(b" ")
    assert head == b"MSG"
    chan, nul, payload = packet[4:].partition(b"\0")
    return (b"plain", chan, payload) if nul else (b"lines", packet)


class Interleaving(RuleBasedStateMachine):
    @initialize(reorder=st.sampled_from([0, 0, 8]))
    def start(self, reorder: int):
        self.bus = Bus(reorder=reorder, block_seconds=5)
        self.reorder = reorder
        self.ledgers: list[Ledger] = []
        self.number = 0
        self.last_seen: dict[bytes, int] = {}
        self.seen: dict[bytes, set[int]] = {}
        self.next_seq = dict.fromkeys(SOURCES, 10_000)

    # -- the model

    def payload(self, tail: bytes) -> bytes:
        """One that no other message has."""
        self.number += 1
        return b"%d" % self.number + tail

    def expect(self, src: bytes, chan: bytes, payload: bytes, peer: bytes, sender: Ledger | None = None):
        for ledger in self.ledgers:
            if ledger.tap or (ledger.wants(chan) and (ledger is not sender or ledger.echo)):
                ledger.expected.append(ledger.item(src, chan, payload, peer))

    def expect_rejected(self, *datagrams: bytes):
        for ledger in self.ledgers:
            if ledger.tap:
                ledger.expected += [(b"rejected", one, ledger.interface(ELSEWHERE)) for one in datagrams]

    def say(self, ledger: Ledger, *packets_: bytes):
        ledger.client.say(*packets_)
        self.settle()

    def settle(self):
        """Part with those whom the relay had disconnected."""
        for ledger in [ledger for ledger in self.ledgers if not ledger.client.connected]:
            self.part_with(ledger)

    def part_with(self, ledger: Ledger):
        self.ledgers.remove(ledger)
        ledger.heard += ledger.client.heard()
        self.check(ledger, all_of_it=False)

    def check(self, ledger: Ledger, *, all_of_it: bool):
        at = 0
        for packet in ledger.heard:
            item = as_item(packet)
            if isinstance(item, int):
                assert ledger.small, "it always had room"
                at += item
            elif item is not None:
                assert at < len(ledger.expected), packet
                assert item == ledger.expected[at]
                at += 1
        assert at <= len(ledger.expected)
        assert at == len(ledger.expected) or not all_of_it

    def one(self, index: int) -> Ledger:
        return self.ledgers[index % len(self.ledgers)]

    def free(self, index: int) -> Ledger | None:
        """A client that may speak: the daemon does not read from one that is held."""
        ledger = self.one(index)
        return None if ledger.client.held else ledger

    some_client = st.integers(0, MOST_CLIENTS - 1)
    has_clients = precondition(lambda self: self.ledgers)

    # -- clients

    @precondition(lambda self: len(self.ledgers) < MOST_CLIENTS)
    @rule(
        pid=st.integers(0, 3),
        queue=st.sampled_from([None, None, b"drop-oldest", b"drop-newest", b"block", b"disconnect"]),
        pattern=st.sampled_from([None, b"", b"a/>", b"local/>"]),
        packed=st.booleans(),
    )
    def connect(self, pid: int, queue: bytes | None, pattern: bytes | None, packed: bool):
        client = self.bus.connect(pid=pid, privileged=True)
        ledger = Ledger(client, queue is not None)
        self.ledgers.append(ledger)
        if queue:
            self.say(ledger, b"CMSG queue\0packets=3 bytes=400 policy=" + queue)
        if packed:
            self.say(ledger, b"CMSG pack\0on")
        if pattern is not None:
            self.say(ledger, b"SUB " + pattern)
            ledger.subscriptions[b"/", pattern] += 1
            ledger.listening = True

    @has_clients
    @rule(index=some_client, pattern=st.sampled_from(PATTERNS), typed=st.sampled_from([b"", b"", b"", b"\n"]))
    def subscribe(self, index: int, pattern: bytes, typed: bytes):
        if ledger := self.free(index):
            try:
                patterns.check(pattern, ledger.separator)
            except PacketError:
                return
            self.say(ledger, b"SUB " + pattern + typed)
            ledger.subscriptions[ledger.separator, pattern] += 1
            ledger.listening = True
            if typed and not ledger.chosen:
                ledger.form = b"lines"

    @has_clients
    @rule(index=some_client, pattern=st.sampled_from(PATTERNS))
    def unsubscribe(self, index: int, pattern: bytes):
        if ledger := self.free(index):
            key = ledger.separator, pattern
            errors = self.bus.relay.state.counters.errors
            self.say(ledger, b"UNSUB " + pattern)
            assert self.bus.relay.state.counters.errors - errors == (not ledger.subscriptions[key])
            ledger.subscriptions[key] = max(0, ledger.subscriptions[key] - 1)

    @has_clients
    @rule(
        index=some_client,
        setting=st.sampled_from(
            ["echo", "no echo", "listen", "tap", "told tap", "no tap", "pack", "no pack", "dot", "slash"]
        ),
    )
    def set(self, index: int, setting: str):
        if not (ledger := self.free(index)):
            return
        match setting:
            case "echo" | "no echo":
                ledger.echo = setting == "echo"
                self.say(ledger, b"CMSG echo/on" if ledger.echo else b"CMSG echo/off")
            case "listen":
                ledger.listening = True
                self.say(ledger, b"CMSG listen")
            case "tap" | "told tap" | "no tap":
                ledger.tap, ledger.told = setting != "no tap", setting == "told tap"
                words = {"tap": b"on", "told tap": b"interface", "no tap": b"off"}
                self.say(ledger, b"CMSG tap\0" + words[setting])
            case "pack" | "no pack":
                self.say(ledger, b"CMSG pack\0on" if setting == "pack" else b"CMSG pack\0off")
            case _:
                ledger.separator = b"." if setting == "dot" else b"/"
                self.say(ledger, b"CMSG separator\0" + ledger.separator)

    @has_clients
    @rule(index=some_client, name=st.sampled_from([b"here/prog/1", b"here/prog/2/x", b"here/other"]))
    def rename(self, index: int, name: bytes):
        if ledger := self.free(index):
            self.say(ledger, b"CMSG name\0" + name)  # or refused, if it is taken

    @has_clients
    @rule(index=some_client, form=st.sampled_from([b"plain", b"full", b"lines"]))
    def choose_format(self, index: int, form: bytes):
        if ledger := self.free(index):
            self.say(ledger, b"CMSG format\0" + form)
            ledger.form, ledger.chosen = form, True

    @has_clients
    @rule(index=some_client, room=st.sampled_from([0, 0, 1, 3]))
    def stop_reading(self, index: int, room: int):
        self.one(index).client.stop_reading(room)

    @has_clients
    @rule(index=some_client, room=st.sampled_from([1, 1, 2, UNLIMITED]))
    def go_on_reading(self, index: int, room: int):
        ledger = self.one(index)
        ledger.heard += ledger.client.take(room)
        self.settle()

    @has_clients
    @rule(index=some_client)
    def disconnect(self, index: int):
        ledger = self.one(index)
        ledger.client.leave()
        self.settle()

    @has_clients
    @rule(index=some_client)
    def vanish(self, index: int):
        self.one(index).client.vanish()

    @rule(seconds=st.sampled_from([1, 6]))
    def wait(self, seconds: int):
        self.bus.tick(seconds)
        self.settle()

    # -- messages

    @has_clients
    @rule(
        index=some_client,
        messages=st.lists(
            st.tuples(st.sampled_from([*CHANNELS, b"bad chan", b""]), st.sampled_from(TAILS)),
            min_size=1,
            max_size=6,
        ),
        packed=st.booleans(),
    )
    def publish(self, index: int, messages: list[tuple[bytes, bytes]], packed: bool):
        if not (ledger := self.free(index)):
            return
        packets_ = []
        for chan, tail in messages:
            payload = self.payload(tail)
            packets_.append(b"MSG %b\0%b" % (chan, payload))
            if valid_chan(chan):
                self.expect(ledger.client.name, chan, payload, b"local", ledger)
        if packed and ledger.client.session.packed:
            self.say(ledger, sbus.pack(packets_))
        else:
            self.say(ledger, *packets_)

    @rule(
        messages=st.lists(
            st.tuples(
                st.sampled_from(SOURCES),
                st.sampled_from([1, 1, 1, 2, 5, 9, 0, -1, -2, -8, -9, -5000]),
                st.sampled_from([*CHANNELS, b"bad chan"]),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def hear(self, messages: list[tuple[bytes, int, bytes]]):
        """New ones, gaps, repetitions, late ones and restarts; some are not sound."""
        heard = []
        for src, step, chan in messages:
            last = self.last_seen.get(src, 10_000)
            seq = max(0, last + step)
            payload = self.payload(b"")
            heard.append(Envelope(b"BCCN1", b"%b:%d:%b|%b" % (src, seq, chan, payload)).serialize())
            if valid_chan(chan) and self.is_new(src, seq) and not chan.startswith(b"local/"):
                self.expect(src, chan, payload, PEER)
            else:
                self.expect_rejected(heard[-1])
        self.hear_and_settle(*heard)

    def is_new(self, src: bytes, seq: int) -> bool:
        """The document's rule, with the reorder window."""
        if src == b"?":
            return True
        last = self.last_seen.get(src)
        seen = self.seen.setdefault(src, set())
        if last is not None and seq <= last and last - seq < 1000:
            new = last - seq <= self.reorder and seq not in seen
            seen.add(seq)
            return new
        if last is not None and seq < last:
            seen.clear()
        seen.add(seq)
        self.last_seen[src] = seq
        return True

    @precondition(lambda self: self.bus.sent)
    @rule(first=st.integers(0, 1000), count=st.integers(1, 20))
    def echo_from_the_segment(self, first: int, count: int):
        """What was sent comes back: its clients may be there still, or not, or have another name."""
        first %= len(self.bus.sent)
        echoes = self.bus.sent[first : first + count]
        self.expect_rejected(*echoes)
        self.hear_and_settle(*echoes)

    @has_clients
    @rule(index=some_client, ahead=st.sampled_from([-CLOCK, 0, 5]))
    def forge(self, index: int, ahead: int):
        """Somebody else speaks in the name of a client that is here."""
        client = self.one(index).client
        forged = datagram(client.name, client.session.seq + ahead, b"a", b"forged")
        self.expect_rejected(forged)
        self.hear_and_settle(forged)

    @rule(noise=st.sampled_from([b"", b"noise", b"BCCN1[9]short", b"BCCN2[3]abc"]))
    def hear_noise(self, noise: bytes):
        self.expect_rejected(noise)
        self.hear_and_settle(noise)

    def hear_and_settle(self, *datagrams: bytes):
        self.bus.hear(*datagrams, peer=PEER)
        self.settle()

    def teardown(self):
        if not hasattr(self, "bus"):
            return
        for ledger in list(self.ledgers):
            ledger.heard += ledger.client.take()
        self.settle()
        for ledger in list(self.ledgers):
            ledger.heard += ledger.client.take()
            self.check(ledger, all_of_it=ledger.client.port not in self.bus.transport.gone)
            ledger.client.leave()
        self.bus.assert_idle()


Interleaving.TestCase.settings = settings(deadline=None, max_examples=300, stateful_step_count=40)
test_each_client_gets_exactly_its_messages = Interleaving.TestCase
