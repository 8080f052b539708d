"""What packed clients get: what was read together, as one PACK, whose parts keep their place in the queue."""

import pytest

from bccnd.wire import sbus
from tests.relay.fakes import Bus, datagram, messages


def test_a_pack_reaches_a_packed_client_as_it_came():
    bus = Bus()
    reader = bus.connect(b"SUB ", b"CMSG pack\0on")
    publisher = bus.connect(b"CMSG pack\0on")
    packet = sbus.pack([b"MSG a\0one", b"MSG b\0two\n"])
    publisher.say(packet)
    assert reader.heard_packets() == [packet]


def test_pack_stays_sound_without_its_last_line_end():
    bus = Bus()
    reader = bus.connect(b"SUB ", b"CMSG pack\0on")
    publisher = bus.connect(b"CMSG format\0lines", b"CMSG pack\0on")
    publisher.say(sbus.pack([b"MSG a one", b"MSG a two\n"]))
    assert reader.heard_packets() == [sbus.pack([b"MSG a\0one", b"MSG a\0two"])]


def test_messages_read_together_go_out_as_one_pack():
    bus = Bus()
    packed, plain = bus.connect(b"SUB ", b"CMSG pack\0on"), bus.connect(b"SUB ")
    bus.connect().say(*messages(1, 2, 3))
    assert packed.heard_packets() == [sbus.pack(messages(1, 2, 3))]
    assert plain.heard_packets() == messages(1, 2, 3)


def test_a_lone_message_goes_to_a_packed_client_as_it_is():
    bus = Bus()
    packed = bus.connect(b"SUB ", b"CMSG pack\0on")
    bus.connect(b"CMSG pack\0on").say(sbus.pack(messages(1)))
    bus.hear(datagram(b"x", 1, b"a", b"2"))
    assert packed.heard_packets() == messages(1, 2)


def test_messages_of_the_segment_are_packed():
    bus = Bus()
    packed = bus.connect(b"SUB ", b"CMSG pack\0on")
    bus.hear(*[datagram(b"x", number, b"a", b"%d" % number) for number in (1, 2, 3)])
    assert packed.heard_packets() == [sbus.pack(messages(1, 2, 3))]


def test_only_those_of_a_pack_that_are_for_a_client_reach_it():
    bus = Bus()
    reader = bus.connect(b"SUB a", b"CMSG pack\0on")
    bus.connect(b"CMSG pack\0on").say(
        sbus.pack([b"MSG a\0001", b"MSG a\0002", b"MSG b\0003", b"CMSG ping", b"MSG a\0004", b"MSG b\0005"])
    )
    assert reader.heard_packets() == [sbus.pack([b"MSG a\0001", b"MSG a\0002"]), b"MSG a\0004"]


def test_no_pack_is_longer_than_the_limit():
    bus = Bus()
    limit = bus.relay.state.rules.packet_limit
    reader = bus.connect(b"SUB ", b"CMSG pack\0on")
    large = [b"MSG local/x\0" + b"%02d" % number * 10_000 for number in range(12)]
    publisher = bus.connect(b"CMSG pack\0on")
    publisher.say(*large)
    packets = reader.heard_packets()
    assert max(map(len, packets)) <= limit
    assert len(packets) == 4
    bus.transport.taken[reader.port] = packets
    assert reader.heard() == large
    reader.stop_reading()
    publisher.say(*large)
    reader.take()
    publisher.say(b"MSG local/x\0" + b"x" * 65536, b"MSG local/x\0" + b"y" * 65536)
    assert [len(packet) for packet in reader.heard_packets()] == [65536 + 12] * 2


@pytest.mark.parametrize("room", range(5))
def test_a_pack_that_finds_no_room_loses_nothing(room: int):
    bus = Bus()
    reader = bus.connect(b"SUB ", b"CMSG pack\0on")
    publisher = bus.connect(b"CMSG pack\0on")
    large = [b"MSG local/x\0" + b"%d" % number * 30_000 for number in range(8)]
    reader.stop_reading(room)
    publisher.say(sbus.pack(large[:2]), sbus.pack(large[2:4]), sbus.pack(large[4:6]), sbus.pack(large[6:]))
    assert reader.take(1) + reader.take() == large


def test_each_piece_of_a_pack_is_passed_on_as_it_lies_there():
    """A line end that is taken off, a message for others and a packet's end are what parts them."""
    bus = Bus()
    reader = bus.connect(b"SUB a", b"CMSG pack\0on")
    publisher = bus.connect(b"CMSG format\0lines", b"CMSG pack\0on")
    publisher.say(
        sbus.pack([*messages(1, 2), b"MSG b\0", *messages(3, 4, 5)]),
        *messages(6, 7),
        sbus.pack([*messages(8, 9), b"MSG a 10\r\n", *messages(11, 12)]),
        sbus.pack(messages(13)),
    )
    assert reader.heard_packets() == [
        sbus.pack(messages(1, 2)),
        sbus.pack(messages(3, 4, 5)),
        sbus.pack(messages(6, 7, 8, 9, 10)),
        sbus.pack(messages(11, 12)),
        *messages(13),
    ]


@pytest.mark.parametrize("form", [b"CMSG format\0full", b"CMSG format\0lines"])
def test_every_format_is_packed(form: bytes):
    bus = Bus()
    packed, single = bus.connect(b"SUB ", form, b"CMSG pack\0on"), bus.connect(b"SUB ", form)
    bus.connect().say(*messages(1, 2, 3))
    expected = single.heard_packets()
    assert len(expected) == 3
    assert packed.heard_packets() == [sbus.pack(expected)]


def test_a_pack_waits_and_is_dropped_as_a_whole():
    bus = Bus()
    reader = bus.connect_stuck(b"SUB ", b"CMSG pack\0on", b"CMSG queue\0packets=8")
    publisher = bus.connect(b"CMSG pack\0on")
    publisher.say(*[sbus.pack(messages(*range(first, first + 3))) for first in (0, 3, 6)])
    assert reader.session.outbox.packets == 6
    assert reader.take_a_turn() == [
        b"CMSG dropped\x003",
        sbus.pack(messages(3, 4, 5)),
        sbus.pack(messages(6, 7, 8)),
    ]


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_queue_smaller_than_a_pack_takes_single_messages(policy: str):
    bus = Bus()
    queue = b"CMSG queue\0packets=2 policy=%b" % policy.encode()
    reader = bus.connect_stuck(b"SUB ", b"CMSG pack\0on", queue)
    bus.connect(b"CMSG pack\0on").say(sbus.pack(messages(1, 2, 3, 4)))
    lost = [b"CMSG dropped\x002"]
    assert reader.take() == (lost + messages(3, 4) if policy == "drop-oldest" else messages(1, 2) + lost)


def test_no_pack_comes_after_the_answer_that_ends_packing():
    bus = Bus()
    reader = bus.connect(b"SUB ", b"CMSG pack\0on")
    publisher = bus.connect(b"CMSG pack\0on")
    reader.stop_reading()
    publisher.say(sbus.pack(messages(1, 2)))
    reader.say(b"CMSG pack\0off")
    publisher.say(sbus.pack(messages(3, 4)))
    assert reader.take_a_turn() == [sbus.pack(messages(1, 2)), b"CMSG pack\0off", *messages(3, 4)]
