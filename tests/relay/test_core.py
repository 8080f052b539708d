"""What the relay makes of packets and datagrams, one rule at a time (``test_interleaving``: all at once)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bccnd.errors import PacketError, WireError
from bccnd.relay.core import Limits
from bccnd.relay.dedup import JUMP
from bccnd.relay.outbox import Policy
from bccnd.wire import sbus
from bccnd.wire.bccn1 import Envelope, Integrity, Level, Message, Reason, valid_chan
from tests.relay.fakes import CLOCK, Bus, datagram

thorough = settings(deadline=None, max_examples=150)

# Own datagrams come back


@pytest.mark.parametrize("reorder", [0, 50])
@pytest.mark.parametrize("end", ["stays", "leaves", "renames", "returns"])
def test_own_datagrams_that_come_back_are_not_delivered_again(end: str, reorder: int):
    """Not even thousands of them, from a client that published in a hurry and left."""
    bus = Bus(limits=Limits(reorder=reorder))
    listener = bus.connect(b"SUB demo/>")
    publisher = bus.connect(b"CMSG pack\0on", pid=7)
    publisher.say(sbus.pack([b"MSG demo/a\0%d" % number for number in range(3000)]))
    assert len(listener.heard()) == len(bus.sent) == 3000
    if end == "renames":
        publisher.say(b"CMSG name\0here/prog/7/worker")
    elif end != "stays":
        publisher.leave()
    if end == "returns":
        bus.connect(pid=7)
    bus.hear(*bus.sent, *bus.sent[-10:])
    assert listener.heard() == []
    assert set(bus.relay.rejected) == {"own" if end in ("stays", "returns") else "duplicate"}
    assert bus.relay.rejected.total() == 3010


def test_a_name_that_a_client_gave_up_may_be_taken_by_another_host():
    bus = Bus()
    listener = bus.connect(b"SUB demo/>")
    publisher = bus.connect(b"MSG demo/a\0here", pid=7)
    publisher.leave()
    listener.heard()
    bus.hear(datagram(b"here/prog/7", 1, b"demo/a", b"there"))
    assert listener.heard() == [b"MSG demo/a\0there"]


# The hot paths on offsets against the plain pairs


def mostly(sound: st.SearchStrategy[bytes], pieces: list[bytes]) -> st.SearchStrategy[bytes]:
    """Sound packets, cut ones, and rubble of their pieces."""
    cut = st.builds(lambda packet, at: packet[: at % (len(packet) + 1)], sound, st.integers(0, 100))
    rubble = st.lists(st.sampled_from(pieces), max_size=6).map(b"".join)
    return st.one_of(sound, sound, sound, cut, rubble)


channels = st.sampled_from([b"a", b"ab", b"a/b", b"local/x", b"!", b"!here", b"!?", b"", b"a:b", b"c" * 1025])
payloads = st.one_of(st.binary(max_size=12), st.binary(min_size=1, max_size=2).map(lambda piece: piece * 150))
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
datagrams = mostly(
    st.builds(
        lambda integrity, src, seq, chan, payload: integrity.seal(b"%b:%d:%b|%b" % (src, seq, chan, payload)),
        st.sampled_from([Integrity(), Integrity((), Level.CRC32), Integrity([b"k" * 32], Level.HMAC)]),
        st.sampled_from([b"x", b"?", b"host/prog/1", b"", b"a b"]),
        st.integers(1, 2**64),
        channels,
        payloads,
    ),
    [b"BCCN1", b"BCCN2", b"[", b"8", b"]", b"x:1:a", b"x:2:ab|", b"|", b":", b"\0", b":hmac=", b"MSG a\0"],
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


@thorough
@given(
    reads=st.lists(st.lists(datagrams, max_size=12), max_size=4),
    integrity=st.sampled_from([Integrity(), Integrity((), Level.CRC32), Integrity([b"k" * 32], Level.HMAC)]),
)
def test_the_segment_brings_what_the_plain_pair_finds(reads: list[list[bytes]], integrity: Integrity):
    bus = Bus(integrity=integrity, local=[])
    tap = bus.connect(b"CMSG tap\0on", privileged=True)
    clients = {form: bus.connect(b"SUB ", b"CMSG format\0" + form) for form in (b"plain", b"full")}
    clients[b"packed"] = bus.connect(b"SUB ", b"CMSG pack\0on")
    last: dict[bytes, int] = {}
    for read in reads:
        expected, verdicts = [], []
        for datagram_ in read:
            try:
                envelope = Envelope.parse(datagram_)
                integrity.verify(envelope)
                if envelope.magic != b"BCCN1":
                    raise WireError(Reason.VERSION)
                message = Message.parse(envelope.body)
            except WireError as error:
                verdicts.append(error.reason)
                continue
            known = last.get(message.src)
            if message.src != b"?" and known is not None and 0 <= known - message.seq < 1000:
                verdicts.append("stale")
                continue
            last[message.src] = message.seq
            verdicts.append("ok")
            expected.append(b"MSG %b\0%b" % (message.chan, message.payload))
        bus.hear(*read)
        assert clients[b"plain"].heard() == clients[b"packed"].heard() == expected
        shown = [sbus.Recv.parse(packet[5:]) for packet in tap.heard()]
        assert [recv.datagram for recv in shown] == read
        stale = {b"duplicate", b"late"}
        assert ["stale" if recv.verdict in stale else recv.verdict.decode() for recv in shown] == verdicts
        sound = [datagram_ for datagram_, verdict in zip(read, verdicts, strict=True) if verdict == "ok"]
        assert [sbus.Recv.parse(packet[5:]).datagram for packet in clients[b"full"].heard()] == sound


# Sizes


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
    bus = Bus(limits=Limits(local_payload=payload_limit))
    client = bus.connect(b"SUB local/x")
    fits = b"MSG local/x\0" + b"x" * payload_limit
    assert client.ask(fits, fits + b"x", fits) == [
        fits,
        b"CMSG error\0too-large MSG local/x: %d bytes of payload, at most %d"
        % (payload_limit + 1, payload_limit),
        fits,
    ]
    assert bus.sent == []


def test_what_is_empty():
    bus = Bus()
    client = bus.connect(b"SUB ")
    assert client.ask(b"MSG a\0", b"", b"MSG a\0")[::2] == [b"MSG a\0", b"MSG a\0"]
    assert bus.relay.counters.errors == 1


# Sequence numbers


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


# What is judged besides the wire


def verdicts(bus: Bus, *datagrams: bytes, peer: bytes = b"10.0.0.2:5400") -> list[str]:
    """How a tap is shown them."""
    tap = bus.connect(b"CMSG tap\0on", privileged=True)
    bus.hear(*datagrams, peer=peer)
    shown = [sbus.Recv.parse(packet[5:]) for packet in tap.heard()]
    assert [(recv.peer, recv.datagram) for recv in shown] == [(peer, one) for one in datagrams]
    tap.leave()
    return [recv.verdict.decode() for recv in shown]


def test_the_own_name_from_elsewhere():
    """What was sent comes back: own. What was never sent cannot come back: somebody else has the name."""
    bus = Bus()
    listener = bus.connect(b"SUB a")
    client = bus.connect(b"MSG a\0", pid=7)
    listener.heard()
    ahead = datagram(client.name, CLOCK + 1, b"a")
    assert verdicts(bus, *bus.sent, *bus.sent, ahead) == ["own", "own", "conflict"]
    assert listener.heard() == []
    client.leave()
    assert verdicts(bus, *bus.sent, ahead) == ["duplicate", "ok"]


def test_local_channels_do_not_come_from_the_segment():
    bus = Bus()
    listener = bus.connect(b"SUB ")
    assert verdicts(bus, datagram(b"x", 1, b"local/a"), datagram(b"x", 2, b"a")) == ["local-channel", "ok"]
    assert listener.heard() == [b"MSG a\0"]


HERE, THERE = b"10.0.0.2:5400", b"10.0.0.3:5400"


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        ("deliver", ["ok"] * 4),
        ("by-address", ["ok", "duplicate", "ok", "duplicate"]),
        ("drop", ["unknown-source"] * 4),
    ],
)
def test_the_unknown_source(unknown: str, expected: list[str]):
    bus = Bus(limits=Limits(unknown=unknown))
    listener = bus.connect(b"SUB a")
    one = datagram(b"?", 1, b"a", b"who")
    found = [
        *verdicts(bus, one, one, peer=HERE),
        *verdicts(bus, one, peer=THERE),
        *verdicts(bus, one, peer=HERE),
    ]
    assert found == expected
    assert len(listener.heard()) == expected.count("ok")


def test_a_tap_sees_each_datagram_once_and_needs_no_subscription():
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


# Bridging


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
        (datagram(b"here/prog/7", 1, b"a"), "bad-datagram", "packet: own"),
        (datagram(b"seen", 1, b"a"), "bad-datagram", "packet: duplicate"),
        (datagram(b"x", 1, b"a", b"x" * 1384), "too-large", "packet: 1401 bytes on the wire, at most 1400"),
    ],
)
def test_what_cannot_be_bridged(one: bytes, code: str, text: str):
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


# What clients are told


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
    assert bus.relay.counters.errors == 1
    assert bus.relay.router.subscriptions == 1


def test_patterns_are_limited():
    bus = Bus(limits=Limits(subscriptions=2))
    client = bus.connect(b"SUB a", b"SUB b")
    assert client.ask(b"SUB c") == [b"CMSG error\0limit SUB c: at most 2 patterns a client"]
    assert client.ask(b"UNSUB a", b"SUB c", b"MSG c\0") == [b"MSG c\0"]


def test_clients_are_limited():
    bus = Bus(limits=Limits(clients=2))
    first = bus.connect()
    bus.connect()
    assert bus.try_connect() is None
    first.leave()
    assert bus.try_connect() is not None


# PACK


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


def test_one_who_left_at_once_has_still_published_all():
    """Its own copies find nobody, but its messages count."""
    bus = Bus()
    reader = bus.connect(b"SUB a")
    client = bus.connect(b"SUB a")
    client.vanish()
    client.say(b"MSG a\0001", b"SUB b", b"MSG a\0002", b"CMSG ping", b"MSG a\0003")
    assert reader.heard() == [b"MSG a\0001", b"MSG a\0002", b"MSG a\0003"]
    assert bus.closed == {client.name: "gone"}


def test_an_empty_pack():
    bus = Bus()
    assert bus.connect(b"CMSG pack\0on").ask(sbus.PACK, b"CMSG ping") == [b"CMSG pong\0"]


# People at a terminal


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_typed_subscription_makes_a_client_read_and_write_lines(end: bytes):
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


def test_a_chosen_format_is_kept():
    bus = Bus()
    client = bus.connect(b"CMSG format\0plain", b"SUB a\n")
    assert client.ask(b"MSG a\0x") == [b"MSG a\0x"]


def test_a_typed_subscription_that_is_wrong_is_answered_in_a_line():
    (answer,) = Bus().connect().ask(b"SUB a*b\n")
    assert answer.startswith(b"CMSG error bad-pattern SUB a*b: ")
    assert answer.endswith(b"\n")


# Numbers under a name that was used before


def numbers(bus: Bus, datagrams: list[bytes]) -> list[int]:
    return [bus.integrity.open(sent)[1] for sent in datagrams]


def test_a_client_that_returns_at_once_leaves_no_gap_in_its_numbers():
    """Others would take the clock's microseconds in between for losses."""
    bus = Bus()
    for _ in range(3):
        client = bus.connect(*[b"MSG a\0"] * 5, pid=7)
        client.leave()
        bus.unix_us += 300_000
    assert numbers(bus, bus.sent) == list(range(CLOCK, CLOCK + 15))


def test_a_client_that_returns_later_begins_at_the_clock():
    bus = Bus()
    bus.connect(b"MSG a\0", pid=7).leave()
    bus.unix_us += 2 * JUMP
    bus.connect(b"MSG a\0", pid=7)
    assert numbers(bus, bus.sent) == [CLOCK, CLOCK + 2 * JUMP]


def test_who_takes_over_a_name_of_another_host_is_heard_at_once():
    """A standby that connected earlier, or whose clock is behind, is neither stale nor replayed to others."""
    bus = Bus()
    standby = bus.connect(privileged=True)
    bus.hear(datagram(b"service/leader", CLOCK + 10**9, b"a"))
    standby.say(b"CMSG name\0service/leader", b"MSG a\0")
    assert numbers(bus, bus.sent) == [CLOCK + 10**9 + JUMP + 1]


def test_a_forged_number_does_not_use_up_those_of_a_client():
    bus = Bus()
    bus.hear(datagram(b"here/prog/7", 2**64 - 1, b"a"))
    bus.connect(b"MSG a\0", pid=7)
    assert numbers(bus, bus.sent) == [CLOCK]


def test_the_next_number_is_above_all_that_were_used():
    bus = Bus()
    assert bus.relay.next_seq == 0
    bus.relay.names.begin_at(CLOCK + 1000)
    bus.connect(*[b"MSG a\0"] * 5, pid=7)
    assert bus.relay.next_seq == CLOCK + 1005
    bus.connect(*[b"MSG a\0"] * 50, pid=8).leave()
    assert bus.relay.next_seq == CLOCK + 1050
    assert max(numbers(bus, bus.sent)) == CLOCK + 1049


# Replays


def test_a_recording_is_dropped_counted_and_shown_to_taps():
    bus = Bus(limits=Limits(drop_replays=True))
    listener, tap = bus.connect(b"SUB demo/>"), bus.connect(b"CMSG tap\0on", privileged=True)
    recording = [datagram(b"there/prog/1", CLOCK + number, b"demo/x") for number in range(2000)]
    bus.hear(*recording)
    assert len(listener.heard()) == 2000
    tap.heard()
    bus.hear(*recording)
    assert listener.heard() == []
    assert bus.relay.rejected == {"replayed": 1000, "duplicate": 1000}
    assert tap.heard()[0] == b"RECV 10.0.0.2:5400 %d replayed\0" % (CLOCK * 1000) + recording[0]


# Other settings


def reconfigure(bus: Bus, integrity: Integrity | None = None, **limits: Any) -> None:
    bus.relay.reconfigure(
        integrity=integrity or Integrity(),
        local=[b"private/>"],
        retain=[],
        limits=Limits(**limits),
        access=bus.relay.access,
    )
    bus.settle()


def test_new_settings_disconnect_nobody():
    bus = Bus()
    clients = [bus.connect(b"SUB a", b"SUB b") for _ in range(3)]
    reconfigure(bus, clients=1, subscriptions=1, channels_cached=1, queue_packets=1, sources=64)
    assert all(client.connected for client in clients)
    assert bus.try_connect() is None
    clients[0].say(b"MSG a\0x", b"MSG local/a\0", b"MSG private/a\0")
    assert [client.heard() for client in clients] == [[b"MSG a\0x"]] * 3
    assert [bus.integrity.open(sent)[2] for sent in bus.sent] == [b"a", b"local/a"]


def test_a_shorter_queue_drops_by_its_policy_at_the_next_message():
    bus = Bus()
    slow, publisher = bus.connect(b"SUB a"), bus.connect()
    slow.stop_reading()
    publisher.say(*[b"MSG a\0%d" % number for number in range(10)])
    reconfigure(bus, queue_packets=3)
    publisher.say(b"MSG a\0" + b"10")
    assert slow.take() == [b"CMSG dropped\0" + b"8", b"MSG a\0" + b"8", b"MSG a\0" + b"9", b"MSG a\0" + b"10"]


@pytest.mark.parametrize("by", ["settings", "client"])
def test_who_no_longer_blocks_lets_go_of_those_that_wait(by: str):
    bus = Bus(limits=Limits(queue_packets=2, queue_policy=Policy.BLOCK))
    slow, publisher = bus.connect(b"SUB a"), bus.connect()
    slow.stop_reading()
    publisher.say(*[b"MSG a\0"] * 5)
    assert publisher.held
    if by == "settings":
        reconfigure(bus, queue_packets=2)
    else:
        slow.say(b"CMSG queue\0policy=drop-oldest")
    assert not publisher.held
    bus.tick(3600)
    assert slow.connected


def test_a_new_total_holds_at_once():
    bus = Bus()
    slow, publisher = bus.connect(b"SUB a"), bus.connect()
    slow.stop_reading()
    reconfigure(bus, queue_total=30)
    publisher.say(*[b"MSG a\0" + bytes(4)] * 10)
    assert bus.relay.delivery.ledger.bytes == 30


def test_other_keys_sign_and_verify_from_the_next_message_on():
    old, new = Integrity([b"o" * 16], Level.HMAC), Integrity([b"n" * 16, b"o" * 16], Level.HMAC)
    bus = Bus(integrity=old)
    listener, publisher = bus.connect(b"SUB a"), bus.connect(b"CMSG echo/off")
    publisher.say(b"MSG a\0")
    reconfigure(bus, integrity=new)
    publisher.say(b"MSG a\0")
    Integrity([b"o" * 16], Level.HMAC).open(bus.sent[0])
    Integrity([b"n" * 16], Level.HMAC).open(bus.sent[1])
    listener.heard()
    bus.hear(*[datagram(b"x", seq, b"a", integrity=integrity) for seq, integrity in enumerate([old, new])])
    assert len(listener.heard()) == 2
