"""Who is connected, under which name and numbers; what a reload changes for them."""

from typing import Any

import pytest

from bccnd.relay.dedup import JUMP
from bccnd.relay.options import Policy
from bccnd.wire.bccn1 import Integrity, Level
from tests.relay.fakes import CLOCK, Bus, datagram, options


def test_a_name_that_a_client_gave_up_may_be_taken_by_another_host():
    bus = Bus()
    listener = bus.connect(b"SUB demo/>")
    publisher = bus.connect(b"MSG demo/a\0here", pid=7)
    publisher.leave()
    listener.heard()
    bus.hear(datagram(b"here/prog/7", 1, b"demo/a", b"there"))
    assert listener.heard() == [b"MSG demo/a\0there"]


def test_directed_messages_follow_a_name_at_once():
    bus = Bus()
    client, sender = bus.connect(b"CMSG listen", pid=7), bus.connect()
    both = b"MSG !here/prog/7\0old", b"MSG !here/prog/7/x\0new"
    sender.say(*both)
    assert client.heard() == [both[0]]
    client.ask(b"CMSG name\0here/prog/7/x")
    sender.say(*both)
    assert client.heard() == [both[1]]
    client.leave()
    again = bus.connect(b"CMSG listen", pid=7)
    sender.say(*both)
    assert again.heard() == [both[0]]


def test_clients_are_limited():
    bus = Bus(clients=2)
    first = bus.connect()
    bus.connect()
    assert bus.try_connect() is None
    first.leave()
    assert bus.try_connect() is not None


def test_one_who_left_at_once_has_still_published_all():
    """Its own copies find nobody, but its messages count."""
    bus = Bus()
    reader = bus.connect(b"SUB a")
    client = bus.connect(b"SUB a")
    client.vanish()
    client.say(b"MSG a\0001", b"SUB b", b"MSG a\0002", b"CMSG ping", b"MSG a\0003")
    assert reader.heard() == [b"MSG a\0001", b"MSG a\0002", b"MSG a\0003"]
    assert bus.closed == {client.name: "gone"}


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
    bus.relay.state.names.begin_at(CLOCK + 1000)
    bus.connect(*[b"MSG a\0"] * 5, pid=7)
    assert bus.relay.next_seq == CLOCK + 1005
    bus.connect(*[b"MSG a\0"] * 50, pid=8).leave()
    assert bus.relay.next_seq == CLOCK + 1050
    assert max(numbers(bus, bus.sent)) == CLOCK + 1049


def reconfigure(bus: Bus, integrity: Integrity | None = None, **values: Any) -> None:
    bus.reconfigure(options=options(local=["private/>"], **values), integrity=integrity or Integrity())


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
    bus = Bus(queue_packets=2, policy=Policy.BLOCK)
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
    reconfigure(bus, total_bytes=30)
    publisher.say(*[b"MSG a\0" + bytes(4)] * 10)
    assert bus.relay.state.ledger.bytes == 30


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
