"""Several packets in one: PACK and what breaks it, and lines that somebody types."""

import pytest

from bccnd.wire import sbus
from tests.relay.fakes import Bus


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


def test_lines_begin_with_a_typed_subscription_that_is_refused():
    """What is read with it is not taken otherwise than what is read later."""
    bus = Bus()
    plain = bus.connect(b"SUB >")
    refused, pong = bus.connect().ask(b"SUB a*b\n", b"MSG a x\nCMSG ping 1\nMSG b y\n")
    assert refused.startswith(b"CMSG error bad-pattern SUB a*b: ")
    assert pong == b"CMSG pong 1\n"
    assert plain.heard() == [b"MSG a\0x", b"MSG b\0y"]


def test_a_chosen_format_is_kept():
    bus = Bus()
    client = bus.connect(b"CMSG format\0plain", b"SUB a\n")
    assert client.ask(b"MSG a\0x") == [b"MSG a\0x"]


def test_wrong_typed_subscription_is_answered_in_a_line():
    (answer,) = Bus().connect().ask(b"SUB a*b\n")
    assert answer.startswith(b"CMSG error bad-pattern SUB a*b: ")
    assert answer.endswith(b"\n")
