"""The relay as a whole: what it counts and reports, and what a reload changes for those connected."""

from typing import Any

import pytest

from bccnd.relay.options import Policy
from bccnd.relay.outbox import ENTRY_BYTES
from bccnd.wire.bccn1 import Integrity, Level
from tests.relay.fakes import CLOCK, Bus, datagram, options, value_of


def test_client_that_left_at_once_has_published_all():
    """Its own copies find nobody, but its messages count."""
    bus = Bus()
    reader = bus.connect(b"SUB a")
    client = bus.connect(b"SUB a")
    client.vanish()
    client.say(b"MSG a\0001", b"SUB b", b"MSG a\0002", b"CMSG ping", b"MSG a\0003")
    assert reader.heard() == [b"MSG a\0001", b"MSG a\0002", b"MSG a\0003"]
    assert bus.closed == {client.name: "gone"}


def test_the_next_number_is_above_all_that_were_used():
    bus = Bus()
    assert bus.relay.next_seq == 0
    bus.relay.state.names.begin_at(CLOCK + 1000)
    bus.connect(*[b"MSG a\0"] * 5, pid=7)
    assert bus.relay.next_seq == CLOCK + 1005
    bus.connect(*[b"MSG a\0"] * 50, pid=8).leave()
    assert bus.relay.next_seq == CLOCK + 1050
    assert max(bus.numbers_sent) == CLOCK + 1049


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


def test_shorter_queue_drops_by_its_policy_on_next_message():
    bus = Bus()
    slow, publisher = bus.connect(b"SUB a"), bus.connect()
    slow.stop_reading()
    publisher.say(*[b"MSG a\0%d" % number for number in range(10)])
    reconfigure(bus, queue_packets=3)
    publisher.say(b"MSG a\0" + b"10")
    assert slow.take() == [b"CMSG dropped\0" + b"8", b"MSG a\0" + b"8", b"MSG a\0" + b"9", b"MSG a\0" + b"10"]


@pytest.mark.parametrize("by", ["settings", "client"])
def test_client_that_stops_blocking_releases_publishers(by: str):
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
    reconfigure(bus, total_bytes=3 * (10 + ENTRY_BYTES))
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


def test_status():
    bus = Bus(integrity=Integrity([b"k" * 32], Level.HMAC))
    client, stuck = bus.connect(b"SUB a", b"SUB a"), bus.connect(b"SUB a", b"CMSG queue\0packets=2")
    stuck.stop_reading()
    client.say(*[b"MSG a\0x"] * 3, b"MSG nobody\0", b"MSG bad channel\0")
    bus.hear(
        datagram(b"x", 1, b"a", b"x", bus.integrity),
        datagram(b"x", 1, b"a", b"x", bus.integrity),
        datagram(b"x", 2, b"nobody", b"", bus.integrity),
        datagram(b"x", 3, b"a"),
        b"noise",
    )
    assert value_of(client.ask(b"CMSG status"), b"status") == {
        "src": "here/bccnd/0",
        "integrity": "hmac",
        "reorder": 0,
        "clients": 2,
        "subscriptions": 3,
        "watches": 0,
        "sources": 1,
        "queued": {"packets": 2, "bytes": 14},
        "counters": {
            "published": 4,
            "received": 5,
            "accepted": 2,
            "unwanted": 1,
            "errors": 1,
            "bridged": 0,
            "bridged_again": 0,
            "delivered": 6,
            "dropped": 2,
        },
        "slow": 1,
        "repair": {
            **dict.fromkeys(("requests", "asked", "heard", "resent", "refused", "gone", "repaired"), 0),
            "on": False,
            "numbers": 0,
            "given_up": 0,
            "held": {"messages": 0, "bytes": 0},
            "kept": {"sources": 0, "bytes": 0},
            "askers": [],
        },
        "retained": {"channels": 0, "bytes": 0},
        "rejected": {"duplicate": 1, "unauthenticated": 1, "magic": 1},
        "refused": {},
    }
