"""The relay as its documents describe it, one packet at a time: no cache, no runs, no queues, no offsets.

``read`` takes the packets of one client, ``hear`` datagrams of the segment; both in the order in which the relay has
read them, with what it judged of each datagram. ``judge`` then holds against it what a client got.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace

from bccnd.errors import FramingError, PacketError, WireError
from bccnd.relay import pattern as patterns
from bccnd.relay.bridge import AGAIN
from bccnd.relay.control import Control
from bccnd.relay.identity import Peer
from bccnd.relay.options import Options
from bccnd.relay.presence import Event
from bccnd.relay.rights import Rights
from bccnd.relay.router import NOTICES, QUESTIONS
from bccnd.relay.session import Session
from bccnd.wire import sbus
from bccnd.wire.bccn1 import (
    SEND_LIMIT,
    Integrity,
    Message,
    Opened,
    matches_target,
    split_target,
    valid_chan,
    valid_src,
)
from bccnd.wire.repair import CHANNEL
from bccnd.wire.sbus import NOWHERE, Cmsg, Msg, Pack, Recv
from bccnd.wire.verdict import Verdict
from tests.relay.fakes import INTERFACE, recv_of

DAEMON = b"here/bccnd/0"
SIMPLE = {b"ping", b"whoami", b"!/cred/whoami", b"clients"}
OBSERVING = {b"status", b"sources"}
CHOICES = {
    b"format": [b"plain", b"full", b"lines"],
    b"pack": [b"on", b"off"],
    b"tap": [b"on", b"off", b"interface"],
    b"separator": [b"/", b"."],
}


def opened_by(integrity: Integrity, datagram: bytes) -> Opened | Verdict:
    try:
        return integrity.open(datagram)
    except WireError as error:
        return error.verdict


def require(right: bool) -> None:
    if not right:
        raise PacketError("refused", "")


class ModelClient:
    """One client, what it must get and which answers it must have; ``connected``: all there are."""

    def __init__(self, session: Session, connected: dict[int, "ModelClient"]) -> None:
        self.connected = connected
        self.answered_again = 0  # until when what it brings again is not answered
        self.name = session.name
        self.peer: Peer = session.peer
        self.rights: Rights = session.rights  # what they give is for tests of their own
        self.patterns: Counter[tuple[bytes, bytes]] = Counter()
        self.settings = {b"format": b"plain", b"pack": b"off", b"tap": b"off", b"separator": b"/"}
        self.format_chosen = self.listening = False
        # How packets that were read together are taken apart: whether PACKs are, and lines. None: not yet.
        self.apart: tuple[bool, bool] | None = None
        self.echo = True
        self.watches: set[tuple[bytes, bytes]] = set()
        # A Message where only the format ``full`` shows all of it.
        self.expected: deque[bytes | Message] = deque()
        self.answers: deque[set[bytes]] = deque()  # of each, the key, or a key and a word: one of them

    @property
    def packed(self) -> bool:
        return self.settings[b"pack"] == b"on"

    @property
    def tapping(self) -> bool:
        return self.settings[b"tap"] != b"off"

    def types_ahead(self, packet: bytes) -> bool:
        """Whether it is a shell's first SUB with more lines behind it."""
        undecided = not self.format_chosen and not self.packed
        return undecided and packet.startswith(b"SUB ") and len(lines(packet)) > 1

    def reached_by(self, chan: bytes) -> bool:
        return any(patterns.matches(pattern, separator, chan) for separator, pattern in self.patterns)

    def wants(self, chan: bytes) -> bool:
        if not chan.startswith(b"!"):
            return self.reached_by(chan)
        return self.listening and (chan == b"!" or matches_target(chan[1:], self.name) or self.bridges(chan))

    def bridges(self, chan: bytes) -> bool:
        """Whether it wants what is directed to others; what is for a name of the host is for nobody else."""
        exact, value = split_target(chan[1:])
        here = {each.name for each in self.connected.values() if each.listening}
        for_here = value.partition(b"/")[0] == b"here" or (exact and value in here) or chan == CHANNEL
        return not for_here and any(
            patterns.is_directed(pattern) and patterns.matches(pattern[1:], separator, chan[1:])
            for separator, pattern in self.patterns
        )

    def asked_for(self, notice: bytes) -> bool:
        return any(
            pattern.startswith(NOTICES) and patterns.matches(pattern, separator, notice)
            for separator, pattern in self.patterns
        )

    def get(self, chan: bytes, payload: bytes) -> None:
        match self.settings[b"format"]:
            case b"plain":
                self.expected.append(Msg(chan, payload).serialize())
            case b"lines":
                self.expected.append(Msg(chan, payload).serialize_line())
            case _:
                self.expected.append(Message(b"", 0, chan, payload))


class Model:
    def __init__(self, integrity: Integrity, options: Options) -> None:
        self.integrity = integrity
        self.limits = options.limits
        self.channels_kept = options.retain.channels
        self.local = [pattern.encode() for pattern in options.local]
        self.retain = [pattern.encode() for pattern in options.retain.patterns]
        self.clients: dict[int, ModelClient] = {}  # also those who have left
        self.connected: dict[int, ModelClient] = {}
        self.sent: list[bytes | tuple[bytes, bytes, bytes]] = []  # a whole datagram, or src, chan and payload
        self.retained: dict[bytes, bytes] = {}
        # What the relay keeps as a last value, of several in a row on one channel the last; and what gave way to it.
        self.kept: deque[tuple[bytes, bytes, set[bytes]]] = deque()
        # Source, channel, payload; not yet delivered here.
        self.own_words: deque[tuple[bytes, bytes, bytes]] = deque()

    def connect(self, session: Session) -> None:
        client = ModelClient(session, self.connected)
        self.clients[session.number] = self.connected[session.number] = client

    def disconnect(self, session: Session) -> None:
        del self.connected[session.number]

    def hear(self, datagrams: Sequence[bytes], judged: deque[Verdict], peer: bytes, unix_ns: int) -> None:
        for datagram in datagrams:
            opened = self.opened(datagram)
            verdict = opened if isinstance(opened, Verdict) else judged.popleft()
            if isinstance(opened, Verdict) or verdict is not Verdict.OK:
                self.show(Recv(peer, unix_ns, verdict.encode(), datagram).serialize())
            else:
                self.show(Recv(peer, unix_ns, b"ok", datagram).serialize())
                self.deliver(opened[2], datagram[opened[4] :], None)
                self.say(b"!" + opened[0], *notices_of(opened[0]))

    def opened(self, datagram: bytes) -> Opened | Verdict:
        return opened_by(self.integrity, datagram)

    def begin(self, number: int) -> None:
        """Packets come that were read together. They are taken apart at once when the client packs, or is in the
        format ``lines``, and as it is then: so one that turns packing off may still have sent a PACK among them.
        """
        self.clients[number].apart = None

    def read(self, number: int, packets: Sequence[bytes], judged: deque[Verdict], unix_ns: int) -> None:
        """What is done of packets that were read together."""
        client = self.clients[number]
        for packet in packets:
            is_shell = client.settings[b"format"] == b"lines"
            if client.apart is None and (client.packed or is_shell):
                client.apart = client.packed, is_shell
            unpacks, takes_lines = client.apart or (False, False)
            try:
                inside = [packet]
                if unpacks and packet.startswith(sbus.PACK):
                    inside = unpacked(packet)
                elif takes_lines:
                    inside = lines(packet)
                elif client.types_ahead(packet):
                    inside, client.apart = lines(packet), None
                for part in inside:
                    self.take(client, part, judged, unix_ns)
            except FramingError:
                client.answers.append({b"error bad-packet"})
                return

    def take(self, client: ModelClient, packet: bytes, judged: deque[Verdict], unix_ns: int) -> None:
        try:
            if packet.startswith(b"MSG "):
                self.publish(client, packet[4:])
                return
            match sbus.parse(packet):
                case sbus.Sub(pattern, typed):
                    self.subscribe(client, pattern, typed)
                case sbus.Unsub(pattern):
                    self.unsubscribe(client, pattern)
                case Cmsg(key, value):
                    client.answers.append(self.control(client, key, value))
                case sbus.Datagram(datagram):
                    self.bridge(client, datagram, judged, unix_ns)
                case Pack() if client.packed:
                    raise FramingError("bad-packet", "")
                case Pack():
                    raise PacketError("not-agreed", "")
                case _:
                    raise PacketError("bad-packet", "")
        except FramingError:
            raise
        except PacketError as error:
            client.answers.append({b"error " + error.code.encode()})

    def publish(self, client: ModelClient, rest: bytes) -> None:
        message = Msg.parse_line(rest) if client.settings[b"format"] == b"lines" else Msg.parse(rest)
        chan, payload = message.chan, message.payload
        if not valid_chan(chan) or chan.startswith(b"!/"):
            raise PacketError("bad-channel", "")
        if not client.rights.may_publish(chan):
            raise PacketError("refused", "")
        if chan.startswith(NOTICES):
            raise PacketError("refused", "")
        if self.is_local(chan):
            if len(payload) > self.limits.local_payload:
                raise PacketError("too-large", "")
        else:
            # Sequence numbers begin at the clock: 16 digits, but for one that follows a jump.
            body = b"%b:%d:%b|%b" % (client.name, 10**15, chan, payload)
            if len(self.integrity.seal(body)) > SEND_LIMIT:
                raise PacketError("too-large", "")
            self.sent.append((client.name, chan, payload))
        self.show(Message(client.name, 0, chan, payload))
        self.deliver(chan, payload, client)
        self.say(b"!" + client.name)

    def bridge(self, client: ModelClient, datagram: bytes, judged: deque[Verdict], unix_ns: int) -> None:
        if not client.rights.bridge:
            raise PacketError("refused", "")
        opened, datagram = self.sealed(datagram)
        if opened[2].startswith(b"!/") or opened[2] == CHANNEL:
            raise PacketError("bad-channel", "")
        if not client.rights.may_publish(opened[2]):
            raise PacketError("refused", "")
        verdict = Verdict.LOCAL_CHANNEL if self.is_local(opened[2]) else judged.popleft()
        if verdict in AGAIN and unix_ns < client.answered_again:
            return
        if verdict in AGAIN:
            client.answered_again = unix_ns + 10**9
        if verdict is not Verdict.OK:
            raise PacketError("bad-datagram", "")
        self.sent.append(datagram)
        self.show(Recv(b"local", unix_ns, b"ok", datagram).serialize())
        self.deliver(opened[2], datagram[opened[4] :], client)
        self.say(b"!" + opened[0], *notices_of(opened[0]))

    def sealed(self, datagram: bytes) -> tuple[Opened, bytes]:
        """A datagram of elsewhere as it is here."""
        if len(datagram) > SEND_LIMIT:
            raise PacketError("too-large", "")
        opened = self.opened(datagram)
        if opened is Verdict.UNAUTHENTICATED and not isinstance(
            opened_by(Integrity(self.integrity.keys), datagram), Verdict
        ):
            return self.sealed(self.integrity.seal(datagram[datagram.index(b"]") + 1 :]))
        if isinstance(opened, Verdict):
            raise PacketError("bad-datagram", "")
        return opened, datagram

    def deliver(self, chan: bytes, payload: bytes, sender: ModelClient | None) -> None:
        for client in self.connected.values():
            if not client.tapping and client.wants(chan) and (client is not sender or client.echo):
                client.get(chan, payload)
        if not chan.startswith(b"!") and any(patterns.matches(wanted, b"/", chan) for wanted in self.retain):
            self.retained.pop(chan, None)
            if payload:
                self.retained[chan] = payload
            if self.kept and self.kept[0][:2] == (chan, payload):
                for gone in self.kept.popleft()[2]:
                    self.retained.pop(gone, None)

    def say(self, *chans: bytes) -> None:
        """Deliver what the relay has said by itself; if ``chans`` are given, what is first and on these."""
        while self.own_words and (not chans or self.own_words[0][1] in chans):
            src, chan, payload = self.own_words.popleft()
            if chan.startswith(NOTICES):
                for client in self.connected.values():
                    if client.asked_for(chan):
                        client.get(chan, payload)
            else:
                self.sent.append((src, chan, payload))
                self.show(Message(src, 0, chan, payload))
                self.deliver(chan, payload, None)

    def show(self, seen: bytes | Message) -> None:
        for client in self.connected.values():
            if not client.tapping:
                continue
            packet = seen
            if client.settings[b"tap"] == b"interface" and isinstance(seen, bytes):
                recv = Recv.parse(seen[5:])
                shown = replace(recv, interface=NOWHERE if recv.peer == b"local" else INTERFACE)
                packet = shown.serialize()
            if client.settings[b"format"] == b"lines" and isinstance(packet, bytes):
                packet = sbus.line_of(packet)
            client.expected.append(packet)

    def subscribe(self, client: ModelClient, pattern: bytes, typed: bool) -> None:
        separator = client.settings[b"separator"]
        held = (separator, pattern) in client.patterns
        if not held and len(client.patterns) >= self.limits.subscriptions:
            raise PacketError("limit", "")
        if typed and not client.format_chosen:
            client.settings[b"format"] = b"lines"  # however the subscription turns out
        if not client.rights.may_subscribe(pattern, separator):
            raise PacketError("refused", "")
        patterns.check(pattern[patterns.is_directed(pattern) :], separator)
        missed = [
            (chan, payload)
            for chan, payload in sorted(self.retained.items())
            if patterns.matches(pattern, separator, chan) and not client.reached_by(chan)
        ]
        client.patterns[separator, pattern] += 1
        client.listening = True
        if not client.tapping:
            for chan, payload in missed:
                client.get(chan, payload)

    def unsubscribe(self, client: ModelClient, pattern: bytes) -> None:
        key = client.settings[b"separator"], pattern
        if not client.patterns[key]:
            del client.patterns[key]
            raise PacketError("not-subscribed", "")
        client.patterns[key] -= 1
        client.patterns += Counter()  # forgets what is at 0

    def control(self, client: ModelClient, key: bytes, value: bytes) -> set[bytes]:
        """Carry it out; how the answer may begin."""
        acts = {
            b"name": self.rename,
            b"heartbeat": self.set_heartbeat,
            b"watch": self.watch,
            b"unwatch": self.unwatch,
        }
        if key in CHOICES:
            if value not in CHOICES[key]:
                raise PacketError("bad-value", "")
            require(key != b"tap" or value == b"off" or client.rights.tap)
            client.settings[key] = value
            client.format_chosen = client.format_chosen or key == b"format"
        elif key in acts:
            acts[key](client, value)
        elif key == b"peer":
            require(client.rights.speak_for)
            raise PacketError("bad-value", "")  # as all that the fuzzer says of others
        elif key == b"queue" or key.startswith((b"blocking/", b"order/")):
            blocks = {b"error refused"} if not client.rights.block else set()
            return {key, b"error bad-value", *blocks}  # of no consequence but for who has no room
        elif key in (b"echo/on", b"echo/off"):
            client.echo = key == b"echo/on"
        elif key == b"listeners":
            return {b"listeners %d" % self.listeners(client, value)}
        elif key == b"listen":
            require(client.rights.may_listen)
            client.listening = True
        elif key in OBSERVING:
            require(client.rights.observe)
        elif key not in SIMPLE:
            assert key not in Control.KEYS, "a key that the model does not know"
            raise PacketError("unknown-key", "")
        return {b"pong" if key == b"ping" else key}

    def unwatch(self, client: ModelClient, pattern: bytes) -> None:
        client.watches.discard((client.settings[b"separator"], pattern))

    def watch(self, client: ModelClient, pattern: bytes) -> None:
        """What is told of it is for tests of its own."""
        separator = client.settings[b"separator"]
        patterns.check(pattern, separator)
        require(not pattern.startswith(NOTICES) and client.rights.may_publish_all(separator, pattern))
        if (separator, pattern) not in client.watches and len(client.watches) >= self.limits.subscriptions:
            raise PacketError("limit", "")
        client.watches.add((separator, pattern))

    def listeners(self, client: ModelClient, value: bytes) -> int:
        """How many others it reaches; if the other hosts are asked, too, that is said first."""
        chan, space, token = value.partition(b" ")
        if not valid_chan(chan) or chan.startswith(b"!/"):
            raise PacketError("bad-channel", "")
        if space and not (token and len(token) <= 128 and b"\n" not in token):
            raise PacketError("bad-value", "")
        if not client.rights.may_publish(chan):
            raise PacketError("refused", "")
        others = [each for each in self.connected.values() if each is not client and not each.tapping]
        wants = ModelClient.asked_for if chan.startswith(NOTICES) else ModelClient.wants
        ours = chan[:1] == b"!" and (chan[1:] + b"/").startswith(b"here/")
        if token and not ours and not self.is_local(chan):  # which presence notices are here, too
            self.say(QUESTIONS)
        calls_the_daemon = b"/" in chan and chan[:1] == b"!" and matches_target(chan[1:], DAEMON)
        return sum(wants(each, chan) for each in others) + calls_the_daemon

    def set_heartbeat(self, client: ModelClient, value: bytes) -> None:
        seconds, _, text = value.partition(b" ")
        if value == b"off":
            self.say(b"heartbeat/" + client.name)
        elif not (seconds.isdigit() and len(seconds) < 5 and 1 <= int(seconds) <= 3600 and len(text) <= 256):
            raise PacketError("bad-value", "")
        elif not client.rights.may_publish(b"heartbeat/" + client.name):
            raise PacketError("refused", "")

    def rename(self, client: ModelClient, name: bytes) -> None:
        before, client.name = client.name, self.renamed(client, name)
        if before != client.name:
            self.say(b"heartbeat/" + before)
            self.say(notice_of(Event.LEFT, before))
            self.say(*(notice_of(event, client.name) for event in Event if event is not Event.LEFT))

    def renamed(self, client: ModelClient, name: bytes) -> bytes:
        printable = name.isascii() and name.decode().isprintable()
        if not valid_src(name) or not printable or b"*" in name or b"" in name.split(b"/") or name == b"?":
            raise PacketError("bad-name", "")
        if name.split(b"/")[1:2] == [b"bccnd"]:
            raise PacketError("refused", "")
        if any(other.name == name and other is not client for other in self.connected.values()):
            raise PacketError("name-taken", "")
        base, (parent, _, last) = (
            b"here/%b/%d" % (client.peer.program, client.peer.pid),
            name.rpartition(b"/"),
        )
        below = name == base or name.startswith(base + b"/")
        peers = {other.name: other.peer for other in self.connected.values()}
        child = last == b"%d" % client.peer.pid and parent in peers and peers[parent].uid == client.peer.uid
        alone = all(
            peer.uid == client.peer.uid
            for held, peer in peers.items()
            if held.startswith(name + b"/") or (held.count(b"/") > 1 and name.startswith(held + b"/"))
        )
        own = client.peer.pid and (below or child) and alone
        if name != client.name and not own and not client.rights.may_be_named(name):
            raise PacketError("refused", "")
        return name

    def is_local(self, chan: bytes) -> bool:
        return not chan.startswith(b"!") and any(patterns.matches(local, b"/", chan) for local in self.local)

    # -- what it is all for

    def assert_same_state(self, sessions: dict[int, Session]) -> None:
        assert not self.kept
        assert len(self.retained) <= self.channels_kept
        assert sessions.keys() == self.connected.keys()
        for number, session in sessions.items():
            client = self.connected[number]
            assert session.name == client.name
            assert session.subscriptions == client.patterns
            assert session.listening == client.listening
            assert session.echo == client.echo
            assert (session.packed, session.tap) == (client.packed, client.tapping)
            assert session.format.encode() == client.settings[b"format"]

    def judge(self, number: int, got: Sequence[bytes], stayed: bool) -> None:
        """``got``: everything that came to a client, unpacked; ``stayed``: to the end, and took all there was."""
        client = self.clients[number]
        for packet in got:
            if packet.startswith(b"CMSG "):
                self.judge_control(client, Cmsg.parse(packet[5:]))
            else:
                assert client.expected, (number, packet)
                assert same(packet, client.expected.popleft()), (number, packet)
        if stayed:
            assert not client.expected, f"{number} has not got {client.expected[0]!r}"
            assert not client.answers, f"{number} was not answered {client.answers[0]!r}"

    def judge_control(self, client: ModelClient, control: Cmsg) -> None:
        if control.key == b"dropped":
            for _ in range(int(control.value)):
                client.expected.popleft()
        elif control.key not in (b"closing", b"wanted"):
            word = control.value.partition(b" ")[0]
            worded = control.key in (b"error", b"listeners")
            said = control.key + b" " + word if worded else control.key
            assert said in client.answers.popleft(), control

    def judge_sent(self, datagrams: Sequence[bytes]) -> None:
        last: dict[bytes, int] = {}
        for datagram, expected in zip(datagrams, self.sent, strict=True):
            if isinstance(expected, bytes):
                assert datagram == expected
                continue
            src, seq, chan, _, payload_at = self.integrity.open(datagram)
            assert (src, chan, datagram[payload_at:]) == expected
            assert seq > last.get(src, 0)
            assert len(datagram) <= SEND_LIMIT
            last[src] = seq


def notices_of(src: bytes) -> list[bytes]:
    """The channels that report a source."""
    return [notice_of(event, src) for event in Event]


def notice_of(event: Event, src: bytes) -> bytes:
    return b"%b%b/%b" % (NOTICES, event.encode(), src)


def lines(packet: bytes) -> list[bytes]:
    """Every line that is not empty; a packet with a NUL, a PACK and a datagram are one, whatever they hold."""
    if b"\0" in packet or packet.startswith((sbus.PACK, b"BCCN")) or b"\n" not in packet[:-1]:
        return [packet]
    *ended, last = packet.split(b"\n")
    return [line for line in [*(each + b"\n" for each in ended), last] if line.strip(b"\r\n")]


def unpacked(packet: bytes) -> list[bytes]:
    """Every packet of a PACK, one that is a PACK itself too: that is refused when it comes to it."""
    rest, packets = packet[len(sbus.PACK) :], []
    while rest:
        length = int.from_bytes(rest[:4], "big")
        if len(rest) < 4 + length or len(rest) < 4:
            raise FramingError("bad-packet", "")
        packets.append(rest[4 : 4 + length])
        rest = rest[4 + length :]
    return packets


def same(packet: bytes, expected: bytes | Message) -> bool:
    if isinstance(expected, bytes):
        return packet == expected
    datagram = recv_of(packet).datagram
    message = Message.parse(datagram[datagram.index(b"]") + 1 :])
    return (message.chan, message.payload) == (expected.chan, expected.payload) and (
        not expected.src or message.src == expected.src
    )
