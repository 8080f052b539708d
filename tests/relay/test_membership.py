"""Who is connected, under which name and with which numbers."""

import gc
import weakref

from bccnd.relay.dedup import JUMP
from bccnd.relay.membership import NAMES_AT_ONCE
from tests.relay.fakes import CLOCK, Bus, datagram


def test_another_host_may_take_a_name_that_was_given_up():
    bus = Bus()
    listener = bus.connect(b"SUB demo/>")
    publisher = bus.connect(b"MSG demo/a\0here", pid=7)
    publisher.leave()
    listener.heard()
    bus.hear(datagram(b"here/prog/7", 1, b"demo/a", b"there"))
    assert listener.heard() == [b"MSG demo/a\0there"]


def test_the_names_of_a_process_are_limited():
    """Also over connections; another process has its own."""
    bus = Bus()
    client = bus.connect(b"CMSG heartbeat\x0060", pid=7)
    names = [b"CMSG name\0here/prog/7/%d" % number for number in range(NAMES_AT_ONCE + 5)]
    said = client.ask(*names)
    assert said[:NAMES_AT_ONCE] == names[:NAMES_AT_ONCE]
    refusal = b"CMSG error\0limit CMSG name: at most 64 names at once, and then one a second"
    assert said[NAMES_AT_ONCE:] == [refusal] * 5
    assert client.name == b"here/prog/7/%d" % (NAMES_AT_ONCE - 1)
    assert client.ask(b"CMSG name\0" + client.name) == [b"CMSG name\0" + client.name], "its own costs nothing"
    client.leave()
    again = bus.connect(pid=7)
    assert again.ask(names[0]) == [refusal]
    bus.tick(1.0)
    assert again.ask(names[0]) == names[:1]
    assert bus.connect(pid=8).ask(b"CMSG name\0here/prog/8/x") == [b"CMSG name\0here/prog/8/x"]


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


def test_client_that_returns_at_once_leaves_no_gap():
    """Others would take the clock's microseconds in between for losses."""
    bus = Bus()
    for _ in range(3):
        client = bus.connect(*[b"MSG a\0"] * 5, pid=7)
        client.leave()
        bus.unix_us += 300_000
    assert bus.numbers_sent == list(range(CLOCK, CLOCK + 15))


def test_a_client_that_returns_later_begins_at_the_clock():
    bus = Bus()
    bus.connect(b"MSG a\0", pid=7).leave()
    bus.unix_us += 2 * JUMP
    bus.connect(b"MSG a\0", pid=7)
    assert bus.numbers_sent == [CLOCK, CLOCK + 2 * JUMP]


def test_client_taking_over_a_remote_name_is_heard_at_once():
    """A standby that connected earlier, or whose clock is behind, is neither stale nor replayed to others."""
    bus = Bus()
    standby = bus.connect(privileged=True)
    bus.hear(datagram(b"service/leader", CLOCK + 10**9, b"a"))
    standby.say(b"CMSG name\0service/leader", b"MSG a\0")
    assert bus.numbers_sent == [CLOCK + 10**9 + JUMP + 1]


def test_a_forged_number_does_not_use_up_those_of_a_client():
    bus = Bus()
    bus.hear(datagram(b"here/prog/7", 2**64 - 1, b"a"))
    bus.connect(b"MSG a\0", pid=7)
    assert bus.numbers_sent == [CLOCK]


def test_a_client_that_leaves_needs_no_collection():
    bus = Bus()
    publisher = bus.connect()
    gc.disable()
    try:
        client = bus.connect(b"SUB a", b"CMSG format\0full")
        client.stop_reading()
        publisher.say(*[b"MSG a\0%d" % number for number in range(5)])
        session = weakref.ref(client.session)
        client.leave()
        del bus.transport.senders[client.port], client
        publisher.say(b"MSG a\0later", b"MSG b\0other")
        assert session() is None
    finally:
        gc.enable()
