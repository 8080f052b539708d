"""What all queues may hold together: whoever holds most gives first, and how seldom that is looked for."""

import pytest

from bccnd.relay.delivery import LEFT_BYTES
from bccnd.relay.outbox import Outbox
from tests.relay.fakes import Bus, FakeClient, slow

# Packets that a queue may hold where bytes alone are to bound it.
ANY = 100_000


def narrow(mib: int = 1) -> Bus:
    """All queues together may hold so many MiB, and each any number of packets."""
    return Bus(total_bytes=mib << 20, max_packets=ANY)


def looks_at(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Outbox]:
    """Whose property of this name is looked at from now on, once for each look."""
    looks: list[Outbox] = []
    getter = getattr(Outbox, name).fget
    monkeypatch.setattr(Outbox, name, property(lambda outbox: looks.append(outbox) or getter(outbox)))
    return looks


def filler(chan: bytes, count: int, size: int = 1000) -> list[bytes]:
    return [b"MSG %b\0" % chan + bytes(size)] * count


def crowd_of(bus: Bus, clients: int, uid: int) -> list[FakeClient]:
    """Clients of one user that never read and hold as much as there may be."""
    crowd = [slow(bus, "drop-oldest", ANY, b"crowd", uid=uid) for _ in range(clients)]
    publisher, ledger = bus.connect(uid=uid), bus.relay.state.ledger
    while ledger.dropped == 0:
        publisher.say(*filler(b"crowd", 8, 100))
    return crowd


def test_clients_that_never_read_take_nobodys_share():
    bus = narrow()
    greedy = [slow(bus, policy, packets=ANY) for policy in ("drop-oldest", "drop-newest") * 2]
    publisher = bus.connect()
    publisher.say(*filler(b"a", 1200))
    fifth = bus.connect_stuck(b"SUB b")
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
        bus.connect_stuck(b"SUB a")
    publisher = bus.connect()
    for _ in range(300):
        publisher.say(b"MSG a\0" + bytes(100))
    assert bus.relay.state.ledger.dropped > count, "all that they may hold together is held"
    looks = looks_at(monkeypatch, "held")
    publisher.say(b"MSG a\0" + bytes(100))
    assert len(looks) <= 8 * count


def test_client_for_which_publishers_wait_gives_nothing():
    bus = narrow()
    reader = slow(bus, "block", ANY, b"local/a")
    bus.connect().say(*filler(b"local/a", 60, 10_000))
    greedy = slow(bus, "drop-oldest", packets=ANY)
    bus.connect().say(*filler(b"b", 600))
    assert greedy.session.outbox.dropped
    assert len(reader.take()) == 60


def test_client_that_would_disconnect_is_closed_to_make_room():
    bus = narrow()
    greedy = slow(bus, "disconnect", packets=ANY)
    publisher = bus.connect()
    publisher.say(*filler(b"a", 900))
    fifth = slow(bus, "drop-oldest", packets=1000)
    publisher.say(*filler(b"a", 200))
    assert bus.closed == {greedy.name: "slow"}
    assert fifth.session.outbox.packets == 200


def test_client_with_answers_alone_is_closed_to_make_room():
    bus = Bus(total_bytes=1 << 20)
    for _ in range(20):
        bus.connect_stuck().say(*[b"CMSG ping\0" + bytes(60_000)] * 2)
    assert set(bus.closed.values()) == {"its answers are not read"}
    assert bus.relay.state.ledger.excess(0) <= 0


def test_a_user_with_many_clients_takes_nobody_elses_share():
    bus = narrow()
    crowd = crowd_of(bus, 200, uid=1001)
    reader = bus.connect_stuck(b"SUB b", uid=1002)
    sent = [b"MSG b\0%04d" % number + bytes(1000) for number in range(400)]
    bus.connect(uid=1002).say(*sent)
    assert reader.session.outbox.dropped == 0
    assert reader.take() == sent
    assert all(client.connected for client in crowd)


def test_two_users_who_want_all_have_half_each():
    bus = narrow()
    crowd_of(bus, 100, uid=1001)
    reader = slow(bus, "drop-oldest", ANY, b"b", uid=1002)
    bus.connect(uid=1002).say(*filler(b"b", 2000))
    half = bus.relay.state.ledger.limit // 2
    assert abs(reader.session.outbox.held - half) < half // 10


def test_of_a_user_the_client_that_holds_most_gives_first():
    bus = narrow()
    modest, greedy = (bus.connect_stuck(b"SUB " + chan, uid=1001) for chan in (b"a", b"b"))
    publisher = bus.connect(uid=1001)
    publisher.say(*filler(b"a", 200), *filler(b"b", 700))
    reader = bus.connect_stuck(b"SUB c", uid=1002)
    bus.connect(uid=1002).say(*filler(b"c", 400))
    assert [each.session.outbox.dropped for each in (modest, reader)] == [0, 0]
    assert greedy.session.outbox.dropped > 0


def test_a_user_cannot_keep_the_memory_of_all_by_block():
    bus = narrow()
    for _ in range(4):
        slow(bus, "block", ANY, b"a", uid=1001)
    reader, publisher = bus.connect_stuck(b"SUB b", uid=1002), bus.connect(uid=1002)
    publisher.say(*filler(b"a", 400))
    sent = [b"MSG b\0%d" % number for number in range(1000)]
    publisher.say(*sent)
    assert reader.take() == sent


def test_a_message_to_a_full_crowd_looks_at_each_seldom(monkeypatch: pytest.MonkeyPatch):
    """All are of one user and want room at once: who holds more gives enough for many of them."""
    bus = narrow()
    heavy = [slow(bus, "drop-oldest", ANY, b"heavy", uid=1001) for _ in range(20)]
    publisher = bus.connect(uid=1001)
    publisher.say(*filler(b"heavy", 30))
    crowd = crowd_of(bus, 100, uid=1001)
    looks = looks_at(monkeypatch, "givable")
    publisher.say(*filler(b"crowd", 10, 100))
    assert sum(client.session.outbox.dropped for client in heavy) > 0
    assert len(looks) < 3 * 10 * len(crowd)


def test_looking_for_who_gives_costs_little_a_message(monkeypatch: pytest.MonkeyPatch):
    bus = narrow(mib=4)
    crowd = crowd_of(bus, 400, uid=1001)
    reader, publisher = bus.connect_stuck(b"SUB b", uid=1002), bus.connect(uid=1002)
    looks = looks_at(monkeypatch, "givable")
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
    bus = narrow()
    greedy = slow(bus, "drop-oldest", packets=ANY)
    publisher = bus.connect()
    publisher.say(*filler(b"a", 900))
    keep_left(bus, publisher, 250_000)
    assert publisher.name not in bus.closed
    assert greedy.session.outbox.dropped
    assert bus.relay.state.ledger.excess(0) <= 0
