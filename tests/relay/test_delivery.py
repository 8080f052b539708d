"""How messages reach clients: together or alone, at once or by way of the queue; who waits for whom."""

import pytest

from bccnd.relay.delivery import ANSWERS_FATAL, FLUSH_PACKETS, LEFT_BYTES
from bccnd.relay.outbox import ANSWERS_BYTES, ANSWERS_LIMIT, Outbox, Policy
from bccnd.wire import sbus
from bccnd.wire.sbus import Cmsg
from tests.relay.fakes import UNLIMITED, Bus, FakeClient, datagram, options

FORMATS = [b"CMSG format\0plain", b"CMSG format\0full", b"CMSG format\0lines", b"CMSG pack\0on"]


def messages(*numbers: int) -> list[bytes]:
    return [b"MSG a\0%d" % number for number in numbers]


def slow(bus: Bus, policy: str, packets: int = 4) -> FakeClient:
    """A subscriber to everything that takes nothing until it is told to."""
    client = bus.connect(b"SUB ", b"CMSG queue\0packets=%d policy=%b" % (packets, policy.encode()))
    client.stop_reading()
    return client


# Packed clients


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
    reader = bus.connect(b"SUB ", b"CMSG pack\0on", b"CMSG queue\0packets=8")
    reader.stop_reading()
    publisher = bus.connect(b"CMSG pack\0on")
    publisher.say(*[sbus.pack(messages(*range(first, first + 3))) for first in (0, 3, 6)])
    assert reader.session.outbox.packets == 6
    reader.bus.transport.room[reader.port] = UNLIMITED
    bus.relay.writable(reader.session, bus.moment)
    bus.settle()
    assert reader.heard_packets() == [
        b"CMSG dropped\x003",
        sbus.pack(messages(3, 4, 5)),
        sbus.pack(messages(6, 7, 8)),
    ]


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_queue_smaller_than_a_pack_takes_single_messages(policy: str):
    bus = Bus()
    reader = bus.connect(b"SUB ", b"CMSG pack\0on", b"CMSG queue\0packets=2 policy=%b" % policy.encode())
    reader.stop_reading()
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
    bus.transport.room[reader.port] = UNLIMITED
    bus.relay.writable(reader.session, bus.moment)
    bus.settle()
    assert reader.heard_packets() == [sbus.pack(messages(1, 2)), b"CMSG pack\0off", *messages(3, 4)]


# The straight way and the queue


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("room", [0, 1, 2, 5])
def test_order_is_kept_between_direct_sends_and_the_queue(form: bytes, room: int):
    bus = Bus()
    reader, twin = bus.connect(b"SUB ", form), bus.connect(b"SUB ", form)
    publisher = bus.connect(pid=1)
    reader.stop_reading(room)
    publisher.say(*messages(1, 2, 3))
    heard = reader.take(1)
    publisher.say(*messages(4))
    bus.hear(datagram(b"x", 1, b"a", b"5"))
    heard += reader.take(2)
    publisher.say(*messages(6, 7))
    assert heard + reader.take() == twin.heard()


@pytest.mark.parametrize("form", FORMATS)
def test_new_messages_wait_behind_a_backlog(form: bytes):
    """The client has read, and more messages come before the daemon has noticed."""
    bus = Bus()
    reader, twin = bus.connect(b"SUB ", form), bus.connect(b"SUB ", form)
    publisher = bus.connect()
    reader.stop_reading()
    publisher.say(*messages(1, 2))
    bus.transport.room[reader.port] = UNLIMITED
    publisher.say(*messages(3))
    publisher.say(*messages(4, 5))
    reader.say(b"CMSG ping")
    twin.say(b"CMSG ping")
    assert reader.heard() == []
    assert reader.take() == twin.heard()


def test_slow_reader_loses_nothing_of_others():
    bus = Bus()
    stuck, reader = slow(bus, "drop-oldest"), bus.connect(b"SUB ")
    publisher = bus.connect()
    for number in range(0, 300, 3):
        publisher.say(*messages(number, number + 1, number + 2))
    assert reader.heard() == messages(*range(300))
    assert stuck.take() == [b"CMSG dropped\x00296", *messages(*range(296, 300))]


def test_turn_is_bounded():
    bus = Bus()
    reader = slow(bus, "drop-oldest", packets=1000)
    bus.connect().say(*messages(*range(200)))
    bus.transport.room[reader.port] = UNLIMITED
    bus.relay.writable(reader.session, bus.moment)
    bus.settle()
    assert reader.heard() == messages(*range(FLUSH_PACKETS))
    assert bus.watched == {reader.session}
    assert reader.take() == messages(*range(FLUSH_PACKETS, 200))
    assert bus.watched == set()


def test_echo_off_keeps_only_the_own_messages_away():
    bus = Bus()
    client, other = bus.connect(b"SUB a", b"CMSG echo/off"), bus.connect(b"SUB a")
    client.say(*messages(1, 2))
    other.say(*messages(3))
    assert (client.heard(), other.heard()) == (messages(3), messages(1, 2, 3))
    client.say(b"CMSG echo/on")
    client.heard()
    client.say(*messages(4))
    assert client.heard() == messages(4)


@pytest.mark.parametrize("form", FORMATS)
def test_echo_off_in_every_format(form: bytes):
    bus = Bus()
    client = bus.connect(b"SUB a", form, b"CMSG echo/off")
    client.say(*messages(1))
    client.say(*messages(2, 3))
    assert client.heard() == []


def test_gone_client_is_closed_once_and_others_are_served():
    bus = Bus()
    clients = [bus.connect(b"SUB a", form) for form in FORMATS]
    rest = bus.connect(b"SUB a")
    for client in clients:
        client.vanish()
    bus.connect().say(*messages(1, 2))
    assert rest.heard() == messages(1, 2)
    assert [client.connected for client in clients] == [False] * 4
    assert set(bus.closed.values()) == {"gone"}


def test_client_gone_while_its_queue_is_full():
    bus = Bus()
    reader = slow(bus, "drop-oldest")
    bus.connect().say(*messages(1, 2))
    reader.vanish()
    bus.transport.room[reader.port] = 1
    reader.take()
    assert not reader.connected


# The policies, as a client sees them


def test_drop_oldest():
    bus = Bus()
    reader = slow(bus, "drop-oldest")
    bus.connect().say(*messages(*range(1, 8)))
    assert reader.take() == [b"CMSG dropped\x003", *messages(4, 5, 6, 7)]
    assert reader.session.outbox.dropped == 3


def test_drop_newest():
    bus = Bus()
    reader = slow(bus, "drop-newest")
    publisher = bus.connect()
    publisher.say(*messages(*range(1, 8)))
    assert reader.take(2) == messages(1, 2)
    publisher.say(*messages(8))
    assert reader.take() == [*messages(3, 4), b"CMSG dropped\x003", *messages(8)]


def test_disconnect():
    bus = Bus()
    reader = slow(bus, "disconnect")
    publisher = bus.connect()
    publisher.say(*messages(1, 2, 3, 4))
    assert reader.connected
    publisher.say(*messages(5))
    assert not reader.connected
    assert bus.closed == {reader.name: "slow"}
    publisher.leave()
    bus.assert_idle()


def test_block_holds_the_publisher_until_little_waits():
    bus = Bus()
    reader = slow(bus, "block")
    publisher = bus.connect()
    publisher.say(*messages(1, 2, 3, 4))
    assert publisher.held
    publisher.say(*messages(5))
    assert publisher.unread == messages(5)
    assert reader.take(1) == messages(1)
    assert publisher.held
    assert reader.take(1) == messages(2)
    assert not publisher.unread
    assert reader.take() == messages(3, 4, 5)
    assert not publisher.held


def test_block_holds_the_publisher_as_soon_as_anything_waits():
    bus = Bus()
    reader = slow(bus, "block")
    publisher = bus.connect()
    publisher.say(*messages(1))
    assert publisher.held
    assert reader.take() == messages(1)
    assert not publisher.held


def test_block_loses_nothing_read_with_the_filling_message():
    bus = Bus()
    reader = slow(bus, "block")
    publisher = bus.connect()
    publisher.say(*messages(*range(200)))
    assert publisher.held
    assert len(publisher.unread) == 200 - 64
    assert reader.take() == messages(*range(200))


def test_block_never_holds_the_network():
    bus = Bus()
    reader, other = slow(bus, "block"), bus.connect(b"SUB ")
    bus.hear(*[datagram(b"x", number, b"a", b"%d" % number) for number in range(1, 7)])
    assert not reader.session.holds
    assert other.heard() == messages(*range(1, 7))
    assert reader.take() == [*messages(1, 2, 3, 4), b"CMSG dropped\x002"]


def test_block_holds_only_those_who_publish_to_the_blocked():
    bus = Bus()
    slow(bus, "block")
    other = bus.connect(b"SUB b")
    first, second = bus.connect(), bus.connect()
    first.say(*messages(*range(4)))
    assert (first.held, second.held) == (True, False)
    second.say(*messages(4))
    assert second.held
    assert not other.held


def test_a_publisher_waits_for_all_whom_it_has_filled():
    bus = Bus()
    readers = [slow(bus, "block"), slow(bus, "block")]
    publisher = bus.connect()
    publisher.say(*messages(*range(4)))
    readers[0].take()
    assert publisher.held
    readers[1].take()
    assert not publisher.held


def test_client_that_blocks_itself_stays():
    bus = Bus()
    client = slow(bus, "block", packets=2)
    client.say(*messages(1, 2), b"CMSG ping")
    assert client.held
    bus.tick(100)
    assert client.connected
    assert client.take() == [*messages(1, 2), b"CMSG pong\0"]
    assert not client.held


def test_clients_that_hold_each_other_go_on_when_they_read():
    bus = Bus()
    first, second = slow(bus, "block", packets=2), slow(bus, "block", packets=2)
    first.say(*messages(1, 2))
    second.say(*messages(3, 4))
    assert first.held
    assert second.unread or second.held
    heard = first.take(), second.take()
    assert heard[0] + first.take() == heard[1] + second.take() == messages(1, 2, 3, 4)
    assert not first.held
    assert not second.held


# Who is cut off


def test_block_client_that_takes_nothing_is_closed():
    bus = Bus(block_seconds=5)
    reader = slow(bus, "block")
    publisher = bus.connect()
    publisher.say(*messages(*range(4)))
    publisher.say(*messages(4))
    bus.tick(4)
    assert publisher.held
    bus.tick(2)
    assert bus.closed == {reader.name: "slow"}
    assert not publisher.held
    assert not publisher.unread


def test_block_client_that_takes_a_little_stays():
    bus = Bus(block_seconds=5, block_floor=0)
    reader = slow(bus, "block", packets=100)
    publisher = bus.connect()
    publisher.say(*messages(*range(100)))
    for _ in range(10):
        bus.tick(4)
        reader.take(1)
    assert reader.connected
    assert publisher.held


def test_a_shorter_time_holds_for_those_who_block_already():
    bus = Bus(block_seconds=60)
    reader = slow(bus, "block")
    publisher = bus.connect()
    publisher.say(*messages(*range(4)))
    bus.tick(10)
    assert publisher.held
    bus.reconfigure(options=options(block_seconds=5))
    bus.tick(1)
    assert bus.closed == {reader.name: "slow"}
    assert not publisher.held


@pytest.mark.parametrize("policy", [Policy.DROP_OLDEST, Policy.DROP_NEWEST])
def test_only_block_clients_are_closed_for_being_slow(policy: Policy):
    bus = Bus()
    reader = slow(bus, policy)
    bus.connect().say(*messages(*range(100)))
    bus.tick(1000)
    assert reader.connected


def test_the_time_begins_with_the_backlog():
    bus = Bus(block_seconds=5)
    reader = slow(bus, "block")
    bus.tick(1000)
    bus.connect().say(*messages(*range(4)))
    bus.tick(1)
    assert reader.connected


# Answers


def test_client_with_unread_answers_is_held_until_it_reads():
    bus = Bus()
    client = bus.connect()
    client.stop_reading()
    pings = [b"CMSG ping\0%d" % number for number in range(200)]
    client.say(*pings[:ANSWERS_LIMIT])
    assert not client.held
    client.say(*pings[ANSWERS_LIMIT:])
    assert client.held
    assert client.unread
    client.take(20)
    assert client.held
    assert len(client.take()) == 180
    assert not client.held
    assert not client.unread


def test_client_with_thousands_of_unread_answers_is_closed():
    """It cannot ask for so many, but a change of rights revokes as many patterns again and again."""
    bus = Bus()
    client = bus.connect()
    client.stop_reading()
    for _ in range(ANSWERS_FATAL + 1):
        bus.relay.answer(client.session, Cmsg(b"revoked", b"SUB a"), bus.moment)
    bus.settle()
    assert bus.closed == {client.name: "its answers are not read"}
    bus.assert_idle()


def test_client_gets_no_further_answers_until_it_reads():
    bus = Bus()
    client = bus.connect(b"CMSG pack\0on")
    client.stop_reading()
    client.say(sbus.pack([b"CMSG ping\0%d" % number for number in range(3000)]))
    assert client.held
    assert client.session.outbox.answers == ANSWERS_LIMIT + 1
    assert client.take() == [b"CMSG pong\0%d" % number for number in range(3000)]


def test_client_with_long_unread_answers_gets_few():
    bus = Bus()
    clients = [bus.connect(b"CMSG pack\0on") for _ in range(20)]
    for client in clients:
        client.stop_reading()
        for _ in range(20):
            client.say(b"CMSG ping\0" + bytes(60_000))
        assert client.session.outbox.held < ANSWERS_BYTES + 60_100
    assert bus.relay.status()["queued"]["bytes"] > 20 * 60_000


# Whoever holds most gives first


def test_clients_that_never_read_take_nobodys_share():
    bus = Bus(total_bytes=1 << 20, max_packets=100_000)
    greedy = [slow(bus, policy, packets=100_000) for policy in ("drop-oldest", "drop-newest") * 2]
    publisher = bus.connect()
    publisher.say(*[b"MSG a\0" + bytes(1000)] * 1200)
    fifth = bus.connect(b"SUB b")
    fifth.stop_reading()
    publisher.say(*[b"MSG b\0%d" % number for number in range(1000)])
    assert fifth.take() == [b"MSG b\0%d" % number for number in range(1000)]
    assert fifth.session.outbox.dropped == 0
    assert all(client.session.outbox.dropped for client in greedy)
    for client in greedy:
        packets = client.take()
        lost = [packet for packet in packets if packet.startswith(b"CMSG dropped")]
        assert len(packets) - len(lost) + sum(int(packet.split(b"\0")[1]) for packet in lost) == 2200


def test_a_message_to_many_that_hold_alike_looks_for_no_giver(monkeypatch: pytest.MonkeyPatch):
    bus, count = Bus(queue_total_bytes=1 << 20), 60
    for _ in range(count):
        bus.connect(b"SUB a").stop_reading()
    publisher = bus.connect()
    for _ in range(300):
        publisher.say(b"MSG a\0" + bytes(100))
    ledger, held = bus.relay.state.ledger, Outbox.held.fget
    assert ledger.dropped > count, "all that they may hold together is held"
    looks: list[Outbox] = []
    monkeypatch.setattr(Outbox, "held", property(lambda outbox: looks.append(outbox) or held(outbox)))
    publisher.say(b"MSG a\0" + bytes(100))
    assert len(looks) <= 8 * count


def test_client_for_which_publishers_wait_gives_nothing():
    bus = Bus(total_bytes=1 << 20, max_packets=100_000)
    reader = bus.connect(b"SUB local/a", b"CMSG queue\0packets=100000 policy=block")
    reader.stop_reading()
    bus.connect().say(*[b"MSG local/a\0" + bytes(10_000)] * 60)
    greedy = slow(bus, "drop-oldest", packets=100_000)
    bus.connect().say(*[b"MSG b\0" + bytes(1000)] * 600)
    assert greedy.session.outbox.dropped
    assert len(reader.take()) == 60


def test_a_client_found_gone_is_still_closed_for_a_fault():
    bus = Bus()
    client = bus.connect()
    bus.relay.close(client.session, "gone")
    bus.relay.close(client.session, "fault")
    effects = bus.relay.take_effects()
    assert effects is not None
    assert list(effects.close) == [client.session] * 2
    assert client.session.closing == "fault"


def test_client_that_would_disconnect_is_closed_to_make_room():
    bus = Bus(total_bytes=1 << 20, max_packets=100_000)
    greedy = slow(bus, "disconnect", packets=100_000)
    publisher = bus.connect()
    publisher.say(*[b"MSG a\0" + bytes(1000)] * 900)
    fifth = slow(bus, "drop-oldest", packets=1000)
    publisher.say(*[b"MSG a\0" + bytes(1000)] * 200)
    assert bus.closed == {greedy.name: "slow"}
    assert fifth.session.outbox.packets == 200


def test_client_with_answers_alone_is_closed_to_make_room():
    bus = Bus(total_bytes=1 << 20)
    asking = [bus.connect() for _ in range(20)]
    for client in asking:
        client.stop_reading()
        client.say(b"CMSG ping\0" + bytes(60_000), b"CMSG ping\0" + bytes(60_000))
    assert set(bus.closed.values()) == {"its answers are not read"}
    assert bus.relay.state.ledger.excess(0) <= 0


def crowd_of(bus: Bus, clients: int, uid: int) -> list[FakeClient]:
    """Clients of one user that never read and hold as much as there may be."""
    crowd = [bus.connect(b"SUB crowd", b"CMSG queue\0packets=100000", uid=uid) for _ in range(clients)]
    for client in crowd:
        client.stop_reading()
    publisher, ledger = bus.connect(uid=uid), bus.relay.state.ledger
    while ledger.dropped == 0:
        publisher.say(*[b"MSG crowd\0" + bytes(100)] * 8)
    return crowd


def test_a_user_with_many_clients_takes_nobody_elses_share():
    bus = Bus(total_bytes=1 << 20, max_packets=100_000)
    crowd = crowd_of(bus, 200, uid=1001)
    reader = bus.connect(b"SUB b", uid=1002)
    reader.stop_reading()
    sent = [b"MSG b\0%04d" % number + bytes(1000) for number in range(400)]
    bus.connect(uid=1002).say(*sent)
    assert reader.session.outbox.dropped == 0
    assert reader.take() == sent
    assert all(client.connected for client in crowd)


def test_two_users_who_want_all_have_half_each():
    bus = Bus(total_bytes=1 << 20, max_packets=100_000)
    crowd_of(bus, 100, uid=1001)
    reader = bus.connect(b"SUB b", b"CMSG queue\0packets=100000", uid=1002)
    reader.stop_reading()
    bus.connect(uid=1002).say(*[b"MSG b\0" + bytes(1000)] * 2000)
    half = bus.relay.state.ledger.limit // 2
    assert abs(reader.session.outbox.held - half) < half // 10


def test_of_a_user_the_client_that_holds_most_gives_first():
    bus = Bus(total_bytes=1 << 20, max_packets=100_000)
    modest, greedy = (bus.connect(b"SUB %b" % chan, uid=1001) for chan in (b"a", b"b"))
    for client in (modest, greedy):
        client.stop_reading()
    publisher = bus.connect(uid=1001)
    publisher.say(*[b"MSG a\0" + bytes(1000)] * 200, *[b"MSG b\0" + bytes(1000)] * 700)
    reader = bus.connect(b"SUB c", uid=1002)
    reader.stop_reading()
    bus.connect(uid=1002).say(*[b"MSG c\0" + bytes(1000)] * 400)
    assert [each.session.outbox.dropped for each in (modest, reader)] == [0, 0]
    assert greedy.session.outbox.dropped > 0


def test_a_user_cannot_keep_the_memory_of_all_by_block():
    bus = Bus(total_bytes=1 << 20, max_packets=100_000)
    greedy = [bus.connect(b"SUB a", b"CMSG queue\0packets=90000 policy=block", uid=1001) for _ in range(4)]
    for client in greedy:
        client.stop_reading()
    reader, publisher = bus.connect(b"SUB b", uid=1002), bus.connect(uid=1002)
    reader.stop_reading()
    publisher.say(*[b"MSG a\0" + bytes(1000)] * 400)
    sent = [b"MSG b\0%d" % number for number in range(1000)]
    publisher.say(*sent)
    assert reader.take() == sent


def test_a_message_to_a_full_crowd_looks_at_each_seldom(monkeypatch: pytest.MonkeyPatch):
    """All are of one user and want room at once: who holds more gives enough for many of them."""
    bus = Bus(total_bytes=1 << 20, max_packets=100_000)
    heavy = [bus.connect(b"SUB heavy", b"CMSG queue\0packets=100000", uid=1001) for _ in range(20)]
    for client in heavy:
        client.stop_reading()
    publisher = bus.connect(uid=1001)
    publisher.say(*[b"MSG heavy\0" + bytes(1000)] * 30)
    crowd = crowd_of(bus, 100, uid=1001)
    looks: list[Outbox] = []
    givable = Outbox.givable.fget
    assert givable
    monkeypatch.setattr(Outbox, "givable", property(lambda box: looks.append(box) or givable(box)))
    publisher.say(*[b"MSG crowd\0" + bytes(100)] * 10)
    assert sum(client.session.outbox.dropped for client in heavy) > 0
    assert len(looks) < 3 * 10 * len(crowd)


def test_looking_for_who_gives_costs_little_a_message(monkeypatch: pytest.MonkeyPatch):
    bus = Bus(total_bytes=4 << 20, max_packets=100_000)
    crowd = crowd_of(bus, 400, uid=1001)
    reader, publisher = bus.connect(b"SUB b", uid=1002), bus.connect(uid=1002)
    reader.stop_reading()
    looks: list[Outbox] = []
    givable = Outbox.givable.fget
    monkeypatch.setattr(Outbox, "givable", property(lambda box: looks.append(box) or givable(box)))
    for number in range(1500):
        publisher.say(b"MSG b\0%04d" % number + bytes(1000))
    assert reader.session.outbox.dropped == 0
    assert 2 * len(crowd) < len(looks) < 50 * 1500


def keep_left(bus: Bus, client: FakeClient, size: int) -> None:
    bus.relay.keep_left(client.session, size, 0.0)
    bus.settle()


def test_packets_that_wait_for_a_turn_are_in_the_account_of_all():
    bus = Bus(total_bytes=1 << 20)
    clients = [bus.connect() for _ in range(8)]
    size = LEFT_BYTES // 5
    for number, client in enumerate(clients):
        keep_left(bus, client, size - number)
    ledger = bus.relay.state.ledger
    assert bus.closed == {client.name: "slow" for client in clients[:3]}, "those with most"
    assert ledger.left == sum(size - number for number in range(3, 8)) <= LEFT_BYTES
    for client in clients[3:]:
        keep_left(bus, client, 0)
    assert ledger.left == 0


def test_packets_that_wait_are_counted_by_user():
    bus = Bus(total_bytes=1 << 20)
    crowd, other = [bus.connect(uid=1001) for _ in range(8)], bus.connect(uid=1002)
    keep_left(bus, other, LEFT_BYTES // 5)
    for number, client in enumerate(crowd):
        keep_left(bus, client, LEFT_BYTES // 10 + number)
    assert bus.closed == {crowd[-1].name: "slow"}


def test_packets_that_wait_displace_who_holds_more():
    bus = Bus(total_bytes=1 << 20, max_packets=100_000)
    greedy = slow(bus, "drop-oldest", packets=100_000)
    publisher = bus.connect()
    publisher.say(*[b"MSG a\0" + bytes(1000)] * 900)
    keep_left(bus, publisher, 250_000)
    assert publisher.name not in bus.closed
    assert greedy.session.outbox.dropped
    assert bus.relay.state.ledger.excess(0) <= 0


def test_client_that_reads_its_answers_is_not_held():
    bus = Bus()
    client, publisher = slow(bus, "drop-oldest", packets=10), bus.connect()
    publisher.say(*messages(*range(10)))
    client.say(*[b"CMSG ping"] * 200, b"UNSUB ")
    while client.held:
        publisher.say(*messages(*range(50)))
        assert client.take(1), "there is something to read"
    publisher.say(*messages(*range(50)))
    client.take()
    assert not client.unread
    assert not client.session.subscriptions


# Leaving


@pytest.mark.parametrize("who", ["reader", "publisher"])
def test_leaving_while_one_holds_the_other(who: str):
    bus = Bus()
    reader, publisher = slow(bus, "block"), bus.connect()
    publisher.say(*messages(*range(4)))
    assert publisher.held
    (reader if who == "reader" else publisher).leave()
    assert not publisher.held
    assert not reader.session.holds
    reader.leave()
    publisher.leave()
    bus.assert_idle()


def test_leaving_with_messages_and_answers_waiting():
    bus = Bus()
    client = slow(bus, "drop-newest")
    client.say(*messages(*range(6)), *[b"CMSG ping"] * 100)
    client.leave()
    assert bus.relay.state.ledger.dropped == client.session.outbox.dropped == 6
    bus.assert_idle()


def test_closed_client_gets_the_reason_if_it_can_read():
    bus = Bus()
    client, stuck = bus.connect(), slow(bus, "drop-oldest")
    stuck.say(b"CMSG ping")
    for session in (client.session, stuck.session):
        bus.relay.close(session, "shutdown")
        bus.relay.close(session, "again")
    bus.settle()
    assert client.heard() == [b"CMSG closing\0shutdown"]
    assert stuck.heard() == []
    assert bus.closed == {client.name: "shutdown", stuck.name: "shutdown"}
    bus.assert_idle()


def test_lines_client_gets_the_notice_as_a_line():
    bus = Bus()
    client = bus.connect(b"SUB a\n")
    bus.relay.close(client.session, "shutdown")
    assert client.heard() == [b"CMSG closing shutdown\n"]
