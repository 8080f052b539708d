"""What is left for when the effects are carried out: nothing is skipped, done twice or out of order."""

import json

import pytest

from bccnd.relay import client_input
from bccnd.relay.effects import SEALED_LIMIT, Spans
from bccnd.wire import sbus
from bccnd.wire.native import alike
from tests.relay.fakes import CLOCK, Bus, datagram, recv_of, slow

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
    assert bus.numbers_sent == list(range(CLOCK, CLOCK + MANY + 1))
    shown = [recv.datagram for recv in tap.shown()]
    assert shown == bus.sent
    assert [recv.datagram for recv in full.shown()] == shown
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
    first, *brought, last = bus.messages_sent
    assert brought == foreign
    assert [bus.integrity.open(sent)[1] for sent in (first, last)] == [CLOCK, CLOCK + 1]


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
    assert recv_of(packets[1]).datagram == bus.sent[1]
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


def test_a_publisher_held_in_between_waits_with_the_rest():
    bus = Bus()
    reader = slow(bus, "block")
    publisher = bus.connect(b"CMSG pack\0on")
    publisher.say(sbus.pack(many()))
    publisher.say(b"MSG a\0later")
    assert publisher.held
    assert len(bus.sent) == SEALED_LIMIT
    assert reader.take() == [*many(), b"MSG a\0later"]
    assert bus.numbers_sent == list(range(CLOCK, CLOCK + MANY + 1))
