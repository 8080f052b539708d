"""What comes from the local bus: the hot path against the plain pair, limits, errors, PACK, lines, bridging, taps."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import PacketError
from bccnd.relay import client_input
from bccnd.relay.client_input import (
    BRIDGED_STEPS,
    PATTERN_BYTES_A_STEP,
    PATTERN_STEPS,
    QUESTION_STEPS,
    REQUEST_STEPS,
    STEPS,
    TAP_STEPS,
)
from bccnd.relay.effects import SEALED_LIMIT, Spans
from bccnd.relay.pattern import NODE_STEPS
from bccnd.relay.rights import AccessList, Grant
from bccnd.relay.router import GATHERED_A_STEP, KEPT_STEPS, LOOKUP_STEPS, SORT_STEPS
from bccnd.wire import sbus
from bccnd.wire.bccn1 import Envelope, Integrity, Level, Message, valid_chan
from bccnd.wire.native import alike
from bccnd.wire.sbus import Recv
from tests.relay.fakes import CLOCK, Bus, FakeClient, datagram
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
        assert [content(sbus.Recv.parse(packet[5:]).datagram) for packet in full.heard()] == expected
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


def test_local_channels_take_no_numbers_of_the_segment():
    bus = Bus()
    full = bus.connect(b"SUB ", b"CMSG format\0full")
    client = bus.connect(pid=7)
    client.say(b"MSG a\0", b"MSG local/a\0", b"MSG b\0", b"MSG local/b\0", b"MSG ! \0", b"MSG a\0")
    numbers = [
        (message.chan, message.seq)
        for packet in full.heard()
        for message in [Message.parse(Envelope.parse(sbus.Recv.parse(packet[5:]).datagram).body)]
    ]
    assert numbers == [(b"a", CLOCK), (b"local/a", 1), (b"b", CLOCK + 1), (b"local/b", 2), (b"a", CLOCK + 2)]
    assert [bus.integrity.open(sent)[:3] for sent in bus.sent] == [
        (b"here/prog/7", CLOCK, b"a"),
        (b"here/prog/7", CLOCK + 1, b"b"),
        (b"here/prog/7", CLOCK + 2, b"a"),
    ]


HERE, THERE = b"10.0.0.2:5400", b"10.0.0.3:5400"


def test_tap_sees_each_datagram_once_without_subscription():
    bus = Bus()
    tap = bus.connect(b"SUB ", b"CMSG tap\0on", b"CMSG echo/off", privileged=True)
    client = bus.connect(pid=7)
    client.say(b"MSG a\0one", b"MSG local/a\0two")
    tap.say(b"MSG a\0three")
    bus.hear(datagram(b"x", 1, b"nobody"), b"BCCN1[5]x:1:a", b"noise")
    shown = [sbus.Recv.parse(packet[5:]) for packet in tap.heard()]
    assert [(recv.peer, recv.verdict) for recv in shown] == [(b"local", b"ok")] * 3 + [
        (HERE, b"ok"),
        (HERE, b"fields"),
        (HERE, b"magic"),
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
    assert [sbus.Recv.parse(packet[5:]).datagram for packet in tap.heard()] == reads


def test_a_bridged_datagram_goes_everywhere_as_it_is():
    bus = Bus()
    plain, full = bus.connect(b"SUB a"), bus.connect(b"SUB a", b"CMSG format\0full")
    bridge = bus.connect(b"SUB a", b"CMSG echo/off", privileged=True)
    one = datagram(b"far/prog/1", 5, b"a", b"from afar")
    assert bridge.ask(one) == []
    assert plain.heard() == [b"MSG a\0from afar"]
    assert [sbus.Recv.parse(packet[5:]).datagram for packet in full.heard()] == [one]
    assert bus.sent == [one]
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
        (b"SUB !a", b"bad-pattern SUB !a: "),
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


def test_patterns_are_limited():
    bus = Bus(subscriptions=2)
    client = bus.connect(b"SUB a", b"SUB b")
    assert client.ask(b"SUB c") == [b"CMSG error\0limit SUB c: at most 2 patterns a client"]
    assert client.ask(b"UNSUB a", b"SUB c", b"MSG c\0") == [b"MSG c\0"]


def test_a_pack_that_breaks_in_the_middle():
    """The sound packets before the broken one count, then the client is told and closed."""
    bus = Bus()
    reader = bus.connect(b"SUB ")
    client = bus.connect(b"SUB a", b"CMSG pack\0on")
    sound, broken = sbus.pack([b"MSG a\0001", b"MSG a\0002"]), sbus.pack([b"MSG a\0003"])[:-1]
    heard = client.ask(b"CMSG ping\0first", sound, broken, b"MSG a\0004", sound)
    assert reader.heard() == [b"MSG a\0001", b"MSG a\0002"]
    assert heard == [
        b"CMSG pong\0first",
        b"MSG a\0001",
        b"MSG a\0002",
        b"CMSG error\0bad-packet packet: PACK with a length that reaches beyond it",
        b"CMSG closing\0framing",
    ]
    assert bus.closed == {client.name: "framing"}


@pytest.mark.parametrize(
    "broken",
    [
        sbus.PACK + b"\0",
        sbus.PACK + b"\0\0\0",
        sbus.PACK + b"\0\0\0\5MSG",
        sbus.PACK + b"\xff\xff\xff\xffMSG a\0",
        sbus.pack([b"MSG a\0"]) + b"\0",
        sbus.pack([sbus.pack([b"MSG a\0"])]),
    ],
)
def test_broken_packs_publish_nothing_and_close(broken: bytes):
    bus = Bus()
    reader = bus.connect(b"SUB ")
    client = bus.connect(b"CMSG pack\0on")
    client.say(broken, b"MSG a\0after", broken)
    assert reader.heard() == []
    assert [answer.partition(b"\0")[0] for answer in client.heard()] == [b"CMSG error", b"CMSG closing"]
    assert not client.connected


def test_nothing_after_a_pack_inside_a_pack_counts():
    bus = Bus()
    reader = bus.connect(b"SUB ")
    client = bus.connect(b"CMSG pack\0on")
    client.say(sbus.pack([b"MSG a\0before", sbus.pack([b"MSG a\0inside"]), b"MSG a\0after"]), b"MSG a\0later")
    assert reader.heard() == [b"MSG a\0before"]
    assert not client.connected


def test_a_pack_read_together_with_the_request_for_packing():
    """What is read with one call is chance: a client that does not wait for the answer fares the same."""
    bus = Bus()
    reader = bus.connect(b"SUB ")
    client = bus.connect()
    client.say(
        b"MSG a\0001",
        b"CMSG pack\0on",
        b"MSG a\0002",
        sbus.pack([b"MSG a\0003", b"MSG a\0004"]),
        b"MSG a\0005",
    )
    assert reader.heard() == [b"MSG a\0%d" % number for number in range(1, 6)]
    assert bus.relay.state.counters.published == client.session.published == 5
    assert [answer.partition(b"\0")[0] for answer in client.heard()] == [b"CMSG pack"]


def test_an_empty_pack():
    bus = Bus()
    assert bus.connect(b"CMSG pack\0on").ask(sbus.PACK, b"CMSG ping") == [b"CMSG pong\0"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_typed_subscription_makes_a_client_use_lines(end: bytes):
    bus = Bus()
    plain = bus.connect(b"SUB >")
    typing = bus.connect(b"SUB a/>" + end)
    assert typing.ask(b"MSG a/b hello you" + end) == [b"MSG a/b hello you\n"]
    assert typing.ask(b"MSG a/b " + end) == [b"MSG a/b \n"]
    assert typing.ask(b"MSG a/b\0with\nNUL" + end) == [b"MSG a/b with\\nNUL%b\n" % repr(end)[2:-1].encode()]
    assert plain.heard() == [b"MSG a/b\0hello you", b"MSG a/b\0", b"MSG a/b\0with\nNUL" + end]
    assert typing.ask(b"CMSG ping x" + end, b"UNSUB a/>" + end, b"MSG a/b x" + end) == [b"CMSG pong x\n"]
    (error,) = typing.ask(b"MSG a/b" + end)
    assert error.startswith(b"CMSG error bad-packet packet: MSG needs a space or a NUL")


def test_lines_read_together():
    bus = Bus()
    plain = bus.connect(b"SUB >")
    bus.connect(b"CMSG format\0lines").say(
        b"MSG a one\n", b"MSG a two\n", b"MSG a\0three", b"MSG ab four\n", b"MSG a 5"
    )
    assert plain.heard() == [b"MSG a\0one", b"MSG a\0two", b"MSG a\0three", b"MSG ab\0four", b"MSG a\x005"]


def test_each_line_of_a_packet_is_a_packet():
    bus = Bus()
    plain = bus.connect(b"SUB >")
    client = bus.connect(b"CMSG format\0lines")
    said = client.ask(b"MSG a x\nMSG b y\r\n\nbogus\nCMSG ping 1\nSUB c\nMSG c z", b"MSG d\0e\nMSG f g\n")
    assert plain.heard() == [b"MSG a\0x", b"MSG b\0y", b"MSG c\0z", b"MSG d\0e\nMSG f g\n"]
    assert said == [
        b"CMSG error bad-packet packet: begins b'bogus\\\\n', not SUB, UNSUB, MSG or CMSG\n",
        b"CMSG pong 1\n",
        b"MSG c z\n",
    ]


def test_lines_begin_with_the_packet_that_chooses_them():
    bus = Bus()
    plain = bus.connect(b"SUB >")
    bus.connect().say(b"SUB own\n", b"MSG a x\nMSG b y\n")
    assert plain.heard() == [b"MSG a\0x", b"MSG b\0y"]
    typing = bus.connect()
    assert typing.ask(b"SUB own\nMSG a x\nMSG own y\n", b"MSG b z\n") == [b"MSG own y\n"]
    assert plain.heard() == [b"MSG a\0x", b"MSG own\0y", b"MSG b\0z"]
    assert bus.connect().ask(b"SUB own\0ignored\nMSG a x\n") == []
    chosen = bus.connect(b"CMSG format\0plain")
    assert chosen.ask(b"SUB own\nMSG a x\n")[0].startswith(b"CMSG error\0bad-pattern")


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


def test_a_chosen_format_is_kept():
    bus = Bus()
    client = bus.connect(b"CMSG format\0plain", b"SUB a\n")
    assert client.ask(b"MSG a\0x") == [b"MSG a\0x"]


def test_wrong_typed_subscription_is_answered_in_a_line():
    (answer,) = Bus().connect().ask(b"SUB a*b\n")
    assert answer.startswith(b"CMSG error bad-pattern SUB a*b: ")
    assert answer.endswith(b"\n")


def numbers(bus: Bus, datagrams: list[bytes]) -> list[int]:
    return [bus.integrity.open(sent)[1] for sent in datagrams]


# What is left for when the effects are carried out

MANY = 2 * SEALED_LIMIT + 500


def many(chan: bytes = b"a") -> list[bytes]:
    return [b"MSG %b\0%d" % (chan, number) for number in range(MANY)]


def test_more_datagrams_than_the_region_holds_go_in_parts():
    """No number is skipped or used twice, and nobody sees a message twice or none."""
    bus = Bus()
    plain = bus.connect(b"SUB a")
    full = bus.connect(b"CMSG format\0full", b"SUB a")
    tap = bus.connect(b"CMSG tap\0on", privileged=True)
    publisher = bus.connect(b"CMSG pack\0on")
    publisher.say(sbus.pack(many()), b"MSG a\0last")
    assert plain.heard() == [*many(), b"MSG a\0last"]
    assert numbers(bus, bus.sent) == list(range(CLOCK, CLOCK + MANY + 1))
    shown = [Recv.parse(packet[5:]).datagram for packet in tap.heard()]
    assert shown == bus.sent
    assert [Recv.parse(packet[5:]).datagram for packet in full.heard()] == shown
    assert bus.relay.state.counters.published == MANY + 1


def test_each_part_fills_the_region_and_no_more():
    bus = Bus()
    publisher = bus.connect(b"CMSG pack\0on")
    parts = []
    bus.datagrams_of = lambda effects: parts.append(len(effects.starts)) or effects.beyond
    publisher.say(sbus.pack(many()))
    assert [part for part in parts if part] == [SEALED_LIMIT, SEALED_LIMIT, 500]
    assert bus.sent == []


def test_each_message_of_many_is_looked_at_once(monkeypatch: pytest.MonkeyPatch):
    """The time that a client can take with one read grows with what it sends, not with its square."""
    bus, looked_at = Bus(), []

    def counting(memory: object, spans: Spans, first: int, *others: object) -> int:
        looked_at.append(len(spans[0]) - first)
        return alike(memory, spans, first, *others)

    monkeypatch.setattr(client_input, "alike", counting)
    bus.connect(b"CMSG pack\0on").say(sbus.pack(many()))
    assert sum(looked_at) <= MANY


def test_local_messages_need_no_region():
    bus = Bus()
    reader, publisher = bus.connect(b"SUB local/>"), bus.connect(b"CMSG pack\0on")
    publisher.say(sbus.pack(many(b"local/a")), b"MSG a\0")
    assert reader.heard() == many(b"local/a")
    assert len(bus.sent) == 1


def test_a_bridge_fills_the_region_too():
    bus = Bus()
    bridge = bus.connect(b"CMSG pack\0on", privileged=True)
    foreign = [datagram(b"far", seq, b"a") for seq in range(1, SEALED_LIMIT + 10)]
    bridge.say(sbus.pack([b"MSG a\0first", *foreign, b"MSG a\0last"]))
    assert bus.sent[1:-1] == foreign
    assert numbers(bus, [bus.sent[0], bus.sent[-1]]) == [CLOCK, CLOCK + 1]


def test_answers_of_the_caller_keep_their_place():
    bus = Bus()
    client = bus.connect(b"SUB a")
    packets = client.ask(
        b"MSG a\0001", b"CMSG status", b"MSG a\0002", b"CMSG status", b"CMSG ping", b"MSG a\0003"
    )
    assert [packet[:11] for packet in packets] == [
        b"MSG a\0001", b"CMSG status", b"MSG a\0002", b"CMSG status", b"CMSG pong\0", b"MSG a\0003",
    ]  # fmt: skip
    first, second = (json.loads(packet[12:])["counters"] for packet in (packets[1], packets[3]))
    assert (first["published"], second["published"]) == (1, 2)


def test_a_tap_sees_everything_from_the_answer_on():
    bus = Bus()
    client = bus.connect(privileged=True)
    packets = client.ask(b"MSG a\0001", b"CMSG tap\0on", b"MSG a\0002", b"CMSG tap\0off", b"MSG a\0003")
    assert [packets[0], packets[2]] == [b"CMSG tap\0on", b"CMSG tap\0off"]
    assert [Recv.parse(packet[5:]).datagram for packet in packets[1:2]] == [bus.sent[1]]
    assert len(packets) == 3
    assert bus.tapped is False


def test_the_rest_of_a_pack_waits_with_its_broken_end():
    bus = Bus()
    client = bus.connect(b"SUB a", b"CMSG pack\0on")
    client.say(sbus.pack([b"CMSG status", b"MSG a\0x"]), sbus.PACK + b"\xff")
    assert [packet[:11] for packet in client.heard()] == [
        b"CMSG status",
        b"MSG a\0x",
        b"CMSG error\0",
        b"CMSG closin",
    ]
    assert bus.closed == {client.name: "framing"}


def test_a_broken_pack_is_answered_after_a_status():
    bus = Bus()
    client = bus.connect(b"CMSG pack\0on")
    client.say(b"CMSG status", sbus.PACK + b"\xff")
    assert [packet[:11] for packet in client.heard()] == [b"CMSG status", b"CMSG error\0", b"CMSG closin"]


@pytest.mark.parametrize("between", [b"CMSG status", b"CMSG tap\0on"])
def test_a_client_found_gone_in_between_has_published_all(between: bytes):
    bus = Bus()
    reader, client = bus.connect(b"SUB a"), bus.connect(b"SUB a", privileged=True)
    client.vanish()
    client.say(b"MSG a\0001", between, b"MSG a\0002")
    assert reader.heard() == [b"MSG a\0001", b"MSG a\0002"]
    assert len(bus.sent) == 2
    assert bus.closed == {client.name: "gone"}


def test_nobody_is_closed_before_what_is_left_is_done():
    """Reading the last words of another would take the memory that the packets lie in."""
    bus = Bus()
    gone, reader = bus.connect(b"SUB a"), bus.connect(b"SUB a")
    gone.vanish()
    closed = []
    end = bus.end
    bus.end = lambda session: (closed.append(len(reader.heard())), end(session))
    bus.connect(b"CMSG pack\0on").say(sbus.pack([b"MSG a\0", b"CMSG status", *[b"MSG a\0"] * (MANY - 1)]))
    assert closed == [MANY]


def leave(bus: Bus, client: FakeClient, *packets: bytes) -> int:
    """How many of the packets, given to the relay with one call, are left."""
    spans = bus._lay(list(packets), bus._client_slots)
    left = bus.relay.from_client(client.session, bus.moment, spans)
    bus.settle()
    if left is None:
        return 0
    return len(left[0][0]) - left[1]


@pytest.mark.parametrize(
    ("packets", "most"),
    [
        ([b"CMSG ping"], STEPS // REQUEST_STEPS),
        ([b"CMSG clients"], 60),
        ([b"CMSG sources"], 60),
        ([b"SUB state/>", b"UNSUB state/>"], 60),
        ([b"nonsense"], STEPS // REQUEST_STEPS),
    ],
)
def test_one_call_does_so_much_and_leaves_the_rest(packets: list[bytes], most: int):
    bus = Bus(retain=["state/>"])
    for _ in range(120):
        bus.connect(b"CMSG listen")
    bus.hear(*[datagram(b"there/prog/%d" % number, 1, b"other") for number in range(200)])
    bus.hear(*[datagram(b"there/prog/1", number, b"state/%d" % number, b"x") for number in range(2, 300)])
    client = bus.connect(b"CMSG pack\0on")
    done = 3000 - leave(bus, client, sbus.pack((packets * 3000)[:3000]))
    assert 0 < done <= most


@pytest.mark.parametrize(
    ("packet", "most"),
    [
        (b"SUB z%d*", STEPS // (REQUEST_STEPS + PATTERN_STEPS)),
        (b"UNSUB z%d*", STEPS // (REQUEST_STEPS + PATTERN_STEPS)),
        (
            b"SUB " + b"*/" * 200 + b"%d",
            STEPS // (REQUEST_STEPS + PATTERN_STEPS + 400 // PATTERN_BYTES_A_STEP),
        ),
        (b"MSG local/%d\0x", STEPS // LOOKUP_STEPS),
        (b"MSG state/a\0%d", STEPS // KEPT_STEPS),
        (b"MSG !here/bccnd\0t\nlisteners q/%d", STEPS // (QUESTION_STEPS + LOOKUP_STEPS)),
        (b"MSG bccnd/ask\0t\nlisteners q/%d", STEPS // (QUESTION_STEPS + LOOKUP_STEPS)),
        (b"CMSG listeners\0q/%d", STEPS // (REQUEST_STEPS + LOOKUP_STEPS)),
    ],
)
def test_one_call_does_so_much_of_what_is_dear(packet: bytes, most: int):
    bus = Bus(retain=["state/>"])
    client = bus.connect(b"CMSG pack\0on")
    done = 1500 - leave(bus, client, sbus.pack([packet % number for number in range(1500)]))
    assert most // 4 <= done <= most + 1


def test_one_call_bridges_so_much():
    bus = Bus()
    client = bus.connect(b"CMSG pack\0on", privileged=True)
    brought = [datagram(b"far/%d" % number, 1, b"heartbeat/far/%d" % number) for number in range(1000)]
    done = 1000 - leave(bus, client, sbus.pack(brought))
    most = STEPS // (REQUEST_STEPS + BRIDGED_STEPS + QUESTION_STEPS + LOOKUP_STEPS)
    assert most // 2 <= done <= most + 1


@pytest.mark.parametrize(
    ("packets", "each"),
    [
        ([b"CMSG pack\0on", b"CMSG listeners\0a"], 300 * SORT_STEPS),
        ([b"CMSG format\0plain", b"CMSG listeners\0b"], 300 // GATHERED_A_STEP),
        ([b"SUB a*", b"CMSG listeners\0a", b"UNSUB a*"], 300 // GATHERED_A_STEP),
    ],
)
def test_one_call_gathers_so_many_subscribers(packets: list[bytes], each: int):
    """Those of one channel, over and over, for somebody who sends them nothing."""
    bus = Bus(subscriptions=1024)
    for _ in range(300):
        bus.connect(b"SUB a", b"SUB b")
    client = bus.connect(b"CMSG pack\0on", b"SUB a")
    done = 3000 - leave(bus, client, sbus.pack((packets * 3000)[:3000]))
    assert 0 < done // len(packets) <= STEPS // (each + len(packets) * REQUEST_STEPS) + 1


def test_a_search_of_many_nodes_ends_the_call():
    bus = Bus(limits_channels_cached=16384)
    for number in range(7):
        bus.connect(b"SUB a%b*/" % (b"a" * number) + b"*/" * 250 + b"x")
    client = bus.connect(b"CMSG pack\0on")
    packets = [b"MSG local/%d\0" % number for number in range(100)]
    assert leave(bus, client, sbus.pack(packets)) == 0
    deep = [b"MSG aaaaaaaa%d" % number + b"/a" * 260 + b"\0" for number in range(100)]
    left = leave(bus, client, sbus.pack(deep))
    assert 0 < 100 - left <= STEPS // (7 * 250 * NODE_STEPS) + 1


def test_one_call_delivers_so_much_and_leaves_the_rest():
    bus = Bus(subscriptions=1024)
    for _ in range(100):
        bus.connect(b"SUB local/a")
    client = bus.connect(b"CMSG pack\0on")
    left = leave(bus, client, sbus.pack([b"MSG local/a\0"] * 3000))
    assert 0 < 3000 - left <= STEPS // 101 + 1


def test_one_call_shows_taps_so_much_and_leaves_the_rest():
    bus = Bus()
    for _ in range(20):
        bus.connect(b"CMSG tap\0on", privileged=True)
    client = bus.connect(b"CMSG pack\0on")
    left = leave(bus, client, sbus.pack([b"MSG a\0"] * 3000))
    assert 0 < 3000 - left <= STEPS // (20 * TAP_STEPS) + 1


@pytest.mark.parametrize("kind", ["bridge", "question"])
def test_what_is_said_for_a_client_counts_by_who_hears_it(kind: str):
    bus = Bus()
    for _ in range(100):
        bus.connect(b"SUB bccnd/ask", b"SUB a")
    client = bus.connect(b"CMSG pack\0on", privileged=True)
    packets = [
        datagram(b"there/prog/1", number + 1, b"a")
        if kind == "bridge"
        else b"CMSG listeners\0a/%d token" % number
        for number in range(150)
    ]
    left = leave(bus, client, sbus.pack(packets))
    assert 0 < 150 - left <= STEPS // 101 + 1


@pytest.mark.parametrize("packet", [b"\n" * 65000, b"\r\n" * 32000], ids=["LF", "CRLF"])
def test_lines_are_looked_for_in_so_many_bytes_a_call(packet: bytes):
    bus = Bus()
    client = bus.connect(b"CMSG format\0lines")
    spans = bus._lay([packet] * 16, bus._client_slots)
    left, calls = bus.relay.from_client(client.session, bus.moment, spans), 1
    while left:
        left, calls = bus.relay.from_client(client.session, bus.moment, *left), calls + 1
    assert calls >= 16 // 3


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


def test_a_publisher_held_in_between_waits_with_the_rest():
    bus = Bus()
    slow = bus.connect(b"SUB a", b"CMSG queue\0packets=4 policy=block")
    slow.stop_reading()
    publisher = bus.connect(b"CMSG pack\0on")
    publisher.say(sbus.pack(many()))
    publisher.say(b"MSG a\0later")
    assert publisher.held
    assert len(bus.sent) == SEALED_LIMIT
    assert slow.take() == [*many(), b"MSG a\0later"]
    assert numbers(bus, bus.sent) == list(range(CLOCK, CLOCK + MANY + 1))


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
