"""What comes from the local bus: the hot path against the plain pair, bridging, taps, errors and limits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import PacketError
from bccnd.relay.rights import AccessList, Grant
from bccnd.wire import sbus
from bccnd.wire.bccn1 import Envelope, Integrity, Level, Message, valid_chan
from tests.relay.fakes import CLOCK, ELSEWHERE, Bus, datagram
from tests.relay.rubble import channels, mostly, payloads

thorough = settings(deadline=None, max_examples=150)

packets = mostly(
    st.builds(lambda chan, payload: b"MSG %b\0%b" % (chan, payload), channels, payloads),
    [
        b"MSG",
        b" ",
        b"\0",
        b"a",
        b"MSG a",
        b"MSG a\0",
        b"\n",
        b"SUB",
        b"UNSUB zz",
        b"RECV ",
        b"BCCN1[",
        b"CMSG ",
    ],
)


def publish_of(packet: bytes) -> tuple[bytes, bytes] | None:
    """What a packet publishes, by the plain pair."""
    try:
        message = sbus.parse(packet)
    except PacketError:
        return None
    sound = isinstance(message, sbus.Msg) and valid_chan(message.chan)
    return (message.chan, message.payload) if isinstance(message, sbus.Msg) and sound else None


def content(sealed: bytes) -> tuple[bytes, bytes]:
    message = Message.parse(Envelope.parse(sealed).body)
    return message.chan, message.payload


@thorough
@given(reads=st.lists(st.lists(packets, max_size=12), max_size=4), packed=st.booleans())
def test_clients_publish_what_the_plain_pair_finds(reads: list[list[bytes]], packed: bool):
    """Also where a shorter packet lies over a longer one from before."""
    bus = Bus()
    full = bus.connect(b"SUB ", b"CMSG format\0full")
    client = bus.connect(b"SUB ", b"CMSG format\0plain", b"CMSG pack\0on" if packed else b"CMSG pack\0off")
    for read in reads:
        expected = [found for packet in read if (found := publish_of(packet))]
        client.say(*([sbus.pack(read)] if packed else read))
        heard = [packet for packet in client.heard() if not packet.startswith(b"CMSG ")]
        assert heard == [b"MSG %b\0%b" % message for message in expected]
        assert [content(recv.datagram) for recv in full.shown()] == expected
        assert list(map(content, bus.sent)) == [found for found in expected if found[0] != b"local/x"]
        bus.sent.clear()


@pytest.mark.parametrize(
    "integrity",
    [Integrity(), Integrity((), Level.CRC32), Integrity([b"k" * 32], Level.HMAC)],
    ids=["none", "crc32", "hmac"],
)
@pytest.mark.parametrize("together", [False, True], ids=["alone", "behind one of the same channel"])
def test_a_datagram_has_at_most_1400_bytes(integrity: Integrity, together: bool):
    bus = Bus(integrity=integrity)
    client = bus.connect(b"SUB demo/x")
    smallest = integrity.seal(b"%b:%d:demo/x|" % (client.name, CLOCK) + b"x" * 1000)
    room = 1400 - (len(smallest) - 1000)
    first = [b"MSG demo/x\0"] * together
    fits, longer = b"MSG demo/x\0" + b"x" * room, b"MSG demo/x\0" + b"x" * (room + 1)
    assert client.ask(*first, fits) == [*first, fits]
    assert len(bus.sent.pop()) == 1400
    assert client.ask(*first, longer, fits) == [
        *first,
        b"CMSG error\0too-large MSG demo/x: 1401 bytes on the wire, at most 1400",
        fits,
    ]
    assert len(bus.sent.pop()) == 1400


@pytest.mark.parametrize("payload_limit", [10, 65536])
def test_a_local_channel_takes_as_much_as_is_configured(payload_limit: int):
    bus = Bus(local_payload=payload_limit)
    client = bus.connect(b"SUB local/x")
    fits = b"MSG local/x\0" + b"x" * payload_limit
    assert client.ask(fits, fits + b"x", fits) == [
        fits,
        b"CMSG error\0too-large MSG local/x: %d bytes of payload, at most %d"
        % (payload_limit + 1, payload_limit),
        fits,
    ]
    assert bus.sent == []


def test_empty_packets():
    bus = Bus()
    client = bus.connect(b"SUB ")
    assert client.ask(b"MSG a\0", b"", b"MSG a\0")[::2] == [b"MSG a\0", b"MSG a\0"]
    assert bus.relay.state.counters.errors == 1


@pytest.mark.parametrize("short", [b"", b"B", b"BCC"])
def test_a_short_packet_over_a_datagram_is_no_datagram(short: bytes):
    """Where both are read, the rest of the datagram lies behind the short one."""
    client = Bus().connect(privileged=True)
    client.say(b"BCCN1[14]there/x/1:0:a|")
    (answer,) = client.ask(short)
    assert answer.startswith(b"CMSG error\0bad-packet packet: begins b'%b'" % short)


def test_local_channels_take_no_numbers_of_the_segment():
    bus = Bus()
    full = bus.connect(b"SUB ", b"CMSG format\0full")
    client = bus.connect(pid=7)
    client.say(b"MSG a\0", b"MSG local/a\0", b"MSG b\0", b"MSG local/b\0", b"MSG ! \0", b"MSG a\0")
    messages = [Message.parse(Envelope.parse(recv.datagram).body) for recv in full.shown()]
    assert [(message.chan, message.seq) for message in messages] == [
        (b"a", CLOCK),
        (b"local/a", 1),
        (b"b", CLOCK + 1),
        (b"local/b", 2),
        (b"a", CLOCK + 2),
    ]
    assert [bus.integrity.open(sent)[:3] for sent in bus.sent] == [
        (b"here/prog/7", CLOCK, b"a"),
        (b"here/prog/7", CLOCK + 1, b"b"),
        (b"here/prog/7", CLOCK + 2, b"a"),
    ]


# Taps and bridges


def test_tap_sees_each_datagram_once_without_subscription():
    bus = Bus()
    tap = bus.connect(b"SUB ", b"CMSG tap\0on", b"CMSG echo/off", privileged=True)
    client = bus.connect(pid=7)
    client.say(b"MSG a\0one", b"MSG local/a\0two")
    tap.say(b"MSG a\0three")
    bus.hear(datagram(b"x", 1, b"nobody"), b"BCCN1[5]x:1:a", b"noise")
    shown = tap.shown()
    assert [(recv.peer, recv.verdict) for recv in shown] == [(b"local", b"ok")] * 3 + [
        (ELSEWHERE, b"ok"),
        (ELSEWHERE, b"fields"),
        (ELSEWHERE, b"magic"),
    ]
    assert [content(recv.datagram)[1] for recv in shown[:3]] == [b"one", b"two", b"three"]


def test_a_tap_and_its_neighbours_are_shown_things_in_order():
    bus = Bus()
    tap = bus.connect(b"CMSG tap\0on", privileged=True)
    reads = [
        datagram(b"x", 1, b"a"),
        b"noise",
        datagram(b"x", 2, b"a"),
        datagram(b"x", 2, b"a"),
        b"more noise",
    ]
    bus.hear(*reads)
    assert [recv.datagram for recv in tap.shown()] == reads


def test_a_bridged_datagram_goes_everywhere_as_it_is():
    bus = Bus()
    plain, full = bus.connect(b"SUB a"), bus.connect(b"SUB a", b"CMSG format\0full")
    bridge = bus.connect(b"SUB a", b"CMSG echo/off", privileged=True)
    one = datagram(b"far/prog/1", 5, b"a", b"from afar")
    assert bridge.ask(one) == []
    assert plain.heard() == [b"MSG a\0from afar"]
    assert [recv.datagram for recv in full.shown()] == [one]
    assert bus.messages_sent == [one]
    bus.hear(one)
    assert plain.heard() == [], "it comes back from the segment"


@pytest.mark.parametrize(
    ("one", "code", "text"),
    [
        (datagram(b"x", 1, b"local/a"), "bad-datagram", "packet: local-channel"),
        (b"BCCN1[5]x:1:a", "bad-datagram", "packet: fields"),
        (b"BCCN", "bad-datagram", "packet: magic"),
        (datagram(b"here/prog/7", 1, b"a"), "bad-datagram", "packet: conflict"),
        (datagram(b"seen", 1, b"a"), "bad-datagram", "packet: duplicate"),
        (datagram(b"x", 1, b"a", b"x" * 1384), "too-large", "packet: 1401 bytes on the wire, at most 1400"),
    ],
)
def test_datagrams_that_cannot_be_bridged(one: bytes, code: str, text: str):
    bus = Bus()
    bus.connect(pid=7)
    listener = bus.connect(b"SUB ")
    bus.hear(datagram(b"seen", 1, b"a"))
    listener.heard()
    bridge = bus.connect(privileged=True)
    assert bridge.ask(one) == [b"CMSG error\0%b %b" % (code.encode(), text.encode())]
    assert bus.sent == listener.heard() == []


def test_bridging_needs_a_right():
    bus = Bus()
    (answer,) = bus.connect().ask(datagram(b"x", 1, b"a"))
    assert answer.startswith(b"CMSG error\0refused packet: no right")
    assert bus.sent == []


# Errors and limits


@pytest.mark.parametrize(
    ("packet", "error"),
    [
        (b"MSG a b\0", b"bad-channel MSG a b: 1 to 1024 ASCII characters, no white space, ':', '|'"),
        (b"MSG \0x", b"bad-channel MSG : "),
        (b"MSG \xff\0", b"bad-channel MSG \\xff: "),
        (b"MSG !?\0", b"bad-channel MSG !?: "),
        (b"MSG " + b"x" * 1025 + b"\0", b"bad-channel MSG " + b"x" * 64 + b": "),
        (b"MSG no nul", b"bad-packet packet: MSG needs a NUL between channel and payload"),
        (b"MSG ", b"bad-packet packet: MSG needs a NUL"),
        (b"MSG", b"bad-packet packet: begins b'MSG'"),
        (b"SUB", b"bad-packet packet: begins b'SUB'"),
        (b"SUB a*b", b"bad-pattern SUB a*b: '*' must be followed by '/' or the end"),
        (b"SUB !", b"bad-pattern SUB !: "),
        (b"SUB !a", b"refused SUB !a: "),
        (b"SUB !/cred/0", b"bad-pattern SUB !/cred/0: "),
        (b"SUB " + b"x" * 2000, b"bad-pattern SUB " + b"x" * 76 + b": longer than 1024 bytes"),
        (b"UNSUB b", b"not-subscribed UNSUB b: the client holds no such pattern"),
        (b"RECV local 1 ok\0BCCN1[6]x:1:a|", b"bad-packet packet: RECV is what the daemon sends"),
        (b"RECV what", b"bad-packet "),
        (b"hello\n", b"bad-packet packet: begins b'hello\\n'"),
        (b"", b"bad-packet packet: begins b''"),
        (sbus.pack([b"CMSG ping"]), b"not-agreed packet: PACK has to be agreed on by CMSG pack"),
        (b"CMSG nope", b"unknown-key CMSG nope: "),
    ],
)
def test_an_error_names_its_packet_and_changes_nothing(packet: bytes, error: bytes):
    bus = Bus()
    client = bus.connect(b"SUB a", b"CMSG format\0plain")
    answer, after = client.ask(packet, b"MSG a\0still here")
    assert answer.startswith(b"CMSG error\0" + error)
    assert after == b"MSG a\0still here"
    assert bus.relay.state.counters.errors == 1
    assert bus.relay.state.router.subscriptions == 1


@pytest.mark.parametrize(("chan", "what"), [(b"demo/x", "on the wire"), (b"local/x", "of payload")])
@pytest.mark.parametrize("payload", [1400, 9_900, 9_960, 9_970, 10_000, 65_000, 65_537, 66_000])
@pytest.mark.parametrize("integrity", [Integrity(), Integrity([b"k" * 32], Level.HMAC)])
def test_the_size_that_is_too_large_is_named(integrity: Integrity, payload: int, chan: bytes, what: str):
    bus = Bus(integrity=integrity, local_payload=1000 if chan == b"local/x" else 65536)
    client = bus.connect()
    body = Message(client.name, CLOCK, chan, b"x" * payload).serialize()
    size = len(integrity.seal(body)) if what == "on the wire" else payload
    limit = 1400 if what == "on the wire" else 1000
    whole = b"MSG %b\0%b" % (chan, b"x" * payload)
    read = whole[: bus.relay.state.rules.packet_limit + 1]  # as the system call cuts it off
    cut = len(whole) - len(read)
    named = f"more than {size - cut - 1}" if cut else str(size)
    assert client.ask(read) == [
        f"CMSG error\0too-large MSG {chan.decode()}: {named} bytes {what}, at most {limit}".encode()
    ]


def test_patterns_are_limited():
    bus = Bus(subscriptions=2)
    client = bus.connect(b"SUB a", b"SUB b")
    assert client.ask(b"SUB c") == [b"CMSG error\0limit SUB c: at most 2 patterns a client"]
    assert client.ask(b"UNSUB a", b"SUB c", b"MSG c\0") == [b"MSG c\0"]


def test_a_held_pattern_is_never_one_too_many():
    bus = Bus(subscriptions=2)
    client = bus.connect(b"SUB a", b"SUB b")
    assert client.ask(b"SUB b", b"UNSUB b", b"MSG b\0") == [b"MSG b\0"]
    assert client.ask(b"SUB c") == [b"CMSG error\0limit SUB c: at most 2 patterns a client"]


def test_patterns_are_bounded_in_bytes():
    bus = Bus(subscription_bytes=64 << 10)
    client = bus.connect()
    patterns = [b"SUB " + b"a/" * 400 + b"%d" % number for number in range(100)]
    assert client.ask(*patterns)[-1].endswith(b"the patterns of a client take at most 65536 bytes")
    assert client.session.footprint <= 64 << 10
    assert bus.relay.state.router.footprint == client.session.footprint
    client.leave()
    assert bus.relay.state.router.footprint == 0


def long_patterns(count: int) -> list[bytes]:
    return [b"SUB " + b"a" * 900 + b"%d" % number for number in range(count)]


def test_who_holds_most_patterns_is_refused_first():
    bus = Bus(subscription_bytes=64 << 10, clients=200)
    router, whole = bus.relay.state.router, 64 * (64 << 10)
    greedy = [bus.connect(*long_patterns(40), uid=1000) for _ in range(80)]
    assert 0.49 * whole < router.footprint <= 0.5 * whole
    refused = greedy[-1].ask(*long_patterns(1))
    assert refused[-1].endswith(b"the patterns of a user take at most as much as they leave for others")
    others = [bus.connect(*long_patterns(20), uid=1001) for _ in range(20)]
    assert {len(other.session.subscriptions) for other in others} == {20}
    greedy[0].leave()
    assert bus.connect(uid=1002).ask(*long_patterns(20)) == []
    for client in [*greedy[1:], *others]:
        client.leave()
    assert router.footprints.keys() == {1002}


def test_each_user_has_a_part_of_all_patterns():
    bus = Bus(subscription_bytes=64 << 10, clients=200)
    router, whole = bus.relay.state.router, 64 * (64 << 10)
    for uid in range(60):
        for _ in range(3):
            bus.connect(*long_patterns(40), uid=2000 + uid)
    assert whole - router.footprint < 20_000, "so little that a user is left less than its part"
    last = bus.connect(uid=1000)
    assert last.ask(*long_patterns(8)) == []
    assert last.ask(*long_patterns(20))[-1].startswith(b"CMSG error\0limit")
    assert router.footprint <= 2 * whole


# Secret keys of public sbus


SECRET = b"!/cred/100/1000/7/key"


@pytest.mark.parametrize("how", ["alone", "in a pack", "as a line", "from a bridge"])
def test_a_secret_key_of_sbus_never_leaves_its_sender(how: str):
    bus = Bus()
    everybody = bus.connect(b"SUB >", b"CMSG listen", pid=7)
    tap = bus.connect(b"CMSG tap\0on", privileged=True)
    sender = bus.connect(privileged=True)
    text = b"bad-channel MSG %b: a secret key of sbus; nothing on it is delivered or sent" % SECRET
    packet = b"MSG %b\0hush" % SECRET
    match how:
        case "in a pack":
            sender.ask(b"CMSG pack\0on")
            packet = sbus.pack([b"MSG a\0one", packet, b"MSG b\0two"])
        case "as a line":
            sender.ask(b"CMSG format\0lines")
            packet = b"MSG %b hush\n" % SECRET
        case "from a bridge":
            packet = datagram(b"far/prog/1", 1, SECRET, b"hush")
            text = b"bad-channel packet: a secret key of sbus is not sent"
    end = b" %b\n" % text if how == "as a line" else b"\0" + text
    for _ in range(2):  # looked up, and remembered
        assert sender.ask(packet) == [b"CMSG error" + end]
    assert not [sent for sent in bus.sent if b"hush" in sent]
    for other in (everybody, tap):
        assert b"hush" not in b"".join(other.heard())


def test_nobody_subscribes_to_a_secret_key_of_sbus():
    bus = Bus()
    assert bus.connect().ask(b"SUB !/cred/100/1000/7/")[0].startswith(b"CMSG error\0bad-pattern SUB !/cred/")


# Questions to daemons


@pytest.mark.parametrize(
    "chan", [b"!here/bccnd", b"!here/bccnd/0", b"!here/bccnd/*", b"!there/bccnd", b"bccnd/ask"]
)
def test_a_question_needs_the_right_to_what_it_asks_about(chan: bytes):
    bus = Bus()
    bus.reconfigure(access=AccessList([Grant(publish=(b"!>", b"bccnd/ask", b"a"), subscribe=(b"!",))]))
    client = bus.connect()
    question = b"MSG %b\0token\nlisteners " % chan
    for about in (b"b", b"!", b"local/b", b"!/cred/1/2/3/x"):
        text = b"MSG %b: no right to publish on %b, which it asks about" % (chan, about)
        assert client.ask(question + about) == [b"CMSG error\0refused " + text]
    assert bus.sent == []
    client.ask(b"CMSG pack\0on")
    refused = client.ask(sbus.pack([question + b"a", question + b"b", question + b"a"]))
    assert len([packet for packet in refused if packet.startswith(b"CMSG error\0refused")]) == 1
    assert len([sent for sent in bus.sent if b"listeners a" in sent]) == 2
    assert not [sent for sent in bus.sent if b"listeners b" in sent]


def test_a_question_hides_behind_no_heartbeat():
    """Both channels have one route."""
    bus = Bus()
    client = bus.connect(b"CMSG pack\0on")
    bus.reconfigure(access=AccessList([Grant(publish=(b">",))]))
    client.say(b"MSG bccnd/ask\0", b"MSG heartbeat/x\0")
    hidden = [b"MSG heartbeat/x\0", b"MSG bccnd/ask\0token\nlisteners !here/prog/1"]
    (answer,) = client.ask(sbus.pack(hidden))
    assert answer.startswith(b"CMSG error\0refused MSG bccnd/ask: no right to publish on !here/prog/1")
