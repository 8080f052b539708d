"""Messages into numbered link datagrams, and these to the carrier once it has room."""

from random import Random

from bccnd.uplink.journal import RETRY_SECONDS, Journal, Limits
from bccnd.uplink.outbound import Outbound
from bccnd.wire.link import Numbered, Seal, messages
from tests.uplink.medium import Medium, Memory
from tests.uplink.segment import Clock, datagram
from tests.uplink.test_carrier import Listener

SRC = b"berlin/uplink/0123456789abcdef"


def outbound(limits: Limits | None = None, batch_bytes: int = 0) -> tuple[Outbound, Memory]:
    journal = Journal(None, limits)
    journal.open()
    return Outbound(journal, SRC, Seal(), batch_bytes), Medium(Random(1)).attach(Listener(), limit=4)


def opened(carrier: Memory) -> list[tuple[int, int, list[bytes]]]:
    """number, floor, messages of what is in flight"""
    found = []
    for sent in carrier.in_flight.values():
        header = Seal().open(sent)
        assert isinstance(header, Numbered)
        found.append((header.number, header.floor, [each[4] for each in messages(sent, header.at)]))
    return found


def test_messages_fill_a_datagram_and_a_flush_ends_it() -> None:
    out, carrier = outbound(batch_bytes=2 * len(datagram(1)))
    for seq in range(1, 6):
        out.add(b"door", datagram(seq), carrier)
    assert out.batched
    out.flush(carrier)
    assert not out.batched
    assert [[len(inside), number] for number, _, inside in opened(carrier)] == [[2, 1], [2, 2], [1, 3]]
    assert (out.sent.messages, out.sent.datagrams, out.next) == (5, 3, 4)


def test_the_floor_is_the_lowest_number_that_is_not_published() -> None:
    out, carrier = outbound()
    for seq in range(1, 5):
        out.add(b"door", datagram(seq), carrier)
    out.flush(carrier)
    assert out.floor == 1
    out.published(2)
    out.published(3)
    assert out.floor == 1
    out.published(1)
    assert out.floor == 4
    out.published(4)
    assert out.floor == out.next == 5
    out.published(4)
    out.published(99)
    assert out.sent.published == 4


def test_what_has_no_room_waits_and_goes_in_order() -> None:
    out, carrier = outbound()
    for seq in range(1, 11):
        out.add(b"door", datagram(seq), carrier)
    out.flush(carrier)
    assert (len(carrier.in_flight), out.waiting) == (4, 6)
    seen = []
    while carrier.in_flight:
        sent = opened(carrier)
        seen += [number for number, _, _ in sent]
        for number, _, _ in sent:
            del carrier.in_flight[number]
            out.published(number)
        out.push(carrier)
    assert seen == list(range(1, 11))
    assert (out.waiting, out.waiting_bytes, out.floor) == (0, 0, 11)


def test_a_full_outbox_gives_up_the_oldest_that_waits() -> None:
    out, carrier = outbound(Limits(outbox_bytes=20_000))
    carrier.connected = False
    for seq in range(1, 1001):
        out.add(b"door", datagram(seq, payload=bytes(100)), carrier)
    out.flush(carrier)
    assert out.waiting_bytes <= 20_000
    assert out.sent.given_up == 1000 - out.waiting > 800
    carrier.connected = True
    carrier.limit = 1000
    out.push(carrier)
    assert [number for number, _, _ in opened(carrier)] == list(range(1001 - len(carrier.in_flight), 1001))
    assert opened(carrier)[-1][1] == 1001 - len(carrier.in_flight), "the floor has passed what was given up"


def test_nothing_is_given_up_while_the_disk_cannot_be_read() -> None:
    clock = Clock()
    journal = Journal(None, Limits(outbox_bytes=20_000), clock)
    journal.open()
    out, carrier = Outbound(journal, SRC, Seal(), 0), Medium(Random(1)).attach(Listener(), limit=4)
    for seq in range(1, 11):
        out.add(b"door", datagram(seq, payload=bytes(1000)), carrier)
    out.flush(carrier)
    journal.commit()
    assert journal._database is not None
    journal._database.set_progress_handler(lambda: 1, 1)  # each look-up fails
    carrier.limit = 100
    for seq in range(11, 31):
        out.push(carrier)
        out.add(b"door", datagram(seq, payload=bytes(1000)), carrier)
    out.flush(carrier)
    assert (len(carrier.in_flight), out.waiting, out.sent.given_up, out.floor) == (4, 26, 0, 1)
    journal._database.set_progress_handler(None, 1)
    clock.now += RETRY_SECONDS
    out.push(carrier)
    assert [number for number, _, _ in opened(carrier)] == list(range(1, 31))
    journal.close()


def test_a_disk_that_is_never_read_again_stops_nothing() -> None:
    clock = Clock()
    journal = Journal(None, Limits(outbox_seconds=64.0), clock)
    journal.open()
    out, carrier = Outbound(journal, SRC, Seal(), 0), Medium(Random(1)).attach(Listener(), limit=4)
    for seq in range(1, 11):
        out.add(b"door", datagram(seq), carrier)
    out.flush(carrier)
    journal.commit()
    assert journal._database is not None
    journal._database.set_progress_handler(lambda: 1, 1)
    for second in range(70):
        out.age(float(second))
    assert (out.waiting, out.sent.given_up) == (0, 6)
    carrier.limit = 100
    out.add(b"door", datagram(11), carrier)
    out.flush(carrier)
    assert opened(carrier)[-1][:2] == (11, 1)
    journal.close()


def test_what_waits_for_too_long_is_given_up() -> None:
    out, carrier = outbound(Limits(outbox_seconds=64.0))
    carrier.connected = False
    for second in range(100):
        out.add(b"door", datagram(second + 1), carrier)
        out.flush(carrier)
        out.age(float(second))
    assert 60 <= out.waiting <= 67
    assert out.sent.given_up == 100 - out.waiting
