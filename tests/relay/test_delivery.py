"""How messages reach clients: at once or by way of the queue; what each policy does, and who waits for whom."""

import pytest

from bccnd.relay.delivery import ANSWERS_FATAL, FLUSH_PACKETS
from bccnd.relay.outbox import ANSWERS_BYTES, ANSWERS_LIMIT
from bccnd.wire import sbus
from bccnd.wire.sbus import Cmsg
from tests.relay.fakes import UNLIMITED, Bus, datagram, messages, slow

FORMATS = [b"CMSG format\0plain", b"CMSG format\0full", b"CMSG format\0lines", b"CMSG pack\0on"]


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
    reader.stop_reading(room=UNLIMITED)
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
    assert reader.take_a_turn() == messages(*range(FLUSH_PACKETS))
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


# Answers


def test_client_with_unread_answers_is_held_until_it_reads():
    bus = Bus()
    client = bus.connect_stuck()
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
    client = bus.connect_stuck()
    for _ in range(ANSWERS_FATAL + 1):
        bus.relay.answer(client.session, Cmsg(b"revoked", b"SUB a"), bus.moment)
    bus.settle()
    assert bus.closed == {client.name: "its answers are not read"}
    bus.assert_idle()


def test_client_gets_no_further_answers_until_it_reads():
    bus = Bus()
    client = bus.connect_stuck(b"CMSG pack\0on")
    client.say(sbus.pack([b"CMSG ping\0%d" % number for number in range(3000)]))
    assert client.held
    assert client.session.outbox.answers == ANSWERS_LIMIT + 1
    assert client.take() == [b"CMSG pong\0%d" % number for number in range(3000)]


def test_client_with_long_unread_answers_gets_few():
    bus = Bus()
    for _ in range(20):
        client = bus.connect_stuck(b"CMSG pack\0on")
        for _ in range(20):
            client.say(b"CMSG ping\0" + bytes(60_000))
        assert client.session.outbox.held < ANSWERS_BYTES + 60_100
    assert bus.relay.status()["queued"]["bytes"] > 20 * 60_000


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


def test_a_client_found_gone_is_still_closed_for_a_fault():
    bus = Bus()
    client = bus.connect()
    bus.relay.close(client.session, "gone")
    bus.relay.close(client.session, "fault")
    effects = bus.relay.take_effects()
    assert effects is not None
    assert list(effects.clients.close) == [client.session] * 2
    assert client.session.closing == "fault"
